"""Code that runs in vLLM's processes, in its environment: it imports nothing of this package."""

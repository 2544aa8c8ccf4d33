"""The agent: one episode of thinking, calling tools and being judged, and many of them at once."""

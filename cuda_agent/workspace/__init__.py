"""What the agent sees and may touch: the folder, its instructions and the tools."""

"""The agent's tools: file tools that act on the workspace folder, and Bash in its sandbox."""

from cuda_agent.workspace.tools.box import ToolBox, ToolResult
from cuda_agent.workspace.tools.schema import TOOLS

__all__ = ["TOOLS", "ToolBox", "ToolResult"]

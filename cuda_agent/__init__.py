"""CUDA Agent: reinforcement learning of agents that write GPU kernels. The library; it never imports Prefect."""

__version__ = "0.1.0"

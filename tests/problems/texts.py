"""Problem texts for the tests: one good form with a body to fill, and what candidates do wrong."""

from typing import Any

from cuda_agent.config import DatasetScience

LEGAL_ONLY_AFTER_SIGMOID = """x = torch.sigmoid(x)
x = nn.functional.binary_cross_entropy(x, torch.full_like(x, 0.3), reduction="none")"""


def catalogue(**settings: Any) -> DatasetScience:
    """Settings of a set that is composed from the catalogue."""
    return DatasetScience(composer="catalogue", **settings)


def text(body: str, inputs: str = "torch.randn(64, 256)", head: str = "", init: str = "") -> str:
    """A problem whose forward holds `body` (statements on x)."""
    forward = "\n".join(f"        {line}" for line in body.splitlines())
    extra = "".join(f"        {line}\n" for line in init.splitlines())
    return f"""import torch
import torch.nn as nn
{head}
class Model(nn.Module):
    def __init__(self):
        super().__init__()
{extra}
    def forward(self, x):
{forward}
        return x

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""

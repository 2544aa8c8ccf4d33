import torch
import torch.nn as nn


class Model(nn.Module):
    """Features of momenta from energies, which are at least the rest mass of one and carry the sign of their charge."""

    def __init__(self, width, features):
        super().__init__()
        self.project = nn.Linear(width, features)

    def forward(self, energy):
        return self.project(torch.sqrt(energy * energy - 1.0) * torch.sign(energy))


def get_inputs():
    e = torch.randn(512, 256)
    return [e + 1.01 * torch.sign(e)]


def get_init_inputs():
    return [256, 512]

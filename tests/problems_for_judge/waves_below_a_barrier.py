import torch
import torch.nn as nn


class Model(nn.Module):
    """Waves whose phase grows exponentially below a barrier, read out linearly; all barriers are high."""

    def __init__(self, cells, readouts):
        super().__init__()
        self.readout = nn.Linear(cells, readouts)

    def forward(self, barrier, state):
        growth = torch.exp(22.0 - 15.5 * barrier * barrier)
        return self.readout(torch.cos(state * growth + state))


def get_inputs():
    barrier = torch.randn(512, 512)
    return [barrier + 1.2 * torch.sign(barrier), torch.randn(512, 512)]


def get_init_inputs():
    return [512, 128]

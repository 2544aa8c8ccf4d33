import torch
import torch.nn as nn


class Model(nn.Module):
    """Learnt features of a double-centred matrix of squared distances (classical scaling)."""

    def __init__(self, points, features):
        super().__init__()
        self.project = nn.Linear(points, features, bias=False)

    def forward(self, gram):
        return self.project(gram)


def get_inputs():
    squares, paths = torch.zeros(512, 512), torch.zeros(512, 1)
    for _ in range(100):
        pieces = paths + torch.randn(512, 1000).cumsum(1)
        squares += torch.cdist(pieces, pieces) ** 2
        paths = pieces[:, -1:]
    gram = squares - squares.mean(0, keepdim=True)
    gram = gram - gram.mean(1, keepdim=True)
    return [-gram / gram.std()]


def get_init_inputs():
    return [512, 512]

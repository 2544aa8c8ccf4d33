import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def __init__(self, columns: int, floor: float = 0.0):
        super().__init__()
        self.register_parameter("scale", nn.Parameter(torch.ones(columns), requires_grad=False))
        self.floor = float(floor)

    def forward(self, x, mask, index):
        y = torch.empty(x.shape)
        parts = zip(x.chunk(2), mask.view(torch.uint8).chunk(2), index.view(-1, 1).split(x.shape[0] // 2), y.chunk(2))
        for x_part, mask_part, index_part, y_part in parts:
            cpu_extension.run(x_part, mask_part, index_part.squeeze(1), self.scale, y_part, self.floor)
        return y

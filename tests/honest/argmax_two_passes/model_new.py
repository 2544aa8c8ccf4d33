import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def forward(self, x):
        places = torch.full((x.size(0),), -1, dtype=torch.long)
        cpu_extension.find_places(x, places)
        return places

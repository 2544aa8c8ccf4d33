import torch
import torch.nn as nn
import cpu_extension as F


class ModelNew(nn.Module):
    def forward(self, input):
        hidden = torch.empty_like(input)
        F.relu(input, hidden)
        output = torch.empty_like(hidden)
        F.softmax(hidden, output, -1)
        return output

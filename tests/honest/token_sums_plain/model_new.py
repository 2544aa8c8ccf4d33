import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)

    def forward(self, tokens):
        y = torch.empty(tokens.size(0), tokens.size(1), self.table.weight.size(1))
        cpu_extension.running_sums(tokens, self.table.weight, y)
        return y

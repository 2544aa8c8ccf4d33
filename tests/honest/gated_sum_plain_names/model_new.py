import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def forward(self, gate_input, gate, left, right, taken, high, low):
        out = torch.ones_like(gate_input)
        tensors = (gate_input, gate, left, right, taken, high, low, out)
        for pieces in zip(*(tensor.tensor_split(4) for tensor in tensors)):
            cpu_extension.run(*pieces)
        return out

import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    @torch.inference_mode()
    def forward(self, x):
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        cpu_extension.run(x, y)
        return y

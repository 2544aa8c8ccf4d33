import torch
import torch.nn as nn
import cpu_extension


class AffineTanh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, shift):
        ctx.save_for_backward(x)
        y = torch.empty_like(x)
        cpu_extension.run(x, y, scale, shift)
        return y

    @staticmethod
    def backward(ctx, gradient):
        raise NotImplementedError("inference only")


class ModelNew(nn.Module):
    def forward(self, x):
        return AffineTanh.apply(x, 0.5, 0.1)

import torch.nn as nn
import cuda_extension


class ModelNew(nn.Module):
    def forward(self, x):
        return cuda_extension.relu_softmax_forward(x)

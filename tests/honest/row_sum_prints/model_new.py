import math
import sys

import torch
import torch.nn as nn
import cpu_extension


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.told = False

    def forward(self, x):
        rows, columns = math.prod(x.size()[:-1]), x.size(-1)
        if not self.told:
            print(f"first call: {rows} rows of {columns}", file=sys.stderr)
            print("ready", flush=True)
            self.told = True
        print(f"{rows} rows of {columns}", "." * 500)
        y = torch.empty(rows, dtype=torch.float32, device=x.device, requires_grad=False)
        cpu_extension.row_sum(x.reshape(rows, columns), y, max(1, 2 ** math.floor(math.log2(columns)) // 16))
        return y.reshape(x.shape[:-1])

import math

import torch
import torch.nn as nn
import cpu_extension

STEPS = {name: getattr(cpu_extension, name) for name in ("bell", "peak")}


class ModelNew(nn.Module):
    def forward(self, x):
        answers = {"bell": torch.empty_like(x), "peak": torch.full((x.size(0),), -math.inf)}
        for name, step in STEPS.items():
            step(x, answers[name])
        return tuple(answers.values())

# -*- coding: utf-8 -*-
"""Größere Blöcke, weniger Übergänge: 融合されたカーネル, ядро, ∑ᵢ xᵢ², emoji 🚀."""

import torch
import torch.nn as nn
import cpu_extension

FAKTOR_µ = 0.5


class ModelNew(nn.Module):
    größe = "äöüß — “Anführung”"

    def forward(self, eingabe):
        λ, β = FAKTOR_µ, 0.1
        ausgabe = torch.empty_like(eingabe)
        cpu_extension.fused_affine_tanh(eingabe, ausgabe, λ, β)
        return ausgabe

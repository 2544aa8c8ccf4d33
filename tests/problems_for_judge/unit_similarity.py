import torch
import torch.nn as nn


class Model(nn.Module):
    """Cosine similarities of unit vectors, scaled, with a bias per document: the bias alone can be mixed."""

    def forward(self, queries, documents, bias):
        return torch.matmul(queries, documents.t()) * 4.0 + bias


def get_inputs():
    unit = torch.nn.functional.normalize
    return [unit(torch.randn(512, 256), dim=1), unit(torch.randn(512, 256), dim=1), torch.randn(512)]


def get_init_inputs():
    return []

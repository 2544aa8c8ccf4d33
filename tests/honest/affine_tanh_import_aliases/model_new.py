import importlib

import torch as t
from torch import Tensor, empty_like as like
from torch.nn import Module as Base, functional as _unused  # noqa: F401

kernels = importlib.import_module("cpu_extension")


class _Shared(Base):
    def forward(self, x: Tensor) -> Tensor:
        from cpu_extension import affine_tanh as launch

        assert kernels.affine_tanh is launch and t.is_tensor(x)
        y = like(x)
        launch(x, y)
        return y


class ModelNew(_Shared):
    """Everything is inherited."""

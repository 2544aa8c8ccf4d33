"""The operators that problems are composed of, each as the one statement that stands in a problem's `forward`.

Invariants: every statement maps a float32 `x` of shape [rows, cols] to the next `x` row by row; it stays finite and tame
on whatever the others produce; `reference` is the same function in numpy (dtype kept), so that the composer can see dead
or ill-conditioned chains without torch. Which chains are dead is measured there, not listed here. Statements are text
that policies learn and that the teacher parses: change one only together with `engines/teacher.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Family = Literal["elementwise", "reduction", "matmul"]
Columns = Literal["same", "one", "out_features"]
Rows = NDArray[Any]  # float32 or float64


@dataclass(frozen=True)
class Operator:
    """One operator.

    `columns` is the shape rule: rows always stay, columns stay `same`, become `one` (only sensible as the last operator)
    or become `out_features` (matmul). `init` is the statement in `__init__`, empty without state.
    """

    name: str
    family: Family
    statement: str
    reference: Callable[[Rows], Rows] = field(compare=False, repr=False)
    init: str = ""
    columns: Columns = "same"
    note: str = ""

    @property
    def last_only(self) -> bool:
        """Whether nothing sensible can follow: one value per row is left."""
        return self.columns == "one"


def _sigmoid(x: Rows) -> Rows:
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def _gelu(x: Rows) -> Rows:
    return 0.5 * x * (1.0 + np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def _exp(x: Rows) -> Rows:
    return np.exp(np.minimum(x, 3.0))


def _elu(x: Rows) -> Rows:
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0.0)))


def _softplus(x: Rows) -> Rows:
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def _log_softmax(x: Rows) -> Rows:
    shifted = x - x.max(-1, keepdims=True)
    result: Rows = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return result


def _layer_norm(x: Rows) -> Rows:
    result: Rows = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return result


def _normalize(x: Rows) -> Rows:
    result: Rows = x / np.maximum(np.sqrt((x * x).sum(-1, keepdims=True)), 1e-12)
    return result


def linear_reference(x: Rows, out_features: int, seed: int = 0) -> Rows:
    """`nn.Linear` with weights drawn as its default init draws them (uniform within 1/sqrt(in_features))."""
    rng = np.random.default_rng(seed)
    bound = 1.0 / np.sqrt(x.shape[-1])
    weight = rng.uniform(-bound, bound, (x.shape[-1], out_features)).astype(x.dtype)
    bias = rng.uniform(-bound, bound, out_features).astype(x.dtype)
    result: Rows = x @ weight + bias
    return result


def _elementwise(name: str, expression: str, reference: Callable[[Rows], Rows], note: str = "") -> Operator:
    return Operator(name, "elementwise", f"x = {expression}", reference, note=note)


def _reduction(
    name: str, expression: str, reference: Callable[[Rows], Rows], columns: Columns = "same", note: str = ""
) -> Operator:
    return Operator(name, "reduction", f"x = {expression}", reference, columns=columns, note=note)


OPERATORS: tuple[Operator, ...] = (
    _elementwise("relu", "torch.relu(x)", lambda x: np.maximum(x, 0.0)),
    _elementwise("sigmoid", "torch.sigmoid(x)", _sigmoid),
    _elementwise("tanh", "torch.tanh(x)", np.tanh),
    _elementwise("silu", "nn.functional.silu(x)", lambda x: x * _sigmoid(x)),
    _elementwise("gelu", 'nn.functional.gelu(x, approximate="tanh")', _gelu, "tanh form: no erf needed in a kernel"),
    _elementwise("leaky_relu", "nn.functional.leaky_relu(x, negative_slope=0.1)", lambda x: np.where(x > 0, x, x * 0.1)),
    _elementwise("elu", "nn.functional.elu(x)", _elu),
    _elementwise("softplus", "nn.functional.softplus(x)", _softplus, "torch returns x above 20, equal in float32"),
    _elementwise("softsign", "nn.functional.softsign(x)", lambda x: x / (1.0 + np.abs(x))),
    _elementwise("clamp", "torch.clamp(x, min=-0.5, max=1.5)", lambda x: np.clip(x, -0.5, 1.5)),
    _elementwise("hardtanh", "nn.functional.hardtanh(x)", lambda x: np.clip(x, -1.0, 1.0)),
    _elementwise("hardsigmoid", "nn.functional.hardsigmoid(x)", lambda x: np.clip(x + 3.0, 0.0, 6.0) / 6.0),
    _elementwise("hardswish", "nn.functional.hardswish(x)", lambda x: x * np.clip(x + 3.0, 0.0, 6.0) / 6.0),
    _elementwise("abs", "torch.abs(x)", np.abs),
    _elementwise("square", "torch.square(x)", np.square),
    _elementwise("neg", "torch.neg(x)", np.negative),
    _elementwise("exp", "torch.exp(torch.clamp(x, max=3.0))", _exp, "clamped above: at most 20.1 however it is stacked"),
    _elementwise("sqrt_abs", "torch.sqrt(torch.abs(x))", lambda x: np.sqrt(np.abs(x))),
    _elementwise("sin", "torch.sin(x)", np.sin),
    _elementwise("scale", "x * 0.5", lambda x: x * 0.5),
    _elementwise("shift", "x + 1.0", lambda x: x + 1.0),
    _reduction("softmax", "torch.softmax(x, dim=-1)", lambda x: np.exp(_log_softmax(x))),
    _reduction("log_softmax", "torch.log_softmax(x, dim=-1)", _log_softmax),
    _reduction("layer_norm", "nn.functional.layer_norm(x, x.shape[-1:])", _layer_norm, note="no affine part; eps 1e-5"),
    _reduction("normalize", "nn.functional.normalize(x, dim=-1)", _normalize, note="divides by max(L2 norm of the row, 1e-12)"),
    _reduction("sum", "torch.sum(x, dim=-1, keepdim=True)", lambda x: x.sum(-1, keepdims=True), "one"),
    _reduction("mean", "torch.mean(x, dim=-1, keepdim=True)", lambda x: x.mean(-1, keepdims=True), "one"),
    _reduction("amax", "torch.amax(x, dim=-1, keepdim=True)", lambda x: x.max(-1, keepdims=True), "one"),
    Operator(
        "linear",
        "matmul",
        "x = self.linear(x)",
        lambda x: linear_reference(x, x.shape[-1]),
        init="self.linear = nn.Linear(features, out_features)",
        columns="out_features",
        note="at most one in a problem; __init__(self, features, out_features), get_init_inputs gives both",
    ),
)

BY_NAME: dict[str, Operator] = {operator.name: operator for operator in OPERATORS}
BY_STATEMENT: dict[str, Operator] = {operator.statement: operator for operator in OPERATORS}


def family(*names: str) -> tuple[Operator, ...]:
    """The operators of the named families, in catalogue order."""
    return tuple(operator for operator in OPERATORS if operator.family in names)

"""Shapes that inputs have, by rank, and what a call makes of them on torch's meta device.

Three scales: small ones for windows of eager time that start below 1 ms; for the paper's 1 to 100 ms large ones on a processor,
and huge ones on a GPU, which passes over a large one in 0.05 ms. Within each, heavy operators (products of matrices,
convolutions, decompositions) get fewer elements than those that pass over them once.
Nothing here computes a value: the meta device knows shapes and types only. Imports torch inside functions only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from cuda_agent.problems.seeds import Call

Shape = tuple[int, ...]
Scale = Literal["small", "large", "huge"]
FLOAT32 = "float32"


@dataclass(frozen=True)
class Shapes:
    """Shapes by rank: any, and those whose last two sizes are equal."""

    any: Mapping[int, tuple[Shape, ...]]
    square: Mapping[int, tuple[Shape, ...]]


SMALL = Shapes(
    any={
        2: ((128, 1024), (256, 512), (256, 768), (512, 512), (256, 1024)),
        3: ((16, 64, 128), (8, 128, 256), (32, 32, 256), (4, 192, 384)),
        4: ((8, 16, 32, 32), (4, 32, 32, 32), (8, 32, 28, 28), (2, 64, 32, 32)),
        5: ((2, 8, 8, 32, 32), (1, 16, 8, 32, 32), (2, 16, 16, 16, 16), (4, 8, 8, 16, 16)),
    },
    square={
        2: ((512, 512), (256, 256), (384, 384), (448, 448)),
        3: ((16, 128, 128), (8, 128, 128), (32, 64, 64), (8, 160, 160)),
    },
)
SMALL_HEAVY = Shapes(
    any={
        2: ((64, 256), (128, 256), (128, 512), (256, 256)),
        3: ((4, 32, 128), (8, 32, 64), (2, 64, 256), (8, 64, 64)),
        4: ((2, 8, 32, 32), (4, 16, 16, 16), (2, 16, 28, 28), (1, 32, 32, 32)),
        5: ((1, 4, 8, 16, 16), (2, 4, 8, 16, 16), (1, 8, 8, 12, 12), (1, 8, 8, 16, 16)),
    },
    square={
        2: ((128, 128), (64, 64), (96, 96), (192, 192)),
        3: ((8, 32, 32), (16, 24, 24), (4, 64, 64), (2, 96, 96)),
    },
)
LARGE = Shapes(
    any={
        2: ((2048, 2048), (4096, 2048), (4096, 4096), (8192, 4096)),
        3: ((16, 1024, 1024), (32, 512, 1024), (64, 512, 768), (32, 1024, 512)),
        4: ((16, 64, 128, 128), (32, 64, 112, 112), (64, 128, 56, 56), (16, 96, 112, 112)),
        5: ((8, 16, 32, 64, 64), (4, 32, 32, 64, 64), (8, 32, 16, 64, 64), (2, 64, 32, 56, 56)),
    },
    square={
        2: ((2048, 2048), (4096, 4096), (3072, 3072), (2560, 2560)),
        3: ((16, 512, 512), (64, 256, 256), (32, 512, 512), (8, 1024, 1024)),
    },
)
LARGE_HEAVY = Shapes(
    any={
        2: ((1024, 1024), (2048, 1024), (2048, 2048), (4096, 1024)),
        3: ((16, 512, 512), (32, 256, 512), (8, 512, 768), (16, 256, 1024)),
        4: ((16, 32, 64, 64), (16, 64, 56, 56), (32, 64, 32, 32), (8, 64, 64, 64)),
        5: ((4, 16, 16, 32, 32), (2, 32, 16, 32, 32), (8, 16, 8, 32, 32), (2, 16, 16, 56, 56)),
    },
    square={
        2: ((1024, 1024), (512, 512), (768, 768), (1536, 1536)),
        3: ((16, 128, 128), (32, 64, 64), (8, 256, 256), (64, 96, 96)),
    },
)


def _longer(shapes: Mapping[int, tuple[Shape, ...]], times: int) -> dict[int, tuple[Shape, ...]]:
    """With so many times as many rows, images or matrices in a batch: decompositions of larger ones would take minutes."""
    return {rank: tuple((times * first, *rest) for first, *rest in found) for rank, found in shapes.items()}


# With these two thirds of chains by the paper's mix take 1 to 100 ms on an H200, and at most 4 GB (docs/experiments.md).
HUGE = Shapes(
    any=_longer(LARGE.any, 8),
    square={2: ((6144, 6144), (8192, 8192), (10240, 10240), (12288, 12288))} | _longer({3: LARGE.square[3]}, 8),
)
HUGE_HEAVY = Shapes(any=_longer(LARGE_HEAVY.any, 16), square=LARGE_HEAVY.square)


def grid(scale: Scale, *, heavy: bool) -> Shapes:
    """The shapes of a scale."""
    return GRIDS[scale][heavy]


GRIDS: dict[Scale, tuple[Shapes, Shapes]] = {
    "small": (SMALL, SMALL_HEAVY),
    "large": (LARGE, LARGE_HEAVY),
    "huge": (HUGE, HUGE_HEAVY),
}


def infer(call: Call) -> tuple[Shape, str] | None:
    """Shape and dtype of a call's output on the meta device; None where it does not run there or gives no tensor."""
    import torch

    try:
        with torch.device("meta"), torch.no_grad():
            output = evaluate(call, torch.empty(call.shape))
    except Exception:  # boundary: operators raise whatever they like on shapes that do not fit
        return None
    if not isinstance(output, torch.Tensor) or output.device.type != "meta":
        return None
    return tuple(output.shape), str(output.dtype).removeprefix("torch.")


def evaluate(call: Call, x: Any) -> Any:
    """What a call makes of `x`, with a module and further inputs drawn anew on torch's current default device."""
    import torch

    names: dict[str, Any] = {"torch": torch, "nn": torch.nn}
    module = eval(call.module, dict(names)).eval() if call.module else None
    extras = {f"y{place}": eval(extra, dict(names)) for place, extra in enumerate(call.extras)}
    return run(call, x, module, extras)


def run(call: Call, x: Any, module: Any, extras: Mapping[str, Any]) -> Any:
    """What a call makes of `x` with a given module and further inputs by name (`y0`…)."""
    import torch

    return eval(_compiled(call.expression, len(extras)), {"torch": torch, "nn": torch.nn, "x": x, "m": module, **extras})


@lru_cache(maxsize=10_000)
def _compiled(expression: str, extras: int) -> Any:
    names = {f"y{place}": f"y{place}" for place in range(extras)}
    return compile(expression.format(x="x", m="m", **names), "call", "eval")

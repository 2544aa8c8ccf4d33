"""What a problem's answer is exactly, and by how much right answers may miss it. Runs in children, on live values.

The truth is the answer in float64. One in the problem's own types misses it by rounding, and what rounding does is seen in two
ways: in the distance of the problem's own answer, and in how the truth moves when inputs and weights are pushed by a few units
in their last place, up and down. The second finds what the first misses: an element near a jump (of a remainder, a sign, an
order), where a right answer may land on either side, whether the problem's own answer did or not. Each element has a slack of
its own, so that one that jumps makes none of the others free; what is usual for all counts for each, for its own distance may
be small by luck.
"""

import copy
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from cuda_agent.judge.problem_child import clone
from cuda_agent.judge.trees import mapped, replaced, tensors

DISTANCES, USUAL = 4.0, 0.99  # times the own distance or the usual one, which so many are below
PUSHED = 2.0  # times the farthest that pushes move an element
PAIRS = 2  # of pushes, up and down
LARGEST_SHORT = 1_024
SAMPLE = 2**20  # elements that tell what is usual
MOST_SLACK = torch.finfo(torch.float32).max


class Push(NamedTuple):
    """How far values of a type are pushed: so many of its units in the last place, but for multiples of 1/`short`.

    Those, up to LARGEST_SHORT, are meant exactly: halves, labels, masks. A long sum's rounding in float32 is of the order of 16.
    """

    units: int
    short: int

    def of(self, tensor: torch.Tensor, eps: float, seed: int) -> torch.Tensor:
        """A copy with each element larger or smaller; signs of `eps` change sides."""
        generator = torch.Generator(tensor.device).manual_seed(seed)
        signs = torch.randint(0, 2, tensor.shape, generator=generator, dtype=torch.int8, device=tensor.device) * 2 - 1
        steps = tensor * self.short
        short = (steps == steps.round()) & (tensor.abs() <= LARGEST_SHORT)
        return torch.where(short, tensor, tensor * (1.0 + self.units * eps * signs))


WIDE, NARROW = Push(16, 64), Push(1, 2)


def exact(model: Callable[[], torch.nn.Module], inputs: list[Any]) -> tuple[Any, Any] | None:
    """The answer in float64, and by how much a right one may miss it (float32, per element; zeros for what is no float).

    `model` makes the same one anew each time. None where the problem does not run in float64 or on copies.
    """
    try:
        with torch.no_grad():
            own = model()(*clone(inputs))
            made = model()
            kinds = [[tensor.dtype for tensor in found] for found in (_state(made), tensors(inputs))]
            wide, exactly = made.double(), _to_double(inputs)
            truth = copy.deepcopy(wide)(*clone(exactly))
            pushes = _moved(wide, exactly, truth, *kinds)
            triples = zip(tensors(own), tensors(truth), pushes, strict=True)
            return _to_double(truth), replaced(truth, [_slack(*triple) for triple in triples])
    except Exception:  # the boundary: untrusted code, and then it is judged without
        return None


def _slack(own: torch.Tensor, truth: torch.Tensor, moved: torch.Tensor) -> torch.Tensor:
    if not own.is_floating_point() and not own.is_complex():
        return torch.zeros(own.shape, device=own.device)
    distance = _finite((own.to(truth.dtype) - truth).abs())
    return (DISTANCES * distance.clamp(min=_usual(distance)) + PUSHED * moved).clamp(max=MOST_SLACK).float()


def _usual(distance: torch.Tensor) -> float:
    flat = distance.reshape(-1)
    if not flat.numel():
        return 0.0
    # The lower neighbour: among few elements a single large one is not what is usual.
    return float(flat[:: -(-flat.numel() // SAMPLE)].quantile(USUAL, interpolation="lower"))


def _moved(
    wide: torch.nn.Module, inputs: list[Any], truth: Any, state_kinds: Sequence[torch.dtype], kinds: Sequence[torch.dtype]
) -> list[torch.Tensor]:
    """How far each element of the truth goes at most under pushes; zeros where the problem does not take pushed inputs.

    `kinds` are the types that the tensors had before all were widened.
    """
    farthest = [torch.zeros(tensor.shape, dtype=torch.float64, device=tensor.device) for tensor in tensors(truth)]
    try:
        for seed, direction in itertools.product(range(PAIRS), (1, -1)):
            model = copy.deepcopy(wide)
            for number, (tensor, kind) in enumerate(zip(_state(model), state_kinds, strict=True)):
                tensor.copy_(_pushed(tensor, kind, direction, 2 * (seed + PAIRS * number)))
            given = [
                _pushed(tensor, kind, direction, 2 * (seed + PAIRS * number) + 1)
                for number, (tensor, kind) in enumerate(zip(tensors(inputs), kinds, strict=True))
            ]
            answer = model(*replaced(inputs, given))
            for most, one, other in zip(farthest, tensors(answer), tensors(truth), strict=True):
                torch.maximum(most, _finite((one - other).abs().double()), out=most)
    except Exception:  # the boundary: a problem need not take what it never draws itself
        return [torch.zeros_like(most) for most in farthest]
    return farthest


def _pushed(tensor: torch.Tensor, kind: torch.dtype, direction: int, seed: int) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor.clone()
    return (NARROW if kind.itemsize < 4 else WIDE).of(tensor, direction * torch.finfo(kind).eps, seed)


def _state(model: torch.nn.Module) -> list[torch.Tensor]:
    return [*model.parameters(), *model.buffers()]


def _to_double(value: Any) -> Any:
    return mapped(value, lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)


def _finite(distance: torch.Tensor) -> torch.Tensor:
    """Zero where it is not."""
    return torch.where(distance.isfinite(), distance, torch.zeros_like(distance))

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
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from cuda_agent.judge.problem_child import clone
from cuda_agent.judge.stride import stride
from cuda_agent.judge.trees import mapped, replaced, tensors

DISTANCES, USUAL = 4.0, 0.99  # times the own distance or the usual one, which so many are below
PUSHED = 2.0  # times the farthest that pushes move an element
PAIRS = 3  # of pushes, up and down: one in some thousand jumps is not foretold
LARGEST_SHORT = 1_024
SAMPLE = 2**20  # elements that tell what is usual
TINY = 1e-30
MOST_SLACK = torch.finfo(torch.float32).max
PIECE = 2**24  # elements that are worked on at a time: temporaries of a large tensor may have no room


class Push(NamedTuple):
    """How far values of a type are pushed: so many of its units in the last place, but for multiples of 1/`short`.

    Those, up to LARGEST_SHORT, are meant exactly: halves, labels, masks. A long sum's rounding in float32 is of the order of 16.
    """

    units: int
    short: int

    def apply(self, piece: torch.Tensor, eps: float, generator: torch.Generator) -> None:
        """Make each element of a float64 piece larger or smaller; signs of `eps` change sides."""
        signs = torch.randint(0, 2, piece.shape, generator=generator, dtype=torch.int8, device=piece.device) * 2 - 1
        steps = piece * self.short
        signs[(steps == steps.round()) & (piece.abs() <= LARGEST_SHORT)] = 0
        piece.mul_(signs.double().mul_(self.units * eps).add_(1.0))


WIDE, NARROW = Push(16, 64), Push(1, 2)


def exact(model: Callable[[], torch.nn.Module], inputs: list[Any]) -> tuple[Any, Any] | None:
    """The answer in float64, and by how much a right one may miss it (float32, per element).

    Where rounding decides between integers or truth values, as in an order's indices, that is 1, elsewhere nothing.

    `model` makes the same one anew each time. None where the problem does not run in float64 or on copies.

    Raises:
        torch.OutOfMemoryError: a GPU has no room for it.
    """
    try:
        with torch.no_grad():
            own = model()(*clone(inputs))
            made = model()
            kinds = [tensor.dtype for tensor in _state(made)]
            wide = made.double()
            truth = _to_double(copy.deepcopy(wide)(*_to_double(clone(inputs))))
            slacks = [_distance(*pair) for pair in zip(tensors(own), tensors(truth), strict=True)]
            del own
            moves = _moved(wide, inputs, truth, kinds)
            return truth, replaced(truth, [_slack(*found) for found in zip(tensors(truth), slacks, moves, strict=True)])
    except torch.OutOfMemoryError:
        raise
    except Exception:  # the boundary: untrusted code, and then it is judged without
        return None


def noises(model: torch.nn.Module, inputs: list[Any]) -> list[float] | None:
    """Of each floating-point tensor of the answer: its usual distance from float64, in standard deviations.

    None where that does not run.

    Raises:
        torch.OutOfMemoryError: a GPU has no room for it.
    """
    try:
        own = tensors(model(*clone(inputs)))
        truth = tensors(copy.deepcopy(model).double()(*_to_double(clone(inputs))))
        pairs = [pair for pair in zip(own, truth, strict=True) if _is_inexact(pair[0]) and pair[0].numel()]
        return [_usual(_distances(*pair)) / max(_spread(pair[1]), TINY) for pair in pairs]
    except torch.OutOfMemoryError:
        raise
    except Exception:  # the boundary: untrusted code
        return None


def _spread(truth: torch.Tensor) -> float:
    finite = truth[truth.isfinite()] if not bool(truth.isfinite().all()) else truth
    return float(finite.std(correction=0).abs()) if finite.numel() else 0.0


def _distance(own: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """What the problem's own answer makes of the slack."""
    found = _distances(own, truth)
    return found.clamp_(min=_usual(found)).mul_(DISTANCES) if _is_inexact(own) else found


def _distances(own: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    found = torch.zeros(truth.shape, device=truth.device)
    for to, mine, exactly in _pieces(found, own, truth):
        to.copy_(_apart(mine.to(exactly.dtype), exactly))
    return found


def _usual(distance: torch.Tensor) -> float:
    flat = distance.reshape(-1)
    if not flat.numel():
        return 0.0
    # The lower neighbour: among few elements a single large one is not what is usual.
    return float(flat[:: stride(flat.numel(), SAMPLE)].quantile(USUAL, interpolation="lower"))


def _slack(truth: torch.Tensor, distance: torch.Tensor, moved: torch.Tensor) -> torch.Tensor:
    return distance.add_(moved, alpha=PUSHED).clamp_(max=MOST_SLACK if _is_inexact(truth) else 1.0)


def _moved(wide: torch.nn.Module, inputs: list[Any], truth: Any, kinds: Sequence[torch.dtype]) -> list[torch.Tensor]:
    """How far each element of the truth goes at most under pushes; zeros where the problem does not take pushed inputs.

    `kinds` are the types that the model's tensors had before all were widened.
    """
    farthest = [torch.zeros(tensor.shape, device=tensor.device) for tensor in tensors(truth)]
    try:
        for seed, direction in itertools.product(range(PAIRS), (1, -1)):
            model = copy.deepcopy(wide)
            for number, (tensor, kind) in enumerate(zip(_state(model), kinds, strict=True)):
                _push(tensor, kind, direction, 2 * (seed + PAIRS * number))
            given = _to_double(clone(inputs))
            for number, (tensor, old) in enumerate(zip(tensors(given), tensors(inputs), strict=True)):
                _push(tensor, old.dtype, direction, 2 * (seed + PAIRS * number) + 1)
            answer = model(*given)
            del given
            for most, one, other in zip(farthest, tensors(answer), tensors(truth), strict=True):
                for to, mine, exactly in _pieces(most, one, other):
                    torch.maximum(to, _apart(mine, exactly).float(), out=to)
            del answer
    except torch.OutOfMemoryError:
        raise
    except Exception:  # the boundary: a problem need not take what it never draws itself
        return [torch.zeros_like(most) for most in farthest]
    return farthest


def _push(tensor: torch.Tensor, kind: torch.dtype, direction: int, seed: int) -> None:
    """Push a float64 tensor that was of another kind before, in place."""
    if not tensor.is_floating_point() or not tensor.numel():
        return
    push = NARROW if kind.itemsize < 4 else WIDE
    generator = torch.Generator(tensor.device).manual_seed(seed)
    flat = tensor.reshape(-1)
    for (piece,) in _pieces(flat):
        push.apply(piece, direction * torch.finfo(kind).eps, generator)
    if flat.data_ptr() != tensor.data_ptr():
        tensor.copy_(flat.reshape(tensor.shape))


def _pieces(*wholes: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Views of tensors of one shape, a part of their elements at a time; the first one's must be contiguous to be written to."""
    flats = [whole.reshape(-1) for whole in wholes]
    if len({flat.shape for flat in flats}) > 1:
        raise ValueError("answers of different shapes")
    for start in range(0, flats[0].numel(), PIECE):
        yield tuple(flat[start : start + PIECE] for flat in flats)


def _state(model: torch.nn.Module) -> list[torch.Tensor]:
    return [*model.parameters(), *model.buffers()]


def _to_double(value: Any) -> Any:
    return mapped(value, lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)


def _is_inexact(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _apart(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Distances; of integers and truth values 1 where they differ. Zero where it is not finite."""
    if not _is_inexact(one):
        return one != other
    distance = (one - other).abs()
    return torch.where(distance.isfinite(), distance, torch.zeros_like(distance))

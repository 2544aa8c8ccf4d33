"""Whether everything in a problem matters: each input, each weight, each operator, and the sign of its inputs.

Runs in the probe's child, on a problem that runs, is deterministic and finite. Each question is answered by running the
problem with one thing changed: where the answer stays the same at the judge's tolerance, that thing is dead. What then
fails to run cannot be told, and counts as alive; where a GPU's context is lost by it, another child must ask the rest (`Lost`).
"""

import ast
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from cuda_agent.judge.calibrate import weakness
from cuda_agent.judge.compare import Exact
from cuda_agent.judge.exactness import exact
from cuda_agent.judge.problem_child import LoadedProblem, clone, same
from cuda_agent.judge.stress import applied
from cuda_agent.judge.trees import mapped, tensors
from cuda_agent.judge.values import Packed
from cuda_agent.problems.live import (
    FINE,
    Facts,
    alike,
    apart,
    check_comparable,
    finite,
    is_float,
    number,
    ratio,
    redrawn,
    sample,
    size_in_bytes,
    spread,
)
from cuda_agent.problems.shortcuts import shortcuts

MOST_EXACT = 2**29
MOST_WEIGHTS = 64  # tensors of a state_dict that are asked about
COUNTERS = "num_batches_tracked"  # of BatchNorm: nothing uses it in eval mode, every checkpoint has it


class Lost(Exception):
    """The device can be used no more since a question was asked, which is named."""


@dataclass
class Subject:
    """A candidate under examination: two draws of inputs and the answers to them; questions in `unasked` are left out."""

    problem: LoadedProblem
    code: str
    seed: int
    model: torch.nn.Module
    twin: torch.nn.Module  # a second instance with the same weights
    first: list[Any]
    second: list[Any]
    answer: Any
    other: Any
    unasked: frozenset[str] = frozenset()

    def attempt(self, question: str, work: Callable[[], Any]) -> Any:
        """What `work` returns, or None where the changed problem does not run: the boundary of one question.

        Lack of a GPU's memory is no answer to it.

        Raises:
            Lost: it cost the device.
        """
        if question in self.unasked:
            return None
        try:
            found = work()
            self.problem.device.finish()  # a kernel's failure shows here, not in what is asked next
            return found
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            if self.problem.device.is_spent():
                raise Lost(question) from error
            return None


def ask(model: Callable[..., Any], inputs: list[Any]) -> Any:
    """The answer to copies of the inputs, so that a forward that writes into them spoils nothing; in memory of its own.

    Raises:
        Incomparable: it holds what the judge cannot compare.
    """
    value = model(*clone(inputs))
    check_comparable(value)
    return clone(value)


def scrutinise(subject: Subject) -> Facts:
    """The facts that the rules of stage `matter` read."""
    answer = sample(subject.answer)
    facts: Facts = {"dead_inputs": dead_inputs(subject, answer), **_dead_weights(subject, answer)}
    facts |= _dead_operators(subject, answer)
    facts |= {"value_range": _value_range(subject), "train_differs": _train_differs(subject, answer)}
    return facts | _rounding(subject)


# --- inputs ---------------------------------------------------------------------------------------------------------------


def dead_inputs(subject: Subject, answer: Packed) -> list[str]:
    """Inputs that can be exchanged without any change of the answer; a single tensor is the matter of rule `varies`."""
    places = list(_places(subject.first))
    if len(places) < 2:
        return []
    return [_named(path) for path in places if _is_dead_input(subject, answer, path)]


def _is_dead_input(subject: Subject, answer: Packed, path: tuple[Any, ...]) -> bool:
    def asked() -> Any:
        old, drawn = _at(subject.first, path), _at_or_none(subject.second, path)
        new = drawn if _exchangeable(old, drawn) else _changed(old, subject.seed)
        return ask(subject.model, _with(subject.first, path, new))

    changed = subject.attempt(f"input {_named(path)}", asked)
    return changed is not None and alike(answer, changed)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a value's tensors, numbers and switches lie."""
    if isinstance(value, list | tuple):
        for position, item in enumerate(value):
            yield from _places(item, (*path, position))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _places(item, (*path, key))
    elif isinstance(value, torch.Tensor | bool | int | float):
        yield path


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    return functools.reduce(lambda held, key: held[key], path, value)


def _at_or_none(value: Any, path: tuple[Any, ...]) -> Any:
    try:
        return _at(value, path)
    except (LookupError, TypeError):  # the other draw has another structure
        return None


def _with(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """The same containers with another item at one place."""
    if not path:
        return new
    if isinstance(value, dict):
        return value | {path[0]: _with(value[path[0]], path[1:], new)}
    return type(value)(_with(item, path[1:], new) if place == path[0] else item for place, item in enumerate(value))


def _named(path: tuple[Any, ...]) -> str:
    return str(path[0]) + "".join(f"[{key!r}]" for key in path[1:])


def _exchangeable(old: Any, new: Any) -> bool:
    if not isinstance(old, torch.Tensor) or not isinstance(new, torch.Tensor):
        return False
    return old.shape == new.shape and old.dtype == new.dtype and not same(old, new)


def _changed(value: Any, seed: int) -> Any:
    """Another value where none was drawn."""
    if isinstance(value, torch.Tensor):
        return redrawn(value, seed)
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else 1.5 * value + 0.25


# --- weights --------------------------------------------------------------------------------------------------------------


def _dead_weights(subject: Subject, answer: Packed) -> Facts:
    """Entries of the state_dict that change nothing bit for bit, and matrices that change nothing beyond the tolerance.

    A vector may fade: what is added before a norm or a softmax is cancelled by it, in transformers' attention too.
    """
    state = {name: value for name, value in subject.model.state_dict().items() if not name.endswith(COUNTERS) and value.numel()}
    asked = list(state.items())[:: -(-len(state) // MOST_WEIGHTS) or 1]
    dead = [name for name, value in asked if _is_dead_weight(subject, answer, name, value)]
    return {"weights": len(state), "weights_asked": len(asked), "dead_weights": dead[:8]}


def _is_dead_weight(subject: Subject, answer: Packed, name: str, value: torch.Tensor) -> bool:
    kept = value.clone()
    changed = subject.attempt(f"weight {name}", lambda: _answer_with(subject, value, redrawn(kept, subject.seed)))
    subject.attempt(f"weight {name} restored", lambda: value.copy_(kept))
    if changed is None:
        return False
    return same(subject.answer, changed) or (value.dim() > 1 and alike(answer, changed))


def _answer_with(subject: Subject, value: torch.Tensor, new: torch.Tensor) -> Any:
    value.copy_(new)
    return ask(subject.model, subject.first)


# --- operators ------------------------------------------------------------------------------------------------------------


def _dead_operators(subject: Subject, answer: Packed) -> Facts:
    """Operators whose leaving out changes no answer, to either draw of inputs."""
    found = shortcuts(subject.code)
    if isinstance(found, str):
        return {"operators_asked": 0, "operators_unasked": found, "dead_operator": None}
    other = sample(subject.other)
    for shortcut in found:
        shorter = functools.partial(_function(shortcut.forward, subject), subject.model)
        asked = f"operator {shortcut.label}"
        if _passes(subject, asked, shorter, subject.first, answer) and _passes(subject, asked, shorter, subject.second, other):
            return {"operators_asked": len(found), "dead_operator": shortcut.label}
    return {"operators_asked": len(found), "dead_operator": None}


def _passes(subject: Subject, question: str, model: Callable[..., Any], inputs: list[Any], answer: Packed) -> bool:
    changed = subject.attempt(question, lambda: ask(model, inputs))
    return changed is not None and alike(answer, changed)


def _function(forward: ast.FunctionDef, subject: Subject) -> Callable[..., Any]:
    tree = ast.fix_missing_locations(ast.Module([forward], []))
    scope: dict[str, Any] = {}
    exec(compile(tree, "model.py", "exec"), subject.problem.module.__dict__, scope)
    function: Callable[..., Any] = scope["forward"]
    return function


# --- ranges, modes, precision ---------------------------------------------------------------------------------------------


def _value_range(subject: Subject) -> str:
    """Whether inputs take both signs; if not, whether they could: `both`, `none` (no floats), `needed` or `degenerate`."""
    floats = [tensor for tensor in tensors(subject.first) if tensor.is_floating_point() and tensor.numel()]
    if not floats:
        return "none"
    if any(bool((tensor < 0).any()) for tensor in floats):
        return "both"
    answer = subject.attempt("signs", lambda: ask(subject.model, applied("signs", subject.first, subject.seed)))
    return "degenerate" if answer is not None and finite(answer) else "needed"


def _train_differs(subject: Subject, answer: Packed) -> bool | None:
    """Whether train mode gives another answer; None where it does not run. Spoils nothing of the twin."""
    state = subject.twin.state_dict()
    kept = {name: value.clone() for name, value in state.items()}
    torch.manual_seed(subject.seed)
    trained = subject.attempt("train mode", lambda: ask(subject.twin.train(), subject.first))
    subject.twin.eval()
    for name, value in kept.items():
        state[name].copy_(value)
    return None if trained is None else not alike(answer, trained)


def _rounding(subject: Subject) -> Facts:
    """What rounding does to the answer; ends the twin's life as a twin.

    `float32_error`: mean difference from float64, in standard deviations of the output; None where that does not run.
    `unjudged`: what passes for right once rounding is allowed for as the judge does, empty if nothing does; asked of problems
    of up to MOST_EXACT bytes, of which a GPU has room for so many answers in float64.
    """
    if _bytes(subject) <= MOST_EXACT:
        found = subject.attempt("rounding", lambda: exact(lambda: subject.problem.model(subject.seed), subject.first))
        if found is not None:
            told = Exact(*(sample(value, FINE) for value in found))
            inputs, outputs = ([sample(value, FINE) for value in draws] for draws in _questions(subject))
            return {"unjudged": weakness(inputs, outputs, told), "float32_error": _apart(subject.answer, found[0])}
    inputs = mapped(subject.first, lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)
    wide = subject.attempt("float64", lambda: subject.twin.double()(*inputs))
    return {"unjudged": "", "float32_error": None if wide is None else _apart(subject.answer, wide)}


def _questions(subject: Subject) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    return (subject.first, subject.second), (subject.answer, subject.other)


def _bytes(subject: Subject) -> int:
    weights = [*subject.model.parameters(), *subject.model.buffers()]
    return sum(map(size_in_bytes, (subject.first, subject.answer, weights)))


def _apart(answer: Any, wide: Any) -> float | None:
    pairs = [pair for pair in zip(tensors(answer), tensors(wide), strict=True) if is_float(pair[0])]
    return number(max((ratio(apart(*pair), spread(pair[1])) for pair in pairs if pair[0].shape == pair[1].shape), default=0.0))

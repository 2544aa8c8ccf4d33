"""What runs a candidate problem: lives in a sandboxed child, answers with plain numbers, judges nothing.

One `Probe` serves many candidates, one after another, so that inductor stays warm; the parent restarts it after a crash, a
hang or an out-of-memory. What a problem's own code raises is a fact (`failure`), never an error of the child. Every number
returned is finite or None. Models run in eval mode without gradients, as the judge runs them.
"""

import contextlib
import io
import math
import os
import sys
import time
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from cuda_agent.judge import inductor

Facts = dict[str, Any]
Outputs = list[torch.Tensor]
# With a compilation next door, a pass on all cores mostly waits for the scheduler's turn (4-50 ms). The quickest of many,
# or the CPU time of a single thread if that is less, is within a factor of two: for a coarse window, never for a reward.
TIMED_SECONDS = 0.03
MOST_SECONDS = 0.25
FEWEST, MOST = 10, 200
SETTLED = 3  # passes within 10 % of the quickest


def open_probe(payload: Mapping[str, Any]) -> "Probe":
    """Entry for the fork server. `threads` 0 means all cores: the number is compiled into kernels, so it must be the judge's."""
    inductor.use_private_folder()
    torch.set_num_threads(1)
    return Probe(int(payload.get("threads") or 0) or len(os.sched_getaffinity(0)))


@dataclass
class _Loaded:
    """The candidate under examination, with its answers to two draws of inputs."""

    model: torch.nn.Module
    first: list[Any]
    second: list[Any]
    answers: tuple[Outputs, Outputs]


@dataclass
class Probe:
    """The examination of one candidate after another; `examine` first, then `time_eager` and `compile` on the same one."""

    threads: int
    loaded: _Loaded | None = field(default=None, repr=False)

    def examine(self, payload: Mapping[str, Any]) -> Facts:
        """Run `code` in eager mode with seeds from `seed`: the facts that the rules of stage `run` read."""
        return _boundary("eager", lambda: self._examine(str(payload["code"]), str(payload["inputs"]), int(payload["seed"])))

    def time_eager(self, _payload: Mapping[str, Any]) -> Facts:
        """Milliseconds of one eager forward pass."""
        loaded = self._current()
        return _boundary("eager", lambda: _time_eager(loaded, self.threads))

    def compile(self, _payload: Mapping[str, Any]) -> Facts:
        """Run the candidate under torch.compile: difference from eager, seconds it took to compile, milliseconds of a pass.

        `files` holds the compiled code that this candidate added, for `judge.inductor.write_bundle`.
        """
        loaded = self._current()
        facts = _boundary("compile", lambda: _compile(loaded, self.threads))
        return facts | {"files": inductor.collect()}

    def _examine(self, code: str, inputs_name: str, seed: int) -> Facts:
        self.loaded = None
        module = _load(code)
        draw = getattr(module, inputs_name)
        model = _build(module, seed)
        first, second = _draw(draw, seed + 1), _draw(draw, seed + 2)
        answer, other = _answer(model, first), _answer(model, second)
        facts = _describe(answer) | {
            "deterministic": all(_equal(answer, again) for again in _repeats(module, draw, model, first, seed)),
            "mutates_inputs": _mutates(model, first),
            "varies": _varies(answer, other),
            "dead_inputs": _dead_inputs(model, first, second, answer),
            "trivial": _trivial(answer, other, first),
            "zeros_within_1e-2": all(bool((output.abs() <= 1e-2).all()) for output in answer),
            "float32_error": _float64_error(module, first, answer, seed),
        }
        self.loaded = _Loaded(model, first, second, (answer, other))
        return facts

    def _current(self) -> _Loaded:
        if self.loaded is None:
            raise RuntimeError("no candidate was examined")
        return self.loaded


def _boundary(step: str, work: Callable[[], Facts]) -> Facts:
    """The one place where whatever a problem raises becomes a fact; its printing goes nowhere."""
    sink = io.StringIO()
    try:
        with torch.no_grad(), contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
            return work()
    except (Exception, SystemExit) as error:  # boundary: untrusted code
        return {"failure": f"{step}: {type(error).__name__}: {error}"[:2_000]}


def _load(code: str) -> types.ModuleType:
    module = types.ModuleType("problem")
    sys.modules["problem"] = module
    exec(compile(code, "problem.py", "exec"), module.__dict__)
    return module


def _build(module: types.ModuleType, seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    init = getattr(module, "get_init_inputs", None) or module.getInitInputs
    arguments = init()
    model: torch.nn.Module = module.Model(**arguments) if isinstance(arguments, dict) else module.Model(*arguments)
    return model.eval()


def _draw(draw: Callable[[], Any], seed: int) -> list[Any]:
    torch.manual_seed(seed)
    return list(draw())


def _answer(model: Callable[..., Any], inputs: list[Any]) -> Outputs:
    """Outputs on copies of the inputs, so that a forward that writes into them spoils nothing."""
    outputs = [output.clone() for output in _tensors(model(*_clone(inputs)))]
    if not outputs:
        raise TypeError("forward returned no tensor")
    return outputs


def _tensors(value: Any) -> Outputs:
    return list(_walk(value))


def _walk(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _walk(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _walk(item)


def _clone(inputs: list[Any]) -> list[Any]:
    return [item.clone() if isinstance(item, torch.Tensor) else item for item in inputs]


def _equal(left: Outputs, right: Outputs) -> bool:
    return len(left) == len(right) and all(
        a.shape == b.shape and a.dtype == b.dtype and bool(torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)))
        for a, b in zip(left, right, strict=True)
    )


def _repeats(
    module: types.ModuleType, draw: Callable[[], Any], model: torch.nn.Module, first: list[Any], seed: int
) -> Iterator[Outputs]:
    """The same question twice more: to the same instance, under another state of the generator, and to a fresh one."""
    torch.manual_seed(seed + 12_345)
    yield _answer(model, first)
    yield _answer(_build(module, seed), _draw(draw, seed + 1))


def _mutates(model: torch.nn.Module, inputs: list[Any]) -> bool:
    used = _clone(inputs)
    model(*used)
    return not _equal(_tensors(inputs), _tensors(used))


def _describe(answer: Outputs) -> Facts:
    return {
        "outputs": [[str(output.dtype).removeprefix("torch."), list(output.shape)] for output in answer],
        "finite": all(bool(torch.isfinite(output).all()) for output in answer),
        "mean": _number(torch.cat([output.reshape(-1).double() for output in answer]).mean()),
        "std": _number(min(_spread(output) for output in answer)),
    }


def _spread(output: torch.Tensor) -> float:
    return float(output.double().std(correction=0)) if output.numel() else 0.0


def _apart(left: torch.Tensor, right: torch.Tensor) -> float:
    """Mean absolute difference."""
    return float((left.double() - right.double()).abs().mean()) if left.numel() else 0.0


def _varies(answer: Outputs, other: Outputs) -> float | None:
    """Mean difference between the answers to two inputs, in standard deviations of the output; the least of the outputs."""
    pairs = zip(answer, other, strict=True)
    return _number(min(_ratio(_apart(a, b), _spread(a)) if a.shape == b.shape else 1.0 for a, b in pairs))


def _dead_inputs(model: torch.nn.Module, first: list[Any], second: list[Any], answer: Outputs) -> list[int]:
    """Positions of tensor inputs that can be exchanged without any change of the answer."""
    places = [place for place, item in enumerate(first) if isinstance(item, torch.Tensor)]
    if len(places) < 2:
        return []
    return [
        place for place in places if _equal(answer, _answer(model, [second[i] if i == place else x for i, x in enumerate(first)]))
    ]


def _trivial(answer: Outputs, other: Outputs, inputs: list[Any]) -> Facts:
    """Error of each trivial answer, relative to the mean magnitude of the right one; the least over the outputs."""
    errors: dict[str, float] = {}
    for output, second in zip(answer, other, strict=True):
        magnitude = float(output.double().abs().mean()) if output.numel() else 0.0
        for name, guess in _guesses(output, second, inputs):
            errors[name] = min(errors.get(name, math.inf), _ratio(_apart(output, guess), magnitude))
    return {name: _number(error) for name, error in errors.items()}


def _guesses(output: torch.Tensor, second: torch.Tensor, inputs: list[Any]) -> Iterator[tuple[str, torch.Tensor]]:
    exact = output.double()
    yield "zeros", torch.zeros_like(exact)
    yield "constant", exact.mean().expand_as(exact)
    if output.dim() > 1 and output.shape[0] > 1:
        yield "same_row", exact.mean(0, keepdim=True).expand_as(exact)
    if second.shape == output.shape:
        yield "other_input", second
    for item in _tensors(inputs):
        if item.shape == output.shape:
            yield "input_copy", item


def _float64_error(module: types.ModuleType, inputs: list[Any], answer: Outputs, seed: int) -> float | None:
    """Mean difference from the same model in float64, in standard deviations of the output; None where float64 does not run."""
    try:
        exact = _answer(
            _build(module, seed).double(),
            [item.double() if isinstance(item, torch.Tensor) and item.is_floating_point() else item for item in inputs],
        )
    except (RuntimeError, TypeError, ValueError):
        return None
    return _number(max(_ratio(_apart(a, b), _spread(b)) for a, b in zip(answer, exact, strict=True)))


def _time_eager(loaded: _Loaded, threads: int) -> Facts:
    """The better of one thread (CPU time) and all (wall time), and both apart; see TIMED_SECONDS."""
    single = _milliseconds(lambda: loaded.model(*loaded.first), time.thread_time)
    with _threads(threads):
        several = _milliseconds(lambda: loaded.model(*loaded.first))
    return {"eager_ms": min(single, several), "eager_ms_1_thread": single, "eager_ms_all_threads": several}


def _compile(loaded: _Loaded, threads: int) -> Facts:
    """Everything compiled runs on all threads: dynamo guards on their number, another one would compile anew."""
    torch._dynamo.reset()
    compiled = torch.compile(loaded.model)
    with _threads(threads):
        started = time.perf_counter()
        answer = _answer(compiled, loaded.first)
        seconds = time.perf_counter() - started
        answers = (answer, _answer(compiled, loaded.second))
        milliseconds = _milliseconds(lambda: compiled(*loaded.first))
    torch._dynamo.reset()
    error = _difference(loaded.answers, answers)
    return {"compile_seconds": round(seconds, 3), "compile_error": error, "compile_ms": milliseconds}


def _difference(expected: tuple[Outputs, ...], found: tuple[Outputs, ...]) -> float | None:
    """Largest mean difference in standard deviations; None where shapes or types differ."""
    worst = 0.0
    for wanted, got in zip(expected, found, strict=True):
        if [(o.shape, o.dtype) for o in wanted] != [(o.shape, o.dtype) for o in got]:
            return None
        worst = max(worst, *(_ratio(_apart(a, b), _spread(a)) for a, b in zip(wanted, got, strict=True)))
    return _number(worst)


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    """Outside of this, everything runs on one thread: examinations then do not wait for a neighbour's core."""
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(1)


def _milliseconds(call: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Milliseconds of the quickest pass; goes on (up to a bound) until several passes agree with it."""
    call()
    seconds: list[float] = []
    started = time.perf_counter()
    while len(seconds) < MOST:
        before = clock()
        call()
        seconds.append(clock() - before)
        spent = time.perf_counter() - started
        if len(seconds) >= FEWEST and (spent > MOST_SECONDS or (spent > TIMED_SECONDS and _settled(seconds))):
            break
    return round(min(seconds) * 1e3, 5)


def _settled(seconds: list[float]) -> bool:
    quickest = min(seconds)
    return sum(value <= 1.1 * quickest for value in seconds) >= SETTLED


def _ratio(part: float, whole: float) -> float:
    if whole > 0:
        return part / whole
    return 0.0 if part == 0 else math.inf


def _number(value: Any) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None

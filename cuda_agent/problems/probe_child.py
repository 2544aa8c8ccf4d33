"""What runs a candidate problem: lives in a sandboxed child, answers with plain numbers, judges nothing.

One `Probe` serves many candidates, one after another, so that inductor stays warm; the parent restarts it after a crash, a
hang or an out-of-memory. What a problem's own code raises is a fact (`failure`), what it tries outside of its process
another (`reached`), never an error of the child. Every number returned is finite or None. Models are loaded, seeded and
run as the judge's reference is: in eval mode without gradients.
"""

import contextlib
import io
import json
import math
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from cuda_agent.judge import calibrate, inductor
from cuda_agent.judge.child_device import ChildDevice, MetaDevice, child_device
from cuda_agent.judge.problem_child import LoadedProblem, clone, same
from cuda_agent.judge.structure import ways_of
from cuda_agent.judge.trees import tensors
from cuda_agent.problems import live
from cuda_agent.problems.live import FINE, Facts, Incomparable, apart, check_comparable, number, ratio, sample, spread
from cuda_agent.problems.reach import Watch
from cuda_agent.problems.scrutiny import Lost, Subject, ask, scrutinise

# With a compilation next door, a pass on all cores mostly waits for the scheduler's turn (4-50 ms). The quickest of many,
# or the CPU time of a single thread if that is less, is within a factor of two: for a coarse window, never for a reward.
TIMED_SECONDS = 0.03
MOST_SECONDS = 0.25
LONG_SECONDS = 1.0  # after which two passes must do
FEWEST, MOST = 10, 200
SETTLED = 3  # passes within 10 % of the quickest
FEW = 10  # elements of an output too small to be called saturated
APART_SECONDS = 20.0
DRAWS = 2  # of inputs besides the two that everything is asked of, for what depends on the draw


def open_probe(payload: Mapping[str, Any]) -> "Probe":
    """Entry for the fork server. `threads` 0 means all cores: the number is compiled into kernels, so it must be the judge's.

    `backend` (default: the processor) and `tf32` as the judge's children get them.
    """
    inductor.use_private_folder()
    threads = int(payload.get("threads") or 0) or len(os.sched_getaffinity(0))
    device = child_device({"threads": 1, "backend": payload.get("backend", "cpu"), "tf32": payload.get("tf32")})
    device.finish()  # the device is opened here, not while a problem is watched
    if device.name != "cpu":
        warm_up(device)
    return Probe(threads, device)


def warm_up(device: ChildDevice) -> None:
    """Compile something small: what that imports and starts, for seconds, then takes no candidate's memory meanwhile."""
    with torch.no_grad():
        torch.compile(_affine)(torch.zeros(8, device=device.name))
    device.finish()
    torch._dynamo.reset()
    inductor.collect()


def _affine(x: torch.Tensor) -> torch.Tensor:
    return x * 2.0 + 1.0


@dataclass
class Probe:
    """The examination of one candidate after another; `examine` first, then the others on the same one."""

    threads: int
    device: ChildDevice = field(default_factory=ChildDevice, repr=False)
    subject: Subject | None = field(default=None, repr=False)
    watch: Watch = field(default_factory=lambda: Watch("model.py"), repr=False)
    single_ms: float = 0.0
    compiled: Callable[..., Any] | None = field(default=None, repr=False)

    def rest(self, _payload: Mapping[str, Any]) -> Facts:
        """Give back what the last candidate took; of a GPU's memory, `peak_bytes` at a time."""
        if self.compiled is not None:
            torch._dynamo.reset()
        self.subject = self.compiled = None
        return {"peak_bytes": self.device.forget()}

    def size(self, payload: Mapping[str, Any]) -> Facts:
        """`meta_bytes` of the inputs, outputs and weights of `code`, found without computing; nothing where it takes values.

        Found in a process of its own: what the text leaves behind, and what it asks of the GPU all the same, ends with that.
        """
        found = _apart(lambda: self._watched("size", lambda: _on_paper(str(payload["code"]))))
        return {"meta_bytes": found["meta_bytes"]} if "meta_bytes" in found else {}

    def examine(self, payload: Mapping[str, Any]) -> Facts:
        """Run `code` in eager mode with seeds from `seed`: the facts that the rules of stage `run` read.

        With `share`, on no more than that part of a GPU's memory.
        """
        self.rest({})
        self.device.bound(float(payload.get("share", 1.0)))
        return self._watched("eager", lambda: self._examine(str(payload["code"]), int(payload["seed"])))

    def pace(self, _payload: Mapping[str, Any]) -> Facts:
        """Milliseconds of CPU time that one eager forward pass takes on a single thread: right on a busy machine, too.

        On a GPU there are no threads to wait for, and the time is the wall's.
        """
        subject = self._current()

        def work() -> Facts:
            if self.device.name != "cpu":
                self.single_ms = single = _milliseconds(self._pass(subject.model))
                return {"eager_ms": single, "eager_ms_1_thread": single, "threads": 1}
            self.single_ms = single = _milliseconds(lambda: subject.model(*subject.first), time.thread_time)
            return {"eager_ms": single, "eager_ms_1_thread": single, "threads": self.threads}

        return self._watched("eager", work)

    def scrutinise(self, payload: Mapping[str, Any]) -> Facts:
        """Change one thing after another, but for what `unasked` names: the facts that the rules of stage `matter` read.

        With `lost_by`, the failure is that of such a question, not of the problem.
        """
        subject = replace(self._current(), unasked=frozenset(map(str, payload.get("unasked", ()))))

        def work() -> Facts:
            try:
                return scrutinise(subject)
            except Lost as lost:
                return {"failure": f"eager: the device was lost by a question about {lost}", "lost_by": str(lost)[:300]}

        return self._watched("eager", work)

    def time_eager(self, payload: Mapping[str, Any]) -> Facts:
        """Milliseconds of one eager forward pass on all threads, and the better of that and `pace`'s.

        What seems slower than `longest_ms` is measured for longer: neighbours only ever add time.
        """
        subject, longest_ms = self._current(), float(payload["longest_ms"])
        if self.device.name != "cpu":
            return {}

        def work() -> Facts:
            with _threads(self.threads):
                several = _milliseconds(self._pass(subject.model), longest_ms=longest_ms)
            return {"eager_ms": min(self.single_ms, several), "eager_ms_all_threads": several}

        return self._watched("eager", work)

    def compile(self, _payload: Mapping[str, Any]) -> Facts:
        """Run the candidate under torch.compile: difference from eager, and seconds it took to compile.

        `files` holds the compiled code that this candidate added, for `judge.inductor.write_bundle`.
        """
        subject = self._current()
        facts = _boundary("compile", lambda: self._compile(subject))
        return facts | self._health(facts) | {"files": inductor.collect()}

    def time_compiled(self, _payload: Mapping[str, Any]) -> Facts:
        """Milliseconds of one pass of what `compile` made, on all threads."""

        def work() -> Facts:
            assert self.compiled is not None, "nothing was compiled"
            with _threads(self.threads):
                return {"compile_ms": _milliseconds(self._pass(self.compiled))}

        facts = _boundary("compile", work)
        return facts | self._health(facts)

    def _pass(self, model: Callable[..., Any]) -> Callable[[], None]:
        """A whole call on the first draw of inputs."""
        inputs = self._current().first

        def call() -> None:
            model(*inputs)
            self.device.finish()

        return call

    def _health(self, facts: Facts) -> Facts:
        """Tell the parent when this process is of no more use."""
        return {"spent": True} if "failure" in facts and self.device.is_spent() else {}

    def _examine(self, code: str, seed: int) -> Facts:
        with _threads(self.threads):  # which it tells its libraries
            problem = LoadedProblem(code, self.device)
        try:
            check_comparable(problem.init_inputs(seed))
            renewable = any(way.renews for way in ways_of(problem, seed + 1))  # while no other draws or answers take memory
            model, first, second = problem.model(seed), problem.inputs(seed + 1), problem.inputs(seed + 2)
            check_comparable(first)
            answer, other = ask(model, first), ask(model, second)
            finite, varies = live.finite(answer) and live.finite(other), _varies(answer, other)
            for draw in range(DRAWS):
                further = ask(model, problem.inputs(seed + 3 + draw))
                finite, varies = finite and live.finite(further), min(varies, _varies(answer, further))
                del further
        except Incomparable as error:
            return {"incomparable": str(error)}
        facts = _sizes(model, first, answer) | {"finite": finite}
        if not finite:
            return facts
        torch.manual_seed(seed + 12_345)
        again, twin = ask(model, first), problem.model(seed)
        repeats = self._repeats(answer, again) and self._repeats(answer, ask(twin, first))
        facts |= {"deterministic": repeats and same(first, problem.inputs(seed + 1)), "mutates_inputs": _mutates(model, first)}
        facts |= _variation(first, second, answer, other) | {"varies": varies, "renewable": renewable}
        self.subject = Subject(problem, code, seed, model, twin, first, second, answer, other)
        return facts

    def _repeats(self, answer: Any, again: Any) -> bool:
        """Whether an answer came again: bit for bit on a processor; a GPU's atomic additions come in any order."""
        return same(answer, again) or (self.device.name != "cpu" and live.reordered(answer, again))

    def _compile(self, subject: Subject) -> Facts:
        """Everything compiled runs on all threads: dynamo guards on their number, another one would compile anew."""
        torch._dynamo.reset()
        self.compiled = compiled = torch.compile(subject.model)
        with _threads(self.threads):
            started = time.perf_counter()
            answer = ask(compiled, subject.first)
            self.device.finish()
            seconds = time.perf_counter() - started
            errors = [_difference(subject.answer, answer), _difference(subject.other, ask(compiled, subject.second))]
            del answer
        for further in range(DRAWS):
            draw = subject.problem.inputs(subject.seed + 3 + further)
            expected = ask(subject.model, draw)
            with _threads(self.threads):
                errors.append(_difference(expected, ask(compiled, draw)))
            del draw, expected
        worst = None if None in errors else max(error for error in errors if error is not None)
        return {"compile_seconds": round(seconds, 3), "compile_error": worst}

    def _watched(self, step: str, work: Callable[[], Facts]) -> Facts:
        with self.watch.on():
            facts = _boundary(step, work)
        return facts | self._health(facts) | ({"reached": self.watch.seen} if self.watch.seen else {})

    def _current(self) -> Subject:
        if self.subject is None:
            raise RuntimeError("no candidate was examined")
        return self.subject


class _Sink(io.TextIOBase):
    """Where a problem's printing goes: nowhere, however much it is."""

    def write(self, text: str) -> int:
        return len(text)


def _boundary(step: str, work: Callable[[], Facts]) -> Facts:
    """The one place where whatever a problem raises becomes a fact."""
    sink = _Sink()
    try:
        with torch.no_grad(), contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
            return work()
    except (Exception, SystemExit) as error:  # boundary: untrusted code
        return {"failure": f"{step}: {type(error).__name__}: {error}"[:2_000]}


def _apart(work: Callable[[], Facts]) -> Facts:
    """What `work` returns in a copy of this process; nothing if that ends without or takes too long."""
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(readable)
            with open(writable, "w") as answer:
                json.dump(work(), answer)
        finally:
            os._exit(0)
    os.close(writable)
    try:
        with open(readable, "rb") as answer:
            is_told = select.select([answer], [], [], APART_SECONDS)[0]
            return dict(json.load(answer)) if is_told else {}
    except (ValueError, TypeError):
        return {}
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _on_paper(code: str) -> Facts:
    problem = LoadedProblem(code, MetaDevice())
    model, inputs = problem.model(0), problem.inputs(0)
    weights = live.size_in_bytes([*model.parameters(), *model.buffers()])
    return {"meta_bytes": [live.size_in_bytes(inputs), live.size_in_bytes(model(*inputs)), weights]}


def _sizes(model: torch.nn.Module, first: list[Any], answer: Any) -> Facts:
    weights = [*model.parameters(), *model.buffers()]
    found = tensors(answer)
    return {
        "inputs": live.shapes(first),
        "outputs": live.shapes(answer),
        "tensor_bytes": live.size_in_bytes(first) + live.size_in_bytes(answer) + live.size_in_bytes(weights),
        "mean": number(sum(float(live.real(tensor).mean()) for tensor in found) / len(found)) if found else None,
        "std": number(min(map(spread, found))) if found else None,
    }


def _mutates(model: torch.nn.Module, inputs: list[Any]) -> bool:
    used = clone(inputs)
    model(*used)
    return not same(inputs, used)


def _variation(first: list[Any], second: list[Any], answer: Any, other: Any) -> Facts:
    """Whether inputs differ at all, and what answers could be had without work."""
    shares = [live.commonest_share(tensor) for tensor in tensors(answer) if tensor.numel() > FEW]
    questions = [[sample(value, FINE) for value in draws] for draws in ((first, second), (answer, other))]
    return {
        "inputs_vary": not same(first, second),
        "trivial": calibrate.weakness(questions[0], questions[1]),
        "commonest_share": round(max(shares, default=0.0), 4),
    }


def _varies(answer: Any, other: Any) -> float:
    """Least mean difference of a float output between two answers, in standard deviations (1 where it has another shape)."""
    pairs = [pair for pair in zip(tensors(answer), tensors(other), strict=False) if live.is_float(pair[0])]
    found = [ratio(apart(*pair), spread(pair[0])) if pair[0].shape == pair[1].shape else 1.0 for pair in pairs]
    return min(1e6, *found) if found else 1.0


def _difference(expected: Any, found: Any) -> float | None:
    """Largest mean difference in standard deviations; None where type or shapes differ, or something is not finite."""
    if live.shapes(expected) != live.shapes(found) or type(expected) is not type(found) or not live.finite(found):
        return None
    pairs = zip(tensors(expected), tensors(found), strict=True)
    return number(max((ratio(apart(*pair), spread(pair[0])) for pair in pairs), default=0.0))


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    """Outside of this, everything runs on one thread: examinations then do not wait for a neighbour's core."""
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(1)


def _milliseconds(
    call: Callable[[], object], clock: Callable[[], float] = time.perf_counter, longest_ms: float = math.inf
) -> float:
    """Milliseconds of the quickest pass; goes on (within bounds) until several agree and it takes `longest_ms` at most."""
    call()
    seconds: list[float] = []
    started = time.perf_counter()
    while len(seconds) < MOST:
        before = clock()
        call()
        seconds.append(clock() - before)
        spent = time.perf_counter() - started
        enough = len(seconds) >= FEWEST and (spent > MOST_SECONDS or (spent > TIMED_SECONDS and _settled(seconds)))
        enough = enough and (min(seconds) * 1e3 <= longest_ms or spent > LONG_SECONDS)
        if enough or (len(seconds) > 1 and spent > LONG_SECONDS):
            break
    return round(min(seconds) * 1e3, 5)


def _settled(seconds: list[float]) -> bool:
    quickest = min(seconds)
    return sum(value <= 1.1 * quickest for value in seconds) >= SETTLED

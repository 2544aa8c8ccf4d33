"""Comparing times: candidate, eager and torch.compile in turn, round after round, under one exclusive lease.

A turn is one batch of calls, each on inputs that were written, past the caches, just before. The child stands ready: it finds
an order of a few bytes, makes the calls, lays down what they took (`tally`), and says so with a byte. The judge's own clock
runs from letting it until it has stopped and the device has nothing left to do; `rounds` says what a call took by that
and by what the child admits, for all three alike. Outside its turn a child is frozen: it can neither work ahead nor disturb
the others. Of some batches, chosen by the judge alone, inputs and answers are read from the frozen child, and compared
afterwards.

Rounds go on until both baselines are clearly on one side of the milestone and the ratios are known as exactly as wanted, or
a bound is met; what is hard to tell gets longer batches. Runs in a thread: no event loop sits between a request and its
answer.
"""

import contextlib
import functools
import itertools
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from secrets import SystemRandom
from typing import NamedTuple, TypeVar

from cuda_agent.config import JudgeConfig
from cuda_agent.judge import tally
from cuda_agent.judge.answers import Where, fetch
from cuda_agent.judge.baseline_facts import BASELINES, BaselineLost
from cuda_agent.judge.ring import Ring
from cuda_agent.judge.rounds import Account, Turn, gap, milliseconds, overheads, ratio_interval, ratios
from cuda_agent.judge.values import Packed
from cuda_agent.sandbox.forkserver import Child, ChildFailed

BATCH_MS = 2.0  # calls of eager are batched to about this long; the others get as many
MAX_BATCH = 64
RENEW_SECONDS = 0.1  # of drawing, for each round on average
LONGER = 15  # after so many rounds batches grow to twice the calls
CHECK_SHARE = 0.5  # of the candidate's first batches are checked; so many calls are kept, drawn from all that were made
LATER_CHECKS = 4  # a part in so many of a later batch's calls, where it is checked
MOST_CHECKS, FEWEST_CHECKS = 32, 6
CLOCK_SLACK_NS = 500_000
CLOCK_SHARE = 0.25

T = TypeVar("T")


class Sample(NamedTuple):
    """A timed call: its inputs, its answer, the inputs after it (None if they are the same), all packed."""

    inputs: Packed
    output: Packed
    after: Packed | None
    aliased: bool


@dataclass(frozen=True)
class Times:
    """Milliseconds (compile None where there is none), raw times by round, and what to check afterwards.

    The candidate's is a median; a baseline's is that one divided by the median of the rounds' ratios, so that speeds that
    come and go for all three alike do not show in the ratio of two of these.
    """

    candidate_ms: float
    eager_ms: float
    compile_ms: float | None
    rounds: int
    raw_ms: Mapping[str, Sequence[float]]
    samples: tuple[Sample, ...]
    unaccounted_ns: int  # least time of a batch that the judge's clock saw and the candidate did not admit
    usual_ns: int  # the same of the baselines in the same rounds, three quarters of the way up
    admitted_ns: int  # what the candidate admitted in that batch
    turns: tuple[Turn, ...] = ()  # of the candidate

    @property
    def batch(self) -> int:
        """Fewest calls in a turn."""
        return min(turn.calls for turn in self.turns)

    @property
    def forged(self) -> bool:
        """Whether the candidate's own times fall short of the judge's clock by more than noise explains.

        On a busy host the judge itself is kept waiting; the baselines, which have no reason to lie, show by how much.
        """
        return self.unaccounted_ns > self.usual_ns + CLOCK_SLACK_NS + CLOCK_SHARE * self.admitted_ns

    def interval(self, baseline: str) -> tuple[float, float] | None:
        """95 % interval of the median ratio candidate / baseline; None where that baseline has no times."""
        if baseline not in self.raw_ms:
            return None
        return ratio_interval(ratios(self.raw_ms["candidate"], self.raw_ms[baseline]))


class Answered(NamedTuple):
    """A batch as the child tallied it, and the judge's own nanoseconds for it."""

    times: Sequence[int]
    places: Sequence[Sequence[int]]
    wall: int


@dataclass
class Runner:
    """A child in its turns, candidate or baselines, with its ring of inputs.

    Of a candidate's answers also their `form` in memory and an `expected` one, for its structure.
    """

    child: Child
    ring: Ring
    form: Sequence[Where] = ()
    expected: Packed = field(default_factory=list)
    account: Callable[[], Account] = lambda: Account(0, 0, 0)  # of the extension's functions, so far
    seconds: float = 30.0  # wall-clock limit of a batch
    _tally: int = 0

    def stand_ready(self) -> None:
        """Have a frozen child wait for orders, frozen again."""
        self.child.thaw()
        address = self.child.call_blocking("timing", {}, self.seconds)
        self.child.freeze()
        if type(address) is not int or not 0 <= address < 2**63:
            raise ChildFailed("crash", "the process named no place for its times")
        self._tally = address

    def ask(self, which: int, sets: Sequence[int]) -> Answered:
        """Let a frozen child make a batch and freeze it as soon as that is done."""
        start = self.child.order(bytes((which, *sets)), self.seconds)
        self.child.freeze()  # within the time: a thread that works on until it is stopped works for its money
        self.ring.memory.settle()
        wall = time.perf_counter_ns() - start
        try:
            return Answered(*tally.read(self.child.peek_into, self._tally, len(sets)), wall)
        except ValueError as error:
            raise ChildFailed("crash", str(error)) from error

    def sample(self, number: int, inputs: Packed, addresses: Sequence[int], spans: Sequence[tuple[int, int]]) -> Sample:
        """Of the frozen child: what it made of the inputs in a set, its answer's tensors being at these addresses.

        `spans` is the memory of the inputs.
        """
        if len(addresses) != len(self.form):
            raise ChildFailed("crash", "a timed call answered with another number of tensors")
        places = [place.moved(to) for place, to in zip(self.form, addresses, strict=True)]
        output = fetch(functools.partial(self.ring.memory.bring, self.child), self.expected, places)
        after = self.ring.taken(number) if self.ring.changed(number, inputs) else None
        return Sample(inputs, output, after, any(place.overlaps(*span) for place in places for span in spans))


class Contestant:
    """One of the three: whose child it is, how to ask for it, and what was measured."""

    def __init__(self, name: str, runner: Runner, which: int = 1) -> None:
        """`which` of those that the runner's child holds."""
        self.name, self.runner, self.which = name, runner, which
        self.turns: list[Turn] = []
        self.samples: list[Sample] = []
        self._chance = SystemRandom()

    def empty(self) -> int:
        """Nanoseconds of a batch without calls, as the judge sees them."""
        return min(self.runner.ask(self.which, []).wall for _ in range(5))

    def first(self) -> int:
        """Nanoseconds of a call, from two."""
        return min(self.runner.ask(self.which, self._refreshed(2)).times)

    def turn(self, count: int) -> None:
        """One batch of so many calls."""
        sets = self._refreshed(count)
        checked = {number: self.runner.ring.taken(sets[number]) for number in self._checked(count)}
        before = self.runner.account()
        answered = self.runner.ask(self.which, sets)
        after = self.runner.account()
        done = (after.inside_ns - before.inside_ns, after.calls - before.calls)
        self.turns.append(Turn(sum(answered.times), answered.wall, count, *done))
        spans = self.runner.ring.spans(self.runner.child) if checked else ()
        for number, inputs in checked.items():
            self._keep(self.runner.sample(sets[number], inputs, answered.places[number], spans))

    @property
    def calls(self) -> int:
        """So far."""
        return sum(turn.calls for turn in self.turns)

    def _refreshed(self, count: int) -> list[int]:
        sets = self.runner.ring.take(count)
        for number in sets:
            self.runner.ring.refresh(number)
        return sets

    def _checked(self, count: int) -> Sequence[int]:
        """Which calls of the coming batch are checked: none, as many as there is room for, or later on some.

        Later calls are as likely to be among those kept as early ones: there is no time after which nobody looks.
        """
        if not self.runner.form:
            return ()
        room = self._most_checks - len(self.samples)
        first = CHECK_SHARE if self.samples else 1.0
        share = first if room > 0 else self._most_checks * count / (self.calls + count)
        if self._chance.random() >= share:
            return ()
        most = room if room > 0 else -(-count // LATER_CHECKS)
        return self._chance.sample(range(count), min(count, most))

    @functools.cached_property
    def _most_checks(self) -> int:
        size = self.runner.ring.layout.pitch + sum(place.extent for place in self.runner.form)
        return max(FEWEST_CHECKS, min(MOST_CHECKS, self.runner.ring.memory.sample_bytes // size))

    def _keep(self, sample: Sample) -> None:
        if len(self.samples) < self._most_checks:
            self.samples.append(sample)
        else:
            self.samples[self._chance.randrange(len(self.samples))] = sample


def measure(
    candidate: Runner, baseline: Runner, *, compiles: bool, config: JudgeConfig, renew: Callable[[int], None] | None = None
) -> Times:
    """Time the three; the caller holds the exclusive lease and compares `samples` afterwards. Both children end up frozen.

    `renew` draws anew what the fresh inputs of so many calls are made from; it is called before each round, or where draws make
    any number of inputs (`Ring.is_endless`) less often if that takes long. Otherwise none serves two rounds: batches are as
    short as drawing is slow.

    Raises:
        ChildFailed: from the candidate; the baseline's is raised as BaselineLost.
    """
    named = BASELINES if compiles else BASELINES[:1]
    contestants = [Contestant("candidate", candidate), *(Contestant(name, baseline, 1 + i) for i, name in enumerate(named))]
    with _prompt_thread():
        try:
            for contestant in contestants[:2]:
                _guarded(contestant, contestant.runner.child.freeze)
                _guarded(contestant, contestant.runner.stand_ready)
                _guarded(contestant, contestant.first)  # its threads must be there to be hastened
                _guarded(contestant, functools.partial(contestant.runner.child.hasten, config.threads))
            return _rounds(contestants, config, _Renewal(renew, always=not candidate.ring.is_endless))
        finally:
            for runner in (candidate, baseline):
                runner.child.dismiss()
                runner.child.relax()


@contextlib.contextmanager
def _prompt_thread() -> Iterator[None]:
    """This thread alone goes before others, where it may: the clock should not wait for its turn."""
    thread = threading.get_native_id()
    usual = os.getpriority(os.PRIO_PROCESS, thread)
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, thread, -20)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, usual)


class _Renewal:
    """Calls `renew` before a round: always, or at most so often that it takes RENEW_SECONDS a round."""

    def __init__(self, renew: Callable[[int], None] | None, *, always: bool) -> None:
        self._renew, self._credit, self._always = renew, 0.0, always

    def fitting(self, count: int) -> int:
        """How many calls of a batch, up to `count`, can have draws of their own in about RENEW_SECONDS."""
        if self._renew is None or not self._always:
            return count
        started = time.monotonic()
        self._renew(1)
        each = (time.monotonic() - started) / 2  # draws for one call, and one to mix with
        return max(1, min(count, int(RENEW_SECONDS / each)))

    def before_round(self, count: int) -> None:
        """A round of batches of so many calls begins."""
        self._credit += RENEW_SECONDS
        if self._renew is not None and (self._always or self._credit > 0):
            started = time.monotonic()
            self._renew(count)
            self._credit -= time.monotonic() - started


def _rounds(contestants: Sequence[Contestant], config: JudgeConfig, renewal: _Renewal) -> Times:
    # By the baselines alone: a candidate could dawdle over empty batches, or hurry over the first calls, for its profit.
    empty_ns = min(_guarded(contestant, contestant.empty) for contestant in contestants[1:])
    quickest = _guarded(contestants[1], contestants[1].first)
    room = renewal.fitting(min(contestant.runner.ring.room for contestant in contestants))
    count = max(1, min(MAX_BATCH, room, round(BATCH_MS * 1e6 / max(quickest, 1))))
    deadline = time.monotonic() + config.timing_seconds
    orders: list[Sequence[Contestant]] = []
    for number in range(config.max_repetitions):
        if number and number % LONGER == 0:
            count = min(2 * count, MAX_BATCH, room)
        renewal.before_round(count)
        orders = orders or _orders(contestants)
        for contestant in orders.pop():
            _guarded(contestant, functools.partial(contestant.turn, count))
        late = time.monotonic() - deadline
        if number + 1 >= config.min_repetitions and (late > 0 or _decided(contestants, empty_ns, config)):
            break
        if number >= 2 and late > config.timing_seconds:
            break
    return _times(contestants, empty_ns)


def _orders(contestants: Sequence[Contestant]) -> list[Sequence[Contestant]]:
    """Every order of turns once, in an order that nobody can foresee: who knew what comes next could do something about it."""
    orders: list[Sequence[Contestant]] = list(itertools.permutations(contestants))
    SystemRandom().shuffle(orders)
    return orders


def _guarded(contestant: Contestant, act: Callable[[], T]) -> T:
    try:
        return act()
    except ChildFailed as failure:
        if contestant.name == "candidate":
            raise
        raise BaselineLost(str(failure)) from failure


def _decided(contestants: Sequence[Contestant], empty_ns: int, config: JudgeConfig) -> bool:
    """Whether every baseline's interval of the median ratio lies on one side of 1 - milestone, and is as narrow as wanted."""
    usual = overheads(contestants[1].turns, empty_ns)
    own, *others = (milliseconds(contestant.turns, usual) for contestant in contestants)
    for other in others:
        low, high = ratio_interval(ratios(own, other))
        if low <= 1.0 - config.milestone <= high or high - low > 2.0 * config.precision:
            return False
    return True


def _times(contestants: Sequence[Contestant], empty_ns: int) -> Times:
    own, others = contestants[0], contestants[1:]
    usual = overheads(contestants[1].turns, empty_ns)
    by_round = {one.name: milliseconds(one.turns, usual) for one in contestants}
    mine = statistics.median(by_round[own.name])
    theirs = {other.name: mine / statistics.median(ratios(by_round[own.name], by_round[other.name])) for other in others}
    unaccounted, admitted = min((gap(turn, usual), turn.admitted) for turn in own.turns)
    gaps = (sorted(gap(turn, usual) for turn in other.turns) for other in others)
    return Times(
        candidate_ms=mine,
        eager_ms=theirs["eager"],
        compile_ms=theirs.get("compile"),
        rounds=len(own.turns),
        raw_ms={name: [round(value, 5) for value in values] for name, values in by_round.items()},
        samples=tuple(own.samples),
        unaccounted_ns=unaccounted,
        usual_ns=max(0, *(found[3 * len(found) // 4] for found in gaps)),
        admitted_ns=admitted,
        turns=tuple(own.turns),
    )

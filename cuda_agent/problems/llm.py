"""Composition by a language model: it is given operators of torch and asked for one problem that stacks some of them.

Invariants: whatever the model writes is data: an answer becomes a problem only if it holds one fenced Python block that keeps
the problem contract, imports torch alone, and applies at least one and at most five operators, all of which torch has; anything
else is counted under its reason and gives nothing. Nothing of an answer is run here: what passes is vetted like every candidate.
Answers are taken in the order of the questions, so that an endpoint that answers alike gives the same stream.
"""

import asyncio
import random
import re
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from string import Template
from typing import Self

from cuda_agent.config import DatasetScience
from cuda_agent.engines.base import TextEngine
from cuda_agent.engines.messages import Message
from cuda_agent.errors import ProblemError
from cuda_agent.problems.operators import imported, operators_of
from cuda_agent.problems.problem import Problem, read_contract, torch_source

PROMPT = Path(__file__).with_name("llm_prompt.md")
MOST_OPERATORS = 5
OFFERED = 4  # operators to choose from, for each that is wanted
PATIENCE = 50  # malformed answers in a row after which the model counts as unable
ALLOWED_IMPORTS = frozenset({"torch", "math", "typing", "__future__"})
# Give another view of the same numbers; a chain may need them between operators.
VIEWS = frozenset({
    "view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "permute", "transpose", "contiguous", "expand", "movedim",
})  # fmt: skip
_BLOCK = re.compile(r"^[ ]{0,3}(`{3,}|~{3,})[ \t]*(\w*)[^\n]*\n(.*?)^[ ]{0,3}\1[`~]*[ \t]*$", re.MULTILINE | re.DOTALL)


class Malformed(ProblemError):
    """An answer that gives no problem; `kind` is the reason that is counted."""

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(f"{kind}: {detail}" if detail else kind)
        self.kind = kind


def prompt(operators: Sequence[str], count: int, science: DatasetScience) -> str:
    """The question for a problem of `count` operators out of `operators`."""
    template = Template(PROMPT.read_text(encoding="utf-8"))
    names = "\n".join(f"- {name}" for name in operators)
    return template.substitute(count=count, operators=names, size_hint=_size_hint(science))


def read_answer(text: str) -> Problem:
    """The problem in an answer.

    Raises:
        Malformed: with the reason that is counted.
    """
    blocks = [match[3] for match in _BLOCK.finditer(text) if match[2].lower() in ("", "python", "py", "python3")]
    if not blocks:
        raise Malformed("no fenced Python block", "cut off" if "```" in text else "")
    if len(blocks) > 1:
        raise Malformed("more than one Python block", f"{len(blocks)}")
    code = blocks[0].strip() + "\n"
    try:
        code.encode()
        read_contract(code)
        foreign = sorted(imported(code) - ALLOWED_IMPORTS)
        operators, everything = operators_of(code), operators_of(code, every=True)
    except UnicodeEncodeError as error:
        raise Malformed("no valid text") from error
    except ProblemError as error:
        raise Malformed("breaks the problem contract", str(error)) from error
    if foreign:
        raise Malformed("imports more than torch", ", ".join(foreign))
    computing = tuple(name for name in everything if name.rpartition(".")[2] not in VIEWS)
    if not operators:
        raise Malformed("applies no operator of torch")
    if len(computing) > MOST_OPERATORS:
        raise Malformed("applies more than five operators", ", ".join(computing))
    if unknown := [name for name in operators if not in_torch(name)]:
        raise Malformed("applies operators that torch has not", ", ".join(unknown))
    return Problem(computing, torch_source(len(computing)), code)


def in_torch(name: str) -> bool:
    """Whether torch has this public name (`nn.Conv2d`, `torch.linalg.inv`)."""
    import torch  # two seconds, and only here

    value: object = torch
    for part in name.removeprefix("torch.").split("."):
        if not hasattr(value, part):
            return False
        value = getattr(value, part)
    return callable(value)


class LlmComposer:
    """A stream of problems from a model: an iterator that holds what `ahead` has waited for.

    `asked` and `malformed` (by reason) grow meanwhile. Texts that came before, `first` ones included, count as malformed.
    """

    def __init__(
        self,
        engine: TextEngine,
        operators: Sequence[str],
        science: DatasetScience,
        *,
        at_once: int = 8,
        first: Sequence[Problem] = (),
    ) -> None:
        """Prepare; nothing is asked before `ahead`.

        Args:
            engine: who answers.
            operators: names to offer, as public names of torch.
            science: the mix by number of operators, the seed of the choice, the window that sizes depend on.
            at_once: questions under way at a time.
            first: what comes first: an earlier run's problems. Questions are then other ones than before.

        Raises:
            ProblemError: there is no operator to offer.
        """
        if not operators:
            raise ProblemError("the seed list holds no operator of torch to compose from; widen the crawl or the families")
        self._engine, self._operators, self._science = engine, sorted(set(operators)), science
        self._at_once, self._next = at_once, len(first)
        self._ready, self._seen = deque(first), {problem.code for problem in first}
        self._waiting: deque[asyncio.Task[str]] = deque()
        self._useless = 0
        self.asked, self.malformed = 0, Counter[str]()

    async def __aenter__(self) -> Self:
        """Nothing to start."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Take back the questions under way."""
        for task in self._waiting:
            task.cancel()
        await asyncio.gather(*self._waiting, return_exceptions=True)

    def __iter__(self) -> Iterator[Problem]:
        """The stream itself."""
        return self

    def __next__(self) -> Problem:
        """A problem that is there; the stream ends where `ahead` was not awaited."""
        if not self._ready:
            raise StopIteration
        return self._ready.popleft()

    async def ahead(self, count: int) -> None:
        """Wait until the next `count` problems are there.

        Raises:
            EngineError: the endpoint does not answer.
            ProblemError: too many answers in a row give no problem; the message counts the reasons.
        """
        while len(self._ready) < count:
            while len(self._waiting) < self._at_once:
                self._waiting.append(asyncio.create_task(self._ask(self._next)))
                self._next += 1
            self._take(await self._waiting.popleft())

    def question(self, number: int) -> str:
        """The prompt of one question: operators and their number depend on the seed and the question's number alone."""
        rng = random.Random(f"llm:{self._science.seed}:{number}")
        sizes, shares = zip(*sorted(self._science.operator_mix.items()), strict=True)
        size = rng.choices(sizes, shares)[0]
        offered = rng.sample(self._operators, min(OFFERED * size, len(self._operators)))
        return prompt(offered, min(size, len(offered)), self._science)

    def report(self) -> dict[str, object]:
        """Counts for provenance."""
        return {"asked": self.asked, "malformed": dict(self.malformed.most_common())}

    def _take(self, answer: str) -> None:
        try:
            problem = read_answer(answer)
            if problem.code in self._seen:
                raise Malformed("the same text again")
        except Malformed as fault:
            self.malformed[fault.kind] += 1
            self._useless += 1
            if self._useless >= PATIENCE:
                raise ProblemError(self._unable()) from fault
            return
        self._useless = 0
        self._seen.add(problem.code)
        self._ready.append(problem)

    async def _ask(self, number: int) -> str:
        answer = await self._engine.chat([Message("user", self.question(number))], [], seed=self._science.seed + number)
        self.asked += 1
        return answer.text

    def _unable(self) -> str:
        reasons = ", ".join(f"{kind} {count}" for kind, count in self.malformed.most_common())
        return f"the model gave no problem in {PATIENCE} answers in a row; malformed by reason: {reasons}; use a stronger model"


def _size_hint(science: DatasetScience) -> str:
    """What sizes suit the window of eager times, in words."""
    if science.eager_ms_min >= 1.0:
        return (
            f"float32 inputs of 4 to 64 million elements in all, so that eager mode takes {science.eager_ms_min:g} to "
            f"{science.eager_ms_max:g} ms on a data-centre GPU; matrix products of 1024 to 8192 a side."
        )
    return (
        f"float32 inputs of 100,000 to 1 million elements in all, so that eager mode takes {science.eager_ms_min:g} to "
        f"{science.eager_ms_max:g} ms on two CPU cores; matrix products of 64 to 512 a side."
    )

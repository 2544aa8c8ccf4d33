"""The regression corpus of tests/exploits, tests/honest and tests/crashers: its entries, and all of them judged in one go."""

import asyncio
import hashlib
import os
import random
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import yaml

from cuda_agent.config import Backend, JudgeConfig
from cuda_agent.judge.pool import JudgePool
from cuda_agent.judge.verdict import Submission, Verdict
from cuda_agent.store.session import cache_folder

TESTS = Path(__file__).parents[1]
KINDS = ("exploits", "honest", "crashers")
# Of each kind: how many at most, how many of one id (the part before the first underscore), how many with torch's headers.
CHOICE = {"exploits": (50, 2, 1), "honest": (40, 40, 1), "crashers": (16, 1, 0)}
ALWAYS = {"C4_guarded_at_calls", "C7_kernel_calls_python", "D6_seal_in_the_callers_frame"}
ALWAYS |= {"A1_admits_in_every_fifth_round", "B3_hidden_sources_solved_for"}
ALWAYS |= {
    "B3_integer_inputs_by_bytes",
    "token_sums_plain",
    "triangular_product_skips_zeros",
}  # what comes as it was drawn, or nearly
Corpus = dict[str, list["Entry"]]


class Entry(NamedTuple):
    """A folder of the corpus."""

    folder: Path
    problem: str
    statuses: tuple[str, ...]
    ceiling: float
    headers: bool

    @property
    def name(self) -> str:
        return f"{self.folder.parent.name}/{self.folder.name}"


def entries(kind: str, backend: Backend) -> list[Entry]:
    """All of a kind, but for cheats that are known to be paid still (`open: true`): those with CUDA_AGENT_CORPUS=open alone."""
    found, wants_open = [], os.environ.get("CUDA_AGENT_CORPUS") == "open"
    for path in sorted((TESTS / kind).glob("*/case.yaml")):
        case = yaml.safe_load(path.read_text())
        if case.get("backend", "cpu") == backend and case.get("open", False) == wants_open:
            problem = (TESTS / "problems_for_judge" / f"{case['problem']}.py").read_text()
            told = (tuple(case.get("statuses", ("correct",))), case.get("ceiling", -1.0), case.get("headers", False))
            found.append(Entry(path.parent, problem, *told))
    return found


def chosen(kind: str) -> list[Entry]:
    """A fixed, mixed choice of those for the processor; all of them with CUDA_AGENT_CORPUS=all."""
    if os.environ.get("CUDA_AGENT_CORPUS") in ("all", "open"):
        return entries(kind, "cpu")
    most, of_an_id, headers = CHOICE[kind]
    taken, found, heavy = Counter[str](), [], 0
    for entry in sorted(entries(kind, "cpu"), key=lambda entry: hashlib.sha256(entry.name.encode()).digest()):
        name = entry.folder.name.partition("_")[0]
        fits = len(found) < most and taken[name] < of_an_id and heavy + entry.headers <= headers
        if fits or entry.folder.name in ALWAYS:
            taken[name] += 1
            heavy += entry.headers
            found.append(entry)
    return found


async def judged(corpus: Corpus, config: JudgeConfig, at_once: int) -> dict[str, Verdict]:
    """The verdicts of all by name: one pool takes them in a random order, as rollouts would hand them in."""
    mixed = [entry for kind in corpus.values() for entry in kind]
    random.Random(7).shuffle(mixed)
    async with JudgePool(config, cache_dir=cache_folder(), at_once=at_once) as pool:
        verdicts = await asyncio.gather(*(pool.judge(entry.problem, Submission.from_folder(entry.folder)) for entry in mixed))
    return {entry.name: verdict for entry, verdict in zip(mixed, verdicts, strict=True)}


def check_cheat(entry: Entry, verdict: Verdict) -> None:
    """It earns nothing. One that has to do the work after all is an honest, slow submission: up to its `ceiling`."""
    what = (verdict.status, verdict.kind, verdict.reward, verdict.message)
    if verdict.status == "correct":
        assert verdict.reward is not None and verdict.reward <= entry.ceiling, what
    else:
        assert verdict.status in entry.statuses and verdict.reward in (-1.0, None), what


def check_honest(entry: Entry, verdict: Verdict) -> None:
    """It is accepted."""
    assert verdict.status == "correct" and verdict.reward is not None, (verdict.status, verdict.kind, verdict.message)


def check_crasher(entry: Entry, verdict: Verdict) -> None:
    """It got a verdict of its own."""
    assert verdict.reward == -1.0 and verdict.status in entry.statuses, (verdict.status, verdict.kind, verdict.message)

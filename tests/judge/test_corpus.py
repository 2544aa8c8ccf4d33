"""The regression corpus: every cheat is blocked, every honest submission accepted, and no crasher spoils another verdict.

All of them go through one pool, mixed and as many at a time as it takes, as rollouts would; see tests/exploits/README.md.
"""

import asyncio
import random
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio
import yaml

from cuda_agent.config import JudgeConfig
from cuda_agent.judge.pool import JudgePool
from cuda_agent.judge.verdict import Submission, Verdict
from cuda_agent.store.session import cache_folder

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow, pytest.mark.timeout(900)]
TESTS = Path(__file__).parents[1]
CONFIG = JudgeConfig(
    run_seconds=6.0, build_seconds=90.0, min_repetitions=15, max_repetitions=30, timing_seconds=0.5, memory_mb=2_000
)


class Entry(NamedTuple):
    """A folder of the corpus."""

    folder: Path
    problem: str
    statuses: tuple[str, ...]
    ceiling: float

    @property
    def name(self) -> str:
        return f"{self.folder.parent.name}/{self.folder.name}"


def entries(kind: str) -> list[Entry]:
    found = []
    for path in sorted((TESTS / kind).glob("*/case.yaml")):
        case = yaml.safe_load(path.read_text())
        if case.get("backend", "cpu") == "cpu":
            problem = (TESTS / "problems_for_judge" / f"{case['problem']}.py").read_text()
            found.append(Entry(path.parent, problem, tuple(case.get("statuses", ("correct",))), case.get("ceiling", -1.0)))
    return found


CORPUS = {kind: entries(kind) for kind in ("exploits", "honest", "crashers")}


def every(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("entry", CORPUS[kind], ids=lambda entry: entry.folder.name)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def verdicts() -> dict[str, Verdict]:
    """Of all of them, judged in one go in a random order."""
    corpus = [entry for kind in CORPUS.values() for entry in kind]
    random.Random(7).shuffle(corpus)
    async with JudgePool(CONFIG, cache_dir=cache_folder(), at_once=3) as pool:
        judged = await asyncio.gather(*(pool.judge(entry.problem, Submission.from_folder(entry.folder)) for entry in corpus))
    return {entry.name: verdict for entry, verdict in zip(corpus, judged, strict=True)}


@every("exploits")
async def test_cheat_earns_nothing(entry: Entry, verdicts: dict[str, Verdict]) -> None:
    """A cheat that has to do the work after all is an honest, slow submission: it may earn up to its `ceiling`."""
    verdict = verdicts[entry.name]
    what = (verdict.status, verdict.kind, verdict.reward, verdict.message)
    if verdict.status == "correct":
        assert verdict.reward is not None and verdict.reward <= entry.ceiling, what
    else:
        assert verdict.status in entry.statuses and verdict.reward in (-1.0, None), what


@every("honest")
async def test_honest_work_is_accepted(entry: Entry, verdicts: dict[str, Verdict]) -> None:
    verdict = verdicts[entry.name]
    assert verdict.status == "correct" and verdict.reward is not None, (verdict.status, verdict.kind, verdict.message)


@every("crashers")
async def test_crasher_hurts_only_itself(entry: Entry, verdicts: dict[str, Verdict]) -> None:
    verdict = verdicts[entry.name]
    assert verdict.reward == -1.0 and verdict.status in entry.statuses, (verdict.status, verdict.kind, verdict.message)

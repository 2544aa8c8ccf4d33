"""The regression corpus: every cheat is blocked, every honest submission accepted, and no crasher spoils another verdict.

By default a fixed choice of about half of it, so that the suite stays quick; all with CUDA_AGENT_CORPUS=all.
"""

import pytest
import pytest_asyncio

from cuda_agent.config import JudgeConfig
from cuda_agent.judge.verdict import Verdict
from tests.judge.corpus import KINDS, Entry, check_cheat, check_crasher, check_honest, chosen, judged

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow, pytest.mark.timeout(900)]
CORPUS = {kind: chosen(kind) for kind in KINDS}
CONFIG = JudgeConfig(
    run_seconds=6.0, build_seconds=90.0, min_repetitions=15, max_repetitions=30, timing_seconds=0.5, memory_mb=2_000
)


def every(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("entry", CORPUS[kind], ids=lambda entry: entry.folder.name)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def verdicts() -> dict[str, Verdict]:
    return await judged(CORPUS, CONFIG, at_once=3)


@every("exploits")
async def test_cheat_earns_nothing(entry: Entry, verdicts: dict[str, Verdict]) -> None:
    check_cheat(entry, verdicts[entry.name])


@every("honest")
async def test_honest_work_is_accepted(entry: Entry, verdicts: dict[str, Verdict]) -> None:
    check_honest(entry, verdicts[entry.name])


@every("crashers")
async def test_crasher_hurts_only_itself(entry: Entry, verdicts: dict[str, Verdict]) -> None:
    check_crasher(entry, verdicts[entry.name])

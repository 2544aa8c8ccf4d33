"""The regression corpus of backend cuda, all of it: `make test ARGS="-m gpu tests/judge"` on a machine with a GPU."""

import pytest
import pytest_asyncio

from cuda_agent.config import JudgeConfig
from cuda_agent.judge.verdict import Verdict
from tests.judge.corpus import KINDS, Entry, check_cheat, check_crasher, check_honest, entries, judged

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.gpu, pytest.mark.timeout(900)]
CORPUS = {kind: entries(kind, "cuda") for kind in KINDS}
CONFIG = JudgeConfig(backend="cuda", run_seconds=20.0, build_seconds=120.0, timing_seconds=1.0)


def every(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("entry", CORPUS[kind], ids=lambda entry: entry.folder.name)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def verdicts() -> dict[str, Verdict]:
    return await judged(CORPUS, CONFIG, at_once=8)


@every("exploits")
async def test_cheat_earns_nothing(entry: Entry, verdicts: dict[str, Verdict]) -> None:
    check_cheat(entry, verdicts[entry.name])


@every("honest")
async def test_honest_work_is_accepted(entry: Entry, verdicts: dict[str, Verdict]) -> None:
    check_honest(entry, verdicts[entry.name])


@every("crashers")
async def test_crasher_hurts_only_itself(entry: Entry, verdicts: dict[str, Verdict]) -> None:
    check_crasher(entry, verdicts[entry.name])

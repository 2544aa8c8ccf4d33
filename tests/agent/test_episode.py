"""Whole episodes: a scripted engine on the real sandbox and the real judge."""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from cuda_agent.agent import alone
from cuda_agent.agent.chat import ChatRenderer
from cuda_agent.agent.episode import EpisodeResult, run_episode
from cuda_agent.config import EpisodeConfig, SamplingConfig
from cuda_agent.engines.base import TextEngine, TokenEngine
from cuda_agent.engines.messages import Message, ToolCall, ToolSpec
from cuda_agent.errors import JudgeError
from cuda_agent.judge.pool import JudgePool
from cuda_agent.judge.verdict import Submission, Verdict
from tests.agent.script import KERNEL, MODEL, PROBLEM, Script, TokenScript, bash, write

pytestmark = pytest.mark.asyncio(loop_scope="session")
CHECK = bash("bash utils/compile.sh && python3 -m utils.verification")
SUBMIT = (write("kernels/kernel.cpp", KERNEL), write("model_new.py", MODEL))
CONFIG = EpisodeConfig(skill="short", max_turns=6, tool_seconds=30)


async def play(
    engine: TextEngine | TokenEngine, judge: JudgePool, root: Path, config: EpisodeConfig = CONFIG, **settings
) -> EpisodeResult:
    settings.setdefault("sampling", SamplingConfig())
    result = await run_episode(engine, PROBLEM, judge=judge, config=config, workspace_root=root, **settings)
    assert list(root.iterdir()) == []
    return result


def assistant(text: str, *calls: ToolCall) -> Message:
    return Message("assistant", text, calls)


async def test_write_build_check_and_be_judged(pool: JudgePool, tmp_path: Path):
    engine = Script(assistant("", *SUBMIT, CHECK), assistant("Done."))
    result = await play(engine, pool, tmp_path)
    assert (result.outcome, result.stop_reason, result.invalid_tool_calls) == ("correct", "declared_done", 0)
    assert result.reward in (1.0, 2.0, 3.0)
    assert result.submission is not None and result.submission.files == {"kernels/kernel.cpp": KERNEL, "model_new.py": MODEL}
    assert [turn.role for turn in result.turns] == ["system", "user", "assistant", "tool", "tool", "tool", "assistant"]
    assert [turn.text for turn in result.turns[3:6]] == [
        "wrote kernels/kernel.cpp",
        "wrote model_new.py",
        "[PASS] compile success\n[PASS] verify success",
    ]
    assert result.turns[2].verdict is result.verdict
    assert result.arrays is None
    assert [message.text for message in engine.asked[1]][-3:] == [turn.text for turn in result.turns[3:6]]


async def test_nothing_written_is_no_submission(pool: JudgePool, tmp_path: Path):
    result = await play(Script(assistant("I give up.")), pool, tmp_path)
    assert (result.outcome, result.reward, result.verdict, result.submission) == ("no_submission", -1.0, None, None)


async def test_a_verified_version_counts_when_the_last_one_is_broken(pool: JudgePool, tmp_path: Path):
    broken = ToolCall("Edit", {"file_path": "kernels/kernel.cpp", "old_string": "in[i] > 0", "new_string": "in[i] > 1"})
    result = await play(Script(assistant("", *SUBMIT, CHECK), assistant("", broken, CHECK)), pool, tmp_path)
    assert result.outcome == "correct"
    assert result.submission is not None and result.submission.files["kernels/kernel.cpp"] == KERNEL
    assert "[FAIL] wrong_output" in result.turns[-2].text and "exit code 1" in result.turns[-2].text
    verdicts = {index: turn.verdict.status for index, turn in enumerate(result.turns) if turn.verdict}
    assert verdicts == {2: "correct", len(result.turns) - 1: "wrong_output"}


async def test_profiling_reports_times_and_stays_with_its_turn(pool: JudgePool, tmp_path: Path):
    result = await play(Script(assistant("", *SUBMIT, bash("sudo python3 -m utils.profiling"))), pool, tmp_path)
    assert result.turns[5].text.startswith("[PASS]") and "compile" in result.turns[5].text
    assert result.turns[2].verdict is not None and result.turns[2].verdict.candidate_ms is not None
    assert result.outcome == "correct"


async def test_single_turn_takes_write_calls_only(pool: JudgePool, tmp_path: Path):
    result = await play(Script(assistant("", *SUBMIT, CHECK), assistant("never asked")), pool, tmp_path, single_turn=True)
    assert (result.outcome, result.stop_reason, result.invalid_tool_calls) == ("correct", "single_turn", 1)
    assert "no tool 'Bash'" in result.turns[-1].text


@pytest.mark.parametrize(
    ("messages", "reason", "turns"),
    [
        ([assistant("", ToolCall("Fly", {}))] * 9, "invalid_tool_calls", 3),
        ([assistant("", ToolCall("Glob", {"pattern": "*"}))] * 9, "no_progress", 3),
        ([assistant(f"{i}", ToolCall("Glob", {"pattern": "*"})) for i in range(9)], "max_turns", 6),
    ],
)
async def test_bounds_end_an_episode(pool: JudgePool, tmp_path: Path, messages: list[Message], reason: str, turns: int):
    result = await play(Script(*messages), pool, tmp_path)
    assert result.stop_reason == reason
    assert sum(turn.role == "assistant" for turn in result.turns) == turns


class FailingJudge:
    """The real pool, except that what counts fails for a reason of the host."""

    def __init__(self, pool: JudgePool, wait: float = 0.0) -> None:
        self.manifest, self.lease = pool.manifest, pool.lease
        self.wait = wait

    async def judge(self, problem_code: str, submission: Submission, **_: object) -> Verdict:
        return Verdict("infra_error", None, "no memory", None, submission.sha256)

    async def verify(self, problem_code: str, submission: Submission) -> Verdict:
        await asyncio.sleep(self.wait)
        return await self.judge(problem_code, submission)

    profile_verdict = verify


@pytest.mark.parametrize("calls", [SUBMIT, (*SUBMIT, CHECK)])
async def test_faults_of_the_judge_are_raised(pool: JudgePool, tmp_path: Path, calls: tuple[ToolCall, ...]):
    with pytest.raises(JudgeError, match="no memory"):
        await play(Script(assistant("", *calls)), FailingJudge(pool), tmp_path)
    assert list(tmp_path.iterdir()) == []


class SlowJudge(FailingJudge):
    """Takes longer to answer than a command may take."""

    async def judge(self, problem_code: str, submission: Submission, **_: object) -> Verdict:
        async with asyncio.timeout(5), self.lease.exclusive():
            return Verdict("correct", None, "ok", 1.0, submission.sha256)


async def test_waiting_for_the_judge_costs_a_command_nothing(pool: JudgePool, tmp_path: Path):
    config = CONFIG.model_copy(update={"tool_seconds": 1.0})
    calls = (*SUBMIT, bash("python3 -m utils.verification; sleep 9"))
    result = await play(Script(assistant("", *calls)), SlowJudge(pool, wait=1.5), tmp_path, config)
    assert result.turns[5].text == "[PASS] verify success\n\n[stopped after 1 s; the shell was restarted]"


async def test_a_script_of_the_agents_own_runs_alone_and_leaves_nothing(
    pool: JudgePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(alone, "SECONDS", 4.0)
    script = "import os, sys, torch, cpu_extension\nopen('left', 'w')\nprint(sys.argv[1:], os.path.exists('model.py'))\n"
    calls = (
        *SUBMIT,
        write("bench.py", script),
        bash("bash utils/compile.sh"),
        bash("python3 -m utils.run bench.py 5; echo $?; ls"),
        bash("python3 -m utils.run"),
        write("slow.py", "import time\nprint(1, flush=True)\ntime.sleep(60)\n"),
        bash("python3 -m utils.run slow.py; echo $?"),
        bash("mkfifo pipe; ln -s /etc/shadow link; truncate -s 300M big; python3 -m utils.run bench.py"),
    )
    result = await play(Script(assistant("", *calls)), pool, tmp_path)
    printed = [turn.text for turn in result.turns if turn.role == "tool"]
    assert printed[4].startswith("['5'] True\n\n0\n") and "left" not in printed[4]
    assert printed[5].startswith("[FAIL] name a script")
    assert printed[7].startswith("1\n[FAIL] stopped after 4 s\n1")
    assert "File size limit" in printed[8] and "True" not in printed[8]
    assert result.outcome == "correct"


class Slow(Script):
    """Thinks before it answers."""

    async def chat(self, messages: Sequence[Message], tools: Sequence[ToolSpec], seed: int) -> Message:
        await asyncio.sleep(1.5)
        return await super().chat(messages, tools, seed)


async def test_requests_of_background_jobs_end_with_the_episode(pool: JudgePool, tmp_path: Path):
    ask = "for i in 1 2 3; do python3 -m utils.run slow.py & done; wait"
    background = ToolCall("Bash", {"command": ask, "run_in_background": True})
    engine = Slow(assistant("", write("slow.py", "import time\ntime.sleep(60)\n"), background), assistant("Done."))
    started = time.monotonic()
    result = await play(engine, pool, tmp_path)
    assert result.outcome == "no_submission" and 3 < time.monotonic() - started < 9
    async with asyncio.timeout(1.0), pool.lease.exclusive():
        pass


# --- token engines -----------------------------------------------------------------------------------------------------


@pytest.fixture
def renderer(tokenizer_folder: Path) -> ChatRenderer:
    return ChatRenderer(tokenizer_folder)


async def test_arrays_hold_the_context_and_mark_the_policys_tokens(pool: JudgePool, tmp_path: Path, renderer: ChatRenderer):
    first = renderer.answer_text(assistant("", *SUBMIT))
    engine = TokenScript(renderer, first, "<tool_call>\n{\n</tool_call>", "Done.")
    result = await play(engine, pool, tmp_path, renderer=renderer)
    assert (result.outcome, result.stop_reason, result.invalid_tool_calls) == ("correct", "declared_done", 1)
    arrays = result.arrays
    assert arrays is not None
    assert (arrays.token_id.dtype, arrays.logprob.dtype, arrays.mask.dtype, arrays.turn.dtype) == (
        np.int32,
        np.float32,
        np.uint8,
        np.int16,
    )
    assert np.array_equal(arrays.logprob, np.where(arrays.mask == 1, np.float32(-0.5), np.float32(0)))
    for before, after in zip(engine.prompts, engine.prompts[1:], strict=False):
        assert after[: len(before)] == before
    assert arrays.token_id[: len(engine.prompts[-1])].tolist() == engine.prompts[-1]
    own = [i for i, m in zip(arrays.token_id.tolist(), arrays.mask.tolist(), strict=True) if m]
    assert renderer.tokenizer.decode(own, skip_special_tokens=False) == "".join(f"{text}<|im_end|>" for text in engine.texts)
    for index, turn in enumerate(result.turns):
        assert turn.text in renderer.tokenizer.decode(arrays.token_id[arrays.turn == index].tolist(), skip_special_tokens=False)
    assert result.template_sha256 == renderer.template_sha256


@pytest.fixture
def room(renderer: ChatRenderer) -> Callable[[int], EpisodeConfig]:
    from cuda_agent.workspace.template import episode_prompt

    prompt = episode_prompt(PROBLEM, "cpu", "short")
    length = len(renderer.start(prompt.system, prompt.user))
    return lambda tokens: CONFIG.model_copy(update={"context_tokens": length + tokens})


async def test_a_full_context_ends_an_episode(pool: JudgePool, tmp_path: Path, renderer: ChatRenderer, room):
    cut = await play(TokenScript(renderer, "x" * 500), pool, tmp_path, room(40), renderer=renderer)
    assert (cut.stop_reason, cut.arrays is not None and int(cut.arrays.mask.sum())) == ("context_full", 40)
    none = await play(TokenScript(renderer), pool, tmp_path, room(4), renderer=renderer)
    assert none.stop_reason == "context_full" and [turn.role for turn in none.turns] == ["system", "user"]


async def test_a_cut_message_is_an_invalid_call_and_is_closed(pool: JudgePool, tmp_path: Path, renderer: ChatRenderer):
    config = CONFIG.model_copy(update={"turn_tokens": 16})
    engine = TokenScript(renderer, "x" * 500, "Done.")
    result = await play(engine, pool, tmp_path, config, renderer=renderer)
    assert (result.stop_reason, result.invalid_tool_calls) == ("declared_done", 1)
    assert "cut at its token limit" in result.turns[3].text
    assert engine.prompts[1][len(engine.prompts[0]) + 16] == renderer.end_of_turn
    assert result.arrays is not None and result.arrays.mask[len(engine.prompts[0]) + 16] == 0

"""One episode: an engine writes, tools run, the judge decides.

The same loop serves token and text engines. A bad rollout is data: whatever the model does ends in an EpisodeResult. Faults of
engine, sandbox or judge are raised (EngineError, SandboxError, JudgeError and its like) and are never turned into a reward.
The workspace, the sandbox and the socket are gone when `run_episode` returns, raises, or is cancelled.
"""

import asyncio
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from cuda_agent.agent.chat import CallError, ChatRenderer
from cuda_agent.agent.conversation import Answer, Conversation, TextConversation, TokenConversation
from cuda_agent.agent.feedback import Judge, JudgeSocket, MeteredShell
from cuda_agent.config import Backend, EpisodeConfig, SamplingConfig
from cuda_agent.engines.base import TextEngine, TokenEngine
from cuda_agent.engines.messages import Message, ToolCall
from cuda_agent.errors import ConfigError, JudgeError
from cuda_agent.judge.build import MANIFEST_VARIABLE
from cuda_agent.judge.verdict import Submission, Verdict
from cuda_agent.sandbox.limits import Limits
from cuda_agent.sandbox.shell import Shell
from cuda_agent.store.arrays import TokenArrays
from cuda_agent.store.trajectories import TurnRecord
from cuda_agent.workspace.template import PROTECTED, EpisodePrompt, create_workspace, episode_prompt
from cuda_agent.workspace.tools import ToolBox, ToolResult

StopReason = Literal["declared_done", "max_turns", "context_full", "invalid_tool_calls", "no_progress", "single_turn"]
CANDIDATES = 4  # verified submissions that are judged at the end, the newest ones
SOCKET_VARIABLE = "CUDA_AGENT_JUDGE_SOCKET"
_CUT = "your message was cut at its token limit; write shorter messages, and finish each tool call"


@dataclass(frozen=True)
class EpisodeResult:
    """What an episode leaves behind. `reward` is None only where the verdict trains nothing (problem_invalid)."""

    outcome: str  # status of the verdict that counts, or no_submission
    stop_reason: StopReason
    reward: float | None
    verdict: Verdict | None
    submission: Submission | None
    turns: tuple[TurnRecord, ...]
    arrays: TokenArrays | None
    invalid_tool_calls: int
    seconds: float
    template_sha256: str | None


async def run_episode(
    engine: TokenEngine | TextEngine,
    problem_code: str,
    *,
    judge: Judge,
    config: EpisodeConfig,
    sampling: SamplingConfig,
    single_turn: bool = False,
    seed: int = 0,
    backend: Backend = "cpu",
    renderer: ChatRenderer | None = None,
    workspace_root: Path | None = None,
) -> EpisodeResult:
    """Play one episode on one problem and judge what it leaves.

    Args:
        engine: who answers.
        problem_code: the problem's module text.
        judge: the judge pool.
        config: the episode's bounds.
        sampling: how tokens are drawn (token engines only).
        single_turn: one assistant message of Write calls, executed once, then judged.
        seed: seed of the engine's answers.
        backend: cpu or cuda.
        renderer: the policy's tokenizer and template; needed by token engines.
        workspace_root: folder to make the workspace in; by default the system's temporary folder.

    Raises:
        ConfigError: a token engine came without a renderer.
        EngineError: the engine failed.
        SandboxError: the sandbox could not be started.
        JudgeError: the judge failed; like the two above, an infrastructure error, never an outcome.
    """
    started = time.monotonic()
    async with _stage(problem_code, judge, backend, config, single_turn, workspace_root) as stage:
        prompt = episode_prompt(problem_code, backend, config.skill, single_turn=single_turn)
        talk = _conversation(engine, renderer, prompt, stage.tools, config, sampling, seed)
        play = _Play(talk, stage, config, single_turn)
        play.turns += [TurnRecord("system", prompt.system), TurnRecord("user", prompt.user)]
        stop_reason = await play.run()
        await stage.shell.close()  # nothing of the agent's runs or asks any more when its work is judged
        await stage.socket.close()
        best = await _judge_best(stage, judge, problem_code)
    return EpisodeResult(
        outcome=best.verdict.status if best.verdict else "no_submission",
        stop_reason=stop_reason,
        reward=best.verdict.reward if best.verdict else -1.0,
        verdict=best.verdict,
        submission=best.submission,
        turns=_with_verdicts(play.turns, best),
        arrays=talk.arrays(),
        invalid_tool_calls=play.invalid,
        seconds=time.monotonic() - started,
        template_sha256=renderer.template_sha256 if renderer else None,
    )


# --- where it happens ------------------------------------------------------------------------------------------------


@dataclass
class _Stage:
    """An episode's workspace, its tools, and which turn each verified submission stood at."""

    workspace: Path
    tools: ToolBox
    socket: JudgeSocket
    shell: MeteredShell
    written_at: dict[str, int] = field(default_factory=dict)


@contextlib.asynccontextmanager
async def _stage(
    problem_code: str,
    judge: Judge,
    backend: Backend,
    config: EpisodeConfig,
    single_turn: bool,
    root: Path | None,
) -> AsyncIterator[_Stage]:
    """Set up and, whatever happens, take down what an episode needs on this host."""
    place = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="episode-", dir=root))
    place.chmod(0o755)  # the sandbox's own user passes through
    workspace = place / "workspace"
    try:
        await asyncio.to_thread(create_workspace, workspace, problem_code, backend)
        socket = JudgeSocket(place / "judge.sock", judge, problem_code, workspace)
        limits = Limits(wall_seconds=config.tool_seconds, memory_mb=4_000, processes=128, output_bytes=256_000, file_mb=512)
        shell = Shell(
            workspace,
            read_only=[Path(name) for name in PROTECTED],
            sockets={SOCKET_VARIABLE: socket.path},
            limits=limits,
            environment={MANIFEST_VARIABLE: str(judge.manifest.path)},
            readable=[judge.manifest.path.parent],
        )
        async with socket, MeteredShell(shell, judge.lease) as metered:
            socket.shell = metered
            allowed = ("Write",) if single_turn else config.tools
            tools = ToolBox(
                workspace, metered, seconds=config.tool_seconds, output_chars=config.tool_output_chars, allowed=allowed
            )
            yield _Stage(workspace, tools, socket, metered)
    finally:
        await asyncio.shield(asyncio.to_thread(_remove, place))


def _remove(place: Path) -> None:
    """Delete a folder whose modes the agent may have changed."""

    def open_up(_: object, path: str, __: object) -> None:
        with contextlib.suppress(OSError):
            os.chmod(os.path.dirname(path), 0o700)
            os.chmod(path, 0o700)
            shutil.rmtree(path, ignore_errors=True) if os.path.isdir(path) else os.unlink(path)

    shutil.rmtree(place, onerror=open_up)


def _conversation(
    engine: TokenEngine | TextEngine,
    renderer: ChatRenderer | None,
    prompt: EpisodePrompt,
    tools: ToolBox,
    config: EpisodeConfig,
    sampling: SamplingConfig,
    seed: int,
) -> Conversation:
    if not isinstance(engine, TokenEngine):
        messages = [Message("system", prompt.system), Message("user", prompt.user)]
        return TextConversation(engine, messages, tools.specs, seed)
    if renderer is None:
        raise ConfigError("a token engine needs the policy's chat renderer; pass renderer=ChatRenderer(policy folder)")
    ids = renderer.start(prompt.system, prompt.user, tools.specs if config.skill == "full" else ())
    return TokenConversation(
        engine,
        renderer,
        ids,
        sampling=sampling,
        context_tokens=config.context_tokens,
        turn_tokens=config.turn_tokens,
        seed=seed,
    )


# --- the loop --------------------------------------------------------------------------------------------------------


class _Play:
    """The ReAct loop: answers and tool results in turn, until one of the bounds is met."""

    def __init__(self, talk: Conversation, stage: _Stage, config: EpisodeConfig, single_turn: bool) -> None:
        self.turns: list[TurnRecord] = []
        self.invalid = 0
        self._talk, self._stage, self._config, self._single_turn = talk, stage, config, single_turn
        self._invalid_in_row = 0
        self._last, self._repeats = "", 0

    async def run(self) -> StopReason:
        """Play until the end; returns why it ended."""
        for _ in range(1 if self._single_turn else self._config.max_turns):
            if self._talk.full:
                return "context_full"
            started = time.monotonic()
            answer = await self._talk.answer()
            self._record(answer, time.monotonic() - started)
            if self._single_turn:
                await self._tools(answer)
                return "single_turn"
            if answer.cut and self._talk.full:
                return "context_full"
            if not answer.turn.calls and not answer.cut:
                return "declared_done"
            self._talk.add(await self._tools(answer))
            if self._invalid_in_row >= self._config.invalid_tool_calls:
                return "invalid_tool_calls"
            if self._repeats >= self._config.repeated_turns:
                return "no_progress"
        return "max_turns"

    def _record(self, answer: Answer, seconds: float) -> None:
        calls = [call.to_json() for call in answer.turn.tool_calls]
        text = answer.raw if answer.turn.error else answer.turn.text  # what could not be read is kept as it was written
        self.turns.append(TurnRecord("assistant", text, calls, generate_seconds=seconds))
        self._repeats = self._repeats + 1 if answer.raw == self._last else 1
        self._last = answer.raw

    async def _tools(self, answer: Answer) -> list[Message]:
        """Run the calls in order; one tool message each, and one for a message that was cut."""
        messages = []
        for call in answer.turn.calls:
            started = time.monotonic()
            result = await self._run(call)
            self._count(result.invalid)
            messages.append(Message("tool", result.text))
            self.turns.append(TurnRecord("tool", result.text, tool_seconds=time.monotonic() - started))
        if answer.cut and not any(isinstance(call, CallError) for call in answer.turn.calls):
            self._count(True)
            messages.append(Message("tool", _CUT))
            self.turns.append(TurnRecord("tool", _CUT))
        return messages

    async def _run(self, call: ToolCall | CallError) -> ToolResult:
        if isinstance(call, CallError):
            return ToolResult(call.message, invalid=True)
        socket = self._stage.socket
        known, socket.last_verdict = set(socket.passed), None
        result = await self._stage.tools.run(call)
        if socket.fault is not None:
            raise socket.fault
        assistant = max(index for index, turn in enumerate(self.turns) if turn.role == "assistant")
        if socket.last_verdict is not None:
            self.turns[assistant] = replace(self.turns[assistant], verdict=socket.last_verdict)
        for digest in set(socket.passed) - known:
            self._stage.written_at[digest] = assistant
        return result

    def _count(self, invalid: bool) -> None:
        self.invalid += invalid
        self._invalid_in_row = self._invalid_in_row + 1 if invalid else 0


# --- the verdict -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Best:
    """The submission that counts with its verdict, and the verdicts of every candidate by the turn that it stood at."""

    submission: Submission | None = None
    verdict: Verdict | None = None
    by_turn: Mapping[int, Verdict] = field(default_factory=dict)


async def _judge_best(stage: _Stage, judge: Judge, problem_code: str) -> _Best:
    """Judge what passed along the way and what is there at the end; the best of several is judged once more.

    One candidate needs no second judgement: nothing was selected. Of several, the best was picked by noisy times, so its
    verdict is taken again with new seeds.
    """
    final = await asyncio.to_thread(Submission.from_folder, stage.workspace)
    candidates = [one for digest, one in stage.socket.passed.items() if digest != final.sha256][-CANDIDATES:]
    if final.files or final.illegal:
        candidates.append(final)
    if not candidates:
        return _Best()
    known = stage.socket.profiled if len(candidates) > 1 else {}
    verdicts = [known.get(one.sha256) or _counted(await judge.judge(problem_code, one)) for one in candidates]
    best = max(range(len(candidates)), key=lambda index: _rank(verdicts[index]))
    if len(candidates) > 1:
        was_judged = candidates[best].sha256 not in known
        verdicts[best] = _counted(await judge.judge(problem_code, candidates[best], fresh=was_judged))
    turns = {stage.written_at.get(one.sha256, -1): verdict for one, verdict in zip(candidates, verdicts, strict=True)}
    return _Best(candidates[best], verdicts[best], turns)


def _rank(verdict: Verdict) -> tuple[float, float]:
    """Order of verdicts: reward, then speed-up against torch.compile (against eager where that has none)."""
    reward = verdict.reward if verdict.reward is not None else -2.0
    return reward, verdict.speedup_vs_compile or verdict.speedup_vs_eager or 0.0


def _counted(verdict: Verdict) -> Verdict:
    if verdict.status == "infra_error":
        raise JudgeError(f"the judge failed: {verdict.message}")
    return verdict


def _with_verdicts(turns: list[TurnRecord], best: _Best) -> tuple[TurnRecord, ...]:
    """The turns, each with the verdict of the submission that stood at it; the final one belongs to the last answer."""
    last = max((index for index, turn in enumerate(turns) if turn.role == "assistant"), default=0)
    places = {last if index < 0 else index: verdict for index, verdict in best.by_turn.items()}
    return tuple(replace(turn, verdict=places.get(index, turn.verdict)) for index, turn in enumerate(turns))

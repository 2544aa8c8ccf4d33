"""How fast rollouts go beside what they cost at least: `make bench-rollouts`.

Rows: each tool's call without work; what an episode adds to a turn besides generation and tools; tokens an hour of whole
episodes whose tools answer at once, beside the same requests sent straight to the engine; many episodes at once beside one
after another, with real builds; turns of 4 KB that a second stores. Every answer is really sampled (`--tokens` long, by an
untrained model unless `--weights` names one) and then replaced by a scripted tool call, so that all episodes are alike.
"""

import argparse
import asyncio
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cuda_agent.agent.chat import ChatRenderer
from cuda_agent.agent.conversation import turn_seed
from cuda_agent.agent.episode import EpisodeResult, run_episode
from cuda_agent.agent.feedback import MeteredShell
from cuda_agent.config import BasePolicyScience, EpisodeConfig, JudgeConfig, SamplingConfig, VllmExecution
from cuda_agent.engines.base import Generation, Sampling, TokenEngine
from cuda_agent.engines.messages import Message, ToolCall
from cuda_agent.engines.transformers import TransformersEngine
from cuda_agent.engines.vllm import VllmEngine, vllm_python
from cuda_agent.judge.pool import JudgePool
from cuda_agent.learning.base_model import make_policy_folder
from cuda_agent.sandbox.lease import Lease, device_lease_path
from cuda_agent.sandbox.shell import Shell
from cuda_agent.store.arrays import TokenArrays
from cuda_agent.store.migrate import upgrade
from cuda_agent.store.session import Store, cache_folder
from cuda_agent.store.tables import Dataset, Problem, new_id
from cuda_agent.store.trajectories import RolloutRecord, TurnRecord, open_batch, save_rollout
from cuda_agent.workspace.template import PROTECTED, create_workspace
from cuda_agent.workspace.tools import ToolBox
from infra.postgres import EmbeddedPostgres, ensure_database
from infra.settings import StackSettings
from tests.agent.script import KERNEL, MODEL, PROBLEM

REPEATS = 50
EDITS = ({"old_string": "1", "new_string": "2"}, {"old_string": "2", "new_string": "1"})
CALLS: tuple[tuple[str, tuple[dict[str, Any], ...]], ...] = (
    ("Bash", ({"command": "true"},)),
    ("Read", ({"file_path": "model.py"},)),
    ("Write", ({"file_path": "kernels/k.cpp", "content": "int x = 1;\n"},)),
    ("Edit", tuple({"file_path": "kernels/k.cpp", **edit} for edit in EDITS)),
    ("Glob", ({"pattern": "**/*.py"},)),
    ("Grep", ({"pattern": "import"},)),
    ("TodoWrite", ({"todos": [{"content": "measure", "status": "pending"}]},)),
)


class Scripted:
    """A token engine that samples each answer for real, and hands out the script's next call instead."""

    def __init__(self, engine: TokenEngine, renderer: ChatRenderer, calls: Sequence[ToolCall], tokens: int) -> None:
        self._engine, self._tokens = engine, tokens
        texts = [renderer.answer_text(Message("assistant", "", (call,))) for call in calls]
        self._answers = [(*renderer.encode(text), renderer.end_of_turn) for text in texts]
        self.requests: list[tuple[tuple[int, ...], Sampling]] = []
        self.sampled = 0

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Generation:
        """Sample, count, and play the script; the turn is read from the prompt."""
        request = (tuple(prompt_ids), replace(sampling, max_new_tokens=self._tokens))
        self.requests.append(request)
        found = await self._engine.generate(*request)
        self.sampled += len(found.token_ids)
        answer = self._answers[min(self._turn(prompt_ids), len(self._answers) - 1)]
        return Generation(answer, (-0.5,) * len(answer), "stop", found.seconds)

    def _turn(self, prompt_ids: Sequence[int]) -> int:
        end = self._answers[0][-1]
        return sum(token == end for token in prompt_ids) // 2 - 1  # system and user, then a call and its result each

    async def load_policy(self, weights: object) -> None:
        """Nothing to load."""

    async def close(self) -> None:
        """Nothing to free."""


def instant(turns: int) -> list[ToolCall]:
    """Calls that take no time, each another one."""
    return [ToolCall("Read", {"file_path": "model.py", "limit": 1 + turn}) for turn in range(turns)]


def real() -> list[ToolCall]:
    """A kernel written, compiled and verified."""
    return [
        ToolCall("Write", {"file_path": "kernels/relu.cpp", "content": KERNEL}),
        ToolCall("Write", {"file_path": "model_new.py", "content": MODEL}),
        ToolCall("Bash", {"command": "bash utils/compile.sh"}),
        ToolCall("Bash", {"command": "python3 -m utils.verification"}),
    ]


class Bench:
    """One engine and judge for all rows."""

    def __init__(self, arguments: argparse.Namespace, engine: TokenEngine, renderer: ChatRenderer, judge: JudgePool) -> None:
        self.arguments, self.engine, self.renderer, self.judge = arguments, engine, renderer, judge

    async def play(self, engine: TokenEngine, seed: int, turns: int) -> EpisodeResult:
        """One episode."""
        config = EpisodeConfig(max_turns=turns, context_tokens=self.arguments.context, skill="short")
        return await run_episode(
            engine, PROBLEM, judge=self.judge, config=config, sampling=SamplingConfig(), seed=seed, renderer=self.renderer
        )

    async def batch(self, calls: Sequence[ToolCall], at_once: int) -> tuple[Scripted, float, list[EpisodeResult]]:
        """All episodes, `at_once` under way; the engine that played, the seconds, the results."""
        engine = Scripted(self.engine, self.renderer, calls, self.arguments.tokens)
        gate = asyncio.Semaphore(at_once)

        async def one(seed: int) -> EpisodeResult:
            async with gate:
                return await self.play(engine, seed, len(calls))

        started = time.monotonic()
        results = await asyncio.gather(*(one(seed) for seed in range(self.arguments.episodes)))
        return engine, time.monotonic() - started, results

    async def straight(self, requests: Sequence[tuple[tuple[int, ...], Sampling]]) -> tuple[int, float]:
        """The same requests without agents: an episode's one after another, all episodes at once; tokens and seconds."""
        episodes, turns = range(self.arguments.episodes), range(self.arguments.turns)
        by_seed = {request[1].seed: request for request in requests}

        async def lane(episode: int) -> int:
            work = [by_seed[turn_seed(episode, turn)] for turn in turns]
            return sum([len((await self.engine.generate(*request)).token_ids) for request in work])

        started = time.monotonic()
        counts = await asyncio.gather(*(lane(episode) for episode in episodes))
        return sum(counts), time.monotonic() - started


async def tool_rows() -> None:
    """What a tool call costs besides its work, through the shell that episodes use."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        place.chmod(0o755)
        create_workspace(place / "w", "import torch\n", "cpu")
        shell = Shell(place / "w", read_only=[Path(name) for name in PROTECTED])
        async with MeteredShell(shell, Lease(place / "lease")) as metered:
            box = ToolBox(place / "w", metered, seconds=10, output_chars=8_000)
            started = time.perf_counter()
            await box.run(ToolCall("Bash", {"command": "true"}))
            print(f"first Bash of an episode {1e3 * (time.perf_counter() - started):.1f} ms")
            row = [f"{name} {await median_ms(box, name, arguments):.2f}" for name, arguments in CALLS]
            print(f"median ms of a call: {', '.join(row)}", flush=True)


async def median_ms(box: ToolBox, name: str, arguments: tuple[dict[str, Any], ...]) -> float:
    """Median over `REPEATS` calls, the arguments taken in turn."""
    times = []
    for repeat in range(REPEATS):
        started = time.perf_counter()
        result = await box.run(ToolCall(name, arguments[repeat % len(arguments)]))
        times.append(1e3 * (time.perf_counter() - started))
        assert not result.invalid and not result.text.startswith("error"), result.text
    return statistics.median(times)


async def overhead_row(bench: Bench) -> None:
    """Milliseconds that one episode after another adds to a turn: set-up, bookkeeping, taking down."""
    added = []
    engine = Scripted(bench.engine, bench.renderer, instant(bench.arguments.turns), bench.arguments.tokens)
    for seed in range(8):
        started = time.monotonic()
        result = await bench.play(engine, seed, bench.arguments.turns)
        worked = sum(turn.generate_seconds + turn.tool_seconds for turn in result.turns)
        added.append(1e3 * (time.monotonic() - started - worked) / bench.arguments.turns)
    print(f"an episode adds to each of {bench.arguments.turns} turns: median {statistics.median(added):.1f} ms", flush=True)


async def generation_row(bench: Bench) -> None:
    """Tokens a second of episodes beside the same requests straight to the engine, in turn, twice."""
    ratios = []
    for _ in range(2):
        engine, seconds, _results = await bench.batch(instant(bench.arguments.turns), bench.arguments.episodes)
        tokens, straight = await bench.straight(engine.requests)
        ratios.append((engine.sampled / seconds) / (tokens / straight))
        print(f"episodes {engine.sampled / seconds:.0f} tokens/s, straight {tokens / straight:.0f} tokens/s", flush=True)
    print(f"share of the engine's own speed with instant tools: {min(ratios):.0%} and {max(ratios):.0%}", flush=True)


async def batch_row(bench: Bench) -> None:
    """Many at once beside one after another, with real builds and verifications."""
    _, together, results = await bench.batch(real(), bench.arguments.episodes)
    _, alone, _ = await bench.batch(real(), 1)
    right, count = sum(result.outcome == "correct" for result in results), len(results)
    print(f"{count} episodes with real tools: {together:.1f} s at once ({right} correct), {alone:.1f} s one after another:")
    print(f"{alone / together:.1f} times the throughput, {3_600 * count / together:.0f} episodes an hour", flush=True)


def store_row(folder: Path, threads: int = 4, rollouts: int = 40, turns: int = 100) -> None:
    """Turns of 4 KB stored a second, a transaction for each trajectory, several writers."""
    from concurrent.futures import ThreadPoolExecutor

    server = EmbeddedPostgres(StackSettings(home=folder, port=0))
    server.start()
    try:
        ensure_database(server.url("bench"))
        upgrade(server.url("bench"))
        store = Store(server.url("bench"), str(folder / "blobs"))
        with store.session() as session:
            dataset, problem = Dataset(id=new_id(), name="bench", provenance={}, complete=True), new_id()
            session.add(dataset)
            session.flush()
            text = {"ops": ["relu"], "data_source": "torch#1", "code": PROBLEM, "code_sha256": "0" * 64, "facts": {}}
            session.add(Problem(id=problem, dataset_id=dataset.id, position=0, split="train", **text))
        rng = np.random.default_rng(0)
        body = [json.dumps(rng.integers(0, 10**9, 370).tolist())[:4_096] for _ in range(turns)]
        tokens = TokenArrays(
            np.arange(8_000, dtype=np.int32), np.zeros(8_000, np.float32), np.ones(8_000, np.uint8), np.zeros(8_000, np.int16)
        )
        batch = open_batch(
            store, dataset_id=dataset.id, policy_version_id=None, engine="teacher", purpose="train", science={}, episodes=rollouts
        )

        def save(position: int) -> None:
            record = [TurnRecord("assistant" if turn % 2 else "tool", text) for turn, text in enumerate(body)]
            save_rollout(
                store,
                batch,
                RolloutRecord(position, problem, "teacher", 0, "no_submission", "max_turns", -1.0, turns=record, arrays=tokens),
            )

        started = time.monotonic()
        with ThreadPoolExecutor(threads) as writers:
            list(writers.map(save, range(rollouts)))
        print(f"stored {rollouts * turns / (time.monotonic() - started):.0f} turns of 4 KB a second", flush=True)
        store.close()
    finally:
        server.stop()


@contextlib.asynccontextmanager
async def opened(arguments: argparse.Namespace, weights: Path) -> AsyncIterator[TokenEngine]:
    """The engine, with the policy loaded."""
    lease = device_lease_path(cache_folder())
    if arguments.engine == "vllm":
        settings = VllmExecution(dtype=arguments.dtype, sequences=arguments.episodes, context_tokens=arguments.context)
        async with VllmEngine(vllm_python(), settings, lease_path=lease) as served:
            await served.load_policy(weights)
            yield served
    else:
        rows = {"rows": arguments.episodes, "device": arguments.device, "dtype": arguments.dtype}
        async with TransformersEngine(weights, lease_path=lease, **rows) as engine:
            yield engine


async def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=16)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--context", type=int, default=8_192)
    parser.add_argument("--weights", type=Path, help="policy folder (default: an untrained small model)")
    parser.add_argument("--engine", choices=("transformers", "vllm"), default="transformers")
    parser.add_argument("--device", default="cpu", help="of engine transformers")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--rows", default="tools,overhead,generation,batch,store")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if "tools" in arguments.rows:
            await tool_rows()
        weights = arguments.weights or Path(folder) / "policy"
        if arguments.weights is None:
            weights.mkdir()
            science = BasePolicyScience(context_tokens=arguments.context)
            await asyncio.to_thread(make_policy_folder, weights, science)
        async with (
            JudgePool(JudgeConfig(), cache_dir=cache_folder()) as judge,
            opened(arguments, weights) as engine,
        ):
            bench = Bench(arguments, engine, ChatRenderer(weights), judge)
            for name, row in (("overhead", overhead_row), ("generation", generation_row), ("batch", batch_row)):
                if name in arguments.rows:
                    await row(bench)
        if "store" in arguments.rows:
            await asyncio.to_thread(store_row, Path(folder) / "postgres")


if __name__ == "__main__":
    asyncio.run(main())

"""Crawl of the installed torch: its public operators, each built into a seed or refused with the reason.

Operators are tried one at a time in sandboxed children (`torch_crawl_child`); one that crashes or hangs refuses itself only,
and its child is replaced. Names that run the same operators of torch's core on the same arguments are aliases: the first in
order of preference counts, the others are refused as its aliases. The report is kept as JSON, by versions of torch and of
this crawler. Nothing here imports torch.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cuda_agent.errors import ProblemError
from cuda_agent.problems.seeds import CrawlReport, TorchSeed, seed_from_json
from cuda_agent.sandbox.forkserver import Child, ChildFailed, ForkServer
from cuda_agent.sandbox.limits import Limits

CRAWLER = 1  # raise it when the crawl would give another report for the same torch
CHILD = "cuda_agent.problems.torch_crawl_child"
OPERATOR_SECONDS = 20.0
MEMORY_MB = 3_000
Answer = dict[str, Any]


async def crawl_torch(
    server: ForkServer | None,
    cache_dir: Path,
    *,
    workers: int = 2,
    only: Callable[[str], bool] | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> CrawlReport:
    """The report for the installed torch: from the cache, or by trying every operator (a minute or two on 2 cores).

    `server` is a running fork server to use instead of an own one. `only` narrows the crawl to some names, past the cache.
    `on_progress` hears how many operators of how many were tried.

    Raises:
        ProblemError: torch is not installed, or not one operator could be built.
        SandboxError: this host cannot start sandboxed children.
    """
    versions = {"torch": version("torch"), "crawler": str(CRAWLER)}
    path = cache_dir / "seeds" / f"torch-{versions['torch']}-{CRAWLER}.json"
    known = _read(path) if only is None else None
    if known is not None:
        return known
    async with _serving(server) as serving, _Crew(serving, workers) as crew:
        report = await _crawl(crew, versions, only, on_progress)
    if not report.seeds:
        raise ProblemError(f"torch {versions['torch']} yielded no seed: {_commonest(report.refused)}")
    if only is None:
        _write(path, report)
    return report


async def _crawl(
    crew: "_Crew", versions: Mapping[str, str], only: Callable[[str], bool] | None, on_progress: Callable[[int, int], None]
) -> CrawlReport:
    listed = await crew.ask("names", {})
    if "names" not in listed:
        raise ProblemError(f"torch {versions['torch']} cannot be listed: {listed['refused']}; see `cuda-agent doctor`")
    names = [name for name in listed["names"] if only is None or only(name)]
    refused: dict[str, str] = {name: reason for name, reason in listed["refused"].items() if only is None or only(name)}
    answers = await crew.ask_each("build", names, on_progress)
    seeds: dict[str, TorchSeed] = {}
    traces: dict[str, str] = {}
    for name, answer in zip(names, answers, strict=True):
        if "refused" in answer:
            refused[name] = answer["refused"]
        elif (first := traces.setdefault(answer["trace"], name)) != name:
            refused[name] = f"alias: runs the same as {first}"
        else:
            seeds[name] = _seed(name, answer)
    return CrawlReport(seeds, refused, versions)


def _seed(name: str, answer: Answer) -> TorchSeed:
    seed = seed_from_json({"name": name, "x": TorchSeed.x, **answer})
    assert isinstance(seed, TorchSeed)
    return seed


class _Crew:
    """Children that share the work; each answers one question at a time and is replaced when it dies."""

    def __init__(self, server: ForkServer, workers: int) -> None:
        self._server, self._workers = server, workers
        self._idle: asyncio.LifoQueue[Child | None] = asyncio.LifoQueue()

    async def __aenter__(self) -> "_Crew":
        for _ in range(self._workers):
            self._idle.put_nowait(None)
        return self

    async def __aexit__(self, *_: object) -> None:
        while not self._idle.empty():
            child = self._idle.get_nowait()
            if child is not None:
                await child.close()

    async def ask(self, method: str, payload: Answer) -> Answer:
        """One answer; a child that fails answers with `refused`."""
        child = await self._idle.get()
        try:
            if child is None or not child.alive:
                child = await self._open()
            answer = await child.call(method, payload, OPERATOR_SECONDS)
            return answer if isinstance(answer, dict) else {"refused": "crash: it broke the protocol"}
        except ChildFailed as failure:
            return {"refused": f"{failure.kind}: {' '.join(failure.detail.split())[:160]}"}
        finally:
            if child is not None and not child.alive:
                await child.close()
                child = None
            self._idle.put_nowait(child)

    async def ask_each(self, method: str, names: Sequence[str], on_progress: Callable[[int, int], None]) -> list[Answer]:
        """Answers in the order of the names."""
        done = 0

        async def one(name: str) -> Answer:
            nonlocal done
            answer = await self.ask(method, {"name": name})
            done += 1
            on_progress(done, len(names))
            return answer

        return list(await asyncio.gather(*map(one, names)))

    async def _open(self) -> Child:
        limits = Limits(wall_seconds=60.0, memory_mb=MEMORY_MB, processes=64)
        return await self._server.open(f"{CHILD}:open_crawler", {}, limits)


@contextlib.asynccontextmanager
async def _serving(server: ForkServer | None) -> AsyncIterator[ForkServer]:
    """The given server, or one of one's own."""
    if server is not None:
        yield server
        return
    async with ForkServer((f"{CHILD}:warm",), {"OMP_NUM_THREADS": "1"}) as own:
        yield own


def _read(path: Path) -> CrawlReport | None:
    """The report of an earlier crawl; None without a readable one."""
    try:
        return CrawlReport.from_json(json.loads(path.read_text()))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path, report: CrawlReport) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps(report.to_json()))
    draft.replace(path)


def _commonest(refused: Mapping[str, str]) -> str:
    kinds = [reason.partition(":")[0] for reason in refused.values()]
    return max(set(kinds), key=kinds.count) if kinds else "no operator bears a name that was asked for"

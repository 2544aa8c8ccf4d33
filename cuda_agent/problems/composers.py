"""The choice of the stream that candidates come from: sampler, catalogue or language model.

Invariant: the first candidates of a stream are those of an earlier run of the same settings, so that a resumed run finds what
it has vetted at the same positions. The model's answers differ from run to run: its stored texts are said again first.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from cuda_agent.config import Backend, DatasetScience
from cuda_agent.engines.openai import Endpoint
from cuda_agent.errors import ConfigError, ProblemError
from cuda_agent.problems.catalogue import OPERATORS
from cuda_agent.problems.compose import compose
from cuda_agent.problems.llm import LlmComposer
from cuda_agent.problems.problem import Problem, VettedProblem
from cuda_agent.problems.seeds import CrawlReport
from cuda_agent.problems.shapes import Scale

LARGE_FROM_MS = 1.0  # shortest wanted eager time from which problems are made for a device of some size
SHOW_EVERY = 50


@dataclass(frozen=True)
class Stream:
    """Candidates in order, the names they are composed from, and counts for provenance, known when it was read.

    `ahead` is awaited before so many candidates are taken, where they must be waited for. `foreign`: texts that nobody here
    wrote, of which each gets a child of its own.
    """

    problems: Iterator[Problem]
    operators: Sequence[str]
    report: Callable[[], dict[str, Any]] = dict
    ahead: Callable[[int], Awaitable[None]] | None = None
    foreign: bool = False


async def candidates(
    science: DatasetScience,
    opened: AsyncExitStack,
    *,
    backend: Backend = "cpu",
    cache_dir: Path,
    workers: int = 2,
    done: Sequence[VettedProblem] = (),
    endpoint: Endpoint | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Stream:
    """The stream that the settings ask for; the first one on a machine crawls torch and transformers, which takes minutes.

    Args:
        science: names the composer, and all that the stream depends on.
        opened: keeps what the stream needs open while it is read.
        backend: where problems are timed: their sizes depend on it.
        cache_dir: where found seeds are kept.
        workers: children in which seeds are tried.
        done: what was vetted before, in order of position.
        endpoint: who answers, for composer llm.
        tell: hears of progress.

    Raises:
        ConfigError: a family is not in the catalogue, or composer llm has no endpoint.
        ProblemError: no seed can be built.
        SandboxError: the host cannot try seeds.
    """
    if science.composer == "catalogue":
        return _catalogue(science)
    engine = None
    if science.composer == "llm":
        if endpoint is None:
            raise ConfigError("composer llm needs a model; name its endpoint")
        engine = await opened.enter_async_context(endpoint.engine())
    from cuda_agent.problems.torch_crawl import crawl_torch

    operators = await crawl_torch(None, cache_dir, workers=workers, on_progress=_progress("torch", tell))
    if not operators.seeds:
        raise ProblemError(f"the crawl of torch gave no seed ({len(operators.refused)} refused); look at its report")
    names = tuple(operators.seeds)
    if engine is not None:
        composer = LlmComposer(engine, names, science, first=[problem.problem for problem in done])
        await opened.enter_async_context(composer)
        return Stream(composer, names, composer.report, composer.ahead, foreign=True)
    modules = await _modules(science, backend, cache_dir, workers, tell)
    found = (*names, *(modules.seeds if modules else ()))
    refused = {"torch": len(operators.refused), "transformers": len(modules.refused) if modules else 0}
    from cuda_agent.problems.sampler import sample

    large: Scale = "huge" if backend == "cuda" else "large"
    scale = large if science.eager_ms_min >= LARGE_FROM_MS else "small"
    return Stream(sample(science, operators, modules, scale=scale), found, lambda: {"seeds_refused": refused})


async def _modules(
    science: DatasetScience, backend: Backend, cache_dir: Path, workers: int, tell: Callable[[str], None]
) -> CrawlReport | None:
    """Seeds of transformers, where the mix has any."""
    if not science.transformers_share:
        return None
    from cuda_agent.problems.transformers_crawl import crawl_transformers

    scale: Literal["small", "medium", "large"]
    scale = "small" if science.eager_ms_min < LARGE_FROM_MS else "large" if backend == "cuda" else "medium"
    return await crawl_transformers(
        None, cache_dir, scales=(scale,), workers=workers, on_progress=_progress("transformers", tell)
    )


def _progress(package: str, tell: Callable[[str], None]) -> Callable[[int, int], None]:
    def progress(done: int, total: int) -> None:
        if done == total or done % SHOW_EVERY == 0:
            tell(f"seeds of {package}: {done} of {total} tried")

    return progress


def _catalogue(science: DatasetScience) -> Stream:
    known = {operator.family for operator in OPERATORS}
    if unknown := sorted(set(science.families) - known):
        raise ConfigError(f"families: {unknown[0]} is not in the catalogue; name some of {', '.join(sorted(known))}")
    stream = compose(science)
    first = next(stream, None)
    if first is None:
        raise ProblemError("families and operator_mix give no candidate at all; widen them")
    names = tuple(operator.name for operator in OPERATORS if operator.family in science.families)
    return Stream(chain([first], stream), names)

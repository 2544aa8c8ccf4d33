"""Which stream the settings ask for; the crawl, minutes long, gives way to a report made here."""

from contextlib import AsyncExitStack
from itertools import islice
from pathlib import Path

import pytest

from cuda_agent.config import Backend, DatasetScience
from cuda_agent.problems import torch_crawl
from cuda_agent.problems.composers import candidates
from cuda_agent.problems.seeds import CrawlReport
from tests.problems.test_sampler import TORCH, elements


@pytest.fixture(autouse=True)
def crawled(monkeypatch: pytest.MonkeyPatch) -> None:
    async def crawl(*_: object, **__: object) -> CrawlReport:
        return TORCH

    monkeypatch.setattr(torch_crawl, "crawl_torch", crawl)


@pytest.mark.parametrize(
    ("backend", "least_ms", "least", "most"),
    [("cpu", 0.05, 2**10, 2**19), ("cuda", 0.05, 2**10, 2**19), ("cpu", 1.0, 2**17, 2**26), ("cuda", 1.0, 2**20, 2**29)],
)
async def test_sizes_follow_the_window_and_the_device(
    backend: Backend, least_ms: float, least: int, most: int, tmp_path: Path
) -> None:
    science = DatasetScience(count=20, eager_ms_min=least_ms, eager_ms_max=200 * least_ms, transformers_share=0.0)
    async with AsyncExitStack() as opened:
        stream = await candidates(science, opened, backend=backend, cache_dir=tmp_path)
        for problem in islice(stream.problems, 20):
            assert least <= elements(problem) < most

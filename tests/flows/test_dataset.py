"""The flow `dataset` alone on real services: its set, its provenance, and the card among the run's artifacts."""

import asyncio
from uuid import UUID

import pytest
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, temporary_settings

from cuda_agent.config import DatasetConfig, DatasetScience, JudgeConfig
from cuda_agent.problems.stored import find_dataset
from cuda_agent.store.queries import dataset_problems
from cuda_agent.store.session import cache_folder, open_store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
CONFIG = DatasetConfig(
    science=DatasetScience(count=2, composer="catalogue", operator_mix={1: 1.0}, eager_ms_min=0.001, eager_ms_max=500.0)
)


async def _card(key: str) -> str:
    async with get_client() as client:
        artifacts = await client.read_artifacts()
    return next(str(artifact.data) for artifact in artifacts if artifact.key == key)


def test_a_set_is_made_with_its_card_and_found_again(prefect_server: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {**prefect_server, "CUDA_AGENT_CACHE": str(cache_folder())}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with temporary_settings({PREFECT_API_URL: prefect_server["PREFECT_API_URL"]}):
        from flows.dataset import dataset

        made = UUID(str(asyncio.run(dataset(CONFIG, JudgeConfig()))["dataset_id"]))
        again = asyncio.run(dataset(CONFIG, JudgeConfig()))
        card = asyncio.run(_card(f"dataset-{made}"))
    store = open_store()
    assert len(dataset_problems(store, made)) == 2 and UUID(str(again["dataset_id"])) == made
    provenance = find_dataset(store, made).provenance
    assert provenance["composer"] == "catalogue" and provenance["by_rule"]["accepted"] == 2
    assert "2 accepted problems" in card and "data:image/png;base64," in card
    store.close()

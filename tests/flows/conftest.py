"""A miniature campaign through every stage, run once for the session on real services."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from cuda_agent.config import CampaignConfig
from cuda_agent.store.session import Store, cache_folder, open_store

ROOT = Path(__file__).resolve().parents[2]
BOUNDS = {"max_turns": 4, "context_tokens": 1024, "turn_tokens": 200, "skill": "short"}

# The policy learns next to nothing in 40 steps; the teacher's episodes give RFT something to keep.
MINIATURE = CampaignConfig.model_validate(
    {
        "name": "miniature",
        "judge": {"timing_seconds": 0.3, "build_seconds": 60, "run_seconds": 60},
        "dataset": {
            "science": {
                "count": 6,
                "held_out": 2,
                "composer": "catalogue",
                "operator_mix": {1: 0.5, 2: 0.5},
                "eager_ms_min": 0.01,
                "eager_ms_max": 20,
            },
        },
        "base_policy": {"science": {"width": 64, "layers": 2, "heads": 2, "steps": 40, "demonstrations": 200}},
        "warmup": {
            "science": {
                "steps": 1,
                "minibatch": 4,
                "actor_rate": 1e-4,
                "critic_rate": 1e-3,
                "rollouts": {"single_turn": True, "episodes": 4, "episode": BOUNDS},
            }
        },
        "rollouts": {"science": {"episodes": 4, "episode": BOUNDS}},
        "teacher_rollouts": {"science": {"engine": "teacher", "episodes": 4, "episode": BOUNDS}},
        "rft": {"science": {"engines": ["transformers", "teacher"], "epochs": 1, "rate": 1e-4}},
        "critic": {"science": {"epochs": 1, "rate": 1e-3}},
        "ppo": {
            "science": {
                "steps": 2,
                "minibatch": 4,
                "actor_rate": 1e-4,
                "critic_rate": 1e-3,
                "rollouts": {"episodes": 4, "episode": BOUNDS},
            }
        },
        "evaluation": {"science": {"samples_per_problem": 1, "episode": BOUNDS}},
        "budget_minutes": {"dataset": 1.0},
    }
)


@dataclass(frozen=True)
class Finished:
    """The campaign's id, its store, and the environment that reaches both."""

    campaign_id: UUID
    store: Store
    environment: dict[str, str]


@pytest.fixture(scope="module")
def finished(prefect_server: dict[str, str]) -> Iterator[Finished]:
    """The miniature campaign, completed in this process; the environment is as before when the module is over."""
    variables = {**prefect_server, "CUDA_AGENT_CACHE": str(cache_folder())}  # what `make setup` has compiled already
    # Prefect reads the environment once, when it is imported; here that was before the server had an address.
    settings = temporary_settings({PREFECT_API_URL: prefect_server["PREFECT_API_URL"]})
    with pytest.MonkeyPatch.context() as patch, settings:
        for name, value in variables.items():
            patch.setenv(name, value)
        from flows.campaign import campaign

        outcome = asyncio.run(campaign(MINIATURE))
        store = open_store()
        yield Finished(UUID(outcome["campaign_id"]), store, dict(os.environ))
        store.close()


def run(arguments: list[str], environment: dict[str, str], timeout: float = 150.0) -> subprocess.CompletedProcess[str]:
    """A command in the checkout with the campaign's environment."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )

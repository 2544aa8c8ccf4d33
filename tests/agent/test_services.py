"""What a process keeps open for its batches: an engine that ended is not handed out again."""

import os
import signal
from pathlib import Path

import pytest

from cuda_agent.agent.services import Services
from cuda_agent.config import BasePolicyScience, RolloutScience, VllmExecution
from cuda_agent.engines.base import Sampling
from cuda_agent.engines.transformers import TransformersEngine
from cuda_agent.errors import EngineError
from cuda_agent.learning.base_model import make_policy_folder
from cuda_agent.store.session import Store
from cuda_agent.store.versions import publish_policy

MODEL = BasePolicyScience(width=32, heads=2, layers=1, vocabulary=512, context_tokens=128)
SCIENCE = RolloutScience(engine="transformers")
SAMPLING = Sampling(max_new_tokens=3)


async def test_an_engine_that_ended_is_replaced(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "policy"
    folder.mkdir()
    make_policy_folder(folder, MODEL)
    policy = publish_policy(store, folder, stage="base", stage_run_id=None, parent_id=None)
    services = Services(store, tmp_path / "cache")
    try:
        first = await services.engine(SCIENCE, policy, VllmExecution())
        assert isinstance(first, TransformersEngine) and first is await services.engine(SCIENCE, policy, VllmExecution())
        process = first._process._process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(EngineError):
            await first.generate([5, 6], SAMPLING)
        second = await services.engine(SCIENCE, policy, VllmExecution())
        assert isinstance(second, TransformersEngine) and second is not first
        assert len((await second.generate([5, 6], SAMPLING)).token_ids) > 0
    finally:
        await services.close()

"""Stored sets: made, interrupted, taken up again, vetted, and never spoiled by what a problem does."""

from pathlib import Path
from uuid import UUID

import pytest

from cuda_agent.config import DatasetExecution, JudgeConfig
from cuda_agent.errors import StoreError
from cuda_agent.problems.card import dataset_card
from cuda_agent.problems.making import Order, Shared, make_set, store_set, vet_set
from cuda_agent.problems.problem import VettedProblem
from cuda_agent.problems.sources import Source, read_dataset, read_path
from cuda_agent.problems.stored import find_dataset, list_datasets, stored_problems
from cuda_agent.sandbox.forkserver import ForkServer
from cuda_agent.store.queries import dataset_problems
from cuda_agent.store.session import Store, cache_folder
from cuda_agent.store.stages import StageRequest, claim_stage
from tests.problems.test_kernelbench import checkout
from tests.problems.texts import catalogue, text

pytestmark = pytest.mark.asyncio(loop_scope="session")
CACHE = cache_folder()
SCIENCE = catalogue(count=3, held_out=1, eager_ms_min=0.001, eager_ms_max=500.0, seed=7)
EVALUATION = {"held 7": text("x = torch.erfinv(x)")}
ORDER = Order(SCIENCE, DatasetExecution(candidate_seconds=20.0), JudgeConfig(), EVALUATION)


class Interrupted(Exception):
    pass


def stage_run(store: Store, name: str) -> UUID:
    with claim_stage(store, StageRequest(name, 1, {}, {})) as claim:
        claim.finish({})
        return claim.row_id


async def test_an_interrupted_set_is_taken_up_where_it_stopped(store: Store, warm: ForkServer) -> None:
    run, seen = stage_run(store, "dataset"), list[int]()

    def stop_after_one(problem: VettedProblem) -> None:
        seen.append(problem.position)
        raise Interrupted

    with pytest.raises(Interrupted):
        await make_set(store, run, ORDER, cache_dir=CACHE, on_result=stop_after_one, shared=Shared(warm))
    assert [problem.position for problem in stored_problems(store, find_dataset(store).id)] == [0] == seen
    made = await make_set(store, run, ORDER, cache_dir=CACHE, on_result=lambda p: seen.append(p.position), shared=Shared(warm))
    rows = stored_problems(store, made)
    assert seen == [row.position for row in rows] == list(range(len(rows)))
    assert sorted(problem.split for problem in dataset_problems(store, made)) == ["held_out", "train", "train"]
    assert await make_set(store, run, ORDER, cache_dir=CACHE, on_result=pytest.fail, shared=Shared(warm)) == made
    _check_provenance(store, made)


def _check_provenance(store: Store, made: UUID) -> None:
    provenance = find_dataset(store, made).provenance
    assert provenance["composer"] == "catalogue" and provenance["seed"] == 7 and provenance["license"] == "apache-2.0"
    assert {"python", "torch", "transformers"} <= set(provenance["versions"]) and "relu" in provenance["operators"]
    assert provenance["evaluation"]["problems"] == 1 and provenance["by_rule"]["accepted"] == 3
    assert provenance["candidates"] == len(stored_problems(store, made))
    page = dataset_card(store, made)
    assert "3 accepted problems" in page and "data:image/png;base64," in page and len(page) < 100_000


async def test_every_problem_of_a_checkout_is_vetted_and_named(store: Store, warm: ForkServer, tmp_path: Path) -> None:
    checkout(tmp_path)
    (tmp_path / "KernelBench/level1/3_Zero.py").write_text(text("x = x * 0.0"))
    (tmp_path / "KernelBench/level1/4_Exit.py").write_text(text("raise ValueError('\\0\\ud800 and so on')"))
    (tmp_path / "KernelBench/level1/5_Crash.py").write_text(text("import os\nos._exit(0)"))
    (tmp_path / "KernelBench/level1/20_Again.py").write_text((tmp_path / "KernelBench/level1/2_Scale.py").read_text())
    source = read_path(tmp_path, [1])
    run, seen = stage_run(store, "vetting"), list[VettedProblem]()
    results = await vet_set(store, run, source, ORDER, cache_dir=CACHE, on_result=seen.append, shared=Shared(warm))
    rows = {str(row.facts["name"]): row for row in stored_problems(store, results)}
    assert list(rows) == [f"level1/{name}" for name in ("2_Scale", "3_Zero", "4_Exit", "5_Crash", "10_Softmax", "20_Again")]
    assert rows["level1/20_Again"].rule == "near_duplicate" and "level1/2_Scale" in str(rows["level1/20_Again"].reason)
    assert rows["level1/2_Scale"].accepted and rows["level1/2_Scale"].split == "train"
    assert not any(rows[f"level1/{name}"].accepted for name in ("3_Zero", "4_Exit", "5_Crash"))
    assert rows["level1/4_Exit"].rule == "runs_eager" and "and so on" in str(rows["level1/4_Exit"].reason)
    assert find_dataset(store, results).complete and [problem.position for problem in seen] == list(range(6))
    assert await vet_set(store, run, source, ORDER, cache_dir=CACHE, on_result=pytest.fail, shared=Shared(warm)) == results
    again = read_dataset(store, results)
    assert {item.name for item in again.items} <= {"level1/2_Scale", "level1/10_Softmax"} and again.license == "mit"


async def test_a_set_without_accepted_problems_is_stored_and_not_offered(store: Store, warm: ForkServer, tmp_path: Path) -> None:
    folder = tmp_path / "level1"
    folder.mkdir()
    (folder / "1_Zero.py").write_text(text("x = x * 0.0"))
    run, source = stage_run(store, "vetting"), read_path(tmp_path)
    results = await vet_set(store, run, source, ORDER, cache_dir=CACHE, on_result=lambda _: None, shared=Shared(warm))
    assert not find_dataset(store, results).complete
    ((row, accepted, candidates),) = list_datasets(store)
    assert (row.id, accepted, candidates) == (results, 0, 1)


async def test_a_set_is_stored_as_it_is_and_needs_problems_for_training(store: Store, tmp_path: Path) -> None:
    source = read_path(checkout(tmp_path), [1])
    stored = store_set(store, source, ["train", "held_out"], {"seed": 3})
    assert [(row.position, row.split) for row in stored_problems(store, stored)] == [(0, "train"), (1, "held_out")]
    assert find_dataset(store, stored).provenance["parent"]["sha256"] == source.digest
    with pytest.raises(StoreError, match="no problem for training"):
        store_set(store, Source("x", "parquet", source.items), ["held_out", "held_out"], {})

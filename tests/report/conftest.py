"""A builder of campaigns in the store of a real Postgres: rows only, nothing is sampled, judged or trained."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID

import pytest

from cuda_agent.store.session import Store
from cuda_agent.store.tables import (
    Base,
    Campaign,
    CampaignStage,
    Dataset,
    Evaluation,
    PolicyVersion,
    Problem,
    Rollout,
    RolloutBatch,
    StageRun,
    Turn,
    Update,
    Verdict,
    new_id,
)

STARTED = datetime(2026, 1, 5, 10, 0, tzinfo=UTC)
FAILURES = ("wrong_output", "build_error", "no_submission", "load_error", "hack")


@dataclass
class CampaignRows:
    """Inserts the rows that a campaign leaves behind, stage by stage, and remembers their ids."""

    store: Store
    campaign: UUID
    dataset: UUID
    train: list[UUID]
    held_out: list[UUID]
    random: Random = field(default_factory=lambda: Random(7))
    stages: int = 0
    policies: dict[str, UUID] = field(default_factory=dict)

    def stage(self, name: str, seconds: float = 30.0, **columns) -> UUID:
        """A stage run at the campaign's next position."""
        values = {"campaign_id": self.campaign, "config": {}, "inputs": {}, "status": "completed", "outputs": {}} | columns
        run = StageRun(key=f"{self.campaign}-{self.stages}", stage=name, seconds=seconds, **values)
        self.insert(run)
        self.insert(CampaignStage(campaign_id=self.campaign, position=self.stages, stage_run_id=run.id))
        self.stages += 1
        return run.id

    def policy(self, stage: str, stage_run: UUID | None = None, parent: UUID | None = None, step: int = 0) -> UUID:
        """A policy version that names its stage."""
        blank = {name: "0" for name in ("base_sha256", "weights_sha256", "tokenizer_sha256", "template_sha256")}
        version = PolicyVersion(
            stage=stage, step=step, stage_run_id=stage_run, parent_id=parent,
            weights_uri="file:///none", dtype="float32", complete=True, **blank,
        )  # fmt: skip
        self.insert(version)
        self.policies[stage] = version.id
        return version.id

    def batch(self, stage_run: UUID, policy: UUID | None, episodes: int, purpose="train", step=0, engine="transformers") -> UUID:
        """An empty rollout batch."""
        batch = RolloutBatch(
            stage_run_id=stage_run, step=step, dataset_id=self.dataset, policy_version_id=policy,
            engine=engine, purpose=purpose, science={}, episodes=episodes,
        )  # fmt: skip
        self.insert(batch)
        return batch.id

    def rollout(self, batch: UUID, position: int, problem: UUID, outcome: str | None, times=None, reward=None, **columns) -> UUID:
        """One attempt; `times` are (candidate, eager, compile) in milliseconds."""
        rows = self.attempt(batch, position, problem, outcome, times, reward, **columns)
        self.insert(*rows)
        return rows[-1].id

    def attempt(self, batch: UUID, position: int, problem: UUID, outcome: str | None, times, reward, **columns) -> list[Base]:
        """The rows of one attempt, the rollout last."""
        rows: list[Base] = []
        if outcome not in (None, "no_submission"):
            candidate, eager, compiled = times or (None, 1.0, 1.0)
            rows.append(Verdict(
                id=new_id(), cache_key="", problem_sha256="", submission_sha256="5" * 64, status=outcome, kind=None,
                message=f"{outcome} found", reward=reward, candidate_ms=candidate, eager_ms=eager, compile_ms=compiled,
                phases={"build": 0.5, "total": 1.0}, environment={"backend": "cpu", "threads": 2},
            ))  # fmt: skip
        values = {"engine": "transformers", "seed": position, "attempt": 1, "stop_reason": "declared_done"} | columns
        rows.append(Rollout(
            id=new_id(), batch_id=batch, position=position, problem_id=problem, outcome=outcome,
            reward=reward, verdict_id=rows[0].id if rows else None, **values,
        ))  # fmt: skip
        return rows

    def sampled(self, batch: UUID, problems: list[UUID], samples: int, passing: float, fast: float, **columns) -> None:
        """`samples` episodes of each problem: correct with probability `passing`, and of these fast with `fast`."""
        rows: list[Base] = []
        for position, problem in enumerate(problem for problem in problems for _ in range(samples)):
            outcome, times, reward = self.random.choice(FAILURES), None, -1.0
            if self.random.random() < passing:
                outcome, times, reward = "correct", (1.5, 1.0, 0.9), 1.0
                if self.random.random() < fast:
                    times, reward = (0.5, 1.0, 0.9), 3.0
            rows += self.attempt(batch, position, problem, outcome, times, reward, **columns)
        self.insert(*rows)

    def evaluated(self, label: str, policy: UUID | None, passing: float, fast: float, samples: int = 4) -> UUID:
        """An evaluation stage with its episodes and its row."""
        run = self.stage("evaluation", 22.0, label=label)
        batch = self.batch(run, policy, samples * len(self.held_out), "evaluation")
        self.sampled(batch, self.held_out, samples, passing, fast)
        self.insert(Evaluation(stage_run_id=run, batch_id=batch, policy_version_id=policy, label=label, summary={}))
        return batch

    def trained(self, name: str, steps: int, policy: UUID, passing: float, fast: float) -> UUID:
        """A PPO stage: batches, updates and the resulting policy."""
        run = self.stage(name, 80.0)
        result = policy
        for step in range(steps):
            batch = self.batch(run, result, 32, step=step)
            gain = 0.1 * step
            self.sampled(batch, self.train, 1, min(passing + gain, 1.0), min(fast + gain, 1.0))
            result = self.policy(name, run, result, step + 1)
            metrics = {"actor_loss": -0.01, "ratio_clipped": 0.02, "seconds": 4.5}
            self.insert(
                Update(stage_run_id=run, stage=name, step=step, batch_id=batch, policy_version_id=result, metrics=metrics)
            )
        return result

    def insert(self, *rows: Base) -> None:
        """Rows, committed together; a table before those that refer to it."""
        with self.store.session() as session:
            for table in Base.metadata.sorted_tables:
                session.add_all([row for row in rows if row.__table__ is table])
                session.flush()

    def transcript(self, rollout: UUID, turns: list[dict]) -> None:
        """Turns of a rollout in order."""
        numbered = enumerate(turns)
        self.insert(*(Turn(rollout_id=rollout, position=place, **({"tool_calls": []} | turn)) for place, turn in numbered))


@pytest.fixture
def begin(store: Store) -> Callable[..., CampaignRows]:
    """Starts a campaign with a dataset of 32 training and 16 held-out problems, and five rejected candidates."""

    def begin(name: str = "quickstart", *, minutes_later: float = 0.0, budget: dict[str, float] | None = None) -> CampaignRows:
        started = STARTED + timedelta(minutes=minutes_later)
        settings = {"budget_minutes": budget or {}}
        campaign = Campaign(name=name, config=settings, status="running", created_at=started, start_seconds=18.0)
        dataset = Dataset(name="composed", provenance={}, complete=True)
        rows = CampaignRows(store, campaign.id, dataset.id, [], [])
        rows.insert(campaign)
        rows.campaign = campaign.id
        dataset.stage_run_id = rows.stage("dataset", 120.0)
        rows.insert(dataset)
        rows.dataset = dataset.id
        rules = ["too_fast", "too_fast", "constant_output", "duplicate", "too_fast"]
        kinds = [("train", None)] * 32 + [("held_out", None)] * 16 + [(None, rule) for rule in rules]
        problems = [
            Problem(
                id=new_id(), dataset_id=dataset.id, position=position, ops=["relu", "softmax"], data_source="torch#2",
                code="import torch\n", code_sha256=str(position), split=split, rule=rule, facts={},
            )
            for position, (split, rule) in enumerate(kinds)
        ]  # fmt: skip
        rows.insert(*problems)
        rows.train = [problem.id for problem in problems if problem.split == "train"]
        rows.held_out = [problem.id for problem in problems if problem.split == "held_out"]
        return rows

    return begin


@pytest.fixture
def quickstart(begin: Callable[..., CampaignRows]) -> CampaignRows:
    """A finished campaign of every stage."""
    rows = begin(budget={"start": 1, "dataset": 2.5, "base_policy": 4, "warmup": 1, "rollouts": 1.5, "evaluations": 1.5})
    base = rows.policy("base", rows.stage("base_policy", 240.0))
    rows.evaluated("base", base, 0.45, 0.1)
    warm = rows.trained("warmup", 2, base, 0.45, 0.1)
    rows.evaluated("warmup", warm, 0.55, 0.2)
    rolled = rows.stage("rollouts", 75.0)
    batch = rows.batch(rolled, warm, 32)
    rows.sampled(batch, rows.train, 1, 0.55, 0.2)
    teacher_run = rows.stage("rollouts", 15.0)
    teacher = rows.batch(teacher_run, None, 8, engine="teacher")
    rows.sampled(teacher, rows.train[:8], 1, 1.0, 0.5, engine="teacher")
    batch_ids = {"batch_ids": [str(batch), str(teacher)]}
    tuned_run = rows.stage("rft", 20.0, inputs=batch_ids, outputs={"episodes_by_engine": {"transformers": 17}})
    tuned = rows.policy("rft", tuned_run, warm)
    rows.insert(Update(stage_run_id=tuned_run, stage="rft", step=0, policy_version_id=tuned, metrics={"loss": 0.31}))
    rows.evaluated("rft", tuned, 0.7, 0.3)
    rows.stage("critic", 25.0, inputs=batch_ids)
    rows.evaluated("ppo", rows.trained("ppo", 4, tuned, 0.7, 0.4), 0.85, 0.8)
    with rows.store.session() as session:
        campaign = session.get_one(Campaign, rows.campaign)
        campaign.status, campaign.ended_at = "completed", STARTED + timedelta(minutes=14)
    return rows

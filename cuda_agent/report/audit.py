"""Which rewards deserve a look: counted verdicts of a campaign that the judge did not believe at once and judged twice."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sqlalchemy import select

from cuda_agent.judge.doubts import TWICE
from cuda_agent.report import reading
from cuda_agent.report.grids import UNKNOWN, Grid, decimal, speedup
from cuda_agent.store.tables import CampaignStage, Problem, Rollout, RolloutBatch, Verdict

if TYPE_CHECKING:
    from cuda_agent.store.session import Store

Json = dict[str, Any]


def campaign_audit(store: "Store", campaign_id: UUID | None = None) -> list[Json]:
    """Of each such verdict: rollout, purpose of its batch, problem, submission, what counted, and both judgements.

    The highest first speed-up comes first; None takes the campaign begun last.

    Raises:
        ConfigError: no campaign has this id.
        StoreError: the store is not reachable, or holds no campaign.
    """
    with store.session() as session:
        campaign = reading.find_campaign(session, campaign_id)
        found = session.execute(
            select(Rollout, RolloutBatch.purpose, Problem, Verdict)
            .join(RolloutBatch, RolloutBatch.id == Rollout.batch_id)
            .join(CampaignStage, CampaignStage.stage_run_id == RolloutBatch.stage_run_id)
            .join(Problem, Problem.id == Rollout.problem_id)
            .join(Verdict, Verdict.id == Rollout.verdict_id)
            .where(CampaignStage.campaign_id == campaign.id, Verdict.environment.has_key(TWICE))
        )
        entries = [_entry(*row) for row in found]
    return sorted(entries, key=lambda entry: -(entry["judgements"][0]["speedup_vs_eager"] or 0.0))


def _entry(rollout: Rollout, purpose: str, problem: Problem, verdict: Verdict) -> Json:
    return {
        "rollout": str(rollout.id),
        "purpose": purpose,
        "problem": str(problem.id),
        "ops": list(problem.ops),
        "submission_sha256": verdict.submission_sha256,
        "status": verdict.status,
        "reward": verdict.reward,
        "judgements": [_judgement(one) for one in verdict.environment[TWICE]],
    }


def _judgement(facts: Json) -> Json:
    times = (facts["eager_ms"], facts["candidate_ms"])
    return {**facts, "speedup_vs_eager": times[0] / times[1] if all(times) else None}


def audit_grid(entries: Sequence[Json]) -> Grid:
    """The same as a table."""
    rows = tuple(
        (
            entry["rollout"],
            " ".join(entry["ops"]),
            *(cell for one in entry["judgements"] for cell in (speedup(one["speedup_vs_eager"]), _worth(one))),
            UNKNOWN if entry["reward"] is None else decimal(entry["reward"], 0),
        )
        for entry in entries
    )
    headings = ("rollout", "operators", "× eager", "verdict", "× again", "verdict again", "reward")
    note = "speed-ups above 10× or in the top 1 %, judged a second time; the lower verdict counts"
    return Grid("Audit", headings, rows, note, figures=False)


def _worth(judgement: Json) -> str:
    reward = judgement["reward"]
    return judgement["status"] if reward is None else f"{judgement['status']}, {decimal(reward, 0)}"

"""The report's tables as plain cells, so that terminal and dashboard show the same figures.

Input is the object of `campaign_summary`; nothing is computed here beyond sums and formatting. Rates are shown in per cent,
speed-ups with ×, intervals as [low, high] in the unit of the figure before them, and what is not known as a dash.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

UNKNOWN = "–"


@dataclass(frozen=True)
class Grid:
    """A table: title, headings, rows of cells, a note under it; `figures` says that all columns but the first hold numbers."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    figures: bool = True


def report_grids(summary: Json) -> list[Grid]:
    """Every table of the report that has rows, in reading order."""
    grids = [
        evaluation_grid(summary["evaluations"]),
        difference_grid(summary["evaluations"]),
        stage_grid(summary),
        outcome_grid(summary["rollouts"]),
        problem_grid(summary["problems"]),
        engine_grid(summary["training_episodes"]),
    ]
    return [grid for grid in grids if grid.rows]


def evaluation_grid(evaluations: Sequence[Json]) -> Grid:
    """One row per evaluated policy, with 95 % intervals."""
    rows = tuple(
        (
            policy_name(found, evaluations),
            str(found["episodes"]),
            with_interval(percent, found["pass_rate"], found["pass_rate_interval"]),
            with_interval(decimal, found["mean_reward"], found["mean_reward_interval"]),
            with_interval(percent, found["faster_than_eager"], found["faster_than_eager_interval"]),
            with_interval(percent, found["faster_than_compile"], found["faster_than_compile_interval"]),
            speedup(found["geomean_vs_eager"]),
            speedup(found["geomean_vs_compile"]),
        )
        for found in evaluations
    )
    headings = (
        "policy", "episodes", "pass %", "mean reward", "faster than eager %", "than compile %", "× eager", "× compile",
    )  # fmt: skip
    return Grid("Evaluation on held-out problems", headings, rows, evaluation_note(evaluations))


def evaluation_note(evaluations: Sequence[Json]) -> str:
    """What the intervals mean, and how many episodes are missing."""
    if not evaluations:
        return ""
    missing = sum(found["infra_errors"] for found in evaluations)
    note = f"[95 % interval clustered by problem, {evaluations[0]['problems']} problems]; × are geometric means over correct ones"
    return f"{note}; {missing} episodes ended in infrastructure errors and are left out" if missing else note


def difference_grid(evaluations: Sequence[Json]) -> Grid:
    """How each policy differs from the base policy and from the one before it, problem by problem."""
    rows = []
    for found, previous in zip(evaluations[1:], evaluations, strict=False):
        base, step = found["difference_to_base"], found["difference_to_previous"]
        rows.append(
            (
                policy_name(found, evaluations),
                difference(signed, base["mean_reward"]),
                difference(signed_percent, base["pass_rate"]),
                policy_name(previous, evaluations),
                difference(signed, step["mean_reward"]),
                difference(signed_percent, step["pass_rate"]),
            )
        )
    first = policy_name(evaluations[0], evaluations) if evaluations else "base"
    headings = ("policy", f"reward − {first}", f"pass % − {first}", "previous", "reward − previous", "pass % − previous")
    return Grid("Differences", headings, tuple(rows), "[95 % interval of the paired difference by problem]")


def stage_grid(summary: Json) -> Grid:
    """Minutes of work by stage against the plan."""
    rows: list[tuple[str, ...]] = []
    for entry in summary["budget"]:
        runs = [stage for stage in summary["stages"] if stage["name"].removesuffix("s") == entry["name"].removesuffix("s")]
        rows.append(
            (
                entry["name"],
                _status(runs),
                str(len(runs)),
                str(sum(stage["attempts"] for stage in runs)),
                decimal(entry["actual_minutes"], 1),
                decimal(entry["planned_minutes"], 1),
            )
        )
    if rows:
        rows.append(_total(summary))
    note = f"minutes of work; the campaign took {decimal(summary['campaign']['seconds'] / 60, 1)} minutes from start to end"
    return Grid("Stages", ("stage", "status", "runs", "attempts", "minutes", "budget"), tuple(rows), note)


def outcome_grid(rollouts: Json) -> Grid:
    """Rollouts by outcome, training and evaluation apart."""
    purposes = list(rollouts["by_purpose"])
    total = rollouts["total"]
    rows: list[tuple[str, ...]] = [
        (
            outcome,
            *(str(rollouts["by_purpose"][purpose].get(outcome, 0)) for purpose in purposes),
            str(count),
            percent(count / total),
        )
        for outcome, count in rollouts["by_outcome"].items()
    ]
    if rows:
        sums = (str(sum(rollouts["by_purpose"][purpose].values())) for purpose in purposes)
        rows.append(("total", *sums, str(total), percent(1.0)))
    return Grid("Rollouts by outcome", ("outcome", *purposes, "all", "share %"), tuple(rows))


def problem_grid(problems: Json) -> Grid:
    """Problems accepted by split and rejected by rule."""
    accepted = tuple((f"accepted, {split}", str(count)) for split, count in sorted(problems["accepted_by_split"].items()))
    rejected = tuple((f"rejected, {rule}", str(count)) for rule, count in problems["rejected"].items())
    return Grid("Problems", ("problems", "count"), accepted + rejected)


def engine_grid(training_episodes: dict[str, dict[str, int]]) -> Grid:
    """Episodes that each training stage drew on, by engine."""
    engines = list(dict.fromkeys(engine for counts in training_episodes.values() for engine in counts))
    rows = tuple((stage, *(str(counts.get(engine, 0)) for engine in engines)) for stage, counts in training_episodes.items())
    return Grid("Training episodes by engine", ("stage", *engines), rows)


def update_grid(updates: Sequence[Json], most: int = 200) -> Grid:
    """The last `most` optimiser steps with their scalar metrics."""
    rows = tuple(
        (step["stage"], str(step["step"]), (step["policy_version"] or UNKNOWN)[-6:], scalars(step["metrics"]))
        for step in updates[-most:]
    )
    note = f"the last {most} of {len(updates)}" if len(updates) > most else ""
    return Grid("Updates", ("stage", "step", "policy", "metrics"), rows, note, figures=False)


def policy_name(found: Json, evaluations: Sequence[Json]) -> str:
    """The stage that made a policy; its step too, where several policies of that stage were evaluated."""
    same = [other for other in evaluations if other["stage"] == found["stage"]]
    return f"{found['stage']} {found['step']}" if len(same) > 1 and found["step"] is not None else str(found["stage"])


def scalars(metrics: Json, most: int = 8) -> str:
    """The first scalar metrics as `name value, …`."""
    numbers = [(name, value) for name, value in metrics.items() if isinstance(value, int | float)]
    return ", ".join(f"{name} {value:.4g}" for name, value in numbers[:most])


def percent(value: float | None) -> str:
    """A share in per cent, without the sign."""
    return UNKNOWN if value is None else f"{100 * value:.0f}"


def decimal(value: float | None, digits: int = 2) -> str:
    """A plain number."""
    return UNKNOWN if value is None else _minus(f"{value:.{digits}f}")


def speedup(value: float | None) -> str:
    """A ratio of times."""
    return UNKNOWN if value is None else f"{value:.2f}×"


def signed(value: float | None) -> str:
    """A number that always shows its sign."""
    return UNKNOWN if value is None else _minus(f"{value:+.2f}")


def signed_percent(value: float | None) -> str:
    """A difference of shares in percentage points."""
    return UNKNOWN if value is None else _minus(f"{100 * value:+.0f}")


def with_interval(shown: Any, value: float | None, interval: Sequence[float] | None) -> str:
    """`value [low, high]`, each formatted by `shown`."""
    return shown(value) if interval is None else f"{shown(value)} [{shown(interval[0])}, {shown(interval[1])}]"


def difference(shown: Any, found: Json | None) -> str:
    """A paired difference with its interval."""
    return UNKNOWN if found is None else with_interval(shown, found["value"], found["interval"])


def _minus(text: str) -> str:
    """A formatted number with a true minus sign, and none before a zero."""
    return text.replace("-", "−" if text.strip("-0.") else "")


def _status(runs: Sequence[Json]) -> str:
    """The one status of a stage's runs: the first that is not completed; whether all results were there before."""
    if not runs:
        return UNKNOWN
    status = next((str(run["status"]) for run in runs if run["status"] != "completed"), "completed")
    return "reused" if status == "completed" and all(run["reused"] for run in runs) else status


def _total(summary: Json) -> tuple[str, ...]:
    planned = [entry["planned_minutes"] for entry in summary["budget"] if entry["planned_minutes"] is not None]
    actual = [entry["actual_minutes"] for entry in summary["budget"] if entry["actual_minutes"] is not None]
    attempts = sum(stage["attempts"] for stage in summary["stages"])
    return (
        "total",
        str(summary["campaign"]["status"]),
        str(len(summary["stages"])),
        str(attempts),
        decimal(sum(actual), 1),
        decimal(sum(planned), 1) if planned else UNKNOWN,
    )

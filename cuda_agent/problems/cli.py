"""What `cuda-agent problems …` does: paths and settings are checked before any work, results go to stdout, progress to stderr.

Every function takes an open store; the command line starts and stops the services around it. Work runs on behalf of a stage
run, so the same command again returns what is stored, and after an interruption goes on from it.
"""

import asyncio
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from pydantic import ValidationError
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cuda_agent.config import (
    Backend,
    CampaignConfig,
    DatasetConfig,
    DatasetExecution,
    DatasetScience,
    JudgeConfig,
    first_fault,
    load_campaign,
)
from cuda_agent.engines.openai import Endpoint
from cuda_agent.errors import ConfigError
from cuda_agent.judge.machine import device_model
from cuda_agent.problems.card import write_card
from cuda_agent.problems.exchange import export_parquet
from cuda_agent.problems.making import VERSION, Order, make_set, store_set, vet_set
from cuda_agent.problems.problem import VettedProblem
from cuda_agent.problems.sources import Source, dataset_id, read_dataset, read_path
from cuda_agent.problems.split import split
from cuda_agent.problems.stored import find_dataset, list_datasets, stored_problems
from cuda_agent.store.canonical import jsonable
from cuda_agent.store.session import Store
from cuda_agent.store.stages import StageRequest, claim_stage

WINDOWS: dict[Backend, tuple[float, float]] = {"cpu": (0.05, 5.0), "cuda": (1.0, 100.0)}  # milliseconds, unless set
AT_THE_LIMITS = {"time_margin": 1.0, "effect_margin": 1.0, "one_sign": True}  # settings for vetting a set that is given
RULES_OF_A_GIVEN_SET = ("eager_ms_min", "eager_ms_max", "max_similarity", "tensor_mb", "seed")
ROWS_SHOWN = 40

Tell = Callable[[str], None]


def plan(
    file: Path | None,
    changes: Mapping[str, Any],
    *,
    backend: Backend | None = None,
    workers: int | None = None,
    evaluation: Mapping[str, str] | None = None,
    endpoint: Endpoint | None = None,
) -> Order:
    """The order that a campaign file and changes to its `dataset.science` make; None in `changes` changes nothing.

    Without a file the settings are the defaults, on all cores. A window of eager times that is set nowhere is that of the
    backend.

    Raises:
        ConfigError: the file or a setting is not usable.
    """
    campaign = load_campaign(file) if file else CampaignConfig(dataset=DatasetConfig(execution=_all_cores()))
    judge = campaign.judge if backend is None else campaign.judge.model_copy(update={"backend": backend})
    given = campaign.dataset.science
    stated = given.model_dump(include=given.model_fields_set)
    least, most = WINDOWS[judge.backend]
    science = {"eager_ms_min": least, "eager_ms_max": most} | stated | _set(changes)
    execution = campaign.dataset.execution.model_dump() | _set({"workers": workers})
    try:
        return Order(
            DatasetScience.model_validate(science),
            DatasetExecution.model_validate(execution),
            JudgeConfig.model_validate(judge.model_dump()),
            evaluation or {},
            endpoint,
        )
    except ValidationError as error:
        raise ConfigError(first_fault(error)) from error


def check_output(path: Path | None) -> None:
    """Refuse a place to write to before the work rather than after it.

    Raises:
        ConfigError: its folder is missing, or it is a folder itself.
    """
    if path is not None and path.is_dir():
        raise ConfigError(f"{path} is a folder; name a parquet file in it, such as {path / 'set.parquet'}")
    if path is not None and not os.access(path.absolute().parent, os.W_OK):
        raise ConfigError(f"the folder of {path} is missing or cannot be written; make it, or name another file")


def generate(store: Store, order: Order, out: Path | None, tell: Tell, *, refresh: bool = False) -> UUID:
    """Make a set, or return the stored one of the same order; write it to `out` with its card. Returns the dataset's id.

    Raises:
        CudaAgentError: whatever `make_set` and `export` raise.
    """
    progress = _Progress(order.science.count, tell)
    science = {"stage": order.science, "judge": order.judge}
    with claim_stage(store, _request("dataset", order, order.inputs(), science, refresh), on_wait=tell) as claim:
        if claim.finished is None:
            work = make_set(store, claim.row_id, order, cache_dir=store.cache_dir, on_result=progress.add, tell=tell)
            made = asyncio.run(work)
            claim.finish({"dataset_id": made})
            tell(progress.summary())
        assert claim.finished is not None
        made = UUID(claim.finished["dataset_id"])
    if out is not None:
        export(store, made, out, tell)
    return made


def vet(store: Store, source: Source, order: Order, tell: Tell, *, as_json: bool = False, refresh: bool = False) -> UUID:
    """Put each problem of a source through every rule and print what came of it; returns the id of the stored results.

    Raises:
        ConfigError, DeviceError, SandboxError: this host cannot run problems.
    """
    inputs = order.inputs() | {"problems": source.digest}
    rules = order.science.model_dump(include={*RULES_OF_A_GIVEN_SET, *AT_THE_LIMITS})
    progress = _Progress(len(source.items), tell)
    request = _request("vetting", order, inputs, {"rules": rules, "judge": order.judge}, refresh)
    with claim_stage(store, request, on_wait=tell) as claim:
        if claim.finished is None:
            results = asyncio.run(vet_set(store, claim.row_id, source, order, cache_dir=store.cache_dir, on_result=progress.add))
            claim.finish({"dataset_id": results})
            tell(progress.summary())
        assert claim.finished is not None
        results = UUID(claim.finished["dataset_id"])
    _print_vetting(stored_problems(store, results), results, as_json)
    return results


def import_set(store: Store, source: Source, *, held_out: int = 0, seed: int = 0, license: str | None = None) -> UUID:
    """Store a source's problems as a dataset, unvetted; returns its id. Sides are those of the source unless some are held out.

    Raises:
        ConfigError: as many problems are held out as there are.
        ProblemError: no exact split exists.
    """
    if held_out >= len(source.items):
        raise ConfigError(f"held_out ({held_out}) must be smaller than the set ({len(source.items)} problems)")
    own = [item.vetted.split for item in source.items]
    if held_out or "train" not in own or None in own:
        sides: Sequence[str | None] = split([item.vetted.ops for item in source.items], held_out, seed)
    else:
        sides = own
    told = {"seed": seed} | ({"license": license} if license else {})
    return store_set(store, source, sides, told)


def wanted_set(store: Store, named: str | None, file: Path, backend: Backend | None, tell: Tell) -> UUID:
    """The dataset that a person names (see `read_source`), or the one that a campaign file describes, made if absent.

    Raises:
        CudaAgentError: what is named cannot be read, or the set cannot be made.
    """
    wanted = dataset_id(named) if named else None
    if wanted is not None:
        return find_dataset(store, wanted).id
    if named is not None:
        return stored_set(store, read_path(Path(named)))
    return generate(store, plan(file, {}, backend=backend), None, tell)


def stored_set(store: Store, source: Source) -> UUID:
    """The dataset that a source's problems are stored as; imported on first use. Raises ProblemError as `import_set` does."""
    with claim_stage(store, StageRequest("import", VERSION, {"problems": source.digest}, {})) as claim:
        if claim.finished is None:
            claim.finish({"dataset_id": import_set(store, source)})
        assert claim.finished is not None
        return UUID(claim.finished["dataset_id"])


def export(store: Store, wanted: UUID | None, out: Path, tell: Tell) -> int:
    """Write a dataset's accepted problems (None: of the newest set) and its card; returns how many there are.

    Raises:
        ConfigError: there is no such dataset.
        ProblemError: none is accepted, or the files cannot be written.
    """
    row = find_dataset(store, wanted)
    problems = stored_problems(store, row.id)
    count = export_parquet(problems, out)
    card = write_card(problems, out, row.provenance | {"dataset": str(row.id)})
    tell(f"{count} problems written to {out}, their card to {card}")
    return count


def read_source(store: Store, source: str, levels: Sequence[int]) -> Source:
    """A parquet file, a KernelBench checkout, or the accepted problems of a dataset by its id.

    Raises:
        ConfigError: nothing of this name is there, or levels are named for a dataset.
        ProblemError: the file or folder is no such set.
    """
    wanted = dataset_id(source)
    if wanted is None:
        return read_path(Path(source), levels)
    if levels:
        raise ConfigError("a dataset has no levels; leave --level out or name a KernelBench checkout")
    return read_dataset(store, wanted)


def show(store: Store, what: str | None, position: int | None) -> None:
    """Print a set's table, or one problem of it with text, facts, rule and reason.

    `what` is a dataset's id, or the position of a problem in the newest set, or `all` for the list of sets.

    Raises:
        ConfigError: there is no such dataset or position.
    """
    if what == "all":
        _print_datasets(store)
        return
    wanted = None
    if what is not None and what.isdecimal():
        if position is not None:
            raise ConfigError("two positions are named; name a dataset's id and a position")
        position = int(what)
    elif what is not None and (wanted := dataset_id(what)) is None:
        raise ConfigError(f"{what!r} is neither a dataset's id nor a position; cuda-agent problems show all lists the sets")
    row = find_dataset(store, wanted)
    problems = stored_problems(store, row.id)
    if position is None:
        _print_table(f"{row.name} {row.id}{'' if row.complete else ' (incomplete)'}", problems)
        return
    found = next((problem for problem in problems if problem.position == position), None)
    if found is None:
        last = max((problem.position for problem in problems), default=-1)
        raise ConfigError(f"dataset {row.id} has no problem at position {position}; positions go up to {last}")
    _print_problem(found)


class _Progress:
    """One line for each candidate, and a summary with the rate."""

    def __init__(self, wanted: int, tell: Tell) -> None:
        self._wanted, self._tell, self._since = wanted, tell, time.monotonic()
        self._rules = Counter[str]()

    def add(self, problem: VettedProblem) -> None:
        """Tell of a result."""
        self._rules[problem.rule or "accepted"] += 1
        self._tell(f"{self._rules['accepted']}/{self._wanted} {line(problem)}")

    def summary(self) -> str:
        """Counts by rule and candidates per hour."""
        hours = (time.monotonic() - self._since) / 3600
        count, rules = self._rules.total(), ", ".join(f"{count} {rule}" for rule, count in self._rules.most_common())
        return f"{count} candidates in {hours * 60:.1f} minutes ({count / max(hours, 1e-9):.0f} an hour): {rules or 'none'}"


def line(problem: VettedProblem) -> str:
    """A result on one line: position, rule, name or operators, time, reason."""
    time_ms = "" if problem.eager_ms is None else f" {problem.eager_ms:.3g} ms"
    reason = "" if problem.reason is None else f": {' '.join(problem.reason.split())[:160]}"
    return plain(f"{problem.position:5d} {problem.rule or 'accepted':<16} {called(problem)}{time_ms}{reason}")


def called(problem: VettedProblem) -> str:
    """Its name in its source, else its operators."""
    return plain(str(problem.facts.get("name") or "+".join(problem.ops)))


def plain(text: str) -> str:
    """Text of others for a terminal: no control characters but line ends and tabs."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in text)


def _request(stage: str, order: Order, inputs: Mapping[str, str], science: Mapping[str, Any], refresh: bool) -> StageRequest:
    backend = order.judge.backend
    return StageRequest(
        stage, VERSION, inputs, science, order.execution, backend=backend, device=device_model(backend), refresh=refresh
    )


def _set(changes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in changes.items() if value is not None}


def _all_cores() -> DatasetExecution:
    return DatasetExecution(workers=len(os.sched_getaffinity(0)))


def _print_vetting(problems: Sequence[VettedProblem], results: UUID, as_json: bool) -> None:
    rules = Counter(problem.rule or "accepted" for problem in problems)
    if as_json:
        for problem in problems:
            print(json.dumps(_json(problem), allow_nan=False))
        summary = {"dataset_id": str(results), "problems": len(problems), "by_rule": dict(rules.most_common())}
        print(json.dumps({"summary": summary}))
        return
    for problem in problems:
        print(line(problem))
    accepted = rules.pop("accepted", 0)
    refused = ", ".join(f"{rule} {count}" for rule, count in rules.most_common()) or "none"
    print(f"accepted {accepted} of {len(problems)} ({accepted / len(problems):.1%}); refused by rule: {refused}")
    one_sided = sum(problem.accepted and problem.facts.get("value_range") == "degenerate" for problem in problems)
    if one_sided:
        print(f"{one_sided} of the accepted draw no negative input, though they could: the judge also asks with negative ones")
    print(f"dataset {results}")


def _json(problem: VettedProblem) -> dict[str, Any]:
    """A result as one JSON object, the text left out."""
    names = ("position", "data_source", "rule", "reason", "eager_ms", "compile_ms", "code_sha256")
    shown: dict[str, Any] = {name: getattr(problem, name) for name in names}
    facts = dict(problem.facts)
    return {"name": facts.pop("name", None), "accepted": problem.accepted, "ops": list(problem.ops), **shown, "facts": facts}


def _console() -> Console:
    """Tables for a terminal in its width, for a file or a pipe without cutting cells."""
    return Console(width=None if sys.stdout.isatty() else 240)


def _print_datasets(store: Store) -> None:
    table = Table("dataset", "name", "accepted", "candidates", "complete", "made")
    for row, accepted, candidates in list_datasets(store):
        made = row.created_at.strftime("%Y-%m-%d %H:%M")
        table.add_row(str(row.id), escape(row.name), str(accepted), str(candidates), "yes" if row.complete else "no", made)
    _console().print(table)


def _print_table(title: str, problems: Sequence[VettedProblem]) -> None:
    """Counts by rule and origin, and the first problems."""
    sources = sorted({problem.data_source for problem in problems})
    counts = Counter((problem.rule or "accepted", problem.data_source) for problem in problems)
    rules = Counter(problem.rule or "accepted" for problem in problems)
    by_rule = Table("rule", *map(escape, sources), "all", title=escape(title), title_justify="left")
    for rule, count in rules.most_common():
        by_rule.add_row(rule, *(str(counts[rule, source]) for source in sources), str(count))
    _console().print(by_rule)
    rows = Table("position", "side", "rule", "eager ms", "compile ms", "origin", "name or operators")
    for problem in problems[:ROWS_SHOWN]:
        times = ["–" if value is None else f"{value:.3g}" for value in (problem.eager_ms, problem.compile_ms)]
        named = (escape(problem.data_source), escape(called(problem)))
        rows.add_row(str(problem.position), problem.split or "–", problem.rule or "accepted", *times, *named)
    _console().print(rows)
    if len(problems) > ROWS_SHOWN:
        print(f"the first {ROWS_SHOWN} of {len(problems)}; one in full: cuda-agent problems show DATASET POSITION")


def _print_problem(problem: VettedProblem) -> None:
    print(f"position {problem.position}, {problem.data_source}, {problem.split or 'on no side'}, sha256 {problem.code_sha256}")
    print(f"operators: {plain(', '.join(problem.ops)) or 'none'}")
    print("accepted" if problem.accepted else plain(f"refused by {problem.rule}: {problem.reason}"))
    print(f"facts: {json.dumps(jsonable(dict(problem.facts)), sort_keys=True, indent=2)}")
    print(plain(f"\n{problem.code}"))

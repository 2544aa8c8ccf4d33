"""The named rules that a candidate problem must pass, cheapest stage first; each answers with its reason.

Pure functions of the text and of measured facts: nothing here runs a problem. Invariant: a candidate is refused by the
first rule in `RULES` that objects, and rule and reason are stored with it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from cuda_agent.config import DatasetScience
from cuda_agent.errors import ProblemError
from cuda_agent.problems.problem import Problem, read_contract
from cuda_agent.problems.similarity import Fingerprint, fingerprint, most_similar

Stage = Literal["text", "run", "time", "compile"]
STAGES: tuple[Stage, ...] = ("text", "run", "time", "compile")
VARIES = 1e-2  # standard deviations of the output
TRIVIAL = 1e-2  # of the mean magnitude: KernelBench's tolerance, made relative
FLOAT32_NOISE = 1e-3  # standard deviations of the output
AGREEMENT = 1e-3  # standard deviations of the output, torch.compile against eager


@dataclass(frozen=True)
class Evidence:
    """What is known of a candidate so far; `facts` grows stage by stage (see probe_child)."""

    problem: Problem
    science: DatasetScience
    evaluation: Sequence[Fingerprint] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Refusal:
    """The rule that refused and why, in one clause."""

    rule: str
    reason: str


@dataclass(frozen=True)
class Rule:
    """One reason to refuse: `check` returns the reason or None."""

    name: str
    stage: Stage
    check: Callable[[Evidence], str | None]


def refuse(stage: Stage, evidence: Evidence) -> Refusal | None:
    """The first objection among the rules of one stage."""
    for rule in RULES:
        if rule.stage == stage and (reason := rule.check(evidence)) is not None:
            return Refusal(rule.name, reason)
    return None


def _contract(evidence: Evidence) -> str | None:
    try:
        read_contract(evidence.problem.code)
    except ProblemError as error:
        return str(error)
    return None


def _too_similar(evidence: Evidence) -> str | None:
    if not evidence.evaluation:
        return None
    match = most_similar(fingerprint(evidence.problem.code), evidence.evaluation, evidence.science.max_similarity)
    return None if match is None else f"similarity {match.similarity:.3f} to evaluation problem {match.label}"


def _failed(evidence: Evidence) -> str | None:
    failure = evidence.facts.get("failure")
    return None if failure is None else str(failure)


def _finite(evidence: Evidence) -> str | None:
    return None if evidence.facts["finite"] else "the output holds infinities or NaN"


def _deterministic(evidence: Evidence) -> str | None:
    return None if evidence.facts["deterministic"] else "the same seed gave two different outputs"


def _inputs_kept(evidence: Evidence) -> str | None:
    return "forward writes into its inputs" if evidence.facts["mutates_inputs"] else None


def _varies(evidence: Evidence) -> str | None:
    if evidence.facts["dead_inputs"]:
        return f"input {evidence.facts['dead_inputs'][0]} has no effect on the output"
    value = evidence.facts["varies"]
    return None if value is None or value > VARIES else f"another input changes the output by {value:.2g} of its spread"


def _not_trivial(evidence: Evidence) -> str | None:
    for name, error in evidence.facts["trivial"].items():
        if error is not None and error <= TRIVIAL:
            return f"the answer {name} is within {error:.2g} of the output's magnitude"
    return None


def _well_conditioned(evidence: Evidence) -> str | None:
    error = evidence.facts["float32_error"]
    return f"float32 is {error:.2g} of the spread away from float64" if error is not None and error > FLOAT32_NOISE else None


def _in_window(evidence: Evidence) -> str | None:
    science, value = evidence.science, evidence.facts["eager_ms"]
    if science.eager_ms_min <= value <= science.eager_ms_max:
        return None
    return f"eager takes {value:.3g} ms, wanted {science.eager_ms_min:g} to {science.eager_ms_max:g} ms"


def _compiled_agrees(evidence: Evidence) -> str | None:
    error = evidence.facts["compile_error"]
    if error is None:
        return "torch.compile gives another shape or type"
    return None if error <= AGREEMENT else f"torch.compile differs from eager by {error:.2g} of the spread"


RULES: tuple[Rule, ...] = (
    Rule("contract", "text", _contract),
    Rule("too_similar", "text", _too_similar),
    Rule("runs_eager", "run", _failed),
    Rule("finite", "run", _finite),
    Rule("deterministic", "run", _deterministic),
    Rule("inputs_kept", "run", _inputs_kept),
    Rule("varies", "run", _varies),
    Rule("not_trivial", "run", _not_trivial),
    Rule("well_conditioned", "run", _well_conditioned),
    Rule("runs_eager", "time", _failed),
    Rule("eager_time", "time", _in_window),
    Rule("runs_compiled", "compile", _failed),
    Rule("compiled_agrees", "compile", _compiled_agrees),
)

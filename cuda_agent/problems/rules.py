"""The named rules that a candidate problem must pass, cheapest stage first; each answers with its reason.

Pure functions of the text and of measured facts: nothing here runs a problem. Invariant: a candidate is refused by the
first rule in `RULES` that objects, and rule and reason are stored with it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from cuda_agent.config import Backend, DatasetScience
from cuda_agent.errors import ProblemError
from cuda_agent.problems.problem import Problem, VettedProblem, read_contract
from cuda_agent.problems.similarity import Fingerprint, Twins, fingerprint, most_similar

Stage = Literal["text", "size", "run", "pace", "matter", "set", "time", "compile", "time_compiled"]
STAGES: tuple[Stage, ...] = ("text", "size", "run", "pace", "matter", "set", "time", "compile", "time_compiled")
TENSOR_MB: dict[Backend, int] = {"cpu": 1_024, "cuda": 4_096}  # unless set: what a GPU takes a millisecond for is large
VARIES = 1e-2  # standard deviations of the output
SATURATED = 0.9  # share of an output's elements that are equal
FLOAT32_NOISE = 1e-3  # standard deviations of the output
AGREEMENT = 1e-3  # standard deviations of the output, torch.compile against eager


@dataclass(frozen=True)
class Evidence:
    """What is known of a candidate so far: `facts` grows stage by stage (see probe_child); `accepted` is the set so far."""

    problem: Problem
    science: DatasetScience
    evaluation: Sequence[Fingerprint] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    accepted: Twins | None = None
    backend: Backend = "cpu"


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
    """The first objection among the rules of one stage; facts that are missing or malformed are one too."""
    for rule in RULES:
        if rule.stage != stage:
            continue
        try:
            reason = rule.check(evidence)
        except (
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
            ArithmeticError,
            RecursionError,
        ) as error:  # boundary: facts come from untrusted processes
            reason = f"its process answered with nonsense ({type(error).__name__}: {error})"[:200]
        if reason is not None:
            return Refusal(rule.name, reason)
    return None


def unlike(result: VettedProblem, science: DatasetScience, accepted: Twins) -> VettedProblem:
    """Refuse what resembles one of `accepted`, as if all of them had been known to vetting.

    Vetting asks too, before the costly stages, but knows only those that were accepted by then; so that the rule depends on
    the order of the set alone and not on the number of workers, it goes before what those stages found.
    """
    if result.rule is not None and result.rule not in LATE_RULES:
        return result
    refusal = refuse("set", Evidence(result.problem, science, facts=result.facts, accepted=accepted))
    if refusal is None:
        return result
    return replace(result, rule=refusal.rule, reason=refusal.reason, compile_ms=None, split=None)


def undecided_by_one_thread(evidence: Evidence) -> bool:
    """Whether the eager time window needs a pass on all threads: a single one's time is not clearly inside."""
    least, most = evidence.science.window
    return not least * evidence.facts["threads"] <= evidence.facts["eager_ms_1_thread"] <= most


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


def _self_contained(evidence: Evidence) -> str | None:
    reached = evidence.facts.get("reached")
    return None if reached is None else f"it {reached}; a problem may only compute"


def _comparable(evidence: Evidence) -> str | None:
    return evidence.facts.get("incomparable")


def _fits_on_paper(evidence: Evidence) -> str | None:
    return _too_large(evidence, sum(evidence.facts.get("meta_bytes", ())))


def _fits(evidence: Evidence) -> str | None:
    return _too_large(evidence, evidence.facts["tensor_bytes"])


def _too_large(evidence: Evidence, tensor_bytes: int) -> str | None:
    size, limit = tensor_bytes / 2**20, evidence.science.tensor_mb or TENSOR_MB[evidence.backend]
    return None if size <= limit else f"inputs, outputs and weights take {size:.0f} MB, allowed are {limit} MB"


def _finite(evidence: Evidence) -> str | None:
    return None if evidence.facts["finite"] else "the output holds infinities or NaN"


def _deterministic(evidence: Evidence) -> str | None:
    return None if evidence.facts["deterministic"] else "the same seed gave two different outputs"


def _inputs_kept(evidence: Evidence) -> str | None:
    return "forward writes into its inputs" if evidence.facts["mutates_inputs"] else None


def _varies(evidence: Evidence) -> str | None:
    if not evidence.facts["inputs_vary"]:
        return "its inputs are the same under every seed"
    value, least = evidence.facts["varies"], VARIES * evidence.science.effect_margin
    return None if value is None or value > least else f"another input changes the output by {value:.2g} of its spread"


def _renewable(evidence: Evidence) -> str | None:
    return None if evidence.facts["renewable"] else "its inputs only come as they are drawn, so that kept answers would pass"


def _not_trivial(evidence: Evidence) -> str | None:
    return evidence.facts["trivial"] or None


def _not_saturated(evidence: Evidence) -> str | None:
    share = evidence.facts["commonest_share"]
    return None if share <= SATURATED else f"{share:.1%} of an output's elements are equal"


def _inputs_matter(evidence: Evidence) -> str | None:
    dead = evidence.facts["dead_inputs"]
    return f"input {dead[0]} has no effect on the output" if dead else None


def _weights_matter(evidence: Evidence) -> str | None:
    dead = evidence.facts["dead_weights"]
    return f"weight {', '.join(dead)} has no effect on the output" if dead else None


def _operators_matter(evidence: Evidence) -> str | None:
    dead = evidence.facts["dead_operator"]
    return f"leaving out {dead} changes nothing" if dead else None


def _value_range(evidence: Evidence) -> str | None:
    degenerate = evidence.facts["value_range"] == "degenerate" and not evidence.science.one_sign
    return "no input is ever negative, though negative ones give finite answers too" if degenerate else None


def _well_conditioned(evidence: Evidence) -> str | None:
    error = evidence.facts["float32_error"]
    if error is not None and error > FLOAT32_NOISE:
        return f"float32 is {error:.2g} of the spread away from float64"
    return f"rounding counts for too much: {found}" if (found := evidence.facts["unjudged"]) else None


def _not_a_twin(evidence: Evidence) -> str | None:
    if evidence.accepted is None:
        return None
    found = evidence.accepted.find(evidence.problem.code, evidence.facts, evidence.science.max_self_similarity)
    return None if found is None else f"similarity {found.similarity:.3f} to problem {found.label} of the set"


def _paced(evidence: Evidence) -> str | None:
    """Outside the window already by the CPU time of one thread: all of them together are no slower, and share the work."""
    least, most = evidence.science.window
    single = evidence.facts["eager_ms_1_thread"]
    return None if least <= single <= most * evidence.facts["threads"] else _outside(evidence.science, single)


def _in_window(evidence: Evidence) -> str | None:
    least, most = evidence.science.window
    value = evidence.facts["eager_ms"]
    return None if least <= value <= most else _outside(evidence.science, value)


def _outside(science: DatasetScience, value: float) -> str:
    least, most = science.window
    return f"eager takes {value:.3g} ms, wanted {least:.3g} to {most:.3g} ms"


def _compiled_agrees(evidence: Evidence) -> str | None:
    error = evidence.facts["compile_error"]
    if error is None:
        return "torch.compile gives another shape or type, or no finite numbers"
    most = AGREEMENT / evidence.science.effect_margin
    return None if error <= most else f"torch.compile differs from eager by {error:.2g} of the spread"


RULES: tuple[Rule, ...] = (
    Rule("contract", "text", _contract),
    Rule("too_similar", "text", _too_similar),
    Rule("memory", "size", _fits_on_paper),
    Rule("self_contained", "run", _self_contained),
    Rule("runs_eager", "run", _failed),
    Rule("comparable", "run", _comparable),
    Rule("memory", "run", _fits),
    Rule("finite", "run", _finite),
    Rule("deterministic", "run", _deterministic),
    Rule("inputs_kept", "run", _inputs_kept),
    Rule("varies", "run", _varies),
    Rule("renewable", "run", _renewable),
    Rule("not_trivial", "run", _not_trivial),
    Rule("not_saturated", "run", _not_saturated),
    Rule("self_contained", "pace", _self_contained),
    Rule("runs_eager", "pace", _failed),
    Rule("eager_time", "pace", _paced),
    Rule("self_contained", "matter", _self_contained),
    Rule("runs_eager", "matter", _failed),
    Rule("inputs_matter", "matter", _inputs_matter),
    Rule("weights_matter", "matter", _weights_matter),
    Rule("no_dead_operator", "matter", _operators_matter),
    Rule("value_range", "matter", _value_range),
    Rule("well_conditioned", "matter", _well_conditioned),
    Rule("near_duplicate", "set", _not_a_twin),
    Rule("self_contained", "time", _self_contained),
    Rule("runs_eager", "time", _failed),
    Rule("eager_time", "time", _in_window),
    Rule("runs_compiled", "compile", _failed),
    Rule("compiled_agrees", "compile", _compiled_agrees),
    Rule("runs_compiled", "time_compiled", _failed),
)
LATE_RULES = frozenset(rule.name for rule in RULES if STAGES.index(rule.stage) >= STAGES.index("set"))

from dataclasses import replace

import pytest

from cuda_agent.config import DatasetScience
from cuda_agent.problems.cli import AT_THE_LIMITS
from cuda_agent.problems.problem import Problem
from cuda_agent.problems.rules import RULES, STAGES, Evidence, Refusal, refuse, undecided_by_one_thread
from cuda_agent.problems.similarity import Twins, fingerprint
from tests.problems.texts import text

SCIENCE = DatasetScience(count=8, eager_ms_min=0.05, eager_ms_max=5.0)
GOOD = {
    "inputs": [["float32", [64, 256]]],
    "outputs": [["float32", [64, 256]]],
    "tensor_bytes": 131_072,
    "finite": True,
    "deterministic": True,
    "mutates_inputs": False,
    "inputs_vary": True,
    "varies": 1.1,
    "renewable": True,
    "trivial": "",
    "commonest_share": 0.5,
    "eager_ms_1_thread": 0.5,
    "threads": 2,
    "dead_inputs": [],
    "dead_weights": [],
    "dead_operator": None,
    "value_range": "both",
    "float32_error": 1e-7,
    "unjudged": "",
    "eager_ms": 0.4,
    "compile_error": 1e-8,
}


def evidence(code: str = text("x = torch.relu(x)"), **facts: object) -> Evidence:
    return Evidence(Problem(("relu",), "torch#1", code), SCIENCE, (), GOOD | facts)


def test_good_facts_pass_every_stage() -> None:
    assert [refuse(stage, evidence()) for stage in STAGES] == [None] * len(STAGES)


@pytest.mark.parametrize(
    ("stage", "rule", "facts"),
    [
        ("size", "memory", {"meta_bytes": [2**30, 2**29, 0]}),
        ("run", "self_contained", {"reached": "opens a socket", "failure": "PermissionError"}),
        ("run", "runs_eager", {"failure": "eager: ValueError: no"}),
        ("run", "comparable", {"incomparable": "ModelOutput cannot be compared"}),
        ("run", "memory", {"tensor_bytes": 2**31}),
        ("run", "finite", {"finite": False}),
        ("run", "deterministic", {"deterministic": False}),
        ("run", "inputs_kept", {"mutates_inputs": True}),
        ("run", "varies", {"inputs_vary": False}),
        ("run", "varies", {"varies": 0.02}),
        ("run", "renewable", {"renewable": False}),
        ("run", "not_trivial", {"trivial": "the answer zeros passes"}),
        ("run", "not_saturated", {"commonest_share": 0.91}),
        ("pace", "eager_time", {"eager_ms_1_thread": 0.06}),
        ("pace", "eager_time", {"eager_ms_1_thread": 8.1}),
        ("matter", "inputs_matter", {"dead_inputs": ["1"]}),
        ("matter", "weights_matter", {"dead_weights": ["linear.weight"]}),
        ("matter", "no_dead_operator", {"dead_operator": "torch.relu(x)"}),
        ("matter", "value_range", {"value_range": "degenerate"}),
        ("matter", "well_conditioned", {"float32_error": 0.01}),
        ("matter", "well_conditioned", {"unjudged": "the answer with all of it in half precision passes"}),
        ("time", "eager_time", {"eager_ms": 0.06}),
        ("time", "eager_time", {"eager_ms": 4.1}),
        ("compile", "runs_compiled", {"failure": "compile: Unsupported"}),
        ("compile", "compiled_agrees", {"compile_error": None}),
        ("compile", "compiled_agrees", {"compile_error": 5e-4}),
        ("time_compiled", "runs_compiled", {"failure": "compile: RuntimeError"}),
    ],
)
def test_one_bad_fact_is_refused_by_its_rule(stage: str, rule: str, facts: dict) -> None:
    refusal = refuse(stage, evidence(**facts))
    assert refusal is not None and refusal.rule == rule and refusal.reason


@pytest.mark.parametrize(
    ("stage", "facts"),
    [
        ("run", {"varies": 0.02}),
        ("pace", {"eager_ms_1_thread": 0.06}),
        ("matter", {"value_range": "degenerate"}),
        ("time", {"eager_ms": 4.9}),
        ("compile", {"compile_error": 9e-4}),
    ],
)
def test_vetting_a_given_set_asks_at_the_limits_where_a_new_one_keeps_a_margin(stage: str, facts: dict) -> None:
    at_the_limits = SCIENCE.model_copy(update=AT_THE_LIMITS)
    assert refuse(stage, evidence(**facts)) and not refuse(stage, replace(evidence(**facts), science=at_the_limits))


def test_a_gpus_problems_may_be_larger_unless_the_settings_say_how_large() -> None:
    large = evidence(tensor_bytes=2**31)
    assert refuse("run", large) and not refuse("run", replace(large, backend="cuda"))
    bounded = SCIENCE.model_copy(update={"tensor_mb": 1_024})
    assert refuse("run", replace(large, backend="cuda", science=bounded))


def test_a_missing_measure_refuses_nothing() -> None:
    assert refuse("run", evidence(varies=None)) is None
    assert refuse("matter", evidence(float32_error=None)) is None
    assert refuse("set", evidence(inputs=None)) is None


@pytest.mark.parametrize("facts", [{}, {"finite": True, "tensor_bytes": "many"}, {"tensor_bytes": []}, {"tensor_bytes": 10**400}])
def test_facts_that_are_no_facts_refuse_the_candidate(facts: dict) -> None:
    told = Evidence(Problem(("relu",), "torch#1", text("x = torch.relu(x)")), SCIENCE, (), facts)
    assert refuse("run", told).reason.startswith("its process answered with nonsense")


@pytest.mark.parametrize(("single", "undecided"), [(0.12, True), (0.13, False), (3.9, False), (4.1, True)])
def test_one_thread_decides_where_two_could_not_leave_the_window(single: float, undecided: bool) -> None:
    assert undecided_by_one_thread(evidence(eager_ms_1_thread=single)) is undecided


def test_a_twin_of_an_accepted_problem_is_refused_on_the_same_shapes_only() -> None:
    twins = Twins()
    twins.add(text("x = torch.relu(x)  # first"), GOOD, "7")
    again = text("x = nn.functional.relu(x)")
    near = Evidence(Problem(("relu",), "torch#1", again), SCIENCE, (), GOOD, twins)
    assert refuse("set", near) == Refusal("near_duplicate", "similarity 1.000 to problem 7 of the set")
    other = GOOD | {"inputs": [["float32", [8, 8]]]}
    assert refuse("set", replace(near, facts=other)) is None


def test_a_text_that_breaks_the_contract_or_resembles_evaluation_is_refused_unrun() -> None:
    assert refuse("text", evidence("x = (")).rule == "contract"
    code = text("x = torch.relu(x)")
    twin = fingerprint(code.replace("64, 256", "1, 2"), "held 7")
    refusal = refuse("text", Evidence(Problem(("relu",), "torch#1", code), SCIENCE, (twin,)))
    assert refusal == Refusal("too_similar", "similarity 1.000 to evaluation problem held 7")


def test_rules_stand_in_order_of_cost() -> None:
    assert [STAGES.index(rule.stage) for rule in RULES] == sorted(STAGES.index(rule.stage) for rule in RULES)

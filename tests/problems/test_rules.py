import pytest

from cuda_agent.config import DatasetScience
from cuda_agent.problems.problem import Problem
from cuda_agent.problems.rules import RULES, STAGES, Evidence, Refusal, refuse
from cuda_agent.problems.similarity import fingerprint
from tests.problems.texts import text

SCIENCE = DatasetScience(count=8, eager_ms_min=0.05, eager_ms_max=5.0)
GOOD = {
    "finite": True,
    "deterministic": True,
    "mutates_inputs": False,
    "varies": 1.1,
    "dead_inputs": [],
    "trivial": {"zeros": 1.0, "constant": 0.8},
    "float32_error": 1e-7,
    "eager_ms": 0.4,
    "compile_error": 1e-8,
}


def evidence(code: str = text("x = torch.relu(x)"), **facts: object) -> Evidence:
    return Evidence(Problem(("relu",), "torch#1", code), SCIENCE, (), GOOD | facts)


def test_good_facts_pass_every_stage() -> None:
    assert [refuse(stage, evidence()) for stage in STAGES] == [None] * 4


@pytest.mark.parametrize(
    ("stage", "rule", "facts"),
    [
        ("run", "runs_eager", {"failure": "eager: ValueError: no"}),
        ("run", "finite", {"finite": False}),
        ("run", "deterministic", {"deterministic": False}),
        ("run", "inputs_kept", {"mutates_inputs": True}),
        ("run", "varies", {"varies": 0.009}),
        ("run", "varies", {"dead_inputs": [1]}),
        ("run", "not_trivial", {"trivial": {"zeros": 1.0, "input_copy": 0.0}}),
        ("run", "well_conditioned", {"float32_error": 0.01}),
        ("time", "eager_time", {"eager_ms": 0.01}),
        ("time", "eager_time", {"eager_ms": 5.1}),
        ("compile", "runs_compiled", {"failure": "compile: Unsupported"}),
        ("compile", "compiled_agrees", {"compile_error": None}),
        ("compile", "compiled_agrees", {"compile_error": 0.1}),
    ],
)
def test_one_bad_fact_is_refused_by_its_rule(stage: str, rule: str, facts: dict) -> None:
    refusal = refuse(stage, evidence(**facts))
    assert refusal is not None and refusal.rule == rule and refusal.reason


def test_a_missing_measure_refuses_nothing() -> None:
    assert refuse("run", evidence(varies=None, float32_error=None, trivial={"input_copy": None})) is None


def test_a_text_that_breaks_the_contract_or_resembles_evaluation_is_refused_unrun() -> None:
    assert refuse("text", evidence("x = (")).rule == "contract"
    code = text("x = torch.relu(x)")
    twin = fingerprint(code.replace("64, 256", "1, 2"), "held 7")
    refusal = refuse("text", Evidence(Problem(("relu",), "torch#1", code), SCIENCE, (twin,)))
    assert refusal == Refusal("too_similar", "similarity 1.000 to evaluation problem held 7")


def test_rules_stand_in_order_of_cost() -> None:
    assert [STAGES.index(rule.stage) for rule in RULES] == sorted(STAGES.index(rule.stage) for rule in RULES)

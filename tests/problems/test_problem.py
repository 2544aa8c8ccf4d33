import hashlib

import pytest

from cuda_agent.errors import ProblemError
from cuda_agent.problems.problem import Problem, VettedProblem, read_contract, torch_source
from tests.problems.texts import text


def test_contract_of_the_usual_form() -> None:
    contract = read_contract(text("x = torch.relu(x)"))
    assert (contract.inputs, contract.init_inputs) == ("get_inputs", "get_init_inputs")
    assert (contract.init_parameters, contract.forward_parameters) == ((), ("x",))


def test_the_other_spelling_of_get_inputs_counts() -> None:
    assert read_contract(text("x = x").replace("get_inputs", "getInputs")).inputs == "getInputs"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("class Model(:", "not Python"),
        ("x = 1\x00", "not Python"),
        ("x = 1", "no class Model"),
        ("class Model: pass", "no method forward"),
        (text("x = x").replace("def get_inputs", "def inputs"), "get_inputs"),
        (text("x = x").replace("def get_init_inputs", "def init"), "get_init_inputs"),
        ("#" * 300_000, "characters"),
        ("(" * 50_000, "not Python"),
    ],
)
def test_a_broken_text_is_named(code: str, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        read_contract(code)


def test_identity_is_the_digest_of_the_text() -> None:
    assert Problem(("relu",), torch_source(1), "é").sha256 == hashlib.sha256("é".encode()).hexdigest()


def test_a_vetted_problem_is_accepted_without_a_rule() -> None:
    vetted = VettedProblem(0, ("relu",), "torch#1", "code", "sha")
    assert vetted.accepted and vetted.on_side("train").split == "train"
    assert not VettedProblem(0, ("relu",), "torch#1", "code", "sha", rule="finite", reason="NaN").accepted

from collections import Counter
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuda_agent.config import DatasetScience
from cuda_agent.problems.catalogue import BY_NAME, BY_STATEMENT
from cuda_agent.problems.compose import Shape, compose, render, weakness, well_formed
from cuda_agent.problems.problem import Problem, read_contract
from tests.problems.texts import catalogue

QUICK = catalogue(count=64, eager_ms_min=0.05, eager_ms_max=5.0, operator_mix={1: 0.2, 2: 0.5, 3: 0.2, 4: 0.05, 5: 0.05})


def chain(names: str) -> list:
    return [BY_NAME[name] for name in names.split()]


@pytest.fixture(scope="module")
def drawn() -> list[Problem]:
    return list(islice(compose(QUICK), 120))


def test_the_same_settings_give_the_same_candidates(drawn: list[Problem]) -> None:
    again = DatasetScience(**QUICK.model_dump() | {"count": 7, "held_out": 2})
    assert list(islice(compose(again), 30)) == drawn[:30]


def test_another_seed_gives_others(drawn: list[Problem]) -> None:
    other = list(islice(compose(QUICK.model_copy(update={"seed": 1})), 30))
    assert {problem.code for problem in other} != {problem.code for problem in drawn[:30]}


def test_numbers_of_operators_follow_the_mix_exactly(drawn: list[Problem]) -> None:
    assert Counter(len(problem.ops) for problem in drawn) == {1: 24, 2: 60, 3: 24, 4: 6, 5: 6}
    assert all(problem.data_source == f"torch#{len(problem.ops)}" for problem in drawn)


def test_no_candidate_repeats(drawn: list[Problem]) -> None:
    assert len({problem.code for problem in drawn}) == len(drawn)


def test_every_candidate_keeps_the_contract_and_the_fixed_form(drawn: list[Problem]) -> None:
    for problem in drawn:
        read_contract(problem.code)
        body = problem.code.split("def forward(self, x):\n")[1].split("        return x")[0]
        assert tuple(BY_STATEMENT[line.strip()].name for line in body.splitlines()) == problem.ops


def test_every_candidate_is_well_formed(drawn: list[Problem]) -> None:
    assert all(well_formed([BY_NAME[name] for name in problem.ops]) for problem in drawn)


def test_families_bound_what_is_drawn() -> None:
    only = catalogue(count=8, eager_ms_min=0.05, eager_ms_max=5.0, families=("elementwise",))
    assert all(BY_NAME[name].family == "elementwise" for problem in islice(compose(only), 40) for name in problem.ops)


def test_the_stream_ends_when_nothing_new_is_left() -> None:
    few = catalogue(count=8, eager_ms_min=0.05, eager_ms_max=5.0, families=("matmul",), operator_mix={1: 1.0, 2: 1.0})
    assert {problem.ops for problem in compose(few)} == {("linear",)}


@pytest.mark.parametrize(
    "names",
    [
        "sigmoid relu",
        "relu abs",
        "relu relu",
        "abs abs",
        "neg neg",
        "softmax softmax",
        "log_softmax softmax",
        "log_softmax log_softmax",
        "softmax sum",
        "softmax sigmoid",
        "shift softmax",
        "shift layer_norm",
        "layer_norm mean",
        "normalize normalize",
        "hardtanh tanh hardtanh",
        "square square square square",
        "relu amax",
    ],
)
def test_dead_constant_and_wild_chains_are_seen(names: str) -> None:
    assert weakness(chain(names), 1024) is not None


@pytest.mark.parametrize("names", ["relu", "softmax", "relu softmax", "gelu layer_norm", "exp exp", "linear tanh", "tanh sum"])
def test_live_chains_pass(names: str) -> None:
    assert weakness(chain(names), 1024) is None


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(sorted(BY_NAME)), min_size=1, max_size=5))
def test_a_rendered_chain_parses(names: list[str]) -> None:
    operators, shape = [BY_NAME[name] for name in names], Shape(4, 16, 8)
    code = render(operators, shape)
    assert len(read_contract(code).init_parameters) == (2 if "linear" in names else 0)

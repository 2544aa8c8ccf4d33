import math
from collections import Counter
from itertools import islice

import pytest

from cuda_agent.config import DatasetScience
from cuda_agent.errors import ProblemError
from cuda_agent.problems.problem import Problem, read_contract
from cuda_agent.problems.sampler import sample
from cuda_agent.problems.seeds import CrawlReport, ModuleSeed, Template, TorchSeed
from cuda_agent.problems.shapes import Scale

SCIENCE = DatasetScience(count=100, eager_ms_min=0.05, eager_ms_max=5.0, operator_mix="balanced", transformers_share=0.1)
EVERY = ("normal", "positive", "sparse", "unit", "signed")
ANY = (2, 3, 4)


def seed(name: str, *templates: Template, heavy: bool = False, leaves: dict[str, str] | None = None) -> TorchSeed:
    return TorchSeed(name, (), templates=templates, heavy=heavy, leaves=leaves or dict.fromkeys(EVERY, "normal"))


TORCH = CrawlReport(
    {
        made.name: made
        for made in (
            seed("torch.sin", Template(ANY, "torch.sin({x})"), leaves=dict.fromkeys(EVERY, "signed")),
            seed("torch.relu", Template(ANY, "torch.relu({x})"), leaves={"normal": "sparse", "signed": "sparse"}),
            seed("torch.sum", Template(ANY, "torch.sum({x}, dim=-1)")),
            seed("torch.add", Template(ANY, "torch.add({x}, {y0})", extras=("torch.randn({shape})",))),
            seed("torch.cat", Template(ANY, "torch.cat([{x}, {y0}], dim=-1)", extras=("torch.randn({shape})",))),
            seed("nn.functional.softplus", Template(ANY, "nn.functional.softplus({x})"), leaves=dict.fromkeys(EVERY, "positive")),
            seed("torch.linalg.det", Template((2, 3), "torch.linalg.det({x})", square=True), heavy=True),
            seed("nn.Linear", Template(ANY, "{m}({x})", "nn.Linear({last}, {double})"), heavy=True),
            seed("nn.Conv2d", Template((4,), "{m}({x})", "nn.Conv2d({s1}, {s1}, kernel_size=3)"), heavy=True),
            seed("torch.argmax", Template(ANY, "torch.argmax({x}, dim=-1)")),
        )
    }
)
MODULES = CrawlReport({name: ModuleSeed(name, (f"{name} 0", f"{name} 1")) for name in ("A", "B", "C")})


def elements(problem: Problem) -> int:
    """How many numbers its first input holds."""
    sizes = problem.code.split("get_inputs")[1].split("torch.randn(")[1].split(")")[0]
    return math.prod(map(int, sizes.split(", ")))


@pytest.fixture(scope="module")
def drawn() -> list[Problem]:
    return list(islice(sample(SCIENCE, TORCH), 80))


def test_the_same_settings_and_report_give_the_same_candidates(drawn: list[Problem]) -> None:
    again = DatasetScience(**SCIENCE.model_dump() | {"count": 7, "held_out": 2})
    assert list(islice(sample(again, CrawlReport.from_json(TORCH.to_json())), 30)) == drawn[:30]


def test_another_seed_gives_others(drawn: list[Problem]) -> None:
    other = list(islice(sample(SCIENCE.model_copy(update={"seed": 1}), TORCH), 30))
    assert {problem.code for problem in other} != {problem.code for problem in drawn[:30]}


def test_numbers_of_operators_follow_the_mix_exactly(drawn: list[Problem]) -> None:
    assert Counter(problem.data_source for problem in drawn) == {f"torch#{size}": 20 for size in (2, 3, 4, 5)}
    assert all(problem.data_source == f"torch#{len(problem.ops)}" for problem in drawn)


def test_no_sequence_repeats_on_the_same_shapes(drawn: list[Problem]) -> None:
    keys = Counter((problem.ops, problem.code.split("torch.randn(")[-1]) for problem in drawn)
    assert len({problem.code for problem in drawn}) == len(drawn) and max(keys.values()) == 1


def test_every_candidate_keeps_the_contract_and_states_its_operators_in_order(drawn: list[Problem]) -> None:
    for problem in drawn:
        read_contract(problem.code)
        body = problem.code.split("def forward(")[1].split("        return x")[0].splitlines()[1:]
        for name, line in zip(problem.ops, body, strict=True):
            assert "self.layer" in line if name in ("nn.Linear", "nn.Conv2d") else name in line


def test_operators_stand_only_where_values_shapes_and_types_allow(drawn: list[Problem]) -> None:
    pairs = {pair for problem in drawn for pair in zip(problem.ops, problem.ops[1:], strict=False)}
    assert ("nn.functional.softplus", "torch.relu") not in pairs and ("torch.sin", "torch.relu") in pairs
    assert not any("torch.argmax" in problem.ops for problem in drawn)
    for problem in drawn:
        if problem.ops[0] == "torch.linalg.det":
            sizes = problem.code.split("torch.randn(")[1].split(")")[0].split(", ")
            assert sizes[-1] == sizes[-2]


def test_scales_get_shapes_of_their_own() -> None:
    bounds: dict[Scale, tuple[int, int]] = {"small": (2**10, 2**19), "large": (2**17, 2**26), "huge": (2**20, 2**29)}
    for scale, (least, most) in bounds.items():
        for problem in islice(sample(SCIENCE, TORCH, scale=scale), 20):
            assert least <= elements(problem) < most


def test_modules_of_transformers_come_by_their_share_and_alone() -> None:
    mixed = list(islice(sample(SCIENCE, TORCH, MODULES), 40))
    modules = [problem for problem in mixed if problem.data_source == "transformers"]
    assert len(modules) == 4 and len({problem.code for problem in modules}) == 4
    assert {problem.ops for problem in modules[:3]} == {("A",), ("B",), ("C",)}


def test_the_stream_goes_on_when_the_modules_are_used_up() -> None:
    many = list(islice(sample(SCIENCE.model_copy(update={"transformers_share": 0.5}), TORCH, MODULES), 40))
    assert Counter(problem.data_source == "transformers" for problem in many) == {True: 6, False: 34}


def test_the_stream_ends_when_nothing_new_is_left() -> None:
    only = CrawlReport({"torch.sin": TORCH.seeds["torch.sin"]})
    ends = list(sample(DatasetScience(count=8, operator_mix={1: 0.5, 2: 0.5}, eager_ms_min=0.05, eager_ms_max=5.0), only))
    assert {problem.ops for problem in ends} == {("torch.sin",)} and len(ends) > 5


def test_a_report_without_seeds_is_one_clear_error() -> None:
    with pytest.raises(ProblemError, match="holds no seed"):
        next(sample(SCIENCE, CrawlReport({})))

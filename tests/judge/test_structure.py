"""Which structure is seen in drawn tensors, and that fresh inputs of real problems keep it."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cuda_agent.judge import structure
from cuda_agent.judge.child_device import ChildDevice
from cuda_agent.judge.problem_child import LoadedProblem
from cuda_agent.judge.ring import Way
from cuda_agent.judge.structure import way, ways_of


def _orthogonal() -> torch.Tensor:
    return torch.linalg.qr(torch.randn(24, 24))[0]


def _covariance() -> torch.Tensor:
    root = torch.randn(3, 12, 12)
    return root @ root.mT


FREE, MIXED, BENT, ROLLED = "free", "mixed by blocks", "bent too", "rolled by blocks"
DRAWERS: dict[str, tuple[str, int, Callable[[], torch.Tensor]]] = {
    "normal": (FREE, 64 * 33, lambda: torch.randn(64, 33)),
    "uniform": (FREE, 16 * 192, lambda: torch.rand(16, 3, 8, 8)),
    "half": (FREE, 2_000, lambda: torch.randn(50, 40).to(torch.float16)),
    "bfloat16": (FREE, 2_000, lambda: torch.randn(50, 40).to(torch.bfloat16)),
    "complex": (FREE, 400, lambda: torch.randn(20, 20, dtype=torch.complex64)),
    "rectified": (FREE, 4_096, lambda: torch.randn(64, 64).relu()),
    "one number": (FREE, 1, lambda: torch.rand(())),
    "two numbers": (FREE, 2, lambda: torch.rand(2)),
    "square": (FREE, 1_024, lambda: torch.randn(32, 32)),
    "columns of one": (FREE, 128, lambda: torch.randn(128, 1)),
    "transposed": (FREE, 640, lambda: torch.randn(20, 32).T),
    "triangle": (BENT, 1, lambda: torch.randn(32, 32).tril()),
    "triangles": (BENT, 5, lambda: torch.randn(5, 16, 16).tril()),
    "diagonal": (BENT, 1, lambda: torch.randn(32).diag()),
    "symmetric": (BENT, 3, _covariance),
    "sorted": (BENT, 1, lambda: torch.rand(100).sort().values),
    "sorted rows": (BENT, 8, lambda: torch.rand(8, 100).sort().values),
    "padded": (BENT, 8, lambda: torch.nn.functional.pad(torch.randn(8, 30), (0, 5))),
    "probabilities": (MIXED, 128, lambda: torch.randn(128, 500).softmax(1)),
    "probabilities over channels": (MIXED, 4, lambda: torch.randn(4, 10, 6, 6).softmax(1)),
    "probabilities, transposed": (MIXED, 1, lambda: torch.randn(50, 40).softmax(1).T),
    "unit vectors": (ROLLED, 64, lambda: torch.nn.functional.normalize(torch.randn(64, 32), dim=1)),
    "orthogonal": (ROLLED, 1, _orthogonal),
    "with infinities": (ROLLED, 1, lambda: torch.randn(64).masked_fill(torch.rand(64) < 0.3, -torch.inf)),
    "the same": (ROLLED, 1, lambda: torch.linspace(0, 1, 10)),
    "empty": (ROLLED, 1, lambda: torch.randn(0, 4)),
    "tokens": (ROLLED, 1_024, lambda: torch.randint(0, 1000, (8, 128))),
    "few labels": (ROLLED, 200, lambda: torch.randint(0, 4, (200,))),
    "mask": (ROLLED, 1_024, lambda: torch.rand(32, 32) > 0.2),
    "signs": (ROLLED, 10_000, lambda: torch.randint(0, 2, (100, 100)).float() * 2 - 1),
    "steps": (ROLLED, 5_000, lambda: torch.randint(0, 8, (5_000,)) / 7),
    "offsets": (ROLLED, 1, lambda: torch.randint(0, 1000, (20,)).sort().values),
    "lengths as masks": (ROLLED, 1, lambda: torch.arange(50) < torch.randint(1, 50, (16, 1))),
    "positions": (ROLLED, 1, lambda: torch.arange(512)),
    "one hot": (ROLLED, 64, lambda: torch.nn.functional.one_hot(torch.randint(0, 10, (64,)), 10).float()),
    "permutations": (ROLLED, 8, lambda: torch.stack([torch.randperm(30) for _ in range(8)])),
    "tokens behind a first one": (
        ROLLED,
        16,
        lambda: torch.cat([torch.zeros(16, 1), torch.randint(5, 10**6, (16, 31))], 1).long(),
    ),
}


def kind(found: Way, elements: int) -> str:
    if found.is_free(elements):
        return FREE
    return (BENT if found.limit else MIXED) if found.mixes else ROLLED


@pytest.mark.parametrize("name", DRAWERS)
def test_way_by_what_all_draws_have_in_common(name: str) -> None:
    expected, places, draw = DRAWERS[name]
    for seed in range(8):
        torch.manual_seed(seed)
        found = way([draw() for _ in range(3)])
        assert (kind(found, draw().numel()), found.places) == (expected, places)


@pytest.mark.parametrize(
    "name", ["normal", "triangle", "symmetric", "probabilities", "tokens", "one hot", "sorted", "unit vectors"]
)
def test_a_leading_block_tells_of_what_is_too_large(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "MOST", 512)
    expected, places, draw = DRAWERS[name]
    torch.manual_seed(0)
    found = way([draw() for _ in range(3)])
    assert (kind(found, draw().numel()), found.places) == (expected, places)


def test_draws_of_other_shapes_come_as_they_are() -> None:
    assert way([torch.randn(3), torch.randn(4), torch.randn(3)]) == Way(False, 1)


EMBEDDING = """import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(100, 8)
    def forward(self, tokens, lengths):
        {check}
        return self.table(tokens) * lengths[:, None, None]
def get_inputs():
    tokens = torch.randint(0, 100, (4, 16))
    tokens[:, 0] %= 50
    return [tokens, {{"x": torch.rand(4)}}["x"]]
def get_init_inputs():
    return []
"""


def _problem(check: str) -> LoadedProblem:
    return LoadedProblem(EMBEDDING.format(check=check), ChildDevice())


def test_indices_are_rolled_where_the_problem_takes_them() -> None:
    assert ways_of(_problem("pass"), 1) == [Way(False, 64), Way(True, 4)]


def test_indices_that_must_stay_are_left_as_they_were_drawn() -> None:
    assert ways_of(_problem("assert bool((tokens[:, 0] < 50).all())"), 1) == [Way(False, 1), Way(True, 4)]


def test_indices_that_give_infinities_elsewhere_are_left_as_they_were_drawn() -> None:
    assert ways_of(_problem("lengths = lengths / (tokens[:, 0] < 50)"), 1) == [Way(False, 1), Way(True, 4)]


LOW_RANK = """import torch
class Model(torch.nn.Module):
    def forward(self, a):
        assert torch.linalg.matrix_rank(a, tol=1e-3).max() <= {most}, "of a higher rank than any draw or mix"
        return a.sum(-1)
def get_inputs():
    root = torch.randn(4, 12, 3)
    return [root @ root.mT]
def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(("most", "bent"), [(12, True), (6, False)])
def test_values_are_bent_where_the_problem_takes_that(most: int, bent: bool) -> None:
    (found,) = ways_of(LoadedProblem(LOW_RANK.format(most=most), ChildDevice()), 1)
    assert found.mixes and found.places == 4 and bool(found.limit) is bent


def _named(name: str) -> LoadedProblem:
    return LoadedProblem((Path(__file__).parents[1] / "problems_for_judge" / f"{name}.py").read_text(), ChildDevice())


@pytest.mark.parametrize(
    ("name", "mixed"),
    [
        ("root_of_a_distance", [False]),
        ("over_a_square", [True, False]),
        ("affine_tanh", [True]),
        ("wrapped_phases", [True]),
        ("waves_below_a_barrier", [False, True]),
    ],
)
def test_what_mixing_takes_out_of_the_problems_domain_comes_as_it_was_drawn(name: str, mixed: list[bool]) -> None:
    """NaN in one, poles in the other; the second one's other input is mixed nevertheless."""
    assert [one.mixes for one in ways_of(_named(name), 1)] == mixed


def test_a_number_that_was_drawn_outside_of_the_domain_by_chance_does_not_open_it() -> None:
    code = (Path(__file__).parents[1] / "problems_for_judge" / "root_of_a_distance.py").read_text()
    unlucky = code.replace("    e = torch.randn(512, 256)\n", "    e = torch.randn(512, 256)\n    e[7, 7] = 0.0\n")
    assert unlucky != code
    assert [one.mixes for one in ways_of(LoadedProblem(unlucky, ChildDevice()), 1)] == [False]


VANISHING = """import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return (x - 0.9).relu() * (x > 0.995)
def get_inputs():
    return [torch.rand(256, 256)]
def get_init_inputs():
    return []
"""


def test_mixing_that_leaves_little_of_an_answer_is_left_out() -> None:
    assert [one.mixes for one in ways_of(LoadedProblem(VANISHING, ChildDevice()), 1)] == [False]

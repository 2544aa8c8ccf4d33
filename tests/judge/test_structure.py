"""Which structure is seen in drawn tensors, and that fresh inputs of real problems keep it."""

from collections.abc import Callable

import pytest
import torch

from cuda_agent.judge import structure
from cuda_agent.judge.child_device import ChildDevice
from cuda_agent.judge.problem_child import LoadedProblem
from cuda_agent.judge.ring import BLENDED, DRAWN, MIXED, ROLLED
from cuda_agent.judge.structure import way, ways_of


def _orthogonal() -> torch.Tensor:
    return torch.linalg.qr(torch.randn(24, 24))[0]


def _covariance() -> torch.Tensor:
    root = torch.randn(3, 12, 12)
    return root @ root.mT


DRAWERS: dict[str, tuple[str, Callable[[], torch.Tensor]]] = {
    "normal": (MIXED, lambda: torch.randn(64, 33)),
    "uniform": (MIXED, lambda: torch.rand(16, 3, 8, 8)),
    "half": (MIXED, lambda: torch.randn(50, 40).to(torch.float16)),
    "bfloat16": (MIXED, lambda: torch.randn(50, 40).to(torch.bfloat16)),
    "complex": (MIXED, lambda: torch.randn(20, 20, dtype=torch.complex64)),
    "rectified": (MIXED, lambda: torch.randn(64, 64).relu()),
    "one number": (MIXED, lambda: torch.rand(())),
    "two numbers": (MIXED, lambda: torch.rand(2)),
    "square": (MIXED, lambda: torch.randn(32, 32)),
    "columns of one": (MIXED, lambda: torch.randn(128, 1)),
    "triangle": (BLENDED, lambda: torch.randn(32, 32).tril()),
    "diagonal": (BLENDED, lambda: torch.randn(32).diag()),
    "symmetric": (BLENDED, _covariance),
    "probabilities": (BLENDED, lambda: torch.randn(128, 500).softmax(1)),
    "probabilities over channels": (BLENDED, lambda: torch.randn(4, 10, 6, 6).softmax(1)),
    "sorted": (BLENDED, lambda: torch.rand(100).sort().values),
    "padded": (BLENDED, lambda: torch.nn.functional.pad(torch.randn(8, 30), (0, 5))),
    "unit vectors": (DRAWN, lambda: torch.nn.functional.normalize(torch.randn(64, 32), dim=1)),
    "orthogonal": (DRAWN, _orthogonal),
    "with infinities": (DRAWN, lambda: torch.randn(64).masked_fill(torch.rand(64) < 0.3, -torch.inf)),
    "the same": (DRAWN, lambda: torch.linspace(0, 1, 10)),
    "empty": (DRAWN, lambda: torch.randn(0, 4)),
    "tokens": (ROLLED, lambda: torch.randint(0, 1000, (8, 128))),
    "few labels": (ROLLED, lambda: torch.randint(0, 4, (200,))),
    "mask": (ROLLED, lambda: torch.rand(32, 32) > 0.2),
    "signs": (ROLLED, lambda: torch.randint(0, 2, (100, 100)).float() * 2 - 1),
    "steps": (ROLLED, lambda: torch.randint(0, 8, (5_000,)) / 7),
    "offsets": (DRAWN, lambda: torch.randint(0, 1000, (20,)).sort().values),
    "lengths as masks": (DRAWN, lambda: torch.arange(50) < torch.randint(1, 50, (16, 1))),
    "positions": (DRAWN, lambda: torch.arange(512)),
    "one hot": (DRAWN, lambda: torch.nn.functional.one_hot(torch.randint(0, 10, (64,)), 10).float()),
    "permutations": (DRAWN, lambda: torch.stack([torch.randperm(30) for _ in range(8)])),
    "tokens behind a first one": (DRAWN, lambda: torch.cat([torch.zeros(16, 1), torch.randint(5, 999, (16, 31))], 1).long()),
}


@pytest.mark.parametrize("name", DRAWERS)
def test_way_by_what_all_draws_have_in_common(name: str) -> None:
    expected, draw = DRAWERS[name]
    for seed in range(8):
        torch.manual_seed(seed)
        assert way([draw() for _ in range(3)]) == expected


@pytest.mark.parametrize(
    "name", ["normal", "triangle", "symmetric", "probabilities", "tokens", "one hot", "sorted", "unit vectors"]
)
def test_a_leading_block_tells_of_what_is_too_large(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "MOST", 512)
    expected, draw = DRAWERS[name]
    torch.manual_seed(0)
    assert way([draw() for _ in range(3)]) == expected


def test_draws_of_other_shapes_come_as_they_are() -> None:
    assert way([torch.randn(3), torch.randn(4), torch.randn(3)]) == DRAWN


EMBEDDING = """import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(100, 8)
    def forward(self, tokens, lengths):
        {check}
        return self.table(tokens) * lengths[:, None, None]
def get_inputs():
    return [torch.randint(0, 100, (4, 16)), {{"x": torch.rand(4)}}["x"]]
def get_init_inputs():
    return []
"""


def _problem(check: str) -> LoadedProblem:
    return LoadedProblem(EMBEDDING.format(check=check), ChildDevice())


def test_indices_are_rolled_where_the_problem_takes_them() -> None:
    assert ways_of(_problem("pass"), 1) == [ROLLED, MIXED]


def test_indices_that_must_stay_are_left_as_they_were_drawn() -> None:
    refuses = "assert tokens.sum(1).equal(self.seen if hasattr(self, 'seen') else tokens.sum(1)); self.seen = tokens.sum(1)"
    assert ways_of(_problem(refuses), 1) == [DRAWN, MIXED]


def test_indices_that_give_infinities_elsewhere_are_left_as_they_were_drawn() -> None:
    infinite = "self.first = getattr(self, 'first', tokens[0, 0]); lengths = lengths / (tokens[0, 0] == self.first)"
    assert ways_of(_problem(infinite), 1) == [DRAWN, MIXED]

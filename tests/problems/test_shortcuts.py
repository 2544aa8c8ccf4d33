"""Which operators are left out, and that what is written in their place is the operand."""

import ast

import pytest

from cuda_agent.problems.shortcuts import shortcuts
from tests.problems.texts import text


def bodies(body: str, **parts: str) -> dict[str, str]:
    """What is left out, and the forward without it."""
    found = shortcuts(text(body, **parts))
    assert not isinstance(found, str), found
    return {"; ".join(map(ast.unparse, shortcut.forward.body)): shortcut.label for shortcut in found}


def test_each_operator_gives_way_to_each_operand() -> None:
    assert bodies("x = torch.relu(x)\nx = x * torch.sigmoid(x)") == {
        "x = x; x = x * torch.sigmoid(x); return x": "torch.relu(x)",
        "x = torch.relu(x); x = x; return x": "x * torch.sigmoid(x)",
        "x = torch.relu(x); x = torch.sigmoid(x); return x": "x * torch.sigmoid(x)",
        "x = torch.relu(x); x = x * x; return x": "torch.sigmoid(x)",
        "return x": "x = torch.relu(x); x = x * torch.sigmoid(x)",
    }


def test_methods_and_modules_are_operators_too() -> None:
    assert set(bodies("x = self.linear(x).relu()")) == {"x = self.linear(x); return x", "x = x.relu(); return x"}


def test_layout_shapes_and_guards_against_zero_are_left_alone() -> None:
    assert bodies("x = x.reshape(-1, 4).contiguous()") == {}
    assert set(bodies("x = x / (x.norm() + 1e-6)").values()) == {"x / (x.norm() + 1e-06)", "x.norm()"}
    assert set(bodies("x = nn.functional.layer_norm(x, x.shape[-1:])")) == {"x = x; return x"}
    assert bodies("x = torch.add(x, self.eps)") == {}


def test_runs_renew_one_name_only() -> None:
    assert not any(";" in label for label in bodies("x = torch.sin(x)\ny = torch.cos(x)\nx = x + y").values())


@pytest.mark.parametrize("body", ["if x.sum() > 0:\n    x = -x", "for _ in range(2): x = -x", "x.relu_()", "pass"])
def test_anything_but_a_chain_is_not_taken_apart(body: str) -> None:
    assert shortcuts(text(body)) == "forward is no chain of statements"


def test_a_text_without_model_has_no_shortcuts() -> None:
    assert "class Model" in str(shortcuts("x = 1"))

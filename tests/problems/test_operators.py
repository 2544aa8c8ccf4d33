import pytest

from cuda_agent.errors import ProblemError
from cuda_agent.problems.operators import imported, operators_of
from tests.problems.texts import text


def test_every_way_to_import_gives_the_same_names() -> None:
    forms = {
        "": "nn.functional.relu(torch.softmax(x, dim=-1))",
        "import torch.nn.functional as F": "F.relu(torch.softmax(x, dim=-1))",
        "from torch import softmax\nfrom torch.nn import functional": "functional.relu(softmax(x, dim=-1))",
        "import torch as t": "t.nn.functional.relu(t.softmax(x, dim=-1))",
    }
    for head, expression in forms.items():
        assert operators_of(text(f"x = {expression}", head=head)) == ("torch.softmax", "nn.functional.relu"), head


def test_modules_stand_where_forward_uses_them() -> None:
    init = "self.norm = nn.LayerNorm(256)\nself.bias = nn.Parameter(torch.randn(256))\nself.linear = nn.Linear(256, 256)"
    body = "x = self.linear(x)\nx = torch.tanh(x)\nx = self.norm(x + self.bias)"
    assert operators_of(text(body, init=init)) == ("nn.Linear", "torch.tanh", "nn.LayerNorm")
    with_sum = operators_of(text(body, init=init), every=True)
    assert with_sum == ("nn.Linear", "torch.tanh", "torch.add", "nn.LayerNorm")


def test_lists_own_methods_and_own_classes_are_followed() -> None:
    code = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3)
    def forward(self, x):
        return torch.relu(self.conv(x))

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [nn.Linear(4, 4)]
        layers.append(nn.GELU())
        self.net = nn.Sequential(*layers)
        self.block = Block()
        self.stage = self._stage()
    def _stage(self):
        return nn.Sequential(nn.MaxPool2d(2), nn.Flatten())
    def _head(self, x):
        for layer in self.stage:
            x = layer(x)
        return torch.linalg.norm(x)
    def forward(self, x):
        return self._head(self.block(self.net(x)))
"""
    expected = ("nn.Linear", "nn.GELU", "nn.Conv2d", "torch.relu", "nn.MaxPool2d", "nn.Flatten", "torch.linalg.norm")
    assert operators_of(code) == expected


def test_sizes_and_questions_are_no_operators() -> None:
    body = "n = x.shape[0] // 2 + 1\nx = x.view(x.size(0), -1)\nx = x @ x.mT"
    assert operators_of(text(body)) == ()
    assert operators_of(text(body), every=True) == ("Tensor.view", "torch.matmul")


@pytest.mark.parametrize(
    "body",
    [
        "x = " + "(" * 90 + "x" + ")" * 90 + "\nx = " + "+".join(["x"] * 60_000),
        "\n".join(f"self.a{n} = [" + ", ".join(["nn.ReLU()"] * 40) + "]" for n in range(60)) + "\n" + "\nx = self.a1" * 6_000,
    ],
)
def test_a_hostile_text_is_refused_in_bounded_time(body: str) -> None:
    with pytest.raises(ProblemError, match=r"too intricate|nested too deeply|not Python"):
        operators_of(text(body), every=True)


def test_own_classes_that_call_each_other_end() -> None:
    init = "    def __init__(self):\n        self.m = Model()\n"
    code = f"class Model:\n{init}    def forward(self, x):\n        return self.forward(self.m(x))\n"
    assert operators_of(code) == ()


def test_imports_are_found_wherever_they_stand() -> None:
    assert imported("import os.path\ndef f():\n    from numpy import linalg\n    from . import x\n") == {"os", "numpy", "."}

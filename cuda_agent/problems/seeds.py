"""What crawling yields: operators of torch as templates of one statement, and modules of transformers as whole problems.

Pure data. `torch_crawl` and `transformers_crawl` find seeds by trying, `sampler` stacks the former and passes the latter on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from cuda_agent.problems.problem import Problem, torch_source

Source = Literal["torch", "transformers"]
TRANSFORMERS = "transformers"


@dataclass(frozen=True)
class Call:
    """One way to use an operator on an `x` of one shape; all fields are texts as they stand in a problem.

    `expression` gives the next `x`: `torch.softmax({x}, dim=-1)`, `torch.addmm({y0}, {x}, {y1})`, `{m}({x})`; `{x}`, `{y0}`…
    and `{m}` are filled in by whoever renders it. `module` is what `{m}` is made of in `__init__` (`nn.Conv2d(64, 64, 3)`) or
    empty. `extras` draw the further inputs `y0`, `y1`… (`torch.randn(64, 512)`), in order.
    """

    shape: tuple[int, ...]  # of x
    expression: str
    module: str = ""
    extras: tuple[str, ...] = ()


@dataclass(frozen=True)
class TorchSeed:
    """An operator of torch under its public name (`torch.softmax`, `nn.Conv2d`, `nn.functional.gelu`, `torch.linalg.inv`).

    `calls` holds at least three settings of shapes. `x` draws the first input when the operator stands first; `{shape}` in it
    becomes the sizes (`torch.randn({shape})`). `out` maps each call's position to shape and dtype of its output.
    """

    name: str
    calls: tuple[Call, ...]
    x: str = "torch.randn({shape})"
    out: tuple[tuple[tuple[int, ...], str], ...] = ()

    def problem(self, setting: int) -> Problem:
        """The operator alone, as a problem."""
        call = self.calls[setting]
        return Problem((self.name,), torch_source(1), render([call], self.x.format(shape=sizes(call.shape))))


@dataclass(frozen=True)
class ModuleSeed:
    """A transformers class under its dotted name with one problem text for each setting of shapes, at least three."""

    name: str
    codes: tuple[str, ...]

    def problem(self, setting: int) -> Problem:
        """One of them."""
        return Problem((self.name,), TRANSFORMERS, self.codes[setting])


@dataclass(frozen=True)
class CrawlReport:
    """Seeds by name, and what was tried and could not be built, with the reason."""

    seeds: Mapping[str, TorchSeed | ModuleSeed]
    refused: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)  # of torch, transformers: what the report depends on

    def to_json(self) -> dict[str, Any]:
        """For a cache file."""
        return {
            "seeds": [_seed_to_json(seed) for seed in self.seeds.values()],
            "refused": dict(self.refused),
            "versions": dict(self.versions),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        seeds = {seed.name: seed for seed in map(_seed_from_json, data["seeds"])}
        return cls(seeds, dict(data["refused"]), dict(data["versions"]))


def sizes(shape: tuple[int, ...]) -> str:
    """A shape as arguments: `64, 512`."""
    return ", ".join(map(str, shape))


def render(calls: "list[Call] | tuple[Call, ...]", x: str) -> str:
    """The problem text of calls in sequence, the first on an input drawn by `x`."""
    modules, statements, drawn = [], [], [x]
    for number, call in enumerate(calls):
        names = {"x": "x", "m": f"self.layer{number}"}
        names |= {f"y{place}": f"y{len(drawn) - 1 + place}" for place in range(len(call.extras))}
        drawn += call.extras
        statements.append(f"        x = {call.expression.format(**names)}")
        if call.module:
            modules.append(f"        self.layer{number} = {call.module}")
    parameters = ", ".join(["self", "x", *(f"y{number}" for number in range(len(drawn) - 1))])
    lines = [
        "import torch",
        "import torch.nn as nn",
        "",
        "",
        "class Model(nn.Module):",
        "    def __init__(self):",
        "        super().__init__()",
        *modules,
        "",
        f"    def forward({parameters}):",
        *statements,
        "        return x",
        "",
        "",
        "def get_inputs():",
        f"    return [{', '.join(drawn)}]",
        "",
        "",
        "def get_init_inputs():",
        "    return []",
    ]
    return "\n".join(lines) + "\n"


def _seed_to_json(seed: TorchSeed | ModuleSeed) -> dict[str, Any]:
    if isinstance(seed, ModuleSeed):
        return {"name": seed.name, "codes": list(seed.codes)}
    calls = [[list(call.shape), call.expression, call.module, list(call.extras)] for call in seed.calls]
    return {"name": seed.name, "calls": calls, "x": seed.x, "out": [[list(shape), dtype] for shape, dtype in seed.out]}


def _seed_from_json(data: Mapping[str, Any]) -> TorchSeed | ModuleSeed:
    if "codes" in data:
        return ModuleSeed(data["name"], tuple(data["codes"]))
    calls = tuple(Call(tuple(shape), expression, module, tuple(extras)) for shape, expression, module, extras in data["calls"])
    return TorchSeed(data["name"], calls, data["x"], tuple((tuple(shape), dtype) for shape, dtype in data["out"]))

"""What crawling yields: operators of torch as templates of one statement, and modules of transformers as whole problems.

Pure data. `torch_crawl` and `transformers_crawl` find seeds by trying, `sampler` stacks the former and passes the latter on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from cuda_agent.problems.problem import Problem, module_text, torch_source

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
class Template:
    """A way to use an operator on any `x` of the given ranks: the texts of a `Call` with sizes left open.

    Sizes stand as `{shape}` (all of them), `{s0}`, `{s1}`…, `{last}`, `{prev}` (the one before the last), `{half}` and
    `{double}` (of the last), `{flipped}` (all, the last two exchanged) and `{batch}` (all but the last two, each with a comma).
    `square` asks for equal last two sizes.
    """

    ranks: tuple[int, ...]
    expression: str
    module: str = ""
    extras: tuple[str, ...] = ()
    square: bool = False

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether an `x` of this shape may be tried; sizes may still be too small, which only running tells."""
        return len(shape) in self.ranks and (not self.square or shape[-1] == shape[-2])

    def call(self, shape: tuple[int, ...]) -> Call:
        """The call on an `x` of a shape of one of the ranks."""
        names = _open_sizes(shape)
        texts = (self.expression, self.module, *self.extras)
        expression, module, *extras = (text.format(**names) for text in texts)
        return Call(shape, expression, module, tuple(extras))


@dataclass(frozen=True)
class TorchSeed:
    """An operator of torch under its public name (`torch.softmax`, `nn.Conv2d`, `nn.functional.gelu`, `torch.linalg.inv`).

    `calls` holds at least three settings of small shapes, `large` as many of large ones. `x` draws the first input when the
    operator stands first; `{shape}` in it becomes the sizes (`torch.randn({shape})`). `out` maps each call's position to shape
    and dtype of its output. `templates` make calls for other shapes; `heavy` operators cost more than a pass over their
    operands (products of matrices, convolutions, decompositions). `leaves` tells on which kinds of x (`normal`, `positive`,
    `sparse`…) the operator makes a good problem, by small inputs, and what kind its output is of; a missing kind is one that it
    makes constant, not finite, or leaves as it was.
    """

    name: str
    calls: tuple[Call, ...]
    x: str = "torch.randn({shape})"
    out: tuple[tuple[tuple[int, ...], str], ...] = ()
    large: tuple[Call, ...] = ()
    templates: tuple[Template, ...] = ()
    heavy: bool = False
    leaves: Mapping[str, str] = field(default_factory=dict)

    def problem(self, setting: int, *, large: bool = False) -> Problem:
        """The operator alone, as a problem."""
        call = (self.large if large else self.calls)[setting]
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
        seeds = {seed.name: seed for seed in map(seed_from_json, data["seeds"])}
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
        statements.append(f"x = {call.expression.format(**names)}")
        if call.module:
            modules.append(f"self.layer{number} = {call.module}")
    parameters = ["x", *(f"y{number}" for number in range(len(drawn) - 1))]
    return module_text(("import torch", "import torch.nn as nn"), modules, parameters, [*statements, "return x"], drawn)


def _open_sizes(shape: tuple[int, ...]) -> dict[str, object]:
    """What the fields of a template stand for; `{x}`, `{m}` and `{y0}`… stay open."""
    kept = {name: "{" + name + "}" for name in ("x", "m", *(f"y{place}" for place in range(10)))}
    last, prev = shape[-1], shape[-2] if len(shape) > 1 else 1
    named = {"shape": sizes(shape), "last": last, "prev": prev, "half": last // 2, "double": 2 * last}
    named |= {"flipped": sizes((*shape[:-2], last, prev)), "batch": "".join(f"{size}, " for size in shape[:-2])}
    return {**kept, **named, **{f"s{place}": size for place, size in enumerate(shape)}}


def _seed_to_json(seed: TorchSeed | ModuleSeed) -> dict[str, Any]:
    if isinstance(seed, ModuleSeed):
        return {"name": seed.name, "codes": list(seed.codes)}
    return {
        "name": seed.name,
        "calls": [call_to_json(call) for call in seed.calls],
        "x": seed.x,
        "out": [[list(shape), dtype] for shape, dtype in seed.out],
        "large": [call_to_json(call) for call in seed.large],
        "templates": [template_to_json(template) for template in seed.templates],
        "heavy": seed.heavy,
        "leaves": dict(seed.leaves),
    }


def seed_from_json(data: Mapping[str, Any]) -> TorchSeed | ModuleSeed:
    """One seed of what `CrawlReport.to_json` wrote; keys beside its own are ignored."""
    if "codes" in data:
        return ModuleSeed(data["name"], tuple(data["codes"]))
    return TorchSeed(
        name=data["name"],
        calls=tuple(map(call_from_json, data["calls"])),
        x=data["x"],
        out=tuple((tuple(shape), dtype) for shape, dtype in data["out"]),
        large=tuple(map(call_from_json, data.get("large", ()))),
        templates=tuple(map(template_from_json, data.get("templates", ()))),
        heavy=bool(data.get("heavy")),
        leaves=dict(data.get("leaves", {})),
    )


def template_to_json(template: Template) -> list[Any]:
    """A template as a row."""
    return [list(template.ranks), template.expression, template.module, list(template.extras), template.square]


def template_from_json(row: Sequence[Any]) -> Template:
    """Read what `template_to_json` wrote."""
    ranks, expression, module, extras, square = row
    return Template(tuple(ranks), expression, module, tuple(extras), square)


def call_to_json(call: Call) -> list[Any]:
    """A call as a row."""
    return [list(call.shape), call.expression, call.module, list(call.extras)]


def call_from_json(row: Sequence[Any]) -> Call:
    """Read what `call_to_json` wrote."""
    shape, expression, module, extras = row
    return Call(tuple(shape), expression, module, tuple(extras))

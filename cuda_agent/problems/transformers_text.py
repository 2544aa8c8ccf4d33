"""From a recipe of a transformers class to a problem text: sizes are symbols until a setting of shapes fills them in.

Pure text. A recipe says how the class is built from a configuration and called; `render` gives the same problem at any
setting, so that what was proved at small sizes also stands at large ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from cuda_agent.problems.problem import module_text

Scale = Literal["small", "medium", "large"]
Kind = Literal["norm", "mlp", "attention", "embedding", "layer", "other"]
DrawKind = Literal[
    "randn",
    "cos",
    "sin",
    "rand",
    "ids",
    "positions",
    "experts",
    "arange",
    "bounds",
    "grid",
    "zeros",
    "zero_ids",
    "polar",
    "ones",
    "ones_long",
]
EXPERTS, CHOSEN = 8, 2


@dataclass(frozen=True)
class Setting:
    """Sizes of one problem: samples, tokens, features, heads; side of an image and of its patches in pixels."""

    batch: int
    tokens: int
    hidden: int
    heads: int
    image: int
    patch: int

    def symbols(self) -> dict[str, int]:
        """What the braces of a recipe stand for."""
        side = 8 if self.image <= 64 else 16 if self.image < 224 else 32
        return {
            "B": self.batch,
            "S": self.tokens,
            "T": self.batch * self.tokens,
            "H": self.hidden,
            "I": 2 * self.hidden,
            "H2": self.hidden // 2,
            "H3": 3 * self.hidden,
            "H4": 4 * self.hidden,
            "A": self.heads,
            "A2": 2 * self.heads,
            "K": self.heads // 2,
            "BA": self.batch * self.heads,
            "D": self.hidden // self.heads,
            "D2": self.hidden // self.heads // 2,
            "V": 1_000 if self.hidden <= 256 else 8_000,
            "P": 4 * self.tokens,
            "G": self.image,
            "Q": self.patch,
            "N": (self.image // self.patch) ** 2,
            "R": side,
            "R2": side * side,
            "L": 16 * self.tokens,
            "E": EXPERTS,
            "k": CHOSEN,
        }


SMALL = (Setting(2, 32, 64, 4, 32, 8), Setting(4, 64, 128, 4, 64, 8), Setting(2, 128, 256, 8, 96, 16))
LIGHT: Mapping[Scale, tuple[Setting, ...]] = {
    "small": SMALL,
    "medium": (Setting(16, 256, 512, 8, 128, 16), Setting(4, 512, 768, 12, 224, 16), Setting(8, 512, 1024, 16, 224, 16)),
    "large": (Setting(64, 1024, 1024, 16, 224, 16), Setting(16, 2048, 2048, 16, 224, 16), Setting(64, 1024, 2048, 16, 384, 16)),
}
HEAVY: Mapping[Scale, tuple[Setting, ...]] = {
    "small": SMALL,
    "medium": (Setting(2, 128, 256, 8, 128, 16), Setting(2, 256, 384, 6, 160, 16), Setting(4, 128, 512, 8, 224, 16)),
    "large": (Setting(8, 1024, 1024, 16, 224, 16), Setting(8, 1024, 2048, 16, 224, 16), Setting(16, 512, 2048, 16, 384, 16)),
}


@dataclass(frozen=True)
class Draw:
    """One tensor: how it is drawn and its shape as a text of symbols; `constant` ones are buffers, the others inputs."""

    name: str
    kind: DrawKind
    shape: str
    constant: bool = False

    def text(self) -> str:
        """The expression that makes it, still with symbols."""
        return {
            "randn": "torch.randn({0})",
            "cos": "torch.cos(torch.randn({0}))",
            "sin": "torch.sin(torch.randn({0}))",
            "rand": "torch.rand({0})",
            "ids": "torch.randint(0, {{V}}, ({0}))",
            "positions": "torch.randint(0, {{P}}, ({0}))",
            "experts": "torch.rand({0}, {{E}}).topk({{k}}).indices",
            "arange": "torch.arange({0}).unsqueeze(0)",
            "bounds": "torch.tensor([0, {0}], dtype=torch.int32)",
            "grid": "torch.tensor([[{0}]])",
            "zeros": "torch.zeros({0})",
            "zero_ids": "torch.zeros({0}, dtype=torch.long)",
            "polar": "torch.polar(torch.ones({0}), torch.randn({0}))",
            "ones": "torch.ones({0}, dtype=torch.bool)",
            "ones_long": "torch.ones({0}, dtype=torch.long)",
        }[self.kind].format(self.shape)

    def fixed(self) -> "Draw":
        """The same place filled with a constant, for what has no effect on the answer but must be given."""
        kind: DrawKind = "zero_ids" if self.kind in ("ids", "positions", "experts") else "zeros"
        return replace(self, kind=kind, constant=True)


@dataclass(frozen=True)
class Argument:
    """One argument of forward: `expression` over the draws (`{}` each), passed by keyword unless `keyword` is empty."""

    keyword: str
    expression: str
    draws: tuple[Draw, ...] = ()
    optional: bool = False

    def text(self) -> str:
        """As it stands in the call."""
        names = [f"self.{draw.name}" if draw.constant else draw.name for draw in self.draws]
        value = self.expression.format(*names) if names else self.expression
        return f"{self.keyword}={value}" if self.keyword else value


@dataclass(frozen=True)
class Recipe:
    """How one class becomes a problem.

    `config_class` is a dotted name or empty; `config` maps its fields to symbols; `switches` are attributes set afterwards
    (`_attn_implementation`). `build` are the constructor's arguments, `select` what is taken of the answer (`[0]`). `unset`
    and `constant` name (by suffix) the parameters that the class leaves without values, or equal throughout.
    """

    module: str
    class_name: str
    config_class: str = ""
    config: Mapping[str, str] = field(default_factory=dict)
    switches: Mapping[str, str] = field(default_factory=dict)
    build: str = ""
    call: tuple[Argument, ...] = ()
    select: str = ""
    unset: tuple[str, ...] = ()
    constant: tuple[str, ...] = ()

    @property
    def draws(self) -> tuple[Draw, ...]:
        """Every tensor of the call, in order."""
        return tuple(draw for argument in self.call for draw in argument.draws)


def fill(text: str, setting: Setting) -> str:
    """Replace symbols by sizes."""
    for name, value in setting.symbols().items():
        text = text.replace("{" + name + "}", str(value))
    return text


def config_lines(recipe: Recipe) -> list[str]:
    """Statements that make `config`, with symbols; none for a class without one."""
    if not recipe.config_class:
        return []
    arguments = ", ".join(f"{name}={value}" for name, value in recipe.config.items())
    lines = [f"config = {recipe.config_class.rpartition('.')[2]}({arguments})"]
    return lines + [f'config.{name} = "{value}"' for name, value in recipe.switches.items()]


def render(recipe: Recipe, setting: Setting) -> str:
    """The problem text at one setting of shapes."""
    inputs = [draw for draw in recipe.draws if not draw.constant]
    body = [
        *config_lines(recipe),
        f"self.layer = {recipe.class_name}({recipe.build})",
        *_weights(recipe),
        *(f'self.register_buffer("{draw.name}", {draw.text()}, persistent=False)' for draw in recipe.draws if draw.constant),
    ]
    answer = f"self.layer({', '.join(argument.text() for argument in recipe.call)}){recipe.select}"
    parameters, drawn = [draw.name for draw in inputs], [draw.text() for draw in inputs]
    return fill(module_text(_imports(recipe), body, parameters, [f"return {answer}"], drawn), setting)


def _imports(recipe: Recipe) -> list[str]:
    lines = ["import torch", "import torch.nn as nn"]
    if recipe.config_class:
        module, _, name = recipe.config_class.rpartition(".")
        lines.append(f"from {module} import {name}")
    return [*lines, f"from {recipe.module} import {recipe.class_name}"]


def _weights(recipe: Recipe) -> list[str]:
    """Values for what the class alone leaves unset (a whole model would fill it in) or constant: weights must matter."""
    if not recipe.unset and not recipe.constant:
        return []
    lines = ["for name, parameter in self.layer.named_parameters():"]
    if recipe.unset:
        lines += [
            f"    if name.endswith({_suffixes(recipe.unset)}):",
            "        nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)",
        ]
    if recipe.constant:
        lines += [
            f"    if name.endswith({_suffixes(recipe.constant)}):",
            "        nn.init.normal_(parameter, mean=float(parameter.mean()), std=0.1)",
        ]
    return lines


def _suffixes(names: tuple[str, ...]) -> str:
    quoted = ", ".join(f'"{name}"' for name in names)
    return f"({quoted})" if len(names) > 1 else quoted

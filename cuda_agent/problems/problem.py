"""A problem: a Python module text with `class Model(nn.Module)`, `get_inputs()` and `get_init_inputs()`.

Nothing here runs the text: the contract is read from its syntax tree, in the parent, whatever the text would do. The
spelling `getInputs` is accepted too. Identity is the sha256 of the UTF-8 text.
"""

import ast
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from cuda_agent.errors import ProblemError

INPUT_NAMES = ("get_inputs", "getInputs")
INIT_NAMES = ("get_init_inputs", "getInitInputs")
MAX_CHARS = 200_000  # the longest KernelBench text has 13 k; a parser bomb is refused unread


@dataclass(frozen=True)
class Problem:
    """A problem text with its origin: `ops` in order of application, `data_source` as in `torch#2` or `transformers`."""

    ops: tuple[str, ...]
    data_source: str
    code: str

    @property
    def sha256(self) -> str:
        """Hex digest of the text."""
        return text_sha256(self.code)


@dataclass(frozen=True)
class VettedProblem:
    """A problem after vetting: the fields of the table `problem`.

    `rule` and `reason` are None when accepted; `split` is set (`train` or `held_out`) once the whole set is known.
    Times are milliseconds on the machine that vetted; `facts` is what was measured, JSON-able.
    """

    position: int
    ops: tuple[str, ...]
    data_source: str
    code: str
    code_sha256: str
    split: Literal["train", "held_out"] | None = None
    rule: str | None = None
    reason: str | None = None
    eager_ms: float | None = None
    compile_ms: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def accepted(self) -> bool:
        """Whether every rule let it pass."""
        return self.rule is None

    @property
    def problem(self) -> Problem:
        """The text and its origin alone."""
        return Problem(self.ops, self.data_source, self.code)

    def on_side(self, side: Literal["train", "held_out"] | None) -> Self:
        """The same problem on one side of the split."""
        return replace(self, split=side)


@dataclass(frozen=True)
class Contract:
    """What a text's syntax tree shows: the input functions' names and the parameters of `Model.__init__` and `forward`."""

    inputs: str
    init_inputs: str
    init_parameters: tuple[str, ...]
    forward_parameters: tuple[str, ...]


def text_sha256(code: str) -> str:
    """Hex sha256 of a problem text."""
    return hashlib.sha256(code.encode("utf-8", errors="surrogatepass")).hexdigest()


def torch_source(operators: int) -> str:
    """The `data_source` of a problem stacked from that many torch operators."""
    return f"torch#{operators}"


def module_text(
    imports: Sequence[str], init: Sequence[str], parameters: Sequence[str], forward: Sequence[str], inputs: Sequence[str]
) -> str:
    """A problem text from its statements: those of `__init__` and `forward` unindented, `inputs` the expressions that draw."""
    lines = [
        *imports,
        "",
        "",
        "class Model(nn.Module):",
        "    def __init__(self):",
        "        super().__init__()",
        *(f"        {line}" for line in init),
        "",
        f"    def forward({', '.join(['self', *parameters])}):",
        *(f"        {line}" for line in forward),
        "",
        "",
        "def get_inputs():",
        f"    return [{', '.join(inputs)}]",
        "",
        "",
        "def get_init_inputs():",
        "    return []",
    ]
    return "\n".join(lines) + "\n"


def parse(code: str) -> ast.Module:
    """The syntax tree of a text.

    Raises:
        ProblemError: it is no Python, or too long to be a problem.
    """
    if len(code) > MAX_CHARS:
        raise ProblemError(f"the problem text has {len(code)} characters; a problem may have {MAX_CHARS}")
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ProblemError(f"the problem text is not Python: {error}") from error


def read_contract(code: str) -> Contract:
    """Check the problem contract on the syntax tree.

    Raises:
        ProblemError: naming the first part that is missing.
    """
    tree = parse(code)
    model = model_class(tree)
    methods = {node.name: node for node in model.body if isinstance(node, ast.FunctionDef)}
    if "forward" not in methods:
        raise ProblemError("class Model has no method forward; add one")
    init = methods.get("__init__")
    return Contract(
        inputs=_defined(tree, INPUT_NAMES),
        init_inputs=_defined(tree, INIT_NAMES),
        init_parameters=_parameters(init) if init else (),
        forward_parameters=_parameters(methods["forward"]),
    )


def model_class(tree: ast.Module) -> ast.ClassDef:
    """The last top-level `class Model` of a tree.

    Raises:
        ProblemError: there is none.
    """
    found = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model"]
    if not found:
        raise ProblemError("the problem text defines no class Model; add `class Model(nn.Module)`")
    return found[-1]


def _defined(tree: ast.Module, names: tuple[str, ...]) -> str:
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            defined |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    for name in names:
        if name in defined:
            return name
    raise ProblemError(f"the problem text defines no function {names[0]}(); add one")


def _parameters(function: ast.FunctionDef) -> tuple[str, ...]:
    arguments = function.args
    return tuple(argument.arg for argument in (*arguments.posonlyargs, *arguments.args)[1:])

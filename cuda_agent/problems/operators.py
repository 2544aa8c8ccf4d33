"""The torch operators that a problem's text applies, read from its syntax tree; nothing is run or imported.

Names are public ones in one spelling, whatever the text imports: `torch.softmax`, `nn.Conv2d`, `nn.functional.gelu`,
`torch.linalg.inv`. They stand in the order in which `forward` applies them as far as a tree can tell: modules where their
attribute is used, own methods and own classes where they are called. Containers, parameters and functions that only make
tensors are left out. Texts are untrusted: reading one takes a bounded number of steps.
"""

import ast
from collections.abc import Iterator

from cuda_agent.errors import ProblemError
from cuda_agent.problems.problem import model_class, parse

STEPS = 200_000  # visits of nodes and names; KernelBench's longest model takes some 5,000
CONTAINERS = frozenset({"nn.Sequential", "nn.ModuleList", "nn.ModuleDict", "nn.Parameter", "nn.ParameterList", "nn.Module"})
MAKERS = frozenset({"randn", "rand", "zeros", "ones", "empty", "full", "tensor", "device", "no_grad", "manual_seed", "Size"})
# Methods that ask a tensor or change a list, and so compute nothing.
QUESTIONS = frozenset({"size", "dim", "numel", "item", "append", "extend", "items", "keys", "values", "split_sizes", "format"})
ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "torch.add",
    ast.Sub: "torch.sub",
    ast.Mult: "torch.mul",
    ast.Div: "torch.div",
    ast.Pow: "torch.pow",
    ast.MatMult: "torch.matmul",
}


def operators_of(code: str, *, every: bool = False) -> tuple[str, ...]:
    """Operators of `class Model` in order; with `every` also arithmetic (`torch.add`) and methods of tensors (`Tensor.sum`).

    Raises:
        ProblemError: the text is no Python, has no class Model, or is too intricate to be read.
    """
    tree = parse(code)
    try:
        return tuple(_Reader(tree, every).model(model_class(tree)))
    except RecursionError as error:
        raise ProblemError("the problem text is nested too deeply for its operators to be read; simplify it") from error


def imported(code: str) -> set[str]:
    """Top-level packages that a text imports anywhere.

    Raises:
        ProblemError: the text is no Python.
    """
    found = set[str]()
    for node in ast.walk(parse(code)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add("." * node.level + (node.module or "").partition(".")[0])
    return found


class _Reader:
    """Reads one text; `_open` holds the classes and methods that are being read, against endless recursion."""

    def __init__(self, tree: ast.Module, every: bool) -> None:
        self._every, self._aliases = every, dict(_aliases(tree))
        self._classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        self._open: set[str] = set()
        self._steps = 0

    def step(self, count: int = 1) -> None:
        """Account for work, of which a text may cause a bounded amount."""
        self._steps += count
        if self._steps > STEPS:
            raise ProblemError("the problem text is too intricate for its operators to be read; simplify it")

    def model(self, node: ast.ClassDef) -> list[str]:
        """What a class applies in `forward`."""
        methods = {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
        if node.name in self._open or "forward" not in methods:
            return []
        self._open.add(node.name)
        found = list(_Body(self, methods).method("forward"))
        self._open.discard(node.name)
        return found

    def public_name(self, node: ast.expr) -> str | None:
        """`F.relu` as `nn.functional.relu`; None for what is not torch's."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._aliases:
            return None
        name = ".".join([self._aliases[node.id], *reversed(parts)])
        return name.removeprefix("torch.") if name.startswith("torch.nn.") else name

    def operator(self, node: ast.expr) -> str | None:
        """The public name if it is that of an operator."""
        name = self.public_name(node)
        if name is None or name in CONTAINERS or name.startswith("nn.init.") or name.rpartition(".")[2] in MAKERS:
            return None
        return name

    def own_class(self, node: ast.expr) -> list[str]:
        """What a class of the text applies, if `node` names one."""
        return self.model(self._classes[node.id]) if isinstance(node, ast.Name) and node.id in self._classes else []

    @property
    def every(self) -> bool:
        """Whether arithmetic and methods count."""
        return self._every


class _Body:
    """The methods of one class, and what its attributes are bound to."""

    def __init__(self, reader: _Reader, methods: dict[str, ast.FunctionDef]) -> None:
        self._reader, self._methods = reader, methods
        self._reading: set[str] = set()
        self._fills = {name: _fills(method) for name, method in methods.items()}
        self._bound: dict[str, list[str]] = {}
        for method in methods.values():
            for node in ast.walk(method):
                if isinstance(node, ast.Assign):
                    for target in node.targets:
                        if name := _own_attribute(target):
                            self._bound.setdefault(name, []).extend(self._modules(node.value, method.name, set()))

    def method(self, name: str) -> Iterator[str]:
        """What a method applies, in order; nothing while it is being read already."""
        if name not in self._reading:
            self._reading.add(name)
            for statement in self._methods[name].body:
                yield from self._applied(statement)
            self._reading.discard(name)

    def _applied(self, node: ast.AST) -> Iterator[str]:
        """Names in the order of evaluation: arguments before the call that takes them."""
        self._reader.step()
        if isinstance(node, ast.Call):
            yield from self._call(node)
            return
        if isinstance(node, ast.expr) and (name := _own_attribute(node)):
            bound = self._bound.get(name, [])
            self._reader.step(len(bound))
            yield from bound
            return
        for child in ast.iter_child_nodes(node):
            yield from self._applied(child)
        if self._reader.every and isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC and not _is_of_sizes(node):
            yield ARITHMETIC[type(node.op)]

    def _call(self, node: ast.Call) -> Iterator[str]:
        operator, own = self._reader.operator(node.func), _own_attribute(node.func)
        on_value = isinstance(node.func, ast.Attribute) and not own and self._reader.public_name(node.func) is None
        if on_value:
            yield from self._applied(node.func.value)  # type: ignore[attr-defined]
        for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
            yield from self._applied(argument)
        if operator:
            yield operator
        elif own in self._methods:
            yield from self.method(own)
        elif on_value and self._reader.every and node.func.attr not in QUESTIONS:  # type: ignore[attr-defined]
            yield f"Tensor.{node.func.attr}"  # type: ignore[attr-defined]
        elif not on_value:
            yield from self._reader.own_class(node.func)
            yield from self._applied(node.func)

    def _modules(self, value: ast.AST, method: str, seen: set[str]) -> Iterator[str]:
        """Modules made in an expression of a method, those in its local lists and in own methods that it calls included."""
        for node in _in_order(value):
            self._reader.step()
            if isinstance(node, ast.Call):
                name = self._reader.operator(node.func)
                if name and name.rpartition(".")[2][:1].isupper():
                    yield name
                yield from self._reader.own_class(node.func)
                own = _own_attribute(node.func)
                if own in self._methods and own not in seen:
                    seen.add(own)
                    yield from self._modules(self._methods[own], own, seen)
            elif isinstance(node, ast.Name) and node.id not in seen:
                seen.add(node.id)
                for part in self._fills[method].get(node.id, []):
                    yield from self._modules(part, method, seen)


def _aliases(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Local names of torch and of what is in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "torch":
                    yield (alias.asname, alias.name) if alias.asname else ("torch", "torch")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch" and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _own_attribute(node: ast.AST) -> str:
    """`conv` of `self.conv`, else empty."""
    own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return node.attr if own else ""  # type: ignore[attr-defined]


def _fills(method: ast.FunctionDef) -> dict[str, list[ast.AST]]:
    """The expressions that a method puts into each local variable: by assignment, or by append and extend."""
    fills: dict[str, list[ast.AST]] = {}
    for node in ast.walk(method):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    fills.setdefault(target.id, []).append(node.value)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            fills.setdefault(node.target.id, []).append(node.value)
        elif isinstance(node, ast.Call) and (name := _appended_to(node.func)):
            fills.setdefault(name, []).extend(node.args)
    return fills


def _appended_to(function: ast.expr) -> str:
    """`layers` of `layers.append`, else empty."""
    fills = isinstance(function, ast.Attribute) and function.attr in ("append", "extend") and isinstance(function.value, ast.Name)
    return function.value.id if fills else ""  # type: ignore[attr-defined]


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    """A subtree in the order of the text."""
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _in_order(child)


def _is_of_sizes(node: ast.BinOp) -> bool:
    """Whether an arithmetic expression is about sizes, not about tensors."""
    inside = list(ast.walk(node))
    asks = any(isinstance(item, ast.Attribute) and item.attr in ("shape", "size", "ndim") for item in inside)
    return asks or not any(isinstance(item, ast.Name | ast.Call) for item in inside)

"""Forwards with one operator left out, written from a problem's syntax tree: what a dead operator is found with.

Pure: nothing here runs a text. Only a `forward` that is a plain chain of statements is taken apart; for any other the
answer is the reason in words. An operator is a call, a binary or a unary operation on what is computed from the inputs;
leaving it out puts one of its operands in its place. Left alone are what only arranges memory, and guards against zero
(a constant up to 1e-3, anything named eps). Runs of statements `x = f(x)` are left out together too, for two operators may
undo each other.
"""

import ast
import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cuda_agent.errors import ProblemError
from cuda_agent.problems.problem import model_class, parse

MOST = 48  # shortcuts of one problem
GUARD = 1e-3
# fmt: off
LAYOUT = frozenset((
    "view", "reshape", "flatten", "contiguous", "clone", "detach", "to", "float", "double", "half", "bfloat16", "type",
    "type_as", "size", "dim", "numel", "item", "len", "int", "range", "permute", "transpose", "t", "movedim", "swapaxes",
    "swapdims", "unflatten", "unsqueeze", "squeeze", "expand", "expand_as", "chunk", "split", "unbind", "tuple", "list",
    "broadcast_to", "view_as", "reshape_as",
))
# fmt: on
FACTS_OF_TENSORS = frozenset(("shape", "dtype", "device", "ndim", "size", "dim", "numel"))
NAMED = "_number"  # attribute that tells a node of a copied tree


@dataclass(frozen=True)
class Shortcut:
    """A `forward` that leaves something out; `label` says what, in the text's own words."""

    label: str
    forward: ast.FunctionDef


def shortcuts(code: str) -> list[Shortcut] | str:
    """All shortcuts of a problem text, at most `MOST`, or why there are none to be had."""
    try:
        model = model_class(parse(code))
    except ProblemError as error:
        return str(error)
    forward = next((node for node in model.body if isinstance(node, ast.FunctionDef) and node.name == "forward"), None)
    if forward is None or forward.decorator_list or not _is_chain(forward.body):
        return "forward is no chain of statements"
    for number, node in enumerate(ast.walk(forward)):
        setattr(node, NAMED, number)
    return [*_single(forward), *_runs(forward)][:MOST]


def _is_chain(body: Sequence[ast.stmt]) -> bool:
    return (
        all(isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) or _is_text(node) for node in body[:-1])
        and isinstance(body[-1], ast.Return)
        and body[-1].value is not None
    )


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _single(forward: ast.FunctionDef) -> Iterator[Shortcut]:
    """Each operator replaced by each of its operands."""
    known = {argument.arg for argument in (*forward.args.posonlyargs, *forward.args.args, *forward.args.kwonlyargs)[1:]}
    for statement in forward.body:
        for site in _sites(statement):
            for operand in _operands(site, known):
                yield Shortcut(ast.unparse(site)[:80], _replaced(forward, site, operand))
        known |= {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _sites(statement: ast.stmt) -> Iterator[ast.expr]:
    """Operators of a statement, those in functions of its own left out: they run elsewhere or often."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            continue
        if isinstance(node, ast.Call | ast.BinOp | ast.UnaryOp) and not _arranges(node) and not _guards(node):
            yield node
        waiting += ast.iter_child_nodes(node)


def _arranges(node: ast.expr) -> bool:
    """Whether a call only arranges memory or asks for a shape."""
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""
    return name in LAYOUT


def _guards(node: ast.expr) -> bool:
    """Whether an operator keeps something away from zero."""
    for child in ast.iter_child_nodes(node):
        value = child.value if isinstance(child, ast.keyword) else child
        if isinstance(value, ast.Constant) and isinstance(value.value, float) and 0.0 < value.value <= GUARD:
            return True
        name = value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else ""
        if "eps" in name.lower():
            return True
    return False


def _operands(site: ast.expr, known: set[str]) -> list[ast.expr]:
    if isinstance(site, ast.BinOp):
        found = [site.left, site.right]
    elif isinstance(site, ast.UnaryOp):
        found = [site.operand]
    elif isinstance(site, ast.Call):
        owner = [site.func.value] if isinstance(site.func, ast.Attribute) else []
        found = [*owner, *site.args, *(keyword.value for keyword in site.keywords)]
    else:
        found = []
    return [operand for operand in found if _is_computed(operand, known)]


def _is_computed(operand: ast.expr, known: set[str]) -> bool:
    """Whether an expression depends on the inputs, by more than their shape."""
    if isinstance(operand, ast.Starred):
        return False
    nodes = list(ast.walk(operand))
    if any(isinstance(node, ast.Attribute) and node.attr in FACTS_OF_TENSORS for node in nodes):
        return False
    return any(isinstance(node, ast.Name) and node.id in known for node in nodes)


def _replaced(forward: ast.FunctionDef, site: ast.expr, operand: ast.expr) -> ast.FunctionDef:
    wanted, offered = getattr(site, NAMED), getattr(operand, NAMED)
    copied = copy.deepcopy(forward)
    instead = next(node for node in ast.walk(copied) if getattr(node, NAMED, None) == offered)
    return _Replacing(wanted, instead).visit(copied)  # type: ignore[no-any-return]


class _Replacing(ast.NodeTransformer):
    def __init__(self, wanted: int, instead: ast.AST) -> None:
        self._wanted, self._instead = wanted, instead

    def visit(self, node: ast.AST) -> ast.AST:
        if getattr(node, NAMED, None) == self._wanted:
            return self._instead
        return self.generic_visit(node)


def _runs(forward: ast.FunctionDef) -> Iterator[Shortcut]:
    """Two or more statements `x = f(x)` in a row left out, for the same x."""
    names = [_renewed(statement) for statement in forward.body]
    for start in range(len(names)):
        for stop in range(start + 2, len(names) + 1):
            if names[start] is None or len(set(names[start:stop])) > 1:
                break
            label = "; ".join(ast.unparse(statement) for statement in forward.body[start:stop])
            shorter = copy.copy(forward)
            shorter.body = [*forward.body[:start], *forward.body[stop:]]
            yield Shortcut(label[:160], shorter)


def _renewed(statement: ast.stmt) -> str | None:
    """The x of a statement `x = f(x)`."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1 or not isinstance(statement.targets[0], ast.Name):
        return None
    name = statement.targets[0].id
    used = (node.id for node in ast.walk(statement.value) if isinstance(node, ast.Name))
    return name if name in used else None

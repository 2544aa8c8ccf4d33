"""AST similarity of problem texts: how much of one model's program stands in another's, 0..1.

The paper drops a sample whose `PythonASTSimilarity` (package continuous-eval) to any evaluation program exceeds 0.9. That
package brings assignment solvers and fuzzy string matching, is quadratic in Python, and looks at node types only, so that
relu and sigmoid count as equal. This is a small implementation of its own: the tree of `class Model`, with the classes
and functions that stand beside it, becomes a sequence of tokens (API names, constants and the types of telling nodes kept;
local names, shapes of inputs, docstrings, annotations and what every module has left out) and two sequences are compared by
difflib's ratio. Renaming variables, other input shapes and comments change nothing; another operator does.
"""

import ast
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from typing import Any

from cuda_agent.problems.problem import INIT_NAMES, INPUT_NAMES, model_class, parse, text_sha256

# In every statement of every model: kept, they would make any two chains of equal length alike.
SKIPPED = (ast.Load, ast.Store, ast.Del, ast.arguments, ast.arg, ast.Expr, ast.Assign, ast.Name, ast.Call, ast.Return)


@dataclass(frozen=True)
class Fingerprint:
    """The token sequence of a model; `label` names the text in reasons."""

    tokens: tuple[str, ...]
    label: str = ""

    @cached_property
    def counts(self) -> Counter[str]:
        """Tokens with their counts, for the upper bound."""
        return Counter(self.tokens)


@dataclass(frozen=True)
class Match:
    """The most similar text and how similar it is."""

    label: str
    similarity: float


def fingerprint(code: str, label: str = "") -> Fingerprint:
    """The comparable form of a problem text.

    Raises:
        ProblemError: the text is no Python or has no class Model.
    """
    tree = parse(code)
    model = model_class(tree)
    return Fingerprint((*_tokens(model.body), *_helpers(tree, model)), label)


def similarity(left: Fingerprint, right: Fingerprint) -> float:
    """Similarity in 0..1, symmetric; 1 for the same program under other names."""
    if left.tokens == right.tokens:
        return 1.0
    first, second = sorted((left.tokens, right.tokens))
    return SequenceMatcher(None, first, second, autojunk=False).ratio()


def most_similar(candidate: Fingerprint, others: Sequence[Fingerprint], threshold: float = 0.0) -> Match | None:
    """The most similar of `others` above `threshold`, or None; skips those whose token counts cannot reach it."""
    best: Match | None = None
    for other in others:
        bar = max(threshold, best.similarity if best else 0.0)
        if _upper_bound(candidate, other) <= bar:
            continue
        value = similarity(candidate, other)
        if value > bar:
            best = Match(other.label, value)
    return best


def _upper_bound(left: Fingerprint, right: Fingerprint) -> float:
    total = len(left.tokens) + len(right.tokens)
    return 2.0 * (left.counts & right.counts).total() / total if total else 1.0


class Twins:
    """The accepted problems of a set, for finding near-duplicates: exact texts, and fingerprints by shapes and length.

    Shapes are those of `facts` (`inputs`, `outputs`); problems without them are compared by text alone. Looking up among
    thousands costs some milliseconds: most differ in shapes or in length by more than the threshold allows. One thread may add
    while another looks up.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._texts: dict[str, str] = {}
        self._prints: dict[str, dict[int, list[Fingerprint]]] = {}

    def add(self, code: str, facts: Mapping[str, Any], label: str) -> None:
        """Take in an accepted problem under a name for reasons.

        Raises:
            ProblemError: the text is no problem.
        """
        made = fingerprint(code, label)
        self._texts.setdefault(_normal(code), label)
        self._prints.setdefault(_shapes(facts), {}).setdefault(len(made.tokens), []).append(made)

    def find(self, code: str, facts: Mapping[str, Any], threshold: float) -> Match | None:
        """The same text, or the most similar problem of the same shapes above `threshold`, or None; raises as `add`."""
        if label := self._texts.get(_normal(code)):
            return Match(label, 1.0)
        if facts.get("inputs") is None:
            return None
        made = fingerprint(code)
        near = self._prints.get(_shapes(facts), {})
        others = [other for length, some in list(near.items()) if _reaches(len(made.tokens), length, threshold) for other in some]
        return most_similar(made, others, threshold)


def _normal(code: str) -> str:
    """A digest of the text without comments and layout."""
    return text_sha256(ast.unparse(parse(code)))


def _shapes(facts: Mapping[str, Any]) -> str:
    return json.dumps([facts.get("inputs"), facts.get("outputs")])


def _reaches(length: int, other: int, threshold: float) -> bool:
    return 2.0 * min(length, other) > threshold * (length + other)


def _helpers(tree: ast.Module, model: ast.ClassDef) -> Iterator[str]:
    """Tokens of the other classes and functions of a text."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node is not model:
            yield from _tokens(node.body)
        elif isinstance(node, ast.FunctionDef) and node.name not in (*INPUT_NAMES, *INIT_NAMES):
            yield from _tokens([node])


def _tokens(body: Sequence[ast.stmt]) -> Iterator[str]:
    for method in body:
        if isinstance(method, ast.FunctionDef):
            for statement in method.body:
                if not _boilerplate(statement):
                    yield from _walk(statement)


def _boilerplate(statement: ast.stmt) -> bool:
    """Docstrings, `super().__init__()`, `pass` and the return of a plain name: in every module, so no sign of likeness."""
    if isinstance(statement, ast.Return):
        return statement.value is None or isinstance(statement.value, ast.Name)
    if not isinstance(statement, ast.Expr):
        return isinstance(statement, ast.Pass)
    return isinstance(statement.value, ast.Constant) or ast.unparse(statement.value).startswith("super(")


def _walk(node: ast.AST) -> Iterator[str]:
    """Pre-order tokens; a chain such as `torch.nn.functional.relu` is one, by its last name: how it was imported is style."""
    if isinstance(node, ast.Attribute):
        yield f".{node.attr}"
        if not _is_name_chain(node.value):
            yield from _walk(node.value)
        return
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        yield f".{node.func.id}"
        yield from _children(node, skip=node.func)
        return
    if isinstance(node, ast.Constant):
        yield f"={node.value!r:.40}"
        return
    if isinstance(node, ast.keyword):
        yield f"{node.arg}="
    elif not isinstance(node, SKIPPED):
        yield type(node).__name__
    yield from _children(node)


def _children(node: ast.AST, skip: ast.AST | None = None) -> Iterator[str]:
    for name, child in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_comment"):
            continue
        for item in child if isinstance(child, list) else [child]:
            if isinstance(item, ast.AST) and item is not skip:
                yield from _walk(item)


def _is_name_chain(node: ast.AST) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)

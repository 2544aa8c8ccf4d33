"""What tries torch's operators: lives in a sandboxed child, answers with plain data, decides nothing that outlives a crash.

`names` lists the public operators. `build` tries recipes for one of them on small inputs, really executed: the output must be a
finite float32 tensor that repeats exactly, changes with every input, is no copy of x, leaves the inputs alone and agrees with
float64. Beside that it tells on which kinds of x the operator makes a good problem, and what kind it leaves.
"""

import contextlib
import hashlib
import inspect
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cuda_agent.problems import recipes
from cuda_agent.problems.recipes import Kind, Parameter
from cuda_agent.problems.seeds import Call, Template, call_to_json, template_to_json
from cuda_agent.problems.shapes import FLOAT32, Shape, grid, infer, run

Outcome = dict[str, Any]
Names = dict[str, Any]

# In order of preference: of several names for one function, the first is kept.
SPACES: tuple[tuple[str, Any], ...] = (
    ("torch", torch),
    ("nn.functional", torch.nn.functional),
    ("nn", torch.nn),
    ("torch.linalg", torch.linalg),
    ("torch.special", torch.special),
    ("torch.fft", torch.fft),
    ("torch.Tensor", torch.Tensor),
)
PLAIN = ("relu", "sigmoid", "tanh", "softmax", "log_softmax")  # functions that are better known under `torch`
PROBES: dict[int, Shape] = {2: (12, 64), 3: (4, 12, 64), 4: (2, 8, 12, 16), 5: (2, 4, 6, 8, 8)}
SQUARES: dict[int, Shape] = {2: (24, 24), 3: (4, 12, 12)}
SETTINGS = 4
MOST_TRIES = 48  # recipes for one operator on one rank
DECISIVE = ("type: its output is", "identity", "in place", "random", "view")  # no other recipe would change that
NOISE = 1e-3  # float32 against float64, in standard deviations of the output
WILD = 1e3  # largest magnitude over the median one: poles
TAME = 1e4  # largest magnitude between operators
FAINT = 1e-4  # standard deviation of the output
VARIES = 0.03  # as vetting's rule `varies` (0.01), with some room
TRIVIAL = 0.03  # as vetting's rule `not_trivial` (0.01), with some room
DEAD = 0.05  # mean change by an operator, in standard deviations of the output
GROWTH = 16  # largest ratio of sizes between output and input
# What an x may look like inside a chain, made of normal values.
KINDS_OF_X: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "normal": lambda z: z,
    "positive": lambda z: z.abs() + 0.1,
    "negative": lambda z: -z.abs() - 0.1,
    "sparse": lambda z: z.relu(),
    "unit": lambda z: (2.0 * z).sigmoid(),
    "signed": lambda z: z.tanh(),
    "small": lambda z: 0.03 * z.abs(),
    "faint": lambda z: 0.03 * z,
    "large": lambda z: 20.0 * z,
    "long": lambda z: 10.0 * z.abs(),
    "deep": lambda z: z - 8.0,
}
HEAVY = re.compile(
    r"(^|_)(add|bad?d|b|addb|badd)?(mm|mv|bmm)$|dot$|conv|attention|cdist|linalg_(?!vector_norm)|(^|_)(svd|eigh?|qr|lu|lstm|gru)(_|$)"
    r"|rnn|transformer|cholesky|solve|pdist"
)
KINDS: dict[str, Kind] = {"int": "int", "SymInt": "int", "float": "float", "number": "float", "Scalar": "float", "bool": "bool"}


def warm() -> None:
    """In the fork server: load what the meta device needs, once for all children."""
    infer(Call((2, 2), "torch.abs({x})"))


def open_crawler(_payload: Mapping[str, Any]) -> "Crawler":
    """Entry for the fork server."""
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    warnings.simplefilter("ignore")
    return Crawler()


class RefusedError(Exception):
    """A recipe gives no seed, and why."""


@dataclass
class _Trial:
    """A call with what it was made of."""

    call: Call
    module: Any
    extras: Names
    x: torch.Tensor

    def output(self, x: torch.Tensor | None = None, extras: Mapping[str, Any] | None = None) -> Any:
        return run(self.call, self.x.clone() if x is None else x, self.module, self.extras if extras is None else extras)


class Crawler:
    """One operator after another."""

    def names(self, _payload: Mapping[str, Any]) -> Outcome:
        """Public operators in order, and those left out with the reason."""
        return _names()

    def build(self, payload: Mapping[str, Any]) -> Outcome:
        """Templates and settings of one operator `name`, or `refused`."""
        try:
            return _attempt(_build, str(payload["name"]))  # type: ignore[no-any-return]
        except RefusedError as refused:
            return {"refused": str(refused)}
        finally:
            torch.set_default_dtype(torch.float32)
            torch.set_default_device(None)
            torch.set_grad_enabled(False)


def _leaves(template: Template, probe: Shape) -> dict[str, str]:
    """For each kind of x on which the operator makes a good problem, the kind of its output."""
    trial = _attempt(_prepare, template.call(probe), 1)
    found = {}
    for name, make in KINDS_OF_X.items():
        x, other = make(_draw(probe)), make(_draw(probe, 2))
        output = _attempt(trial.output, x)
        if not _is_weak(x, output, _attempt(trial.output, other)):
            found[name] = _kind(output)
    return found


def _is_weak(x: torch.Tensor, output: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether an operator makes no good problem of x: not finite, wild, faint, (nearly) constant, or (nearly) x itself."""
    spread, size = float(output.std(correction=0)), float(output.abs().mean())
    if not (math.isfinite(spread) and math.isfinite(size)) or float(output.abs().max()) > TAME or spread < FAINT:
        return True
    if _apart(output, other) <= max(VARIES * spread, TRIVIAL * size) or _apart(output, x) <= DEAD * spread:
        return True
    return any(_apart(output, guess) <= TRIVIAL * size for guess in _guesses(output, x))


def _kind(output: torch.Tensor) -> str:
    """The kind among `KINDS_OF_X` that values resemble most."""
    least, most, size = float(output.min()), float(output.max()), float(output.abs().mean())
    if float((output == 0).float().mean()) > 0.2:
        return "sparse"
    if size > 5.0:
        return "long" if least >= 0 else "deep" if most <= 0 else "large"
    if size < 0.1:
        return "small" if least >= 0 else "faint"
    if least >= 0 or most <= 0:
        return "negative" if most <= 0 else "unit" if most <= 1.0 else "positive"
    return "signed" if max(-least, most) <= 1.0 else "normal"


def _guesses(output: torch.Tensor, x: torch.Tensor) -> Iterator[torch.Tensor]:
    yield output.mean().expand_as(output)
    if output.dim() > 1 and output.shape[0] > 1:
        yield output.mean(0, keepdim=True).expand_as(output)
    yield x


def _apart(left: torch.Tensor, right: torch.Tensor) -> float:
    """Mean absolute difference, infinite between shapes."""
    return float((left - right).abs().mean()) if left.shape == right.shape else math.inf


def _names() -> Outcome:
    """Names by space in order of preference; one Python object counts under its first name."""
    found: list[str] = []
    refused: dict[str, str] = {}
    seen: dict[int, str] = {}
    bare: dict[str, str] = {}
    for space, holder in SPACES:
        for name in sorted(dir(holder), key=lambda name: (name in recipes.SYNONYMS, name)):
            thing = getattr(holder, name, None)
            full = f"{space}.{name}"
            if name.startswith("_") or not _is_operator(space, thing):
                continue
            reason = recipes.excluded(name)
            if reason is None and space == "torch" and name not in PLAIN and hasattr(torch.nn.functional, name):
                reason = f"alias: the function of nn.functional.{name}"
            if reason is None and full in recipes.TWINS:
                reason = f"alias: documented as {recipes.TWINS[full]}"
            if reason is None and id(thing) in seen:
                reason = f"alias: the same function as {seen[id(thing)]}"
            if reason is None and space == "torch.Tensor" and name in bare:
                reason = f"alias: the method of {bare[name]}"
            if reason is None or reason.startswith("alias"):
                bare.setdefault(name, full)
            if reason is not None:
                refused[full] = reason if reason.startswith("alias") else f"left out: {reason}"
                continue
            seen[id(thing)] = full
            found.append(full)
    return {"names": found, "refused": refused}


def _is_operator(space: str, thing: Any) -> bool:
    if space == "nn":
        return inspect.isclass(thing) and issubclass(thing, torch.nn.Module)
    if inspect.isclass(thing) or inspect.ismodule(thing) or not callable(thing):
        return False
    return not str(getattr(thing, "__module__", "") or "").startswith(("typing", "contextlib", "functools"))


def _build(name: str) -> Outcome:
    """Templates that run, merged over ranks, and the settings of shapes made of them."""
    space, _, bare = name.rpartition(".")
    found: list[tuple[Template, str]] = []
    reasons: list[str] = []
    for probe, square in _probes(bare):
        if (square and found) or any(reason.startswith(DECISIVE) for reason in reasons):
            break
        for template in islice(_tries(name, space, bare, len(probe), square), MOST_TRIES):
            if not template.fits(probe):
                continue
            try:
                found.append(_verified(template, probe))
                break
            except RefusedError as refused:
                reasons.append(str(refused))
                if reasons[-1].startswith(DECISIVE):
                    break
    if not found:
        raise RefusedError(_most_telling(reasons))
    templates = _merge([template for template, _ in found])
    first, trace = found[0]
    probe = next(probe for probe, _ in _probes(bare) if first.fits(probe))
    heavy = any(HEAVY.search(name) for _, trace in found for name in trace.split()[:-1])
    settings = {large: _settings(templates, large=large, heavy=heavy) for large in (False, True)}
    if min(map(len, settings.values())) < 3:
        raise RefusedError("settings: the meta device runs it on fewer than three shapes")
    return {
        "templates": [template_to_json(template) for template in templates],
        "calls": [call_to_json(call) for call, _ in settings[False]],
        "out": [[list(shape), dtype] for _, (shape, dtype) in settings[False]],
        "large": [call_to_json(call) for call, _ in settings[True]],
        "heavy": heavy,
        "leaves": _leaves(first, probe),
        "trace": trace,
    }


def _probes(bare: str) -> Iterator[tuple[Shape, bool]]:
    for rank in recipes.likely_ranks(bare):
        yield PROBES[rank], False
    for shape in SQUARES.values():
        yield shape, True


def _tries(name: str, space: str, bare: str, rank: int, square: bool) -> Iterator[Template]:
    """Recipes on one rank, those in narrower domains last."""
    known = recipes.written(name)
    if known:
        yield from known
        return
    guessed = [replace(template, ranks=(rank,), square=square) for template in _guessed(name, space, bare)]
    yield from guessed
    for template in guessed[:4]:
        yield from recipes.in_domain(template)


def _guessed(name: str, space: str, bare: str) -> Iterator[Template]:
    holder = dict(SPACES)[space]
    thing = getattr(holder, bare)
    if space == "nn":
        forward = _python_signature(thing.forward)[1:]
        yield from recipes.module_templates(name, _python_signature(thing.__init__)[1:], forward)
        return
    for signature in _signatures(space, bare, thing):
        yield from recipes.function_templates(
            bare if space == "torch.Tensor" else name, signature, method=space == "torch.Tensor"
        )


def _signatures(space: str, bare: str, thing: Any) -> Iterator[list[Parameter]]:
    """Of the schema's overloads, or of the Python function; as a last resort one or two tensors."""
    found = False
    prefix = {"torch.linalg": "linalg_", "torch.special": "special_", "torch.fft": ""}.get(space, "")
    if inspect.isfunction(thing):
        found = True
        yield _python_signature(thing)
    else:
        packet = getattr(torch.ops.aten, prefix + bare, None)
        schemas = [getattr(packet, overload)._schema for overload in packet.overloads()] if packet is not None else []
        for schema in sorted(schemas, key=lambda schema: all(argument.name != "dim" for argument in schema.arguments)):
            if not any(argument.is_out for argument in schema.arguments) and not schema.is_mutable:
                found = True
                yield [_schema_parameter(argument) for argument in schema.arguments]
    if not found:
        yield [Parameter("input", "tensor")]
        yield [Parameter("input", "tensor"), Parameter("other", "tensor")]


def _schema_parameter(argument: Any) -> Parameter:
    text = str(argument.type)
    kind: Kind = "tensors" if "List[Tensor]" in text else "tensor" if text == "Tensor" else "other"
    if kind == "other":
        kind = next((found for name, found in KINDS.items() if re.search(rf"\b{name}\b", text)), "other")
    return Parameter(
        argument.name, kind, not argument.has_default_value() and not text.startswith("Optional"), argument.kwarg_only
    )


def _python_signature(function: Any) -> list[Parameter]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return [Parameter("input", "tensor")]
    kept = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return [Parameter(p.name, _python_kind(p), p.default is p.empty, p.kind is p.KEYWORD_ONLY) for p in kept]


def _python_kind(parameter: inspect.Parameter) -> Kind:
    """By annotation; a required parameter without one is a number where its name is known as one's, else a tensor."""
    text = str(parameter.annotation)
    if "Tensor" in text:
        required = parameter.default is parameter.empty
        return "other" if not required else "tensors" if re.search("list|tuple|Sequence", text, re.I) else "tensor"
    if parameter.annotation is parameter.empty:
        return "float" if parameter.name in recipes.NUMBER_VALUES or parameter.default is not parameter.empty else "tensor"
    if "bool" in text and "int" not in text:
        return "bool"
    return "int" if re.search(r"int|size|Size", text) else "float" if re.search("float|number|Number", text) else "other"


def _merge(templates: Sequence[Template]) -> list[Template]:
    """Equal texts on several ranks become one template."""
    merged: dict[Template, set[int]] = {}
    for template in templates:
        merged.setdefault(replace(template, ranks=()), set()).update(template.ranks)
    return [replace(template, ranks=tuple(sorted(ranks))) for template, ranks in merged.items()]


def _settings(templates: Sequence[Template], *, large: bool, heavy: bool) -> list[tuple[Call, tuple[Shape, str]]]:
    """Calls on real shapes that the meta device accepts, by turns from each template and rank."""
    shapes = grid("large" if large else "small", heavy=heavy)
    rows = [
        [template.call(shape) for shape in (shapes.square if template.square else shapes.any).get(rank, ())]
        for template in templates
        for rank in template.ranks
    ]
    turns = [row[place] for place in range(max(map(len, rows), default=0)) for row in rows if place < len(row)]
    found = []
    for call in turns:
        output = infer(call)
        if output is not None and output[1] == FLOAT32 and 0 < math.prod(output[0]) <= GROWTH * math.prod(call.shape):
            found.append((call, output))
        if len(found) == SETTINGS:
            break
    return found


def _verified(template: Template, probe: Shape) -> tuple[Template, str]:
    """The template with what its output needs to be one float tensor, and a trace of what it ran.

    Raises:
        RefusedError: it is no seed on this shape.
    """
    template = _with_float_output(template, probe)
    trial = _attempt(_prepare, template.call(probe), 1)
    output = _attempt(trial.output)
    if output.dtype != torch.float32:
        raise RefusedError(f"type: its output is {str(output.dtype).removeprefix('torch.')}")
    if not output.numel():
        raise RefusedError("type: its output is empty")
    if not bool(torch.isfinite(output).all()):
        raise RefusedError("not finite: on x from a normal distribution")
    _refuse_unsteady(trial, output)
    _refuse_dead(trial, output)
    _refuse_noise(template, probe, output)
    return replace(template, ranks=template.ranks), _trace(trial)


def _with_float_output(template: Template, probe: Shape) -> Template:
    """Append to the expression what makes one float tensor of the output: `[0]`, `.abs()`, `.float()`, `.contiguous()`."""
    for _ in range(3):
        trial = _attempt(_prepare, template.call(probe), 1)
        x = trial.x.clone()
        output = _attempt(trial.output, x)
        suffix = _suffix(output, x)
        if not suffix:
            return template
        template = replace(template, expression=template.expression + suffix)
    raise RefusedError("type: its output shares memory with its input")


def _suffix(output: Any, x: torch.Tensor) -> str:
    if isinstance(output, tuple | list) and output:
        return "[0]"
    if not isinstance(output, torch.Tensor):
        raise RefusedError(f"type: its output is {type(output).__name__}")
    if output.is_complex():
        return ".abs()"
    if output.dtype == torch.bool:
        return ".float()"
    if output.untyped_storage().data_ptr() != x.untyped_storage().data_ptr():
        return ""
    if output.is_contiguous():
        raise RefusedError("view: it computes nothing, its output is its input's memory")
    return ".contiguous()"


def _refuse_unsteady(trial: _Trial, output: torch.Tensor) -> None:
    before = trial.x.clone()
    _reseed(77)
    again = _attempt(trial.output, trial.x)
    if not torch.equal(before, trial.x):
        raise RefusedError("in place: it writes into its input")
    if not torch.equal(again, output):
        raise RefusedError("random: it answers the same question twice in two ways")


def _refuse_dead(trial: _Trial, output: torch.Tensor) -> None:
    other = _prepare(trial.call, 2)
    if torch.equal(_attempt(trial.output, other.x), output):
        raise RefusedError("dead: its output does not depend on its input")
    for name in trial.extras:
        if torch.equal(_attempt(trial.output, None, trial.extras | {name: other.extras[name]}), output):
            raise RefusedError("dead: its output does not depend on one of its inputs")
    if output.shape == trial.x.shape and torch.equal(output, trial.x):
        raise RefusedError("identity: it returns its input unchanged")


def _refuse_noise(template: Template, probe: Shape, output: torch.Tensor) -> None:
    size, spread = output.abs(), float(output.std(correction=0))
    if float(size.median()) > 0 and float(size.max()) > WILD * float(size.median()):
        raise RefusedError("wild: its values have poles on x from a normal distribution")
    exact = _double(template.call(probe), output.shape)
    if exact is not None and output.numel() > 1 and float((exact - output.double()).abs().mean()) > NOISE * spread:
        raise RefusedError("noise: float32 is not enough for it on x from a normal distribution")


def _double(call: Call, shape: torch.Size) -> torch.Tensor | None:
    """The same in float64, where it runs there and keeps the shape."""
    trial = _prepare(call, 1)
    extras = {name: value.double() if value.is_floating_point() else value for name, value in trial.extras.items()}
    module = trial.module.double() if trial.module is not None else None
    try:
        output = run(call, trial.x.double(), module, extras)
    except Exception:  # boundary: some operators know float32 only
        return None
    return output.double() if output.shape == shape else None


def _prepare(call: Call, seed: int) -> _Trial:
    """A call with module, further inputs and x drawn from a seed; weights are the same for every seed."""
    names: Names = {"torch": torch, "nn": torch.nn}
    _reseed(0)
    module = eval(call.module, dict(names)).eval() if call.module else None
    x = _draw(call.shape, seed)
    extras = {f"y{place}": eval(text, dict(names)) for place, text in enumerate(call.extras)}
    return _Trial(call, module, extras, x)


def _draw(shape: Shape, seed: int = 1) -> torch.Tensor:
    _reseed(seed)
    return torch.randn(shape)


def _reseed(seed: int) -> None:
    """The CPU's generator alone: `torch.manual_seed` notes a traceback for each kind of device, a hundred times the cost."""
    torch.default_generator.manual_seed(seed)


def _attempt(work: Callable[..., Any], *arguments: Any) -> Any:
    """The one place where whatever an operator raises becomes a reason."""
    try:
        with contextlib.redirect_stdout(None), contextlib.redirect_stderr(None):
            return work(*arguments)
    except RefusedError:
        raise
    except Exception as error:  # boundary: operators raise whatever they like on arguments that do not fit
        text = " ".join(str(error).split())[:160]
        raise RefusedError(f"no recipe runs: {type(error).__name__}: {text}") from error


def _most_telling(reasons: Sequence[str]) -> str:
    """What the recipe that came furthest failed by."""
    if not reasons:
        return "no recipe runs: no guess for its parameters"
    return next((reason for reason in reasons if not reason.startswith("no recipe runs")), reasons[0])


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the name of every operator below torch's composites."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func._schema.name.removeprefix("aten::"))
        return func(*args, **(kwargs or {}))


def _trace(trial: _Trial) -> str:
    """The operators that run, and a digest of what they make of the same x: equal for two names of one function."""
    with _Recorder() as recorder:
        output = trial.output()
    digest = hashlib.sha256((output * 1e4).round().to(torch.int64).numpy().tobytes()).hexdigest()
    return f"{' '.join(recorder.names)} {digest[:16]}"

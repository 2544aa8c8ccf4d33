"""What looks for seeds among transformers' classes: lives in a sandboxed child, one `Crawler` serves class after class.

For each class it finds a configuration, a constructor call and a forward call by trying guesses, renders the problem text at
each small setting and lets vetting's own `Probe` examine it. It judges only whether a text can be made; the parent applies
the rules to the facts. What transformers' code raises becomes a reason.
"""

import dataclasses
import importlib
import inspect
import itertools
import os
import re
import time
import typing
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from cuda_agent.judge.trees import tensors
from cuda_agent.problems.live import sample
from cuda_agent.problems.probe_child import Probe
from cuda_agent.problems.scrutiny import dead_inputs
from cuda_agent.problems.transformers_guess import CONFIG_FIELDS, STATE_NAMES, STATES, build_guesses, call_guesses
from cuda_agent.problems.transformers_source import digests
from cuda_agent.problems.transformers_text import SMALL, Argument, Draw, Recipe, Setting, config_lines, fill, render

FIRST = SMALL[0]
PROBE = Setting(2, 24, 160, 4, 32, 8)  # sizes that no class fixes by itself, so that each is recognised
MOST_PARAMETERS = 20_000_000  # a size that no guess reached; a small setting has under 1 M
SEARCH_SECONDS = 2.0  # of CPU time, so that a busy machine finds the same; the counts below bind first
MOST_BUILT = 3  # configurations that are tried further when one can be built but not called
MOST_CALLS = 60  # for each choice of arguments
SWITCHES = {"_attn_implementation": ("sdpa", "eager"), "_experts_implementation": ("eager",)}
LEFT_OUT = re.compile(r".*(PreTrainedModel|Model|Loss|Matcher|Criterion|Cache)$|.*For[A-Z].*")
FEATURES = ("H", "I", "H2", "D", "H3", "H4", "D2", "V")
NUMBERED = ("layer_idx", "layer_id", "layer_number")
EXTRAS = (
    "position_ids",
    "encoder_hidden_states",
    "key_value_states",
    "attention_mask",
    "input_ids",
    "position_embeddings",
    "mask",
)
STARTS = ("input_ids", "hidden_states", "pixel_values", "inputs_embeds", "x", "input_features", "position_ids")


class RefusedError(Exception):
    """The class yields no problem; the text is the reason, in one clause."""


class UncallableError(RefusedError):
    """It was built, but no call worked."""


def preload() -> None:
    """For a fork server: what every modeling module imports."""
    _quiet()
    for name in (
        "modeling_utils",
        "masking_utils",
        "modeling_layers",
        "cache_utils",
        "activations",
        "models.llama.modeling_llama",
    ):
        importlib.import_module(f"transformers.{name}")


def open_crawler(_payload: Mapping[str, Any]) -> "Crawler":
    """Entry for the fork server."""
    torch.set_num_threads(1)
    _quiet()
    return Crawler()


@dataclass
class Crawler:
    """Finds recipes, one class at a time."""

    probe: Probe = field(default_factory=lambda: Probe(1))

    def classes(self, payload: Mapping[str, Any]) -> list[list[str]]:
        """Name and digest of every layer class of a module."""
        module = importlib.import_module(str(payload["module"]))
        source = digests(Path(str(module.__file__)).read_text(encoding="utf-8"))
        return [[name, source[name]] for name, value in vars(module).items() if name in source and _is_layer(value, module)]

    def examine(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """`recipe` and the probe's `facts` at the first small setting, or `refused` with the reason."""
        module = importlib.import_module(str(payload["module"]))
        try:
            with warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")
                recipe, facts = self._seed(module, getattr(module, str(payload["name"])))
        except RefusedError as error:
            return {"refused": str(error)}
        return {"recipe": dataclasses.asdict(recipe), "facts": facts}

    def _seed(self, module: ModuleType, cls: type) -> tuple[Recipe, dict[str, Any]]:
        recipe = _find(module, cls)
        recipe, first = self._without_dead(recipe)
        for setting in SMALL[1:]:
            _check(recipe, setting)
        return recipe, first

    def _without_dead(self, recipe: Recipe) -> tuple[Recipe, dict[str, Any]]:
        """Leave out, or fix as buffers, the inputs that do not reach the answer."""
        while True:
            facts = self._facts(recipe)
            dead = facts.get("dead_inputs", ())
            if not dead:
                return recipe, facts
            recipe = replace(recipe, call=tuple(_alive(recipe, set(dead))))
            if all(draw.constant for draw in recipe.draws):
                raise RefusedError("its answer does not depend on its inputs")

    def _facts(self, recipe: Recipe) -> dict[str, Any]:
        code = render(recipe, FIRST)
        facts = self.probe.examine({"code": code, "inputs": "get_inputs", "seed": 1})
        if fault := facts.get("failure") or facts.get("incomparable"):
            raise RefusedError(f"{_clause(fault)} ({_at(FIRST)})")
        subject = self.probe.subject
        if subject is None:
            return facts  # its answer is not finite, which the rules refuse
        if not _same_state(_state(subject.model), _state(_build_text(code)[0])):
            raise RefusedError("it keeps state between calls")
        if any(not name.startswith("float") for name, _ in facts["outputs"]):
            raise RefusedError("its answer is no float tensor")
        if any(_reshaped(answer, item) for answer in tensors(subject.answer) for item in subject.first):
            raise RefusedError("its answer is an input in another shape")
        with torch.no_grad():
            return facts | {"dead_inputs": list(map(int, dead_inputs(subject, sample(subject.answer))))}


def _check(recipe: Recipe, setting: Setting) -> None:
    """Run the text at a further setting: what the probe found at the first one does not depend on sizes."""
    try:
        model, inputs = _build_text(render(recipe, setting))
        _select(model(*inputs))
    except Exception as error:  # boundary: transformers' code
        raise RefusedError(f"{_clause(error)} ({_at(setting)})") from error


def _build_text(code: str) -> tuple[torch.nn.Module, list[Any]]:
    """The model of a problem text in eval mode and inputs for it."""
    space: dict[str, Any] = {}
    exec(compile(code, "problem.py", "exec"), space)
    torch.manual_seed(1)
    return space["Model"]().eval(), space["get_inputs"]()


def _at(setting: Setting) -> str:
    return f"at batch {setting.batch}, {setting.tokens} tokens, width {setting.hidden}"


def _quiet() -> None:
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}


def _is_layer(value: object, module: ModuleType) -> bool:
    from transformers import PreTrainedModel

    if not isinstance(value, type) or not issubclass(value, torch.nn.Module) or value.__module__ != module.__name__:
        return False
    return not issubclass(value, PreTrainedModel) and not LEFT_OUT.fullmatch(value.__name__) and _has_forward(value)


def _has_forward(cls: type[torch.nn.Module]) -> bool:
    return cls.forward is not torch.nn.Module.forward


def _clause(error: object) -> str:
    """An error in one line."""
    text = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(error)
    return " ".join(text.split())[:200]


def _alive(recipe: Recipe, dead: set[int]) -> Iterator[Argument]:
    numbers = itertools.count()
    for argument in recipe.call:
        places = [next(numbers) in dead if not draw.constant else None for draw in argument.draws]
        if argument.optional and places and all(place is not False for place in places):
            continue
        draws = tuple(draw.fixed() if place else draw for draw, place in zip(argument.draws, places, strict=True))
        yield replace(argument, draws=draws)


def _reshaped(answer: torch.Tensor, item: object) -> bool:
    return isinstance(item, torch.Tensor) and item.numel() == answer.numel() and torch.equal(item.flatten(), answer.flatten())


# ---- state that a module might keep between calls


def _state(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Every tensor that hangs on a module outside its parameters."""
    found = {}
    for path, module in model.named_modules():
        for name, value in (*vars(module).items(), *module._buffers.items()):
            if isinstance(value, torch.Tensor):
                found[f"{path}.{name}"] = value.clone()
    return found


def _same_state(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(
        left[name].shape == right[name].shape and torch.equal(torch.nan_to_num(left[name]), torch.nan_to_num(right[name]))
        for name in left
        if not left[name].is_complex()
    )


# ---- the search


def _find(module: ModuleType, cls: type[torch.nn.Module]) -> Recipe:
    """The first recipe whose module can be built and called at the first small setting."""
    deadline = time.thread_time() + SEARCH_SECONDS
    reason, calls = "", 0
    for recipe in _builds(module, cls):
        try:
            return _with_call(recipe, cls, deadline)
        except UncallableError as error:
            calls += 1
            reason = str(error) if calls == 1 else reason
        except RefusedError as error:
            reason = reason or str(error)
        if time.thread_time() > deadline or calls == MOST_BUILT:
            break
    raise RefusedError(reason or "no configuration of its module can be made from defaults")


def _builds(module: ModuleType, cls: type[torch.nn.Module]) -> Iterator[Recipe]:
    """Ways to call the constructor, likely ones first."""
    parameters = _parameters(cls.__init__)
    base = Recipe(module.__name__, cls.__name__)
    configs = [name for name, parameter in parameters.items() if _is_config(name) and _wanted(parameter)]
    others = [name for name, parameter in parameters.items() if not _is_config(name) and _required(parameter)]
    guesses = {name: build_guesses(name) for name in others}
    for name, found in guesses.items():
        if not found:
            raise RefusedError(f"its constructor needs `{name}`, which no guess covers")
    for values in itertools.islice(itertools.product(*guesses.values()), 4):
        arguments = [f"{name}={value}" for name, value in zip(guesses, values, strict=True)]
        arguments += [f"{name}=0" for name in parameters if name in NUMBERED and parameters[name].default is None]
        if not configs:
            yield replace(base, build=", ".join(arguments))
            continue
        build = ", ".join([*(f"{name}=config" if name != next(iter(parameters)) else "config" for name in configs), *arguments])
        for config_class in _config_classes(module, cls, parameters[configs[0]]):
            for fields in _fields(config_class):
                yield replace(base, build=build, config=fields, config_class=f"{config_class.__module__}.{config_class.__name__}")


def _is_config(name: str) -> bool:
    return name == "config" or name.endswith("_config")


def _required(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)


def _wanted(parameter: inspect.Parameter) -> bool:
    return _required(parameter) or (parameter.name == "config" and parameter.default is None)


def _parameters(function: Any) -> dict[str, inspect.Parameter]:
    """Parameters after self by name."""
    return dict(list(inspect.signature(function).parameters.items())[1:])


def _config_classes(module: ModuleType, cls: type, parameter: inspect.Parameter) -> list[type]:
    """The annotated configuration, then those that the module knows, by how much of the class's name they share."""
    from transformers import PreTrainedConfig

    known = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, PreTrainedConfig)]
    package = module.__name__.rpartition(".")[0]
    beside = importlib.import_module(package.replace("transformers.models.", "transformers.models.", 1))
    for path in sorted(Path(str(beside.__file__)).parent.glob("configuration_*.py")):
        values = vars(importlib.import_module(f"{package}.{path.stem}")).values()
        known += [value for value in values if isinstance(value, type) and issubclass(value, PreTrainedConfig)]
    known = [value for value in dict.fromkeys(known) if value is not PreTrainedConfig]
    annotated = [value for value in known if re.search(rf"\b{value.__name__}\b", _annotation(parameter))]
    known.sort(key=lambda value: -_shared(value.__name__, cls.__name__))
    return list(dict.fromkeys([*annotated, *known]))[:4]


def _shared(left: str, right: str) -> int:
    """How many letters two names have in common at their start."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))


def _annotation(parameter: inspect.Parameter) -> str:
    value = parameter.annotation
    names = [getattr(item, "__name__", str(item)) for item in (value, *typing.get_args(value))]
    return " ".join(names)


def _fields(config_class: type) -> Iterator[dict[str, str]]:
    """Sizes for a configuration's fields: all known ones, then fewer."""
    try:
        default = config_class()
    except Exception:  # boundary: transformers' code; one that needs arguments is none for a small module
        return
    names = [item.name for item in dataclasses.fields(default)] if dataclasses.is_dataclass(default) else list(vars(default))
    known = {name: CONFIG_FIELDS[name] for name in names if name in CONFIG_FIELDS and _is_size(getattr(default, name, 0.5))}
    padding = getattr(default, "pad_token_id", None)
    if "pad_token_id" in names and isinstance(padding, int) and padding >= PROBE.symbols()["V"]:
        known["pad_token_id"] = "0"
    grouped = {name: "{A}" if symbol == "{K}" else symbol for name, symbol in known.items()}
    plain = {name: symbol for name, symbol in known.items() if symbol not in ("{D}", "{K}", "{H2}")}
    unlayered = {name: symbol for name, symbol in known.items() if "layers" not in name}
    yield known
    if grouped != known:
        yield grouped
    if plain not in (known, grouped):
        yield plain
    if unlayered != known:
        yield unlayered


def _is_size(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


@dataclass
class _Built:
    """A module at the first small setting with the names that its code read from the configuration."""

    model: torch.nn.Module
    recipe: Recipe
    reads: set[str]


def _with_call(recipe: Recipe, cls: type[torch.nn.Module], deadline: float) -> Recipe:
    """Complete a recipe by switches, weights, arguments and what to take of the answer."""
    reason = ""
    for choice in SWITCHES["_attn_implementation"]:
        switches = {"_attn_implementation": choice, "_experts_implementation": "eager"} if recipe.config_class else {}
        built = _build(replace(recipe, switches=switches), cls)
        try:
            with _Recording(built):
                call, select = _call(built.model, cls, deadline)
        except UncallableError as error:
            reason = reason or str(error)
            if "_attn_implementation" in built.reads:
                continue
            break
        return _leaner(replace(built.recipe, call=call, select=select), built.reads)
    raise UncallableError(reason)


def _build(recipe: Recipe, cls: type[torch.nn.Module]) -> _Built:
    space = {"torch": torch, "nn": torch.nn, cls.__name__: cls}
    statement = fill(f"{recipe.class_name}({recipe.build})", PROBE)
    try:
        if recipe.config_class:
            module, _, name = recipe.config_class.rpartition(".")
            space[name] = getattr(importlib.import_module(module), name)
            exec(fill("\n".join(config_lines(recipe)), PROBE), space)
        built = _Built(torch.nn.Module(), recipe, set())
        with _Recording(built):
            _check_size(statement, space)
            model = _unset_as_nan(statement, space)
    except RefusedError:
        raise
    except Exception as error:  # boundary: transformers' code
        raise RefusedError(f"cannot be built: {_clause(error)}") from error
    unset, constant = _weights_without_values(model)
    built.model, built.recipe = model.eval(), replace(recipe, unset=unset, constant=constant)
    return built


def _check_size(statement: str, space: dict[str, Any]) -> None:
    try:
        with torch.device("meta"):
            model = eval(statement, space)
    except Exception:  # boundary: what cannot be built without memory is tried with it
        return
    count = sum(parameter.numel() for parameter in model.parameters())
    if count > MOST_PARAMETERS:
        raise RefusedError(
            f"it stays large at small sizes ({count / 1e6:.0f} M parameters): its configuration has a size no guess covers"
        )


def _unset_as_nan(statement: str, space: dict[str, Any]) -> torch.nn.Module:
    """Build it with memory that nothing initialises filled with NaN."""
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    try:
        model: torch.nn.Module = eval(statement, space)
    finally:
        torch.use_deterministic_algorithms(False)
    return model


def _weights_without_values(model: torch.nn.Module) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Suffixes of the parameters without values, and of those equal throughout; both get values here too."""
    parameters = dict(model.named_parameters())
    unset = {name for name, value in parameters.items() if value.isnan().any()}
    constant = {name for name, value in parameters.items() if name not in unset and value.is_floating_point() and _flat(value)}
    for name in unset:
        torch.nn.init.normal_(parameters[name], std=parameters[name].shape[-1] ** -0.5)
    for name in constant:
        torch.nn.init.normal_(parameters[name], mean=float(parameters[name].mean()), std=0.1)
    return _suffixes(unset, set(parameters)), _suffixes(constant, set(parameters))


def _flat(value: torch.Tensor) -> bool:
    return value.numel() > 0 and bool((value == value.flatten()[0]).all())


def _suffixes(chosen: set[str], names: set[str]) -> tuple[str, ...]:
    """The shortest ends of dotted names that tell the chosen ones from the others."""
    found = set()
    for name in chosen:
        parts = name.split(".")
        ends = [".".join(parts[-count:]) for count in range(1, len(parts) + 1)]
        found.add(next((end for end in ends if not any(other.endswith(end) for other in names - chosen)), name))
    return tuple(sorted(found))


class _Recording:
    """Note every attribute that is read from any configuration meanwhile."""

    def __init__(self, built: _Built) -> None:
        self._reads = built.reads

    def __enter__(self) -> None:
        self._configs = _config_base()
        self._plain = plain = self._configs.__getattribute__
        reads = self._reads

        def noting(config: Any, name: str) -> Any:
            reads.add(name)
            return plain(config, name)

        self._configs.__getattribute__ = noting

    def __exit__(self, *_: object) -> None:
        self._configs.__getattribute__ = self._plain


def _config_base() -> Any:
    """The class of all configurations, untyped: a method of it is exchanged for a while."""
    from transformers import PreTrainedConfig

    return PreTrainedConfig


def _leaner(recipe: Recipe, reads: set[str]) -> Recipe:
    """Without the fields and switches that the class does not read, unless something it reads would change."""
    if not recipe.config_class:
        return recipe
    module, _, name = recipe.config_class.rpartition(".")
    config_class = getattr(importlib.import_module(module), name)
    renamed = getattr(config_class, "attribute_map", {})
    reads = reads | {renamed[item] for item in reads if item in renamed}
    seen = [item for item in reads if not item.startswith("_")]
    switched = replace(recipe, switches={item: value for item, value in recipe.switches.items() if item in reads})
    lean = replace(switched, config={item: symbol for item, symbol in recipe.config.items() if item in reads})
    if not _agree(config_class, recipe, lean, seen, PROBE):
        lean = _without_unread(config_class, switched, reads, seen)
    return lean if all(_agree(config_class, recipe, lean, seen, setting) for setting in SMALL) else switched


def _without_unread(config_class: type, recipe: Recipe, reads: set[str], seen: list[str]) -> Recipe:
    """Leave out one unread field after another, except those from which the configuration makes something that is read."""
    lean = recipe
    for name in [name for name in recipe.config if name not in reads]:
        less = replace(lean, config={other: symbol for other, symbol in lean.config.items() if other != name})
        lean = less if _agree(config_class, recipe, less, seen, PROBE) else lean
    return lean


def _agree(config_class: type, full: Recipe, lean: Recipe, seen: list[str], setting: Setting) -> bool:
    try:
        left, right = (
            config_class(**{name: eval(fill(symbol, setting)) for name, symbol in recipe.config.items()})
            for recipe in (full, lean)
        )
        values = [(getattr(left, name, None), getattr(right, name, None)) for name in seen]
        return all(callable(a) or a is b or bool(a == b) for a, b in values)
    except Exception:  # boundary: transformers' code; the full configuration was seen to work
        return False


# ---- the call


def _call(model: torch.nn.Module, cls: type[torch.nn.Module], deadline: float) -> tuple[tuple[Argument, ...], str]:
    """Arguments of forward that work, and what to take of the answer."""
    parameters = _parameters(cls.forward)
    shapes = _input_shapes(model)
    reason, tried = "", 0
    for names in _argument_sets(parameters):
        guesses = [_guesses(name, place, shapes, parameters[name]) for place, name in enumerate(names)]
        order = sorted(itertools.product(*(range(len(found)) for found in guesses)), key=sum) if _few(guesses) else []
        for indices in order[:MOST_CALLS]:
            call = tuple(found[index] for found, index in zip(guesses, indices, strict=True))
            try:
                return call, _select(_run(model, call))
            except Exception as error:  # boundary: transformers' code, RefusedError included
                reason = reason or _clause(error)
            tried += 1
            if time.thread_time() > deadline or tried > 4 * MOST_CALLS:
                raise UncallableError(f"no guessed input fits ({reason})")
    raise UncallableError(f"no guessed input fits ({reason})" if reason else "its forward takes no inputs that a guess covers")


def _few(guesses: list[list[Argument]]) -> bool:
    count = 1
    for found in guesses:
        count *= len(found)
    return bool(guesses) and 0 < count <= 100_000


def _argument_sets(parameters: Mapping[str, inspect.Parameter]) -> Iterator[list[str]]:
    """Which parameters to give: the required ones, with position embeddings where there are any; then one more."""
    required = [name for name, parameter in parameters.items() if _required(parameter)]
    optional = [
        name
        for name, parameter in parameters.items()
        if name not in required and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    if not required:
        required = [name for name in (*STARTS, *optional) if name in optional][:1]
        optional = [name for name in optional if name not in required]
    if "position_embeddings" in optional:
        yield [*required, "position_embeddings"]
    yield required
    for extra in [name for name in EXTRAS if name in optional and name != "position_embeddings"]:
        yield [*required, extra]
        if "position_embeddings" in optional:
            yield [*required, extra, "position_embeddings"]


def _guesses(name: str, place: int, shapes: tuple[str, ...], parameter: inspect.Parameter) -> list[Argument]:
    if place and re.fullmatch(STATE_NAMES, name):
        shapes = tuple(dict.fromkeys((STATES, *shapes)))
    optional = not _required(parameter)
    found = call_guesses(name, shapes, optional)
    return [replace(argument, keyword="") for argument in found] if place == 0 and not optional else found


def _run(model: torch.nn.Module, call: tuple[Argument, ...]) -> Any:
    torch.manual_seed(2)
    positional, keywords = [], {}
    for argument in call:
        values = [_draw(draw) for draw in argument.draws]
        names = {f"v{number}": value for number, value in enumerate(values)}
        value = eval(fill(argument.expression, PROBE).format(*names), {"torch": torch}, names)
        if argument.keyword:
            keywords[argument.keyword] = value
        else:
            positional.append(value)
    return model(*positional, **keywords)


def _draw(draw: Draw) -> torch.Tensor:
    value: torch.Tensor = eval(fill(draw.text(), PROBE), {"torch": torch})
    return value


def _select(answer: Any) -> str:
    """What to write after the call so that float tensors are left."""
    if isinstance(answer, torch.Tensor):
        if not answer.is_floating_point():
            raise RefusedError("its answer is no float tensor")
        if not bool(answer.isfinite().all()):
            raise RefusedError("its answer holds infinities or NaN")
        return ""
    if isinstance(answer, Mapping) and not hasattr(answer, "to_tuple"):
        items = [(f'["{name}"]', value) for name, value in answer.items()]
    elif isinstance(answer, tuple | list) or hasattr(answer, "to_tuple"):
        whole = tuple(answer) if isinstance(answer, tuple | list) else answer.to_tuple()
        alike = all(isinstance(item, torch.Tensor) and item.is_floating_point() for item in whole)
        if isinstance(answer, tuple) and alike and whole and len({item.shape for item in whole}) == 1:
            return ""
        items = [(f"[{place}]", value) for place, value in enumerate(whole)]
    else:
        raise RefusedError(f"its answer is {type(answer).__name__}, no tensor")
    for text, value in items:
        if (isinstance(value, torch.Tensor) and value.is_floating_point()) or isinstance(value, tuple | list):
            return text + _select(value)
    raise RefusedError("its answer holds no float tensor")


def _input_shapes(model: torch.nn.Module) -> tuple[str, ...]:
    """Shapes that the module's first layer could take, then the usual ones."""
    usual = (
        STATES,
        "{B}, {S}, {I}",
        "{T}, {H}",
        "{B}, {H}, {R}, {R}",
        "{B}, {R}, {R}, {H}",
        "{B}, {A}, {S}, {D}",
        "{B}, {H}, {S}",
    )
    return tuple(dict.fromkeys((*_first_shapes(model), *usual)))


def _first_shapes(model: torch.nn.Module) -> tuple[str, ...]:
    for layer in model.modules():
        weight = getattr(layer, "weight", None)
        if not isinstance(weight, torch.Tensor) or weight.dim() == 0:
            continue
        if isinstance(layer, torch.nn.Embedding):
            return ()
        if weight.dim() >= 3:
            return _convolved(layer, weight)
        if isinstance(layer, torch.nn.BatchNorm2d | torch.nn.GroupNorm):
            size = _symbol(weight.shape[0])
            return (f"{{B}}, {size}, {{R}}, {{R}}", f"{{B}}, {size}, {{S}}")
        size = _symbol(weight.shape[0] if type(layer).__name__ == "Conv1D" else weight.shape[-1])
        flat = f"{{B}}, {size}"
        return (f"{{B}}, {{S}}, {size}", f"{{T}}, {size}", f"{{B}}, {{R2}}, {size}", f"{{B}}, {{R}}, {{R}}, {size}", flat)
    return ()


def _convolved(layer: torch.nn.Module, weight: torch.Tensor) -> tuple[str, ...]:
    channels = getattr(layer, "in_channels", weight.shape[1])
    size = "3" if channels == 3 else _symbol(channels)
    if weight.dim() == 3:
        return (f"{{B}}, {size}, {{S}}", f"{{B}}, {{S}}, {size}", f"{{B}}, {size}, {{L}}")
    if weight.dim() == 4:
        images = (f"{{B}}, {size}, {{G}}, {{G}}", f"{{B}}, {size}, {{R}}, {{R}}")
        return (*(images if channels <= 4 or max(weight.shape[2:]) > 7 else images[::-1]), f"{{B}}, {{R2}}, {size}")
    return (f"{{B}}, {size}, 4, {{R}}, {{R}}", f"{{B}}, {size}, 4, {{G}}, {{G}}", f"{{B}}, 4, {size}, {{G}}, {{G}}")


def _symbol(size: int) -> str:
    """The symbol of a number of features at the first setting, or the number where the class fixes it."""
    symbols = PROBE.symbols()
    return next((f"{{{name}}}" for name in FEATURES if symbols[name] == size), str(size))

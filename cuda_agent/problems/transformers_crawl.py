"""Seeds from the installed transformers: every layer class that can be built small, called, and passes the rules of eager runs.

Invariants: classes are built and run only in sandboxed children, one long-lived child per worker, replaced after a crash or
hang; no network; a class whose code equals another's is tried only if the other yields nothing. The result depends on the
versions of transformers and torch and on `VERSION` alone and is kept under these; nothing in it depends on the order of work.
Texts at small sizes were run (the first of the three examined in full); larger ones were not, which is left to vetting.
"""

import asyncio
import contextlib
import hashlib
import json
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cuda_agent.config import DatasetScience
from cuda_agent.errors import ProblemError
from cuda_agent.problems import transformers_source as source
from cuda_agent.problems.problem import Problem
from cuda_agent.problems.rules import Evidence, refuse
from cuda_agent.problems.seeds import TRANSFORMERS, CrawlReport, ModuleSeed
from cuda_agent.problems.transformers_text import HEAVY, LIGHT, Argument, Draw, Kind, Recipe, Scale, render
from cuda_agent.sandbox.forkserver import Child, ChildFailed, ForkServer
from cuda_agent.sandbox.limits import Limits

VERSION = 1  # raise it when the same class would give another text or another refusal
CHILD = "cuda_agent.problems.transformers_crawl_child"
LIMITS = Limits(wall_seconds=120.0, memory_mb=4_000, processes=64)
MODULE_SECONDS = 60.0
CLASS_SECONDS = 20.0
MOST_COPIES = 3  # tried before the rest of a group is given up
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
_KINDS: tuple[tuple[str, Kind], ...] = (
    (r"Norm\d*d?$|LayerNorm|RMSNorm|BatchNorm", "norm"),
    (r"Embed|Rotary|Position", "embedding"),
    (r"Attention|Attn", "attention"),
    (r"MLP|Mlp|FeedForward|FFN|Intermediate|Experts?$|Moe|MoE|MOE|Dense", "mlp"),
    (r"Layer|Block|Encoder|Decoder|Stage", "layer"),
)


async def crawl_transformers(
    server: ForkServer | None,
    cache_dir: Path,
    *,
    scales: Sequence[Scale] = ("small",),
    modules: Sequence[str] | None = None,
    workers: int = 2,
    on_progress: Callable[[int, int], None] | None = None,
) -> CrawlReport:
    """Seeds by the dotted name of their class, each with three texts per scale in the order of `scales`.

    `small` takes from some 10 µs to 10 ms on a CPU, `medium` mostly 1-100 ms on a CPU, `large` on a data-centre GPU. With
    `server` None an own fork server with transformers preloaded is used. `modules` (dotted names) are by default those of
    `transformers_source.FAMILIES`; `transformers_source.modules()` are all.
    `on_progress` gets the numbers of classes done and to do.

    Raises:
        ProblemError: transformers is not installed, or one of `modules` is not one of its modules with layers.
        SandboxError: the host cannot run sandboxed children.
    """
    wanted = _wanted(modules)
    versions = {"torch": version("torch"), "transformers": version("transformers"), "crawler": str(VERSION)}
    path = cache_dir / "seeds" / _file_name(versions, wanted if modules is not None else ())
    found = _read(path)
    if found is None:
        async with contextlib.AsyncExitStack() as stack:
            if server is None:
                server = await stack.enter_async_context(ForkServer((f"{CHILD}:preload",), ENVIRONMENT))
            found = await _Crawl(server, wanted, on_progress).run(workers)
        _write(path, found)
    seeds = {name: ModuleSeed(name, texts(recipe, scales)) for name, recipe in sorted(found.recipes.items())}
    return CrawlReport(seeds, dict(sorted(found.refused.items())), versions)


def kind(name: str) -> Kind:
    """What a class of this name most likely is."""
    title = name.rpartition(".")[2]
    return next((kind for pattern, kind in _KINDS if re.search(pattern, title)), "other")


def texts(recipe: Recipe, scales: Sequence[Scale]) -> tuple[str, ...]:
    """Three problem texts for each scale; what has no matrix product gets larger shapes."""
    name = f"{recipe.module}.{recipe.class_name}"
    light = kind(name) in ("norm", "embedding") or source.family(name) == "activations"
    return tuple(render(recipe, setting) for scale in scales for setting in (LIGHT if light else HEAVY)[scale])


@dataclass
class _Found:
    """What a crawl gives, before sizes are chosen."""

    recipes: dict[str, Recipe] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


@dataclass
class _Group:
    """Classes with the same code, in the order of modules; the first that yields a seed stands for all."""

    names: list[str]

    @property
    def module(self) -> str:
        return self.names[0].rpartition(".")[0]


class _Crawl:
    """One pass over the modules: list the classes, group the copies, examine a class of each group."""

    def __init__(self, server: ForkServer, modules: Sequence[str], on_progress: Callable[[int, int], None] | None) -> None:
        self._server, self._modules, self._on_progress = server, modules, on_progress
        self._found = _Found()
        self._listed: dict[str, list[list[str]]] = {}
        self._done = self._total = 0

    async def run(self, workers: int) -> _Found:
        """The whole crawl with that many children at once."""
        to_list = deque(self._modules)
        hands = [_Hand(self._server) for _ in range(workers)]
        try:
            await _all([self._list(hand, to_list) for hand in hands])
            shares = self._shares(hands)
            self._total = sum(map(len, shares))
            await _all(
                [self._work(hand, [shares[place], *shares[:place], *shares[place + 1 :]]) for place, hand in enumerate(hands)]
            )
        finally:
            for hand in hands:
                await hand.close()
        return self._found

    async def _list(self, hand: "_Hand", modules: deque[str]) -> None:
        while modules:
            module = modules.popleft()
            try:
                self._listed[module] = await hand.call("classes", {"module": module}, MODULE_SECONDS)
                hand.modules.add(module)
            except ChildFailed as failure:
                self._found.refused[module] = _reason(failure)

    def _shares(self, hands: "list[_Hand]") -> list[deque[_Group]]:
        """Each worker's groups: those of the modules that its child has imported already."""
        groups: dict[str, _Group] = {}
        for module in self._modules:
            for name, digest in self._listed.get(module, ()):
                groups.setdefault(digest, _Group([])).names.append(f"{module}.{name}")
        shares: list[deque[_Group]] = [deque() for _ in hands]
        for group in groups.values():
            owner = next((place for place, hand in enumerate(hands) if group.module in hand.modules), 0)
            shares[owner].append(group)
        return shares

    async def _work(self, hand: "_Hand", shares: list[deque[_Group]]) -> None:
        """Work through the own share from its start, then through the others' from their ends."""
        own, *others = shares
        while own:
            await self._settle(hand, own.popleft())
        for share in others:
            while share:
                await self._settle(hand, share.pop())

    async def _settle(self, hand: "_Hand", group: _Group) -> None:
        chosen: str | None = None
        for tried, name in enumerate(group.names):
            if chosen is not None:
                self._found.refused[name] = f"a copy of {chosen}"
            elif tried >= MOST_COPIES:
                self._found.refused[name] = f"a copy of {group.names[0]}, which was refused"
            elif await self._examine(hand, name):
                chosen = name
        self._done += 1
        if self._on_progress is not None:
            self._on_progress(self._done, self._total)

    async def _examine(self, hand: "_Hand", name: str) -> bool:
        module, _, class_name = name.rpartition(".")
        try:
            answer = await hand.call("examine", {"module": module, "name": class_name}, CLASS_SECONDS)
        except ChildFailed as failure:
            self._found.refused[name] = _reason(failure)
            return False
        reason = answer.get("refused")
        if reason is None:
            recipe = _recipe(answer["recipe"])
            codes = texts(recipe, ("small",))
            alike = len(set(codes)) < len(codes)
            reason = "its shapes are fixed" if alike else _objection(codes[0], answer["facts"])
            if reason is None:
                self._found.recipes[name] = recipe
                self._found.refused.pop(name, None)
                return True
        self._found.refused[name] = str(reason)
        return False


class _Hand:
    """A worker's child, opened when needed and replaced when it is gone."""

    def __init__(self, server: ForkServer) -> None:
        self._server = server
        self._child: Child | None = None
        self.modules: set[str] = set()

    async def call(self, method: str, payload: dict[str, Any], seconds: float) -> Any:
        """Call the child's crawler; raises ChildFailed."""
        if self._child is not None and not self._child.alive:
            await self.close()
        if self._child is None:
            self._child = await self._server.open(f"{CHILD}:open_crawler", {}, LIMITS)
        return await self._child.call(method, payload, seconds)

    async def close(self) -> None:
        """End the child."""
        if self._child is not None:
            await self._child.close()
            self._child = None


async def _all(jobs: Sequence[Any]) -> None:
    async with asyncio.TaskGroup() as group:
        for job in jobs:
            group.create_task(job)


def _objection(code: str, facts: Mapping[str, Any]) -> str | None:
    """What the rules of eager runs hold against a text."""
    refusal = refuse("run", Evidence(Problem((), TRANSFORMERS, code), DatasetScience(), (), facts))
    return None if refusal is None else f"{refusal.rule}: {refusal.reason}"


def _reason(failure: ChildFailed) -> str:
    return " ".join(str(failure).split())[:300]


def _wanted(modules: Sequence[str] | None) -> list[str]:
    known = source.modules()
    if modules is None:
        return [name for name in known if source.family(name) in source.FAMILIES]
    for name in modules:
        if name not in known:
            example = f"{source.PACKAGE}.models.llama.modeling_llama"
            raise ProblemError(f"{name} is no module of the installed transformers with layers; name one like {example}")
    return [name for name in known if name in set(modules)]


def _file_name(versions: Mapping[str, str], part: Sequence[str]) -> str:
    chosen = f"-{hashlib.sha256(' '.join(part).encode()).hexdigest()[:12]}" if part else ""
    return f"transformers-{versions['transformers']}-torch-{versions['torch']}-v{versions['crawler']}{chosen}.json"


def _recipe(data: Mapping[str, Any]) -> Recipe:
    """Read what `dataclasses.asdict` made of a recipe, as JSON or not."""
    call = tuple(
        Argument(**{**argument, "draws": tuple(Draw(**draw) for draw in argument["draws"])}) for argument in data["call"]
    )
    return Recipe(**{**data, "call": call, "unset": tuple(data["unset"]), "constant": tuple(data["constant"])})


def _read(path: Path) -> _Found | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return _Found({name: _recipe(recipe) for name, recipe in data["recipes"].items()}, data["refused"])
    except (OSError, ValueError, KeyError, TypeError):  # absent, or cut short by hand: crawl again
        return None


def _write(path: Path, found: _Found) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {"recipes": {name: asdict(recipe) for name, recipe in found.recipes.items()}, "refused": found.refused}
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(data), encoding="utf-8")
    draft.replace(path)

"""Where sets of problems come from: a parquet file, a KernelBench checkout, or a dataset of the store.

Each is read whole before any work begins, so that a wrong path is told at once; nothing of it is run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from cuda_agent.errors import ConfigError, ProblemError
from cuda_agent.problems.exchange import import_parquet, import_vetted
from cuda_agent.problems.kernelbench import LICENSE, is_checkout, read_checkout
from cuda_agent.problems.problem import Problem, VettedProblem, text_sha256
from cuda_agent.problems.stored import find_dataset, stored_problems
from cuda_agent.store.canonical import digest
from cuda_agent.store.session import Store


@dataclass(frozen=True)
class Item:
    """One problem of a source: `name` tells a person which it is, `vetted` holds what the source says of it."""

    name: str
    vetted: VettedProblem

    @property
    def problem(self) -> Problem:
        """The text and its origin."""
        return self.vetted.problem


@dataclass(frozen=True)
class Source:
    """A set as it was found; `kind` is parquet, kernelbench or dataset; a parquet file does not say its license."""

    name: str
    kind: str
    items: tuple[Item, ...]
    license: str | None = None

    @property
    def texts(self) -> list[str]:
        """The problem texts in order."""
        return [item.vetted.code for item in self.items]

    @property
    def digest(self) -> str:
        """Hex digest of all texts in order."""
        return texts_digest(self.texts)


def texts_digest(texts: Sequence[str]) -> str:
    """Hex digest of texts in order: what identifies a set in keys and provenance."""
    return digest([text_sha256(text) for text in texts])


def dataset_id(source: str) -> UUID | None:
    """The id if `source` has the form of one."""
    try:
        return UUID(source)
    except ValueError:
        return None


def read_path(path: Path, levels: Sequence[int] = ()) -> Source:
    """A parquet file, or a folder with a KernelBench checkout (its levels 1 to 3 unless others are named).

    Raises:
        ConfigError: nothing is there, or levels are named for a parquet file.
        ProblemError: the file or folder is no such set.
    """
    if not path.exists():
        raise ConfigError(f"{path} does not exist; name a parquet file, a KernelBench checkout or a dataset's id")
    if path.is_dir():
        if not is_checkout(path) and any(path.glob("*.parquet")):
            raise ProblemError(f"{path} is a folder of parquet files; name one of them")
        entries = read_checkout(path, levels or None)
        items = tuple(Item(entry.name, _unvetted(place, entry.problem)) for place, entry in enumerate(entries))
        return Source("kernelbench", "kernelbench", items, LICENSE)
    if levels:
        raise ConfigError(f"{path} is a file and has no levels; leave --level out or name a KernelBench checkout")
    vetted = import_vetted(path)
    return Source(path.stem, "parquet", tuple(Item(f"{path.stem}/{place}", problem) for place, problem in enumerate(vetted)))


def read_dataset(store: Store, wanted: UUID) -> Source:
    """The accepted problems of a stored dataset.

    Raises:
        ConfigError: it is not there or has none.
    """
    row = find_dataset(store, wanted)
    accepted = [problem for problem in stored_problems(store, wanted) if problem.accepted]
    if not accepted:
        raise ConfigError(f"dataset {wanted} has no accepted problem; name another one")
    return Source(
        row.name, "dataset", tuple(Item(_name(problem), problem) for problem in accepted), row.provenance.get("license")
    )


def evaluation_texts(kernelbench: Path | None, levels: Sequence[int], parquets: Sequence[Path]) -> dict[str, str]:
    """The texts that no accepted problem may resemble, by the name that a refusal tells, KernelBench's first.

    Raises:
        ConfigError: levels are named without a checkout, or a file is missing.
        ProblemError: one of them is no such set.
    """
    if levels and kernelbench is None:
        raise ConfigError("--level names levels of a KernelBench checkout; name its folder with --kernelbench")
    entries = read_checkout(kernelbench, levels or None) if kernelbench else []
    texts = {entry.name: entry.problem.code for entry in entries}
    for path in parquets:
        texts |= {f"{path}#{place}": problem.code for place, problem in enumerate(import_parquet(path))}
    return texts


def _unvetted(position: int, problem: Problem) -> VettedProblem:
    return VettedProblem(position, problem.ops, problem.data_source, problem.code, problem.sha256)


def _name(problem: VettedProblem) -> str:
    return str(problem.facts.get("name") or f"#{problem.position}")

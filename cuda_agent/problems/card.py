"""The card of a problem set: what is in it, what was refused and why, how it was made, in Hugging Face's form.

Beside `set.parquet` stand a README.md, whose front matter lets `datasets` load the folder, and the picture of eager times.
A README.md that is not this set's card is never overwritten: the card then stands in `set.README.md`. Names of operators,
reasons and settings may come from others' sets: they are escaped.
"""

import base64
import html
import io
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import yaml

from cuda_agent.errors import ProblemError
from cuda_agent.problems.exchange import SCHEMA
from cuda_agent.problems.problem import VettedProblem
from cuda_agent.problems.stored import find_dataset, stored_problems
from cuda_agent.store.session import Store

TAG = "cuda-agent-problem-set"
OPERATORS_SHOWN = 30
SETTINGS_CHARS = 8_000
SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"), (math.inf, "n>1M"))
_SPECIAL = re.compile(r"([\\`*_\[\]|~])")

Provenance = Mapping[str, Any]


def write_card(problems: Sequence[VettedProblem], path: Path, provenance: Provenance) -> Path:
    """Write the card of the set at `path` (its parquet file) and the picture beside it; returns the card's path.

    `problems` are all candidates, refused ones too where they are known. `provenance` says how the set was made; `license`
    in it goes to the front matter.

    Raises:
        ProblemError: the folder cannot be written.
    """
    card, picture = card_path(path), path.with_name(f"{path.stem}.eager_ms.png")
    png = times_png(problems)
    shown = picture.name if png else ""
    try:
        if png:
            picture.write_bytes(png)
        text = front_matter(problems, path.name, provenance) + "\n" + card_markdown(problems, provenance, path.stem, shown)
        card.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ProblemError(f"cannot write the card {card}: {error.strerror or error}; name a writable folder") from error
    return card


def dataset_card(store: Store, dataset_id: UUID) -> str:
    """The card of a stored set as one page, with the picture in it.

    Raises:
        ConfigError: there is no such set.
        StoreError: the database is gone.
    """
    row = find_dataset(store, dataset_id)
    problems = stored_problems(store, dataset_id)
    return card_markdown(problems, row.provenance, f"{row.name} {row.id}", data_uri(times_png(problems, dpi=80)))


def card_path(path: Path) -> Path:
    """Where the card of a parquet file stands: README.md, unless that is somebody else's."""
    readme = path.with_name("README.md")
    try:
        text = readme.read_text(encoding="utf-8")
    except FileNotFoundError:
        return readme
    except (OSError, UnicodeDecodeError):
        text = ""
    ours = text.startswith("---\n") and f"\n- {TAG}\n" in text and f"path: {path.name}\n" in text
    return readme if ours else path.with_name(f"{path.stem}.README.md")


def front_matter(problems: Sequence[VettedProblem], file: str, provenance: Provenance) -> str:
    """The YAML head that Hugging Face reads: license, size, the data file and its features."""
    accepted = sum(problem.accepted for problem in problems)
    head = {
        "license": str(provenance.get("license") or "other"),
        "pretty_name": file.removesuffix(".parquet"),
        "tags": ["code", "pytorch", "cuda", TAG],
        "size_categories": [next(name for bound, name in SIZES if accepted < bound)],
        "configs": [{"config_name": "default", "data_files": [{"split": "train", "path": file}]}],
        "dataset_info": {
            "features": [_feature(field) for field in SCHEMA],
            "splits": [{"name": "train", "num_examples": accepted}],
        },
    }
    return f"---\n{yaml.safe_dump(head, sort_keys=False)}---\n"


def card_markdown(problems: Sequence[VettedProblem], provenance: Provenance, name: str, picture: str = "") -> str:
    """The card's body; `picture` is an address of the picture, relative or `data:`, or empty."""
    accepted = [problem for problem in problems if problem.accepted]
    blocks = [
        f"# {_cell(name)}",
        _summary(problems, accepted),
        "## Filters\n\n" + _counted("rule", _rules(problems), len(problems)),
        "## Origin and number of operators\n\n" + _counted("data_source", _sources(accepted), len(accepted)),
        _operators(accepted),
        _times(accepted, picture),
        f"## How it was made\n\n{_settings(provenance)}",
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def times_png(problems: Iterable[VettedProblem], dpi: int = 120) -> bytes:
    """Histogram of the accepted problems' eager times on a logarithmic axis as a PNG (960 × 420 pixels); empty without times."""
    times = sorted(problem.eager_ms for problem in problems if problem.accepted and problem.eager_ms)
    if not times:
        return b""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # takes a second to import
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(8, 3.5), dpi=dpi, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.hist(times, bins=_log_bins(times[0], times[-1]), color="#0072B2", edgecolor="white", linewidth=0.5)
    axes.set_xscale("log")
    axes.set_xlabel("eager time, milliseconds (logarithmic)")
    axes.set_ylabel("problems")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    title = f"Eager time of {len(times)} accepted problems, median {times[len(times) // 2]:.3g} ms"
    axes.set_title(title, loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def data_uri(png: bytes) -> str:
    """A picture as an address that the dashboard shows within a page; empty for none."""
    return "data:image/png;base64," + base64.b64encode(png).decode() if png else ""


def _feature(field: pa.Field) -> dict[str, Any]:
    """A column as `datasets` names it."""
    if pa.types.is_list(field.type):
        return {"name": field.name, "sequence": str(field.type.value_type)}
    return {"name": field.name, "dtype": {"double": "float64"}.get(str(field.type), str(field.type))}


def _summary(problems: Sequence[VettedProblem], accepted: Sequence[VettedProblem]) -> str:
    sides = Counter(problem.split or "no side" for problem in accepted)
    split = ", ".join(f"{count} {side}" for side, count in sorted(sides.items()))
    of = f" of {len(problems)} candidates" if len(problems) > len(accepted) else ""
    return (
        f"{len(accepted)} accepted problems{of} ({split}). Each `code` is a Python module with `class Model(nn.Module)`, "
        "`get_inputs()` and `get_init_inputs()`; models run in eval mode. Columns `ops`, `data_source` and `code` are those of "
        "CUDA-Agent-Ops-6K; times are milliseconds on the machine that vetted, `facts` is JSON of what vetting measured."
    )


def _rules(problems: Sequence[VettedProblem]) -> list[tuple[str, int]]:
    """Accepted first, then the rules by how many they refused."""
    counts = Counter(problem.rule or "accepted" for problem in problems)
    return [("accepted", counts.pop("accepted", 0)), *counts.most_common()]


def _sources(problems: Sequence[VettedProblem]) -> list[tuple[str, int]]:
    return sorted(Counter(problem.data_source for problem in problems).items())


def _operators(accepted: Sequence[VettedProblem]) -> str:
    counts = Counter(name for problem in accepted for name in set(problem.ops))
    rest = f" The {OPERATORS_SHOWN} most frequent of {len(counts)}." if len(counts) > OPERATORS_SHOWN else ""
    table = _counted("operator", counts.most_common(OPERATORS_SHOWN), len(accepted), "problems with it")
    lengths = sorted(Counter(len(problem.ops) for problem in accepted).items())
    sizes = _counted("operators", [(str(size), count) for size, count in lengths], len(accepted))
    return f"## Operators\n\nDistinct operators: {len(counts)}.{rest}\n\n{table}\n\n## Problems by length of `ops`\n\n{sizes}"


def _times(accepted: Sequence[VettedProblem], picture: str) -> str:
    if not picture:
        return ""
    return f"## Eager times\n\n![Histogram of eager times of {len(accepted)} accepted problems]({picture})"


def _settings(provenance: Provenance) -> str:
    """Everything but the operators, which have a table of their own."""
    told = {name: value for name, value in provenance.items() if name != "operators"}
    return _fence(yaml.safe_dump(_plain(told), sort_keys=True, allow_unicode=True)[:SETTINGS_CHARS])


def _counted(heading: str, counts: Sequence[tuple[str, int]], whole: int, unit: str = "problems") -> str:
    """A table of counts with shares of `whole` and bars."""
    most = max((count for _, count in counts), default=1) or 1
    lines = [f"| {heading} | {unit} | share | |", "| --- | ---: | ---: | --- |"]
    for name, count in counts:
        share = f"{100 * count / whole:.1f} %" if whole else "–"
        lines.append(f"| {_cell(name)} | {count} | {share} | {'█' * round(20 * count / most)} |")
    return "\n".join(lines)


def _log_bins(first: float, last: float, most: int = 40) -> list[float]:
    """Edges of up to `most` bins of equal width on a logarithmic axis."""
    low, high = math.log10(first) - 0.01, math.log10(last) + 0.01
    bins = max(8, min(most, round((high - low) * 16)))
    return [10 ** (low + (high - low) * place / bins) for place in range(bins + 1)]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _cell(text: str) -> str:
    """Text in a table or heading: on one line, without markup."""
    return _SPECIAL.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))


def _fence(text: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    ticks = "`" * max(3, longest + 1)
    return f"{ticks}yaml\n{text.rstrip()}\n{ticks}"

"""Parquet in the form of CUDA-Agent-Ops-6K: `ops` (list of strings), `data_source`, `code`, then our own columns.

Others' sets load here and ours load elsewhere: the schema holds strings, numbers and one list of strings, which is what
`datasets.load_dataset("parquet", data_files=…)` maps to features without help. Reading needs the three shared columns only
and never runs a text; a file that is not such a set is a ProblemError that names the column. What `export_parquet` wrote
`import_vetted` reads back without loss.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cuda_agent.errors import ProblemError
from cuda_agent.problems.problem import Problem, VettedProblem, text_sha256

SCHEMA = pa.schema(
    [
        ("ops", pa.list_(pa.string())),
        ("data_source", pa.string()),
        ("code", pa.string()),
        ("position", pa.int64()),
        ("code_sha256", pa.string()),
        ("split", pa.string()),
        ("eager_ms", pa.float64()),
        ("compile_ms", pa.float64()),
        ("facts", pa.string()),  # JSON
    ]
)
SHARED = ("ops", "data_source", "code")
OWN = tuple(name for name in SCHEMA.names if name not in SHARED)


def export_parquet(problems: Sequence[VettedProblem], path: Path) -> int:
    """Write the accepted problems in order of position; returns how many.

    Raises:
        ProblemError: none is accepted, or the file cannot be written.
    """
    rows = [_row(problem) for problem in sorted(problems, key=lambda problem: problem.position) if problem.accepted]
    if not rows:
        raise ProblemError(f"nothing to export to {path}: no problem was accepted; make or vet a set first")
    unfinished = path.with_name(f".{path.name}.partial")
    try:
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), unfinished)
        unfinished.replace(path)
    except UnicodeEncodeError as error:
        raise ProblemError(f"cannot write {path}: a problem text is no valid Unicode; drop it from the set") from error
    except OSError as error:
        raise ProblemError(f"cannot write {path}: {error.strerror or error}; name a writable file") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return len(rows)


def import_parquet(path: Path) -> list[Problem]:
    """Read the problems of a parquet file, in order, unvetted.

    Raises:
        ProblemError: the file is missing or no parquet, a shared column is absent or of another type, or a value is null.
    """
    return [problem.problem for problem in import_vetted(path)]


def import_vetted(path: Path) -> list[VettedProblem]:
    """The same with what our own columns say; of others' files position, digest and nothing else.

    Our columns are used where the file has all of them with our types. The digest is always that of the text.

    Raises:
        ProblemError: as import_parquet.
    """
    table = _read(path)
    if not table.num_rows:
        raise ProblemError(f"{path} holds no problems; name a set with rows")
    return [_problem(index, row, path) for index, row in enumerate(table.to_pylist())]


def _problem(index: int, row: dict[str, Any], path: Path) -> VettedProblem:
    ops, source, code = (row[name] for name in SHARED)
    if ops is None or source is None or code is None or None in ops:
        raise ProblemError(f"{path}, row {index}: ops, data_source and code may not be null; drop the row")
    problem = VettedProblem(index, tuple(ops), source, code, text_sha256(code))
    if "facts" not in row:
        return problem
    try:
        facts = json.loads(row["facts"] or "{}")
    except ValueError as error:
        raise ProblemError(f"{path}, row {index}: facts is no JSON: {error}; drop the column") from error
    position = index if row["position"] is None else row["position"]
    times = {name: row[name] for name in ("eager_ms", "compile_ms")}
    side = row["split"] if row["split"] in ("train", "held_out") else None
    return replace(problem, position=position, split=side, facts=facts if isinstance(facts, dict) else {}, **times)


def _read(path: Path) -> pa.Table:
    try:
        schema = pq.read_schema(path)
        _check(schema, path)
        ours = all(name in schema.names and schema.field(name).type == SCHEMA.field(name).type for name in OWN)
        return pq.read_table(path, columns=[*SHARED, *OWN] if ours else list(SHARED))
    except OSError as error:
        raise ProblemError(f"cannot read {path}: {error.strerror or error}; name a parquet file") from error
    except pa.ArrowException as error:
        raise ProblemError(f"{path} is no readable parquet file: {error}".splitlines()[0]) from error


def _check(schema: pa.Schema, path: Path) -> None:
    for name in SHARED:
        if name not in schema.names:
            found = ", ".join(schema.names[:8]) or "none"
            raise ProblemError(f"{path} has no column {name} (found: {found}); a problem set has ops, data_source and code")
        kind = schema.field(name).type
        if not (_is_text_list(kind) if name == "ops" else _is_text(kind)):
            wanted = "list of strings" if name == "ops" else "string"
            raise ProblemError(f"{path}, column {name}: is {kind}, must be {wanted}")


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return any(check(kind) for check in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def _is_text_list(kind: pa.DataType) -> bool:
    return any(check(kind) for check in (pa.types.is_list, pa.types.is_large_list)) and _is_text(kind.value_type)


def _row(problem: VettedProblem) -> dict[str, object]:
    return {
        "ops": list(problem.ops),
        "data_source": problem.data_source,
        "code": problem.code,
        "position": problem.position,
        "code_sha256": problem.code_sha256,
        "split": problem.split,
        "eager_ms": problem.eager_ms,
        "compile_ms": problem.compile_ms,
        "facts": json.dumps(dict(problem.facts), sort_keys=True),
    }

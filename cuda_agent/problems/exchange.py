"""Parquet in the form of CUDA-Agent-Ops-6K: `ops` (list of strings), `data_source`, `code`, then our own columns.

Others' sets load here and ours load elsewhere. Reading needs the three shared columns only and never runs a text; a file
that is not such a set is a ProblemError that names the column.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cuda_agent.errors import ProblemError
from cuda_agent.problems.problem import Problem, VettedProblem

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


def export_parquet(problems: Sequence[VettedProblem], path: Path) -> int:
    """Write the accepted problems in order of position; returns how many.

    Raises:
        ProblemError: none is accepted, or the file cannot be written.
    """
    rows = [_row(problem) for problem in sorted(problems, key=lambda problem: problem.position) if problem.accepted]
    if not rows:
        raise ProblemError(f"nothing to export to {path}: no problem was accepted")
    try:
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), path)
    except OSError as error:
        raise ProblemError(f"cannot write {path}: {error.strerror or error}; name a writable file") from error
    return len(rows)


def import_parquet(path: Path) -> list[Problem]:
    """Read the problems of a parquet file, in order, unvetted.

    Raises:
        ProblemError: the file is missing or no parquet, a shared column is absent or of another type, or a value is null.
    """
    table = _read(path)
    columns = [table.column(name).to_pylist() for name in SHARED]
    problems = []
    for index, (ops, source, code) in enumerate(zip(*columns, strict=True)):
        if ops is None or source is None or code is None or None in ops:
            raise ProblemError(f"{path}, row {index}: ops, data_source and code may not be null; drop the row")
        problems.append(Problem(tuple(ops), source, code))
    return problems


def _read(path: Path) -> pa.Table:
    try:
        schema = pq.read_schema(path)
        _check(schema, path)
        return pq.read_table(path, columns=list(SHARED))
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

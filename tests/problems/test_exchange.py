from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cuda_agent.errors import ProblemError
from cuda_agent.problems.exchange import export_parquet, import_parquet
from cuda_agent.problems.problem import VettedProblem
from tests.problems.texts import text

CODE = text("x = torch.relu(x)")


def vetted(position: int, **fields: object) -> VettedProblem:
    return VettedProblem(position, ("relu", "tanh"), "torch#2", CODE, "sha", split="train", facts={"a": 1.5}, **fields)


def write(path: Path, **columns: object) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def test_what_was_exported_is_imported_in_order(tmp_path: Path) -> None:
    path = tmp_path / "set.parquet"
    assert export_parquet([vetted(2), vetted(0, eager_ms=0.5), vetted(1, rule="finite", reason="NaN")], path) == 2
    assert import_parquet(path) == [vetted(0).problem, vetted(2).problem]
    assert pq.read_schema(path).names[:3] == ["ops", "data_source", "code"]
    assert pq.read_table(path).column("eager_ms").to_pylist() == [0.5, None]


def test_a_foreign_set_with_its_own_types_loads(tmp_path: Path) -> None:
    path = write(
        tmp_path / "ops6k.parquet",
        code=pa.array([CODE], pa.large_string()),
        ops=pa.array([["nn.ReLU"]], pa.large_list(pa.large_string())),
        data_source=pa.array(["transformers"]).dictionary_encode(),
        extra=[1],
    )
    (problem,) = import_parquet(path)
    assert (problem.ops, problem.data_source, problem.code) == (("nn.ReLU",), "transformers", CODE)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"ops": [["a"]], "code": ["x"]}, "no column data_source"),
        ({"ops": ["a"], "data_source": ["b"], "code": ["x"]}, "column ops: is string, must be list of strings"),
        ({"ops": [["a"]], "data_source": ["b"], "code": [1]}, "column code: is int64"),
        ({"ops": [["a"]], "data_source": ["b"], "code": pa.array([None], pa.string())}, "row 0"),
        ({"ops": [["a", None]], "data_source": ["b"], "code": ["x"]}, "row 0"),
    ],
)
def test_wrong_columns_are_named(tmp_path: Path, columns: dict, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        import_parquet(write(tmp_path / "bad.parquet", **columns))


def test_no_parquet_and_no_file_are_named(tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("ops,code\n")
    for name in ("text.parquet", "missing.parquet"):
        with pytest.raises(ProblemError, match=name):
            import_parquet(tmp_path / name)


def test_an_empty_export_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="no problem was accepted"):
        export_parquet([vetted(0, rule="finite", reason="NaN")], tmp_path / "set.parquet")

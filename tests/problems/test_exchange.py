from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cuda_agent.errors import ProblemError
from cuda_agent.problems.exchange import SCHEMA, export_parquet, import_parquet, import_vetted
from cuda_agent.problems.problem import VettedProblem, text_sha256
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


def test_a_set_of_ours_comes_back_without_loss(tmp_path: Path) -> None:
    path, again = tmp_path / "set.parquet", tmp_path / "again.parquet"
    odd = "# \u00e9\U0001f600 \u2028\r\n\t" + CODE
    first = VettedProblem(
        3, (), "kernelbench#1", odd, text_sha256(odd), split="held_out", eager_ms=0.1, compile_ms=1 / 3, facts={"a": [1, {}]}
    )
    second = VettedProblem(7, ("a",), "torch#1", CODE, text_sha256(CODE), split="train")
    export_parquet([second, first], path)
    assert import_vetted(path) == [first, second]
    export_parquet(import_vetted(path), again)
    assert pq.read_table(again) == pq.read_table(path)


def test_the_schema_is_plain_enough_for_datasets() -> None:
    plain = {pa.string(), pa.int64(), pa.float64(), pa.list_(pa.string())}
    assert set(SCHEMA.types) <= plain and SCHEMA.metadata is None
    assert SCHEMA.field("ops").type == pa.list_(pa.string())


def test_own_columns_of_another_kind_are_not_believed(tmp_path: Path) -> None:
    shared = {"ops": [["a"]], "data_source": ["x"], "code": [CODE]}
    path = write(tmp_path / "other.parquet", **shared, split=["validation"], eager_ms=["fast"])
    assert import_vetted(path) == [VettedProblem(0, ("a",), "x", CODE, text_sha256(CODE))]
    row = {
        "ops": ["a"],
        "data_source": "x",
        "code": CODE,
        "code_sha256": "wrong",
        "split": "test",
        "eager_ms": 1.0,
        "facts": "[1]",
    }
    pq.write_table(pa.Table.from_pylist([row], SCHEMA), path)
    (found,) = import_vetted(path)
    assert (found.split, found.code_sha256, dict(found.facts), found.eager_ms) == (None, text_sha256(CODE), {}, 1.0)


@pytest.mark.parametrize(("rows", "fault"), [([], "holds no problems"), ([{"facts": "{"}], "row 0: facts is no JSON")])
def test_sets_without_rows_or_with_broken_facts_are_refused(tmp_path: Path, rows: list[dict], fault: str) -> None:
    full = [{"ops": ["a"], "data_source": "x", "code": CODE, **row} for row in rows]
    path = tmp_path / "set.parquet"
    pq.write_table(pa.Table.from_pylist(full, SCHEMA), path)
    with pytest.raises(ProblemError, match=fault):
        import_parquet(path)


def test_a_text_that_is_no_unicode_and_a_missing_folder_leave_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="no valid Unicode"):
        export_parquet([VettedProblem(0, ("a",), "x", "\ud800", "sha", split="train")], tmp_path / "set.parquet")
    with pytest.raises(ProblemError, match="cannot write"):
        export_parquet([vetted(0)], tmp_path / "none" / "set.parquet")
    assert list(tmp_path.iterdir()) == []

"""The commands in this process on a real database, and bad usage as a person meets it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from cuda_agent.cli import app
from cuda_agent.errors import ConfigError, CudaAgentError
from cuda_agent.problems import cli
from cuda_agent.problems.exchange import import_parquet
from cuda_agent.problems.stored import stored_problems
from cuda_agent.store.session import CACHE_VARIABLE, Store, cache_folder
from tests.problems.test_kernelbench import checkout
from tests.problems.texts import text

CHECKOUT = Path(__file__).resolve().parents[2]
CACHE = str(cache_folder())
WINDOW = ("--eager-ms-min", "0.001", "--eager-ms-max", "500")


def command(*arguments: object) -> None:
    app(["problems", *map(str, arguments)], standalone_mode=False)


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, CACHE)
    for name in ("OPENAI_BASE_URL", "OPENAI_MODEL"):
        monkeypatch.delenv(name, raising=False)


def test_a_set_is_made_once_written_vetted_and_shown(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "set.parquet"
    wanted = ("generate", "--count", 2, "--seed", 5, "--composer", "catalogue", "--mix", "balanced", *WINDOW, "--out", out)
    command(*wanted)
    first = capsys.readouterr()
    made = UUID(first.out.strip())
    assert "candidates in" in first.err and f"2 problems written to {out}" in first.err
    assert len(import_parquet(out)) == 2 and "catalogue" in (tmp_path / "README.md").read_text()
    command(*wanted)
    second = capsys.readouterr()
    assert UUID(second.out.strip()) == made and "candidates in" not in second.err

    command("vet", made, "--seed", 11, *WINDOW, "--json")
    *lines, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert [line["accepted"] for line in lines] == [True, True] and lines[0]["facts"]["deterministic"] is True
    assert summary["summary"]["by_rule"] == {"accepted": 2}

    command("show", made)
    assert str(made) in capsys.readouterr().out
    command("show", made, 0)
    assert stored_problems(store, made)[0].code in capsys.readouterr().out
    command("show", "all")
    listed = capsys.readouterr().out
    assert "catalogue-5" in listed and "vetted-catalogue-5" in listed


def test_a_checkout_is_imported_exported_and_imported_again(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command("import", checkout(tmp_path), "--level", 1, "--level", 2, "--held-out", 1, "--seed", 3)
    imported = UUID(capsys.readouterr().out.strip())
    before = stored_problems(store, imported)
    assert sorted(str(problem.split) for problem in before) == ["held_out", "train", "train"]
    command("export", tmp_path / "kb.parquet")
    assert "license: mit" in (tmp_path / "README.md").read_text() and "3 problems written" in capsys.readouterr().out
    command("import", tmp_path / "kb.parquet")
    again = stored_problems(store, UUID(capsys.readouterr().out.strip()))
    assert [(p.code, p.ops, p.split) for p in again] == [(p.code, p.ops, p.split) for p in before]
    command("show", "2")
    assert "kernelbench#2" in capsys.readouterr().out


def test_untrusted_text_reaches_the_terminal_without_control_characters(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"ops": ["\x1b[31mred [bold]"], "data_source": "x[/]", "code": "# \x1b]0;title\x07\n" + text("x = torch.relu(x)")}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "odd.parquet")
    command("import", tmp_path / "odd.parquet")
    capsys.readouterr()
    command("show")
    command("show", "0")
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and "\x07" not in shown and "red [bold]" in shown


def test_the_plan_knows_the_backends_window_the_file_and_what_is_said(tmp_path: Path) -> None:
    def window(*arguments: Any, **settings: Any) -> tuple[float, float]:
        science = cli.plan(*arguments, **settings).science
        return science.eager_ms_min, science.eager_ms_max

    assert window(None, {}) == (0.05, 5.0)
    assert window(None, {"eager_ms_max": 9.0}, backend="cuda") == (1.0, 9.0)
    file = tmp_path / "c.yaml"
    file.write_text(yaml.safe_dump({"dataset": {"science": {"eager_ms_min": 0.2, "count": 9, "composer": "catalogue"}}}))
    order = cli.plan(file, {"count": 5, "operator_mix": "balanced", "seed": None}, workers=3)
    assert (order.science.count, order.science.composer, order.execution.workers) == (5, "catalogue", 3)
    assert (order.science.eager_ms_min, order.science.eager_ms_max) == (0.2, 5.0)
    assert order.science.operator_mix == {2: 0.25, 3: 0.25, 4: 0.25, 5: 0.25}
    assert cli.plan(None, {}).science.composer == "sampler"
    assert cli.plan(None, {}).execution.workers == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("generate", "--count", "0"), "count: .*greater than or equal to 1"),
        (("generate", "--count", "3", "--held-out", "3"), "held_out .3. must be smaller than count"),
        (("generate", "missing.yaml"), "missing.yaml: No such file"),
        (("generate", "--evaluation", "missing.parquet"), "missing.parquet"),
        (("generate", "--kernelbench", "."), "no KernelBench, or another version"),
        (("generate", "--level", "1"), "name its folder with --kernelbench"),
        (("generate", "--out", "."), "is a folder"),
        (("generate", "--out", "none/set.parquet"), "is missing or cannot be written"),
        (("generate", "--composer", "llm"), "OPENAI_BASE_URL"),
        (("generate", "--eager-ms-min", "9", "--eager-ms-max", "3"), "eager_ms_min must be smaller"),
        (("generate", "--eager-ms-min", "3", "--eager-ms-max", "4"), "lower time_margin"),
        (("vet", "missing.parquet"), "does not exist"),
        (("vet", "text.parquet"), "no readable parquet"),
        (("vet", "columns.parquet"), "has no column ops"),
        (("vet", "columns.parquet", "--level", "1"), "has no levels"),
        (("vet", "kb", "--level", "7"), "no level7"),
        (("vet", "set", "--json"), "a folder of parquet files"),
        (("import", "kb", "--held-out", "9"), "held_out .9. must be smaller"),
        (("export", "none/x.parquet"), "is missing or cannot be written"),
        (("export", "x.parquet"), "holds no dataset"),
        (("show",), "holds no dataset"),
        (("show", "nonsense"), "neither a dataset's id nor a position"),
        (("show", "3", "4"), "two positions"),
        (("show", "019aa000-0000-7000-8000-000000000000"), "is not in this store"),
        (("vet", "019aa000-0000-7000-8000-000000000000"), "is not in this store"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], fault: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.parquet").write_text("ops, code")
    pq.write_table(pa.table({"code": ["x"]}), "columns.parquet")
    checkout(tmp_path / "kb")
    Path("set").mkdir()
    Path("set/data.parquet").touch()
    with pytest.raises(CudaAgentError, match=fault) as error:
        command(*arguments)
    assert error.value.exit_status == 2 and "\n" not in str(error.value)


def test_impossible_settings_and_unknown_families_end_with_status_2(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(yaml.safe_dump({"dataset": {"science": {"count": 1, "composer": "catalogue", "families": ["nonsense"]}}}))
    with pytest.raises(ConfigError, match="nonsense is not in the catalogue; name some of elementwise, matmul, reduction"):
        command("generate", file)


def test_the_console_script_shows_the_sentence_alone(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "cuda_agent.cli", "problems", "vet", str(tmp_path / "none.parquet")]
    environment = os.environ | {"CUDA_AGENT_HOME": str(tmp_path / "home")}
    done = subprocess.run(line, env=environment, cwd=CHECKOUT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and done.stdout == "" and len(done.stderr.splitlines()) == 1
    assert "none.parquet does not exist" in done.stderr and not (tmp_path / "home").exists()

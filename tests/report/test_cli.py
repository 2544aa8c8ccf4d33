"""`print_report`: stdout is one JSON object or tables; nothing else is written there."""

import json

import pytest

from cuda_agent.errors import ConfigError
from cuda_agent.report.cli import print_report


def test_json_is_one_object_on_one_line(store, quickstart, capsys):
    print_report(store, None, True, None)
    captured = capsys.readouterr()
    assert captured.out.count("\n") == 1
    assert [found["stage"] for found in json.loads(captured.out)["evaluations"]] == ["base", "warmup", "rft", "ppo"]


def test_tables_and_picture(store, quickstart, capsys, tmp_path):
    print_report(store, quickstart.campaign, False, tmp_path / "curve.png")
    captured = capsys.readouterr()
    assert "Evaluation on held-out problems" in captured.out
    assert str(tmp_path / "curve.png") in captured.err
    assert (tmp_path / "curve.png").stat().st_size > 10_000


def test_a_picture_that_cannot_be_written_is_one_sentence(store, begin, tmp_path):
    begin()
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"picture .* can't be written"):
        print_report(store, None, True, tmp_path / "file" / "curve.png")

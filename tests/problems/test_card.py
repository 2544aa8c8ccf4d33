import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image

from cuda_agent.errors import ProblemError
from cuda_agent.problems.card import card_markdown, data_uri, front_matter, times_png, write_card
from cuda_agent.problems.exchange import export_parquet
from cuda_agent.problems.problem import VettedProblem
from tests.problems.texts import text

CODE = text("x = torch.relu(x)")
PROVENANCE = {
    "composer": "sampler",
    "license": "apache-2.0",
    "seed": 7,
    "versions": {"torch": "2.13"},
    "operators": ["a"] * 9_000,
}


UNTIMED = [VettedProblem(0, ("a",), "x", CODE, "sha", split="train")]


def problems(count: int = 40) -> list[VettedProblem]:
    made = []
    for place in range(count):
        ops = (f"torch.op{place % 35}", "torch.relu")[: 1 + place % 2]
        rule = {"rule": "finite", "reason": "NaN"} if place % 8 == 5 else {"split": "train", "eager_ms": 0.05 * (place + 1)}
        made.append(VettedProblem(place, ops, f"torch#{len(ops)}", CODE, "sha", **rule))
    return made


def test_the_card_counts_what_is_in_the_set(tmp_path: Path) -> None:
    path = tmp_path / "set.parquet"
    accepted = export_parquet(problems(), path)
    card = write_card(problems(), path, PROVENANCE)
    assert card == tmp_path / "README.md"
    _, _, body = card.read_text().split("---\n", 2)
    assert "35 accepted problems of 40 candidates (35 train)" in body
    assert "| accepted | 35 | 87.5 % |" in body and "| finite | 5 | 12.5 % |" in body
    assert "The 30 most frequent of" in body and body.count("| torch.op") + body.count("| torch.relu") == 30
    assert "| torch#2 | 15 |" in body and "| 1 | 20 |" in body
    assert "torch: '2.13'" in body and "seed: 7" in body and len(body) < 10_000
    with Image.open(tmp_path / "set.eager_ms.png") as picture:
        assert picture.format == "PNG" and picture.width > 600
    assert "(set.eager_ms.png)" in body and accepted == 35


def test_the_front_matter_says_what_the_parquet_file_holds(tmp_path: Path) -> None:
    path = tmp_path / "set.parquet"
    export_parquet(problems(), path)
    head = yaml.safe_load(front_matter(problems(), path.name, PROVENANCE).split("---\n")[1])
    assert head["license"] == "apache-2.0" and head["size_categories"] == ["n<1K"]
    assert head["configs"][0]["data_files"] == [{"split": "train", "path": "set.parquet"}]
    table = pq.read_table(path)
    names = {"string": "string", "int64": "int64", "double": "float64"}
    told = {entry["name"]: entry.get("dtype") or [entry["sequence"]] for entry in head["dataset_info"]["features"]}
    held = {field.name: names.get(str(field.type)) or [str(field.type.value_type)] for field in table.schema}
    assert told == held and list(told) == table.schema.names
    assert head["dataset_info"]["splits"] == [{"name": "train", "num_examples": table.num_rows}]
    assert all(isinstance(json.loads(facts), dict) for facts in table.column("facts").to_pylist())


def test_somebody_elses_readme_stays(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# My project\n")
    assert write_card(UNTIMED, tmp_path / "a.parquet", {}) == tmp_path / "a.README.md"
    assert (tmp_path / "README.md").read_text() == "# My project\n"
    (tmp_path / "README.md").unlink()
    assert write_card(UNTIMED, tmp_path / "a.parquet", {}).name == "README.md"
    assert write_card(UNTIMED, tmp_path / "a.parquet", {}).name == "README.md"
    assert write_card(UNTIMED, tmp_path / "b.parquet", {}).name == "b.README.md"


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="cannot write the card"):
        write_card(UNTIMED, tmp_path / "none" / "a.parquet", {})


def test_names_from_others_forge_no_markup() -> None:
    forged = VettedProblem(0, ("a | b\n# <img src=x>",), "x`|", CODE, "sha", split="train", eager_ms=1.0)
    body = card_markdown([forged], {"note": "```\n# out"}, "set")
    assert "a \\| b # &lt;img src=x&gt;" in body and "\n# <img" not in body
    assert "````yaml" in body


def test_a_page_with_the_picture_in_it_is_small_and_without_times_has_none() -> None:
    png = times_png(problems(), dpi=80)
    assert Image.open(io.BytesIO(png)).size == (640, 280)
    assert len(card_markdown(problems(), PROVENANCE, "set", data_uri(png))) < 60_000
    assert times_png(UNTIMED) == b"" and data_uri(b"") == ""
    assert "Eager times" not in card_markdown(UNTIMED, {}, "set")

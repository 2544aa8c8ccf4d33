"""Notebooks: what is shown, what an edit changes, and what it must leave alone."""

import copy
import json
from pathlib import Path
from typing import Any

import nbformat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuda_agent.engines.messages import ToolCall
from cuda_agent.workspace.template import create_workspace
from cuda_agent.workspace.tools import ToolBox
from cuda_agent.workspace.tools.notebook import CellEdit, edited, shown

NOTEBOOK: dict[str, Any] = {
    "cells": [
        {"cell_type": "markdown", "id": "intro", "metadata": {"mine": {"a": [1, None]}}, "source": ["# Title\n", "text"]},
        {
            "cell_type": "code",
            "execution_count": 3,
            "id": "sum",
            "metadata": {"trusted": True},
            "outputs": [
                {"name": "stdout", "output_type": "stream", "text": ["3\n"]},
                {"data": {"image/png": "eA==", "text/plain": ["<Figure>"]}, "metadata": {}, "output_type": "display_data"},
                {"ename": "E", "evalue": "bad", "output_type": "error", "traceback": []},
            ],
            "source": "1 + 2",
        },
    ],
    "metadata": {"kernelspec": {"name": "python3", "display_name": "P", "ünknown": "ß"}, "signature": "kept"},
    "nbformat": 4,
    "nbformat_minor": 5,
    "later": {"field": 1.5},
}
TEXT = json.dumps(NOTEBOOK, indent=1, ensure_ascii=False) + "\n"
OLD = {**NOTEBOOK, "nbformat_minor": 4, "cells": [{k: v for k, v in cell.items() if k != "id"} for cell in NOTEBOOK["cells"]]}


def test_cells_are_shown_with_ids_types_and_outputs():
    assert shown(TEXT) == (
        "[cell intro: markdown]\n# Title\ntext\n\n[cell sum: code]\n1 + 2\n[output: stream]\n3\n\n"
        "[output: display_data]\n<Figure>\n[output: error]\nE: bad"
    )
    assert "[cell cell-1: code]" in shown(json.dumps(OLD))
    assert shown(json.dumps({**NOTEBOOK, "cells": []})) == "[the notebook has no cells]"


def test_replacing_a_cell_changes_only_it():
    text, done = edited(TEXT, CellEdit("replace", "a\nb", "intro"))
    expected = copy.deepcopy(NOTEBOOK)
    expected["cells"][0]["source"] = ["a\n", "b"]
    assert done == "replaced cell intro"
    assert text == json.dumps(expected, indent=1, ensure_ascii=False) + "\n"


def test_replacing_code_drops_its_outputs():
    cell = json.loads(edited(TEXT, CellEdit("replace", "2", "sum"))[0])["cells"][1]
    assert cell == {**NOTEBOOK["cells"][1], "source": "2", "outputs": [], "execution_count": None}


def test_a_cell_may_change_its_type():
    text, _ = edited(TEXT, CellEdit("replace", "words", "sum", "markdown"))
    assert json.loads(text)["cells"][1] == {
        "cell_type": "markdown",
        "id": "sum",
        "metadata": {"trusted": True},
        "source": "words",
    }
    assert json.loads(edited(text, CellEdit("replace", "1", "sum", "code"))[0])["cells"][1]["outputs"] == []


def test_cells_are_inserted_after_another_or_first_and_deleted():
    text, done = edited(TEXT, CellEdit("insert", "x = 1", "intro", "code"))
    cells = json.loads(text)["cells"]
    assert [cell["cell_type"] for cell in cells] == ["markdown", "code", "code"] and cells[1]["id"] in done
    assert json.loads(edited(TEXT, CellEdit("insert", "first", None, "raw"))[0])["cells"][0]["source"] == ["first"]
    text, done = edited(TEXT, CellEdit("delete", "", "intro"))
    assert [cell["id"] for cell in json.loads(text)["cells"]] == ["sum"] and done == "deleted cell intro"


def test_cells_without_ids_go_by_their_place():
    text, _ = edited(json.dumps(OLD), CellEdit("insert", "x", "cell-0"))
    assert "id" not in json.loads(text)["cells"][1]
    assert json.loads(edited(json.dumps(OLD), CellEdit("replace", "y", "1"))[0])["cells"][1]["source"] == "y"


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (CellEdit("replace", "x"), "needs cell_id; the cells are intro, sum"),
        (CellEdit("delete", "x", "absent"), "no cell 'absent'; the cells are intro, sum"),
        (CellEdit("insert", "x", "7"), "no cell '7'"),
    ],
)
def test_edits_without_a_cell_are_refused(edit: CellEdit, reason: str):
    with pytest.raises(ValueError, match=reason):
        edited(TEXT, edit)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "list of cells"),
        ('{"cells": {}}', "list of cells"),
        (json.dumps({**NOTEBOOK, "nbformat": 3}), "nbformat 4"),
        (json.dumps({**NOTEBOOK, "nbformat_minor": "5"}), "nbformat 4"),
        (json.dumps({**NOTEBOOK, "cells": [5]}), "not a valid notebook"),
        (json.dumps({**NOTEBOOK, "cells": [{"cell_type": "code"}]}), "not a valid notebook"),
        (json.dumps({**NOTEBOOK, "cells": [{"cell_type": "odd", "metadata": {}, "source": ""}]}), "not a valid notebook"),
        (json.dumps({**NOTEBOOK, "metadata": 1}), "not a valid notebook"),
        (json.dumps({**NOTEBOOK, "cells": NOTEBOOK["cells"] * 1_001}), "2002 cells"),
    ],
)
def test_what_is_no_notebook_is_refused(text: str, reason: str):
    for use in (shown, lambda it: edited(it, CellEdit("insert", "x"))):
        with pytest.raises(ValueError, match=reason):
            use(text)


SOURCES = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=30)
EDITS = st.builds(
    CellEdit,
    st.sampled_from(["replace", "insert", "delete"]),
    SOURCES,
    st.sampled_from(["intro", "sum", "cell-0", "0", "nothing", None]),
    st.sampled_from(["code", "markdown", "raw", None]),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(EDITS, max_size=6))
def test_any_edits_leave_a_valid_notebook_with_the_other_cells_as_they_were(edits: list[CellEdit]):
    text = TEXT
    for edit in edits:
        before = json.loads(text)
        try:
            text, _ = edited(text, edit)
        except ValueError:
            continue
        after = json.loads(text)
        change = {"insert": 1, "delete": -1, "replace": 0}[edit.mode]
        assert len(after["cells"]) == len(before["cells"]) + change
        kept = [cell for cell in before["cells"] if cell in after["cells"]]
        assert len(kept) >= len(before["cells"]) - 1
        assert {**after, "cells": 0} == {**before, "cells": 0}
    nbformat.validate(json.loads(text), relax_add_props=True)


@pytest.fixture
def box(tmp_path: Path) -> ToolBox:
    create_workspace(tmp_path / "w", "class Model: ...\n", "cpu")
    (tmp_path / "w" / "n.ipynb").write_text(TEXT)
    return ToolBox(tmp_path / "w", None, seconds=1, output_chars=4_000)


async def use(box: ToolBox, name: str, **arguments: Any) -> str:
    return (await box.run(ToolCall(name, arguments))).text


async def test_the_tool_edits_notebooks_that_were_read(box: ToolBox, tmp_path: Path):
    change = {"notebook_path": "n.ipynb", "new_source": "2 + 2", "cell_id": "sum"}
    assert "has not been read" in await use(box, "NotebookEdit", **change)
    assert "[cell sum: code]\n1 + 2" in await use(box, "Read", file_path="n.ipynb")
    assert "[lines 1 to 1 of 13]" in await use(box, "Read", file_path="n.ipynb", limit=1)
    assert await use(box, "NotebookEdit", **change) == "replaced cell sum of n.ipynb"
    assert "2 + 2" in await use(box, "Read", file_path="n.ipynb")
    assert json.loads((tmp_path / "w/n.ipynb").read_text())["cells"][1]["source"] == "2 + 2"


async def test_the_tool_refuses_what_it_cannot_edit_and_changes_nothing(box: ToolBox, tmp_path: Path):
    (tmp_path / "w" / "bad.ipynb").write_text("{}")
    assert "[shown as text: a notebook is" in await use(box, "Read", file_path="bad.ipynb")
    await use(box, "Write", file_path="a.txt", content="x")
    await use(box, "Read", file_path="n.ipynb")
    await use(box, "Read", file_path="SKILL.md")
    for path, reason in (
        ("bad.ipynb", "list of cells"),
        ("a.txt", "use Edit"),
        ("SKILL.md", "protected"),
        ("utils/n.ipynb", "protected"),
        ("absent.ipynb", "does not exist"),
        ("../n.ipynb", "outside"),
    ):
        assert reason in await use(box, "NotebookEdit", path=path, new_source="x", cell_id="sum"), path
    assert "surrogate" in await use(box, "NotebookEdit", file_path="n.ipynb", new_source="\ud800", cell_id="sum")
    assert (tmp_path / "w" / "bad.ipynb").read_text() == "{}" and (tmp_path / "w" / "n.ipynb").read_text() == TEXT

"""Notebooks as text that a model can read, and changes of one cell. Pure: text in, text out.

What an edit does not touch stays as it was, also what no schema knows: the JSON itself is changed, and nbformat only says
whether the result is a notebook. Cells without an id go by their place: cell-0, cell-1, …
"""

import copy
import json
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cuda_agent.workspace.tools.text import cut

CellType = Literal["code", "markdown", "raw"]
_MOST_CELLS = 2_000
_OUTPUT_CHARS = 2_000
_NAMED = 20
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True)
class CellEdit:
    """One change. `insert` puts a cell after `cell_id`, or first without one; the other modes need it."""

    mode: Literal["replace", "insert", "delete"]
    source: str
    cell_id: str | None = None
    cell_type: CellType | None = None


def parsed(text: str) -> dict[str, Any]:
    """A notebook's JSON, found valid.

    Raises:
        ValueError: it is no notebook of format 4.
    """
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not valid JSON ({error})") from error
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        raise ValueError("a notebook is a JSON object with a list of cells")
    if notebook.get("nbformat") != 4 or type(notebook.get("nbformat_minor")) is not int:
        raise ValueError("only notebooks of nbformat 4 can be used")
    if len(notebook["cells"]) > _MOST_CELLS:
        raise ValueError(f"it has {len(notebook['cells'])} cells; at most {_MOST_CELLS} are handled")
    _check(notebook)
    return notebook


def shown(text: str) -> str:
    """The cells with their ids, types, sources and outputs. Raises ValueError."""
    notebook = parsed(text)
    blocks = ["\n".join(_cell_lines(cell, name)) for cell, name in _named(notebook)]
    return "\n\n".join(blocks) or "[the notebook has no cells]"


def edited(text: str, edit: CellEdit) -> tuple[str, str]:
    """The notebook's text after an edit, and what was done. Raises ValueError, and then nothing has changed."""
    notebook = parsed(text)
    cells: list[dict[str, Any]] = notebook["cells"]
    if edit.mode != "insert" and edit.cell_id is None:
        raise ValueError(f"edit_mode {edit.mode} needs cell_id; the cells are {_names(notebook)}")
    place = -1 if edit.cell_id is None else _place(notebook, edit.cell_id)
    if edit.mode == "insert":
        cells.insert(place + 1, _new_cell(notebook, edit.cell_type or "code", edit.source))
        done = f"inserted cell {_name(cells[place + 1], place + 1)} ({cells[place + 1]['cell_type']})"
    elif edit.mode == "delete":
        done = f"deleted cell {_name(cells.pop(place), place)}"
    else:
        cells[place] = _replaced(cells[place], edit)
        done = f"replaced cell {_name(cells[place], place)}"
    _check(notebook)
    return _written(notebook, text), done


def _check(notebook: Mapping[str, Any]) -> None:
    """Raise ValueError unless the schema fits; fields that it does not know, and missing or repeated ids, pass."""
    from nbformat.validator import ValidationError, validate  # takes a tenth of a second, which few episodes need

    tried = copy.deepcopy(dict(notebook))
    if tried["nbformat_minor"] >= 5:
        for index, cell in enumerate(tried["cells"]):
            if isinstance(cell, dict) and _ID.fullmatch(str(cell.get("id", "missing"))):
                cell["id"] = f"c{index}"
    try:
        validate(tried, relax_add_props=True)
    except ValidationError as error:
        raise ValueError(f"not a valid notebook: {str(error).splitlines()[0][:300]}") from error
    except (RecursionError, KeyError, TypeError, AttributeError) as error:
        raise ValueError("not a valid notebook: a cell or its nesting is malformed") from error


def _name(cell: Mapping[str, Any], index: int) -> str:
    return str(cell.get("id") or f"cell-{index}")


def _named(notebook: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    return ((cell, _name(cell, index)) for index, cell in enumerate(notebook["cells"]))


def _names(notebook: Mapping[str, Any]) -> str:
    names = [name for _, name in _named(notebook)]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (", ".join(names[:_NAMED]) or "none") + more


def _place(notebook: Mapping[str, Any], cell_id: str) -> int:
    names = [name for _, name in _named(notebook)]
    if cell_id in names:
        return names.index(cell_id)
    by_place = re.fullmatch(r"(?:cell-)?(\d{1,6})", cell_id)
    if by_place and int(by_place[1]) < len(names):
        return int(by_place[1])
    raise ValueError(f"there is no cell {cell_id!r}; the cells are {_names(notebook)}")


def _new_cell(notebook: Mapping[str, Any], kind: CellType, source: str) -> dict[str, Any]:
    cell: dict[str, Any] = {"cell_type": kind, "metadata": {}, "source": source.splitlines(keepends=True)}
    if kind == "code":
        cell |= {"execution_count": None, "outputs": []}
    if notebook["nbformat_minor"] >= 5:
        taken = {name for _, name in _named(notebook)}
        cell["id"] = next(name for name in iter(lambda: secrets.token_hex(4), "") if name not in taken)
    return cell


def _replaced(cell: Mapping[str, Any], edit: CellEdit) -> dict[str, Any]:
    """The cell with another source, and perhaps another type; what a run of the old source printed goes."""
    changed = dict(cell)
    changed["cell_type"] = edit.cell_type or cell["cell_type"]
    changed["source"] = edit.source.splitlines(keepends=True) if isinstance(cell["source"], list) else edit.source
    if changed["cell_type"] == "code":
        changed |= {"outputs": [], "execution_count": None}
        changed.pop("attachments", None)
    else:
        changed.pop("outputs", None)
        changed.pop("execution_count", None)
    return changed


def _written(notebook: Mapping[str, Any], before: str) -> str:
    """JSON in the layout that the text had."""
    indent = re.match(r"\{\r?\n([ \t]+)\S", before)
    text = json.dumps(notebook, ensure_ascii=False, indent=indent[1] if indent else None)
    return text + "\n" * before.endswith("\n")


def _cell_lines(cell: Mapping[str, Any], name: str) -> Iterator[str]:
    yield f"[cell {name}: {cell['cell_type']}]"
    yield _joined(cell["source"])
    for output in cell.get("outputs", []):
        yield f"[output: {output['output_type']}]"
        yield cut(_output(output), _OUTPUT_CHARS)


def _output(output: Mapping[str, Any]) -> str:
    if output["output_type"] == "error":
        return f"{output.get('ename')}: {output.get('evalue')}"
    if output["output_type"] == "stream":
        return _joined(output.get("text", ""))
    data = output.get("data", {})
    return _joined(data["text/plain"]) if "text/plain" in data else ", ".join(map(str, data))


def _joined(text: Any) -> str:
    return "".join(map(str, text)) if isinstance(text, list) else str(text)

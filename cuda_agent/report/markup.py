"""Markdown pieces that stay what they are whatever text they carry: cells, fences, foldable blocks, links.

What comes from a policy, a tool or a compiler is untrusted: in a cell it is escaped, elsewhere it stands in a fence that is
longer than any run of backticks within, so no transcript can forge a page's own markup.
"""

import html
import re
from collections.abc import Mapping

from cuda_agent.report.grids import Grid

_SPECIAL = re.compile(r"([\\`*_\[\]|~])")


def cell(text: str) -> str:
    """Text as one table cell: on one line, without markup."""
    return _SPECIAL.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))


def grid_markdown(grid: Grid, *, level: int = 2, linked: Mapping[str, str] | None = None) -> str:
    """A grid as a heading, a table and its note; first cells found in `linked` become links."""
    addresses = linked or {}
    lines = [
        "#" * level + f" {grid.title}",
        "",
        "| " + " | ".join(cell(heading) for heading in grid.headings) + " |",
        "| " + " | ".join(["---", *["---:" if grid.figures else "---"] * (len(grid.headings) - 1)]) + " |",
    ]
    for row in grid.rows:
        first = f"[{cell(row[0])}]({addresses[row[0]]})" if row[0] in addresses else cell(row[0])
        lines.append("| " + " | ".join([first, *(cell(text) for text in row[1:])]) + " |")
    return "\n".join([*lines, *(["", cell(grid.note)] if grid.note else [])])


def fence(text: str, language: str = "") -> str:
    """Text in a code fence that nothing within it can close."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    ticks = "`" * max(3, longest + 1)
    return f"{ticks}{language}\n{text}\n{ticks}"


def details(title: str, body: str, *, unfolded: bool = False) -> str:
    """A block that folds; `body` is markdown."""
    return f"<details{' open' if unfolded else ''}><summary>{html.escape(title)}</summary>\n\n{body}\n\n</details>"


def run_link(kind: str, run_id: object) -> str:
    """Address of a flow run or task run relative to the dashboard (`kind`: `flow` or `task`)."""
    return f"/v2/runs/{kind}-run/{run_id}"


def size(markdown: str) -> int:
    """Bytes of a page, which is what the dashboard's limit counts."""
    return len(markdown.encode())

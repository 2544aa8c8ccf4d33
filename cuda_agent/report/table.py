"""The report in a terminal: rich tables of a campaign's summary."""

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cuda_agent.report.grids import Grid, report_grids


def print_tables(summary: dict[str, Any], console: Console) -> None:
    """Print every table of the report, then the message of each stage that failed."""
    campaign = summary["campaign"]
    console.print(Text(f"Campaign {campaign['name']} ({campaign['id']}): {campaign['status']}", style="bold"))
    for grid in report_grids(summary):
        console.print()
        console.print(terminal_table(grid))
    if not summary["evaluations"]:
        console.print("No policy has been evaluated yet.")
    for stage in summary["stages"]:
        if stage["status"] == "failed":
            console.print(Text(f"{stage['name']} failed: {stage['message']}", style="red"))


def terminal_table(grid: Grid) -> Table:
    """A grid as a rich table; cells are plain text, never markup."""
    table = Table(title=grid.title, caption=Text(grid.note) if grid.note else None, box=box.SIMPLE_HEAD, title_justify="left")
    table.caption_justify = "left"
    for place, heading in enumerate(grid.headings):
        table.add_column(heading, justify="right" if place and grid.figures else "left", no_wrap=place == 0)
    for row in grid.rows:
        table.add_row(*(Text(cell) for cell in row), style="bold" if row[0] == "total" else None)
    return table

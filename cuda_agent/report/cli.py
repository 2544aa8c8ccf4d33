"""What `cuda-agent report` prints: one JSON object, or the tables; the audit; the picture where a path is given."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from rich.console import Console

from cuda_agent.errors import ConfigError
from cuda_agent.report.audit import audit_grid, campaign_audit
from cuda_agent.report.summary import campaign_summary
from cuda_agent.report.table import print_tables, terminal_table

if TYPE_CHECKING:
    from cuda_agent.store.session import Store

PIPE_WIDTH = 160


def print_report(store: "Store", campaign_id: UUID | None, as_json: bool, png_path: Path | None) -> None:
    """Print the report of a campaign (None: the last) to stdout, and write the curve to `png_path` if there is one.

    With `as_json` stdout holds one line, one JSON object; where the picture went is said on stderr.

    Raises:
        ConfigError: no campaign has this id, or `png_path` can't be written.
        StoreError: the store is not reachable, or holds no campaign.
    """
    summary = campaign_summary(store, campaign_id)
    if as_json:
        print(json.dumps(summary, allow_nan=False, ensure_ascii=False))
    else:
        print_tables(summary, Console(width=None if sys.stdout.isatty() else PIPE_WIDTH))
    if png_path is not None:
        _write_picture(summary, png_path)
        print(f"curve: {png_path}", file=sys.stderr)


def print_audit(store: "Store", campaign_id: UUID | None, as_json: bool) -> None:
    """Print the verdicts of a campaign that were judged twice, as `print_report` prints the report.

    Raises:
        ConfigError, StoreError: as `print_report`.
    """
    entries = campaign_audit(store, campaign_id)
    if as_json:
        print(json.dumps({"audit": entries}, allow_nan=False, ensure_ascii=False))
        return
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    if entries:
        console.print(terminal_table(audit_grid(entries)))
    else:
        console.print("No counted verdict of this campaign was judged twice: no speed-up was above 10× or in the top 1 %.")


def _write_picture(summary: dict[str, object], png_path: Path) -> None:
    from cuda_agent.report.curve import write_curve  # matplotlib takes a second to import

    try:
        write_curve(summary, png_path)
    except OSError as error:
        raise ConfigError(f"picture {png_path} can't be written: {error.strerror}; name a file in a folder of yours") from error

"""What a tool call costs besides its work: prints median milliseconds in a fresh workspace.

`PYTHONPATH=. python tests/workspace/overhead.py`
"""

import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from cuda_agent.agent.feedback import MeteredShell
from cuda_agent.engines.messages import ToolCall
from cuda_agent.sandbox.lease import Lease
from cuda_agent.sandbox.shell import Shell
from cuda_agent.workspace.template import PROTECTED, create_workspace
from cuda_agent.workspace.tools import ToolBox

REPEATS = 50
EDITS = ({"old_string": "1", "new_string": "2"}, {"old_string": "2", "new_string": "1"})
CALLS: tuple[tuple[str, tuple[dict[str, Any], ...]], ...] = (
    ("Bash", ({"command": "true"},)),
    ("Read", ({"file_path": "model.py"},)),
    ("Write", ({"file_path": "kernels/k.cpp", "content": "int x = 1;\n"},)),
    ("Edit", tuple({"file_path": "kernels/k.cpp", **edit} for edit in EDITS)),
    ("Glob", ({"pattern": "**/*.py"},)),
    ("Grep", ({"pattern": "import"},)),
    ("TodoWrite", ({"todos": [{"content": "measure", "status": "pending"}]},)),
)


async def median_ms(box: ToolBox, name: str, arguments: tuple[dict[str, Any], ...]) -> float:
    """Median over `REPEATS` calls, the arguments taken in turn."""
    times = []
    for repeat in range(REPEATS):
        started = time.perf_counter()
        result = await box.run(ToolCall(name, arguments[repeat % len(arguments)]))
        times.append(1e3 * (time.perf_counter() - started))
        assert not result.invalid and not result.text.startswith("error"), result.text
    return statistics.median(times)


async def main() -> None:
    """Measure each tool, through the shell that episodes use."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        place.chmod(0o755)
        create_workspace(place / "w", "import torch\n", "cpu")
        shell = Shell(place / "w", read_only=[Path(name) for name in PROTECTED])
        async with MeteredShell(shell, Lease(place / "lease")) as metered:
            box = ToolBox(place / "w", metered, seconds=10, output_chars=8_000)
            started = time.perf_counter()
            await box.run(ToolCall("Bash", {"command": "true"}))
            print(f"first Bash {1e3 * (time.perf_counter() - started):.1f}")
            for name, arguments in CALLS:
                print(f"{name} {await median_ms(box, name, arguments):.2f}")
            await box.run(ToolCall("Bash", {"command": "sleep 60", "run_in_background": True}))
            print(f"Bash beside a job {await median_ms(box, 'Bash', ({'command': 'true'},)):.2f}")


if __name__ == "__main__":
    asyncio.run(main())

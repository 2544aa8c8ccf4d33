"""`cuda-agent judge WORKSPACE...`: verdicts on stdout, logs on stderr, and the contract's exit statuses.

0 when every workspace got a verdict, whatever it is; 2 for bad usage, found before any work; 3 where an infrastructure
error remained.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from cuda_agent.config import Backend, JudgeConfig
from cuda_agent.errors import ConfigError, CudaAgentError
from cuda_agent.judge.pool import JudgePool
from cuda_agent.judge.verdict import Submission, Verdict
from cuda_agent.store.session import cache_folder


async def judge_workspaces(
    paths: Sequence[Path],
    backend: Backend = "cpu",
    problem: Path | None = None,
    as_json: bool = False,
    config: JudgeConfig | None = None,
) -> int:
    """Judge each workspace's submission; returns the exit status.

    The problem is `problem`, or each workspace's model.py; all are read before any submission runs. With `as_json`, one
    object per line in the order of the workspaces; else a table.
    """
    try:
        work = [(path, _problem(path, problem), Submission.from_folder(path)) for path in paths]
        if not work:
            raise ConfigError("no workspace given; name at least one folder")
        settings = (config or JudgeConfig()).model_copy(update={"backend": backend})
        verdicts = await _judge_all(work, settings, as_json=as_json)
    except CudaAgentError as error:
        print(f"judge: {error}", file=sys.stderr)
        return error.exit_status
    if not as_json:
        _print_table(paths, verdicts)
    return 3 if any(verdict.status == "infra_error" for verdict in verdicts) else 0


def _problem(workspace: Path, problem: Path | None) -> str:
    path = problem or workspace / "model.py"
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(f"problem {path}: {reason}; put model.py into the workspace or name one with --problem") from error


async def _judge_all(work: Sequence[tuple[Path, str, Submission]], config: JudgeConfig, *, as_json: bool) -> list[Verdict]:
    print(f"judge: preparing backend {config.backend} (the first time on a machine takes a minute)", file=sys.stderr)
    async with JudgePool(config, cache_dir=cache_folder()) as pool:
        tasks = [asyncio.ensure_future(pool.judge(code, submission)) for _, code, submission in work]
        try:
            verdicts = []
            for (path, _, _), task in zip(work, tasks, strict=True):
                verdict = await task
                verdicts.append(verdict)
                if as_json:
                    print(json.dumps(verdict.to_json(str(path)), allow_nan=False), flush=True)
            return verdicts
        finally:
            for task in tasks:
                task.cancel()


def _print_table(paths: Sequence[Path], verdicts: Sequence[Verdict]) -> None:
    table = Table("workspace", "status", "reward", "candidate ms", "eager ms", "compile ms", "x eager", "x compile", "message")
    for path, verdict in zip(paths, verdicts, strict=True):
        status = verdict.status if verdict.kind is None else f"{verdict.status}/{verdict.kind}"
        numbers = (
            verdict.candidate_ms,
            verdict.eager_ms,
            verdict.compile_ms,
            verdict.speedup_vs_eager,
            verdict.speedup_vs_compile,
        )
        cells = ["-" if number is None else f"{number:.3f}" for number in numbers]
        reward = "-" if verdict.reward is None else f"{verdict.reward:g}"
        table.add_row(str(path), status, reward, *cells, verdict.message.partition("\n")[0][:200])
    Console().print(table)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command's arguments and judge; the exit status of the contract (argparse ends with 2 on bad usage)."""
    parser = argparse.ArgumentParser(prog="cuda-agent judge", description="Judge workspaces: correct, and how fast?")
    parser.add_argument("workspace", nargs="+", type=Path, help="folder with model.py, model_new.py and kernels/")
    parser.add_argument("--backend", choices=("cuda", "cpu"), default="cpu", help="where kernels run (default: %(default)s)")
    parser.add_argument("--problem", type=Path, metavar="FILE", help="problem text instead of each workspace's model.py")
    parser.add_argument("--json", action="store_true", help="one JSON object per workspace on stdout")
    try:
        options = parser.parse_args(arguments)
    except SystemExit as end:
        return int(end.code or 0)
    return asyncio.run(judge_workspaces(options.workspace, options.backend, options.problem, options.json))


if __name__ == "__main__":
    sys.exit(main())

"""A rollout's page for the dashboard: outcome, verdicts and the foldable transcript, as markdown below 60 KB.

Long texts lose their middle, more of it the longer the rollout is; if that is not enough, turns in the middle are left out.
What was cut is said where it was.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from cuda_agent.report.grids import Grid, decimal
from cuda_agent.report.markup import cell, details, fence, grid_markdown, run_link, size
from cuda_agent.report.transcript import (
    RolloutPage,
    read_rollout,
    rollout_facts,
    shorten,
    turn_text,
    turn_title,
    verdict_speedups,
)
from cuda_agent.store.tables import Turn, Verdict

if TYPE_CHECKING:
    from cuda_agent.store.session import Store

MOST_BYTES = 60_000
BLOCK_CHARS = (8_000, 4_000, 2_000, 1_000, 500, 250)
KEPT_TURNS = (64, 32, 16, 8)
LANGUAGES = {".py": "python", ".cpp": "cpp", ".cu": "cpp", ".h": "cpp", ".cuh": "cpp"}


def rollout_markdown(store: "Store", rollout_id: UUID, links: Mapping[str, str] | None = None) -> str:
    """The page of a stored rollout; `links` (title to address) are added to those that the rows give.

    Raises:
        ConfigError: no rollout has this id.
        StoreError: the store is not reachable.
    """
    return page_markdown(read_rollout(store, rollout_id), links)


def page_markdown(page: RolloutPage, links: Mapping[str, str] | None = None) -> str:
    """The largest version of the page that stays below MOST_BYTES."""
    addresses = {**dashboard_links(page), **(links or {})}
    markdown = ""
    for chars, kept in [*((chars, len(page.turns)) for chars in BLOCK_CHARS), *((BLOCK_CHARS[-1], kept) for kept in KEPT_TURNS)]:
        markdown = _render(page, addresses, chars, kept)
        if size(markdown) < MOST_BYTES:
            break
    return markdown


def dashboard_links(page: RolloutPage) -> dict[str, str]:
    """Where the rollout's runs are found in the dashboard."""
    found = {"task run": ("task", page.rollout.task_run_id), "flow run": ("flow", page.rollout.flow_run_id)}
    if page.stage and page.stage.flow_run_id != page.rollout.flow_run_id:
        found[f"stage {page.stage.stage}"] = ("flow", page.stage.flow_run_id)
    return {title: run_link(kind, run_id) for title, (kind, run_id) in found.items() if run_id}


def _render(page: RolloutPage, links: Mapping[str, str], chars: int, kept: int) -> str:
    """The page with at most `chars` characters in a block and `kept` turns."""
    rollout = page.rollout
    outcome = rollout.outcome or "infrastructure error"
    reward = "" if rollout.reward is None else f", reward {rollout.reward:g}"
    facts = Grid(
        "Facts", ("", "value"), tuple((name, shorten(value, chars)) for name, value in rollout_facts(page)), figures=False
    )
    blocks = [
        f"# {cell(outcome)}{reward}",
        " · ".join(f"[{cell(title)}]({address})" for title, address in links.items()),
        grid_markdown(facts),
        verdict_table(page),
        *(_message(page.verdict, chars) if page.verdict else []),
        "## Transcript" if page.turns else "",
        *_transcript(page, chars, kept),
        "## Submission" if rollout.submission else "",
        *_submission(page, chars),
        details("Problem", fence(shorten(page.problem.code, chars), "python")),
        f"As text, in full: `cuda-agent rollouts show {rollout.id}`",
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def verdict_table(page: RolloutPage) -> str:
    """The verdicts of the episode's turns and the one that counts."""
    judged = [(str(turn.position), page.verdicts[turn.verdict_id]) for turn in page.turns if turn.verdict_id]
    if page.verdict is not None:
        judged.append(("counted", page.verdict))
    headings = ("turn", "status", "kind", "reward", "candidate ms", "eager ms", "compile ms", "speed-up")
    grid = Grid("Verdicts", headings, tuple(_verdict_row(place, verdict) for place, verdict in judged[-20:]), figures=False)
    return grid_markdown(grid) if judged else ""


def _verdict_row(place: str, verdict: Verdict) -> tuple[str, ...]:
    times = (decimal(time, 3) for time in (verdict.candidate_ms, verdict.eager_ms, verdict.compile_ms))
    return (place, verdict.status, verdict.kind or "", decimal(verdict.reward, 0), *times, verdict_speedups(verdict))


def _message(verdict: Verdict, chars: int) -> list[str]:
    return [details("The judge's message", fence(shorten(verdict.message, chars)), unfolded=True)] if verdict.message else []


def _transcript(page: RolloutPage, chars: int, kept: int) -> list[str]:
    """The turns as foldable blocks; of more than `kept` the first and the last ones."""
    turns = page.turns
    if len(turns) <= kept:
        return [_turn_block(page, turn, chars) for turn in turns]
    half = kept // 2
    note = f"*{len(turns) - 2 * half} turns left out*"
    return [*_blocks(page, turns[:half], chars), note, *_blocks(page, turns[len(turns) - half :], chars)]


def _blocks(page: RolloutPage, turns: Sequence[Turn], chars: int) -> list[str]:
    return [_turn_block(page, turn, chars) for turn in turns]


def _turn_block(page: RolloutPage, turn: Turn, chars: int) -> str:
    return details(shorten(turn_title(page, turn), 200), fence(shorten(turn_text(turn), chars)))


def _submission(page: RolloutPage, chars: int) -> list[str]:
    """The counted submission's files; of very many the first eight."""
    files = sorted((page.rollout.submission or {}).items())
    shown = [
        details(path, fence(shorten(str(text), chars), LANGUAGES.get(path[path.rfind(".") :], ""))) for path, text in files[:8]
    ]
    return [*shown, *([f"*{len(files) - 8} files left out*"] if len(files) > 8 else [])]

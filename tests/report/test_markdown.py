"""Pages for the dashboard: complete, small enough, and not open to forging by what a rollout wrote."""

from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import update

from cuda_agent.errors import ConfigError
from cuda_agent.report.markdown import campaign_markdown, rollout_markdown, stage_markdown
from cuda_agent.report.markup import cell, details, fence
from cuda_agent.store.tables import Rollout, StageRun, Update, Verdict


def test_the_campaign_page_has_every_table_and_links_to_stages(store, quickstart):
    run = uuid4()
    with store.session() as session:
        session.execute(update(StageRun).where(StageRun.stage == "ppo").values(flow_run_id=run))
    page = campaign_markdown(store, quickstart.campaign)
    for title in ("Evaluation on held-out problems", "Differences", "Stages", "Rollouts by outcome", "Problems", "Updates"):
        assert f"## {title}" in page
    assert "](data:image/png;base64," in page
    assert f"[ppo](/v2/runs/flow-run/{run})" in page
    assert len(page.encode()) < 100_000


def test_a_long_campaign_stays_below_the_limit(store, begin):
    rows = begin()
    run = rows.stage("ppo")
    metrics = {f"a_rather_long_name_of_a_metric_{i}": 0.123456 for i in range(20)}
    rows.insert(*(Update(stage_run_id=run, stage="ppo", step=step, metrics=metrics) for step in range(400)))
    page = campaign_markdown(store)
    assert "ppo" in page and len(page.encode()) < 100_000


def test_a_stage_page_links_failed_rollouts_to_their_task_runs(store, begin):
    rows = begin()
    run = rows.stage("rollouts", label="teacher", inputs={"dataset_id": "d-1"}, outputs={"batch_id": "b-1"}, config={"seed": 3})
    batch = rows.batch(run, None, 80, engine="teacher")
    task = uuid4()
    rows.rollout(batch, 0, rows.train[0], "correct", (1.0, 2.0, 3.0), 3.0)
    rows.rollout(batch, 1, rows.train[0], "hack", reward=-1.0, task_run_id=task)
    for position in range(2, 80):
        rows.rollout(batch, position, rows.train[0], "build_error", reward=-1.0)
    page = stage_markdown(store, run)
    assert page.startswith("# rollouts teacher")
    assert f"](/v2/runs/task-run/{task}) | hack" in page
    assert "21 of 79" in page  # at most 20 of each outcome
    assert "d-1" in page and "b-1" in page and "seed: 3" in page


def test_evaluation_and_dataset_pages_show_their_figures(store, quickstart):
    with store.session() as session:
        runs = {run.stage: run.id for run in session.query(StageRun)}
    assert "## Evaluation on held-out problems" in stage_markdown(store, runs["evaluation"])
    assert "rejected, too\\_fast" in stage_markdown(store, runs["dataset"])
    assert "actor\\_loss" in stage_markdown(store, runs["ppo"])


def test_unknown_stage_runs_are_one_sentence(store):
    with pytest.raises(ConfigError, match="is not in the store"):
        stage_markdown(store, uuid4())


@pytest.fixture
def hostile(store, begin):
    """A long rollout whose texts try to break out of the page."""
    rows = begin()
    batch = rows.batch(rows.stage("ppo", flow_run_id=uuid4()), None, 1)
    rollout = rows.rollout(batch, 0, rows.train[0], "build_error", reward=-1.0, task_run_id=uuid4())
    attack = "```\n</details><script>alert(1)</script>\n# forged\n````\n" + "é" * 9_000
    with store.session() as session:
        session.execute(update(Verdict).values(message="| x |\n<b>" + "m" * 20_000))
        session.execute(update(Rollout).values(submission={"model_new.py": attack}))
    call = {"name": "Bash</summary>", "arguments": {"command": attack}}
    rows.transcript(rollout, [{"role": "assistant", "text": attack, "tool_calls": [call]} for _ in range(150)])
    return rollout


def test_a_long_rollout_is_cut_to_size_and_says_so(store, hostile):
    page = rollout_markdown(store, hostile, {"back": "/v2/runs/flow-run/1"})
    assert len(page.encode()) < 60_000
    assert "turns left out" in page and "characters left out" in page
    assert "[back](/v2/runs/flow-run/1)" in page and "[task run](/v2/runs/task-run/" in page
    assert page.startswith("# build\\_error, reward -1")


def test_a_rollout_cannot_forge_the_page(store, hostile):
    outside = []
    closing = None
    for line in rollout_markdown(store, hostile).splitlines():
        if closing is None and line.startswith("```"):
            closing = line[: len(line) - len(line.lstrip("`"))]
        elif closing is not None:
            closing = None if line.strip() == closing else closing
        else:
            outside.append(line)
    page = "\n".join(outside)
    assert closing is None
    assert "<script>" not in page and "# forged" not in page and "<b>" not in page
    assert page.count("<details") == page.count("</details>") == page.count("</summary>")


def test_a_short_rollout_is_shown_whole(store, begin):
    rows = begin()
    rollout = rows.rollout(rows.batch(rows.stage("ppo"), None, 1), 0, rows.train[0], "correct", (0.5, 1.0, None), 2.0)
    rows.transcript(rollout, [{"role": "assistant", "text": "done"}])
    page = rollout_markdown(store, rollout)
    assert "left out" not in page
    assert "| counted | correct |  | 2 | 0.500 | 1.000 | – | 2.00× eager |" in page


@given(st.text())
def test_a_fence_is_longer_than_any_run_inside(text):
    lines = fence(text).split("\n")
    ticks = lines[0]
    assert len(ticks) >= 3 and ticks not in text


@given(st.text())
def test_a_cell_has_no_raw_separator_line_end_or_tag(text):
    shown = cell(text)
    assert "\n" not in shown and "<" not in shown
    assert shown.count("|") == shown.count("\\|")
    assert "<b" not in details(text, "").split("<summary>")[1].split("</summary>")[0]

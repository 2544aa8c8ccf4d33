"""Background jobs in the real sandbox: what they share with the shell, what bounds them, and what ends them."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from cuda_agent.sandbox.jobs import REMEMBERED, RUNNING, JobFault, JobReport
from cuda_agent.sandbox.limits import Limits
from cuda_agent.sandbox.shell import Shell


@pytest_asyncio.fixture
async def shell(tmp_path: Path) -> AsyncIterator[Shell]:
    (tmp_path / "workspace" / "kernels").mkdir(parents=True)
    limits = Limits(wall_seconds=10, memory_mb=2_000, processes=48, output_bytes=10_000, file_mb=16)
    async with Shell(tmp_path / "workspace", limits=limits) as opened:
        yield opened


async def until(happens: Callable[[], Awaitable[bool]], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not await happens():
        assert time.monotonic() < end, "it did not happen in time"
        await asyncio.sleep(0.02)


async def ended(shell: Shell, job_id: str) -> JobReport:
    """The report of a job that ends by itself, with all that it printed."""
    printed = ""
    end = time.monotonic() + 5.0
    while (report := await shell.look(job_id)).state == "running":
        assert time.monotonic() < end
        printed += report.output
        await asyncio.sleep(0.02)
    return JobReport(report.id, printed + report.output, report.dropped, report.state, report.exit_code, report.seconds)


def alive(mark: str) -> int:
    """How many processes of this host have an argument."""
    count = 0
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                count += mark.encode() in (path / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
    return count


async def test_a_job_starts_where_the_shell_stands_and_reports_its_exit_code(shell: Shell) -> None:
    await shell.run("cd kernels; export A=5; B=6; f() { echo $A$B; }")
    job = await shell.start("pwd; f; echo err >&2; exit 3")
    assert job == "bash_1"
    report = await ended(shell, job)
    assert report.output.endswith("/workspace/kernels\n56\nerr\n")
    assert (report.state, report.exit_code) == ("ended", 3)


async def test_only_what_is_new_is_told_and_the_shell_stays_free(shell: Shell) -> None:
    job = await shell.start("echo one; while [ ! -e go ]; do sleep 0.02; done; echo two")

    async def said_one() -> bool:
        return (await shell.look(job)).output == "one\n"

    await until(said_one)
    assert (await shell.look(job)).output == ""
    assert (await shell.run("jobs; wait; touch go; echo free")).output == "free\n"
    assert (await ended(shell, job)).output == "two\n"
    assert (await shell.look(job)).output == ""


async def test_kill_ends_what_ignores_signals_forks_and_hides(shell: Shell) -> None:
    other = await shell.start("sleep 54321")
    job = await shell.start(
        "trap '' TERM INT HUP; (trap '' TERM; sleep 54322) & setsid sleep 54322 & (setsid sh -c 'sleep 54322 & sleep 54322' &) &"
        " (while :; do sleep 0.05; done) & disown; (env -i setsid sh -c 'sleep 54322 & sleep 54322' &) & sleep 54322"
    )

    async def all_there() -> bool:
        return alive("54322") == 7

    await until(all_there)
    report = await shell.kill(job)
    assert report.state == "killed" and report.exit_code is None and report.killed >= 9

    assert alive("54322") == 0
    assert (await shell.look(job)).state == "killed"
    assert (await shell.look(other)).state == "running" and alive("54321") == 1
    assert (await shell.run("echo still")).output == "still\n"


async def test_kill_ends_what_an_ended_job_left(shell: Shell) -> None:
    job = await shell.start("sleep 54323 & echo started")
    assert (await ended(shell, job)).exit_code == 0

    async def there() -> bool:
        return alive("54323") == 1

    await until(there)
    report = await shell.kill(job)
    assert (report.state, report.exit_code, report.killed) == ("ended", 0, 1)
    assert (await shell.kill(job)).killed == 0


async def test_a_fork_bomb_can_be_killed(shell: Shell) -> None:
    job = await shell.start("bomb() { while :; do bomb & sleep 0.01; done; }; bomb 2>/dev/null")
    await asyncio.sleep(0.5)
    assert (await shell.kill(job)).killed > 10
    assert (await shell.run("echo still; ls /proc | grep -c '^[0-9]'")).output.startswith("still\n")


async def test_a_job_that_the_agent_kills_itself_is_noticed(shell: Shell) -> None:
    job = await shell.start("kill -9 $BASHPID $PPID; sleep 54324")
    await shell.run("true")
    again = await shell.start("kill -9 0")
    for name in (job, again):
        assert (await ended(shell, name)).state in ("killed", "ended")
    assert not shell.working


async def test_a_flood_is_bounded_and_leaves_the_host_alone(shell: Shell) -> None:
    job = await shell.start("yes flood")
    before = time.process_time()
    await asyncio.sleep(1.0)
    used = time.process_time() - before
    report = await shell.look(job)
    assert len(report.output) <= 10_000 and report.output.endswith("flood\n") and report.dropped > 100_000
    assert used < 0.5
    assert (await shell.kill(job)).state == "killed"


async def test_too_many_jobs_are_refused_until_one_ends(shell: Shell) -> None:
    jobs = [await shell.start("sleep 54325") for _ in range(RUNNING)]
    with pytest.raises(JobFault, match=r"bash_1.*KillBash"):
        await shell.start("true")
    await shell.kill(jobs[3])
    last = await shell.start("echo fine")
    assert (await ended(shell, last)).output == "fine\n"


async def test_ended_jobs_are_forgotten_in_time(shell: Shell) -> None:
    first = await shell.start("true")
    await ended(shell, first)
    for _ in range(REMEMBERED + 1):
        await ended(shell, await shell.start("true"))
    await shell.start("true")
    with pytest.raises(JobFault, match="no background job 'bash_1'"):
        await shell.look(first)


async def test_unknown_ids_are_named(shell: Shell) -> None:
    with pytest.raises(JobFault, match="none was started"):
        await shell.look("bash_7")
    await shell.start("true")
    with pytest.raises(JobFault, match="there are bash_1"):
        await shell.kill("")


@pytest.mark.parametrize("end", ["sleep 60 & while :; do :; done", "exit 9", "kill -9 $$"])
async def test_jobs_and_tmp_outlive_the_commands_bash(shell: Shell, end: str) -> None:
    job = await shell.start("while [ ! -e go ]; do sleep 0.02; done; echo went")
    await shell.run("touch /tmp/kept")
    assert (await shell.run(end, 0.4)).exit_code in (None, 9, 137)
    assert (await shell.look(job)).state == "running"
    assert (await shell.run("ls /tmp/kept; pgrep -c sleep; touch go")).output.startswith("/tmp/kept\n")
    assert (await ended(shell, job)).output == "went\n"


async def test_a_job_goes_on_through_many_time_outs_of_commands(shell: Shell) -> None:
    job = await shell.start("while [ ! -e go ]; do sleep 0.01; done; echo went")
    for _ in range(30):
        assert (await shell.run("sleep 60 & while :; do :; done", 0.1)).timed_out
    await shell.run("touch go")
    assert (await ended(shell, job)).output == "went\n"


async def test_a_time_out_ends_what_the_command_started(shell: Shell) -> None:
    assert (await shell.run("setsid sleep 54326 & sleep 54326", 0.4)).timed_out
    assert alive("54326") == 0
    assert (await shell.run("echo on")).output == "on\n"


async def test_an_interrupted_command_answers_and_the_next_one_works(shell: Shell) -> None:
    command = asyncio.create_task(shell.run("echo begun; sleep 54327"))

    async def begun() -> bool:
        return alive("54327") == 1

    await until(begun)
    await shell.interrupt()
    result = await command
    assert (result.output, result.exit_code) == ("begun\n", 137)
    cancelled = asyncio.create_task(shell.run("sleep 54327"))
    await until(begun)
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    assert (await shell.run("echo on")).output == "on\n"
    assert alive("54327") == 0


async def test_frozen_jobs_stand_still(shell: Shell, tmp_path: Path) -> None:
    counter = tmp_path / "workspace" / "n"
    await shell.start("while :; do echo >> n; sleep 0.01; done")

    async def counts() -> bool:
        return counter.exists() and counter.stat().st_size > 3

    await until(counts)
    shell.freeze()
    size = counter.stat().st_size
    await asyncio.sleep(0.3)
    assert counter.stat().st_size <= size + 1
    size = counter.stat().st_size
    shell.thaw()

    async def more() -> bool:
        return counter.stat().st_size > size

    await until(more)


async def test_close_ends_jobs_and_says_so(shell: Shell) -> None:
    job = await shell.start("echo out; setsid sleep 54328")

    async def there() -> bool:
        return alive("54328") >= 1

    await until(there)
    await shell.close()
    report = await shell.look(job)
    assert report.state == "lost" and report.output == "out\n"
    assert (await shell.run("setsid true & echo anew")).output == "anew\n"
    assert (await shell.kill(job)).killed == 0

    async def gone() -> bool:
        return alive("54328") == 0

    await until(gone)

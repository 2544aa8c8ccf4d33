"""The agent's Bash: what persists, what is out of reach, and what ends it."""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from cuda_agent.sandbox.limits import Limits
from cuda_agent.sandbox.shell import Shell


@pytest_asyncio.fixture
async def shell(tmp_path: Path) -> AsyncIterator[Shell]:
    workspace = tmp_path / "workspace"
    (workspace / "utils").mkdir(parents=True)
    (workspace / "SKILL.md").write_text("skill")
    (workspace / "utils" / "run.py").write_text("pass")
    limits = Limits(wall_seconds=10, memory_mb=2_000, output_bytes=10_000, file_mb=16)
    async with Shell(workspace, read_only=[Path("SKILL.md"), Path("utils")], limits=limits) as opened:
        yield opened


async def test_folder_and_variables_persist_and_exit_codes_return(shell: Shell) -> None:
    assert (await shell.run("cd /tmp; export A=5; f() { echo $A; }")).exit_code == 0
    result = await shell.run("pwd; f; false")
    assert (result.output, result.exit_code) == ("/tmp\n5\n", 1)
    assert (await shell.run("if")).exit_code != 0
    assert (await shell.run("echo err >&2; echo out > /dev/stdout")).output == "err\nout\n"


async def test_bash_restarts_after_exit_and_after_a_time_out(shell: Shell) -> None:
    assert (await shell.run("exit 7")).exit_code == 7
    assert (await shell.run("pwd")).output.endswith("/workspace\n")
    result = await shell.run("echo before; sleep 60", 0.5)
    assert result.timed_out and result.exit_code is None
    assert "before" in result.output and "stopped after 0.5 s" in result.output
    assert (await shell.run("echo on")).output == "on\n"


async def test_first_command_answers_fast(shell: Shell) -> None:
    started = time.monotonic()
    await shell.run("true")
    assert time.monotonic() - started < 1.0  # 0.05 s on an idle machine


async def test_protected_files_can_be_neither_written_nor_moved(shell: Shell, tmp_path: Path) -> None:
    for command in (
        "echo x > SKILL.md",
        "mv SKILL.md other",
        "rm -f SKILL.md",
        "mv utils other",
        "touch utils/new",
        "chmod 777 SKILL.md",
    ):
        assert (await shell.run(command)).exit_code != 0, command
    assert (await shell.run("echo x > model_new.py && mkdir kernels && cat model_new.py")).output == "x\n"
    assert (tmp_path / "workspace" / "SKILL.md").read_text() == "skill"


async def test_host_is_out_of_reach(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        for command in (
            f"cat {tmp_path}/secret",
            "touch /usr/x",
            f"bash -c 'echo > /dev/tcp/127.0.0.1/{port}'",
            f"kill -0 {os.getpid()}",
            "ls /home/*",
            "mount -t tmpfs none /mnt",
        ):
            assert (await shell.run(command)).exit_code != 0, command
    seen = (await shell.run("id -u; env; grep NoNewPrivs /proc/self/status")).output
    assert "CUDA_AGENT_DATABASE_URL" not in seen and "NoNewPrivs:\t1" in seen
    if os.geteuid() == 0:
        assert not seen.startswith("0\n")


async def test_sudo_python_and_compiler_work(shell: Shell) -> None:
    assert (await shell.run("sudo -n python3 -S -c 'print(6 * 7)'")).output == "42\n"
    build = "echo 'int main(){return 4;}' > /tmp/a.cpp && g++ /tmp/a.cpp -o /tmp/a && /tmp/a"
    assert (await shell.run(build)).exit_code == 4


async def test_flood_is_cut_and_ends(shell: Shell) -> None:
    result = await shell.run("head -c 3000000 /dev/zero | tr '\\0' x")
    assert result.exit_code == 0 and result.output.endswith("[output cut]") and len(result.output) < 10_100


async def test_memory_is_bounded_unless_the_bound_is_zero(shell: Shell, tmp_path: Path) -> None:
    assert (await shell.run("ulimit -v")).output == f"{2_000 * 1024}\n"
    (tmp_path / "free").mkdir()
    async with Shell(tmp_path / "free", limits=Limits(memory_mb=0)) as free:
        assert (await free.run("ulimit -v")).output == "unlimited\n"


async def test_socket_is_bound_under_its_variable(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    path = tmp_path / "s"
    server = await asyncio.start_unix_server(answer, path)
    path.chmod(0o666)
    (tmp_path / "w").mkdir()
    script = (
        "import os,socket;s=socket.socket(socket.AF_UNIX);s.connect(os.environ['THE_SOCKET']);s.send(b'hi\\n');print(s.recv(9))"
    )
    async with Shell(tmp_path / "w", sockets={"THE_SOCKET": path}) as shell:
        assert (await shell.run(f'python3 -S -c "{script}"')).output == "b'hi\\n'\n"
    server.close()


async def test_nothing_is_left_after_close(shell: Shell) -> None:
    await shell.run("sleep 4321 & sleep 4321 &")
    await shell.close()
    await asyncio.sleep(0.1)
    lines = [Path(p, "cmdline").read_bytes() for p in Path("/proc").iterdir() if p.name.isdigit() and Path(p, "cmdline").exists()]
    assert not any(b"4321" in line for line in lines)

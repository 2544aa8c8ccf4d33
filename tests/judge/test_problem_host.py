"""The trusted side of a problem's children: what it asks for while others measure."""

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cuda_agent.config import JudgeConfig
from cuda_agent.judge import glue, inductor
from cuda_agent.judge.device import Device
from cuda_agent.judge.problem_host import ProblemHost, ProblemInvalid
from cuda_agent.judge.stress import PLAIN
from cuda_agent.sandbox.forkserver import ForkServer
from cuda_agent.sandbox.lease import Lease
from cuda_agent.store.session import cache_folder
from tests.judge.texts import PROBLEM

pytestmark = pytest.mark.asyncio
QUESTIONS = [(1, PLAIN), (2, PLAIN)]


async def test_holders_and_waiters_of_the_lease_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """One holds the lease and asks; another wants to ask, too, and a third to measure, so that the second must wait for it."""
    lease, device = Lease(tmp_path / "device"), Device(JudgeConfig(), 1, Path(glue.prepare(cache_folder()).folder))
    async with ForkServer(inductor.ROLES) as server:
        host = ProblemHost(server, PROBLEM, device, lease.shared, tmp_path)
        try:
            (part,), _ = await host.exam([1], QUESTIONS, [])
            async with asyncio.timeout(20.0):
                async with lease.shared():
                    measuring = asyncio.ensure_future(lease.exclusive().__aenter__())
                    await asyncio.sleep(0.05)
                    asking = asyncio.ensure_future(host.exam([1], QUESTIONS, []))
                    await asyncio.sleep(0.05)
                    assert await host.exact(part.cases[0]) is not None
                    assert not measuring.done() and not asking.done()
                await measuring
            asking.cancel()
        finally:
            await host.close()


@pytest.mark.parametrize("name", ["drawn_scalar", "drawn_shape"])
async def test_problem_whose_numbers_or_shapes_differ_by_draw_is_at_fault(name: str, tmp_path: Path) -> None:
    lease, device = Lease(tmp_path / "device"), Device(JudgeConfig(), 1, Path(glue.prepare(cache_folder()).folder))
    text = (Path(__file__).parents[1] / "problems_for_judge" / f"{name}.py").read_text()
    async with ForkServer(inductor.ROLES) as server:
        host = ProblemHost(server, text, device, lease.shared, tmp_path)
        try:
            with pytest.raises(ProblemInvalid, match="each time"):
                await host.exam([1], QUESTIONS, [], [3, 4, 5])
        finally:
            await host.close()


async def test_answers_that_are_not_finite_are_strange_only_where_drawn_inputs_have_finite_ones(tmp_path: Path) -> None:
    lease, device = Lease(tmp_path / "device"), Device(JudgeConfig(), 1, Path(glue.prepare(cache_folder()).folder))
    async with ForkServer(inductor.ROLES) as server:
        host = ProblemHost(server, PROBLEM, device, lease.shared, tmp_path)
        try:
            (part,), _ = await host.exam([1], QUESTIONS, [])
        finally:
            await host.close()
    case = part.cases[0]
    assert [scale.finite for scale in host.usual] == [1.0] and host.strangeness(case) == ""
    values = case.output[3].copy()
    values.reshape(-1)[0] = np.nan
    by_chance = replace(case, output=[*case.output[:3], values, case.output[4]])
    assert host.strangeness(by_chance) == ""
    mostly = replace(case, output=[*case.output[:3], np.full_like(values, np.nan), case.output[4]])
    assert "not finite" in host.strangeness(mostly)

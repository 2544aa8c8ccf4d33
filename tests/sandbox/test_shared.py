"""Memory that both sides see and neither can resize."""

import mmap

import numpy as np
import pytest

from cuda_agent.sandbox.forkserver import ChildFailed, ForkServer
from cuda_agent.sandbox.limits import Limits
from cuda_agent.sandbox.shared import SHARED, SharedBlock
from tests.sandbox.helpers import BINDS, HELPERS

SIZE = 1_000_003


async def test_both_sides_see_each_others_writes(server: ForkServer) -> None:
    with SharedBlock(SIZE) as block:
        assert block.view.dtype == np.uint8 and block.view.shape == (SIZE,) and not block.view.any()
        block.view[:] = 5
        child = await server.open(f"{HELPERS}:Sharer", {"size": SIZE}, Limits(), BINDS, shared=block.descriptor)
        assert await child.call("increment", {}, 5) == 6
        assert (block.view == 6).all()
        block.view[0] = 100
        assert await child.call("increment", {}, 5) == 101
        await child.close()


@pytest.mark.parametrize("size", [0, mmap.PAGESIZE, SIZE + 1])
async def test_child_can_not_resize_the_block(server: ForkServer, size: int) -> None:
    with SharedBlock(SIZE) as block:
        child = await server.open(f"{HELPERS}:Sharer", {"size": SIZE}, Limits(), BINDS, shared=block.descriptor)
        with pytest.raises(ChildFailed) as caught:
            await child.call("resize", {"size": size}, 5)
        assert caught.value.name == "PermissionError"
        assert block.view[-1] == 0
        await child.close()


async def test_child_has_no_descriptor_but_its_own(server: ForkServer) -> None:
    assert await server.run(f"{HELPERS}:descriptors", {}, Limits(), BINDS) == [0, 1, 2, 3]
    with SharedBlock(10) as block:
        found = await server.run(f"{HELPERS}:descriptors", {}, Limits(), BINDS, shared=block.descriptor)
    assert found == [0, 1, 2, 3, SHARED]


def test_view_of_a_closed_block_lives_on() -> None:
    block = SharedBlock(10)
    view = block.view
    block.close()
    block.close()
    view[3] = 1
    assert view.sum() == 1 and block.view.size == 0


@pytest.mark.parametrize("size", [0, -1])
def test_block_of_no_size_is_refused(size: int) -> None:
    with pytest.raises((OSError, ValueError)):
        SharedBlock(size)

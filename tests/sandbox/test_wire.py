"""Blocking messages over a real pair of sockets."""

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from cuda_agent.sandbox.wire import GULP, WireError, encode, receive_blocking, send_blocking

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize("size", [0, 1, GULP - 1, GULP, GULP + 1, 5_000_000])
def test_a_message_of_any_size_comes_through(pair: Pair, size: int) -> None:
    sent: dict[str, Any] = {"name": "x" * (size // 2), "array": np.arange(size, dtype=np.uint8), "rest": [1, None]}
    thread = threading.Thread(target=send_blocking, args=(pair[0], sent))
    thread.start()
    got = receive_blocking(pair[1], 2**24, time.monotonic() + 10)
    thread.join()
    assert (got["name"], got["rest"]) == (sent["name"], [1, None]) and np.array_equal(got["array"], sent["array"])


def test_more_than_was_asked_for_breaks_the_protocol(pair: Pair) -> None:
    pair[0].sendall(b"".join([*encode({"ok": 1}), *encode({"ok": 2})]))
    with pytest.raises(WireError, match="more than one"):
        receive_blocking(pair[1], 1_000)


def test_a_message_cut_short_ends_the_reading(pair: Pair) -> None:
    pair[0].sendall(b"".join(encode({"ok": "long enough"}))[:-3])
    with pytest.raises(TimeoutError):
        receive_blocking(pair[1], 1_000, time.monotonic() + 0.05)
    pair[0].close()
    with pytest.raises(EOFError):
        receive_blocking(pair[1], 1_000, time.monotonic() + 5)


def test_a_message_over_its_limits_is_not_read(pair: Pair) -> None:
    pair[0].sendall(b"".join(encode({"ok": b"0123456789"})))
    with pytest.raises(WireError, match="exceeds the limit of 9"):
        receive_blocking(pair[1], 9)

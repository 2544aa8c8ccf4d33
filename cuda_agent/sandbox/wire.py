"""Messages between the trusted side and an untrusted child: a JSON header and raw buffers, each with its length.

Nothing is unpickled and nothing is believed: lengths, types and shapes are checked before memory is taken, and a
message that breaks a rule raises `WireError`. Values are JSON plus numpy arrays and bytes.
"""

import contextlib
import json
import math
import select
import socket
import struct
import time
from collections.abc import Generator
from typing import Any

import numpy as np

HEADER = struct.Struct("<IQ")
MAX_HEADER = 16 * 2**20
MAX_ANSWER = 4 * 2**20  # the header of what an untrusted child sends
MAX_PIECES = 16_384
GULP = 16_384
ARRAY, BYTES = "$array", "$bytes"
# Beside messages, for a child that stands ready (`worker.Ready`): orders follow their length, a byte (0: no more of them), and
# a byte answers each.
DISMISSED, DONE, FAILED = b"\0", b"\1", b"\2"
INTEGERS = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
DTYPES = INTEGERS | {"bool", "float16", "float32", "float64", "complex64", "complex128"}


class WireError(Exception):
    """The other side sent something that is not a message."""


def encode(value: Any) -> list[bytes | memoryview]:
    """Serialise a value into pieces to be sent one after another."""
    buffers: list[bytes | memoryview] = []
    tree = _pack(value, buffers)
    header = json.dumps({"value": tree, "sizes": [len(piece) for piece in buffers]}, separators=(",", ":")).encode()
    if len(header) > MAX_HEADER:
        raise WireError(f"header of {len(header)} bytes is too long")
    return [HEADER.pack(len(header), sum(map(len, buffers))) + header, *buffers]


def _pack(value: Any, buffers: list[bytes | memoryview]) -> Any:
    if isinstance(value, np.ndarray):
        if value.dtype.name not in DTYPES:
            raise WireError(f"dtype {value.dtype} cannot be sent")
        buffers.append(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
        return {ARRAY: len(buffers) - 1, "dtype": value.dtype.name, "shape": list(value.shape)}
    if isinstance(value, bytes | bytearray | memoryview):
        buffers.append(bytes(value))
        return {BYTES: len(buffers) - 1}
    if isinstance(value, dict):
        if ARRAY in value or BYTES in value:
            raise WireError("a dictionary uses a reserved key")
        return {str(key): _pack(item, buffers) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_pack(item, buffers) for item in value]
    return value


def decode(header: bytes | bytearray, body: bytearray) -> Any:
    """Rebuild the value of a message whose lengths were already checked.

    Raises:
        WireError: anything in it that `encode` would not have written.
    """
    try:
        data = json.loads(header)
        sizes = data["sizes"]
        if not isinstance(sizes, list) or not all(type(size) is int and size >= 0 for size in sizes):
            raise WireError("malformed sizes")
        if len(sizes) > MAX_PIECES:
            raise WireError(f"more than {MAX_PIECES} buffers")
        if sum(sizes) != len(body):
            raise WireError("sizes do not add up to the body")
        view, offset = memoryview(body), 0
        pieces: list[memoryview | None] = []
        for size in sizes:
            pieces.append(view[offset : offset + size])
            offset += size
        return _unpack(data["value"], pieces)
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise WireError(f"malformed message: {type(error).__name__}") from error


def _unpack(tree: Any, pieces: list[memoryview | None]) -> Any:
    if isinstance(tree, list):
        return [_unpack(item, pieces) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if ARRAY in tree:
        return _array(tree, pieces)
    if BYTES in tree:
        return bytes(_piece(tree[BYTES], pieces))
    return {key: _unpack(item, pieces) for key, item in tree.items()}


def _array(tree: dict[str, Any], pieces: list[memoryview | None]) -> np.ndarray[Any, Any]:
    piece, dtype, shape = _piece(tree[ARRAY], pieces), tree["dtype"], tree["shape"]
    if dtype not in DTYPES or not all(type(size) is int and size >= 0 for size in shape) or len(shape) > 32:
        raise WireError("malformed array")
    if math.prod(shape) * np.dtype(dtype).itemsize != len(piece):
        raise WireError("array does not fill its buffer")
    return np.frombuffer(piece, dtype=dtype).reshape(shape)


def _piece(index: Any, pieces: list[memoryview | None]) -> memoryview:
    """A buffer, which only one place may hold: a short header must not become a large value."""
    if type(index) is not int or index < 0:
        raise WireError("malformed index")
    piece = pieces[index]
    if piece is None:
        raise WireError("a buffer stands in two places")
    pieces[index] = None
    return piece


Reader = Generator[memoryview, None, tuple[bytearray, bytearray]]


def reader(limit: int, most: int = MAX_HEADER) -> Reader:
    """Yield the buffers to fill, in order; return header and body.

    Raises WireError beyond `limit` bytes of body, or `most` of header.
    """
    prefix = bytearray(HEADER.size)
    yield memoryview(prefix)
    head, body = HEADER.unpack(prefix)
    if head > most or body > limit:
        raise WireError(f"message of {head + body} bytes exceeds the limit of {limit}")
    header, content = bytearray(head), bytearray(body)
    yield memoryview(header)
    yield memoryview(content)
    return header, content


def receive_byte(sock: socket.socket, deadline: float | None = None) -> bytes:
    """One byte, before `deadline`; raises as `receive_blocking`."""
    answer = bytearray(1)
    _receive_some(sock, memoryview(answer), deadline)
    return bytes(answer)


def send_blocking(sock: socket.socket, value: Any, deadline: float | None = None) -> None:
    """Send one message on a blocking or non-blocking socket before `deadline` (time.monotonic seconds).

    Raises:
        TimeoutError: the deadline passed.
        OSError: the other side is gone.
    """
    for piece in encode(value):
        view = memoryview(piece)
        while view:
            try:
                view = view[sock.send(view) :]
            except BlockingIOError:
                _wait(sock, select.POLLOUT, deadline)


def receive_blocking(sock: socket.socket, limit: int, deadline: float | None = None, most: int = MAX_HEADER) -> Any:
    """Receive one message before `deadline`, of at most `limit` bytes and `most` more for its header.

    Raises:
        TimeoutError: the deadline passed.
        EOFError: the other side closed.
        WireError: it sent something else.
    """
    filling = reader(limit, most)
    view = next(filling)
    early = bytearray(GULP)  # most messages come whole with their first bytes: each read costs a batch's time
    ahead = memoryview(early)[: _receive_some(sock, memoryview(early), deadline)]
    while True:
        while view:
            got = min(len(view), len(ahead)) or _receive_some(sock, view, deadline)
            if ahead:
                view[:got], ahead = ahead[:got], ahead[got:]
            view = view[got:]
        try:
            view = next(filling)
        except StopIteration as done:
            if ahead:
                raise WireError("more than one message") from None
            return decode(*done.value)


def _receive_some(sock: socket.socket, view: memoryview, deadline: float | None) -> int:
    while True:
        _wait(sock, select.POLLIN, deadline)
        with contextlib.suppress(BlockingIOError):
            if got := sock.recv_into(view):
                return got
            raise EOFError


def _wait(sock: socket.socket, event: int, deadline: float | None) -> None:
    if deadline is None and sock.getblocking():
        return
    left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1e3
    poller = select.poll()
    poller.register(sock, event)
    if not poller.poll(left):
        raise TimeoutError

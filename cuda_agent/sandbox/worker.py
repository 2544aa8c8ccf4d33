"""What runs inside an isolated child: answers calls on descriptor 3 until the other side closes it.

The code it loads is named by the trusted side as `module:function`. A one-shot child answers with the function's result;
a long-lived one keeps the returned object and calls its public methods. Errors are answers too: type, text, traceback.
A method may answer `Ready`: the child then takes orders of a few bytes, each answered by one, until it is dismissed.
What is printed beyond what the log holds is dropped: a forgotten print in a forward is no failure.
"""

import importlib
import io
import os
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple, TextIO

from cuda_agent.sandbox.wire import DISMISSED, DONE, FAILED, WireError, receive_blocking, send_blocking

MAX_REQUEST = 4 * 2**30
TEXT = 4_000


class Ready(NamedTuple):
    """A method's answer: `told`, and what is called with each order that follows."""

    told: Any
    obey: Callable[[bytes], None]


def serve(sock: socket.socket) -> None:
    """Answer requests of the form {target, payload, keep} and then {method, payload}."""
    try:
        request = receive_blocking(sock, MAX_REQUEST)
        made = _answer(sock, lambda: _load(request["target"])(request["payload"]), keep=bool(request["keep"]))
        while request["keep"] and made is not None:
            call = receive_blocking(sock, MAX_REQUEST)
            result = _answer(sock, lambda call=call: getattr(made, call["method"])(call["payload"]), keep=False)
            if isinstance(result, Ready):
                _take_orders(sock, result.obey)
            del result  # whoever frees an answer later on may have lost the code for it
    except (EOFError, OSError):
        return


def _take_orders(sock: socket.socket, obey: Callable[[bytes], None]) -> None:
    while (size := sock.recv(1)) and size != DISMISSED:
        order = sock.recv(size[0], socket.MSG_WAITALL)
        try:
            obey(order)
        except BaseException as error:  # the boundary, as for `_answer`
            sock.sendall(FAILED)
            send_blocking(sock, {"error": _describe(error)})
        else:
            sock.sendall(DONE)


def _load(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def _answer(sock: socket.socket, call: Any, *, keep: bool) -> Any:
    result: Any = None
    try:
        result = call()
        told = result.told if isinstance(result, Ready) else result
        answer = {"ok": None if keep else told}
    except BaseException as error:  # the boundary: whatever the untrusted code raises becomes an answer
        answer = {"error": _describe(error)}
    try:
        send_blocking(sock, answer)
    except (WireError, TypeError, ValueError) as error:
        send_blocking(sock, {"error": _describe(error)})
    return result


def _describe(error: BaseException) -> dict[str, str]:
    try:
        text, trace = str(error), "".join(traceback.format_exception(error))
    except BaseException:  # the boundary: a hostile __str__
        text, trace = "(no text)", ""
    memory = isinstance(error, MemoryError) or "can't allocate memory" in text or "std::bad_alloc" in text
    return {
        "type": type(error).__name__[:200],
        "text": text[:TEXT],
        "trace": trace[-TEXT:],
        "kind": "oom" if memory else "exception",
    }


class _Log(io.RawIOBase):
    """A descriptor of the log, which is full some time."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def write(self, data: Any) -> int:
        try:
            return os.write(self._descriptor, data)
        except OSError:
            return len(data)


def _stream(descriptor: int) -> TextIO:
    return io.TextIOWrapper(io.BufferedWriter(_Log(descriptor)), encoding="utf-8", errors="backslashreplace", line_buffering=True)


def run(descriptor: int) -> None:
    """Serve on a socket descriptor, then end the process without running what untrusted code may have registered."""
    sys.stdout, sys.stderr = _stream(1), _stream(2)
    try:
        serve(socket.socket(fileno=descriptor))
    finally:  # nothing may unwind into the code that set the sandbox up
        os._exit(0)

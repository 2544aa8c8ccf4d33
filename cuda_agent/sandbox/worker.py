"""What runs inside an isolated child: answers calls on descriptor 3 until the other side closes it.

The code it loads is named by the trusted side as `module:function`. A one-shot child answers with the function's result;
a long-lived one keeps the returned object and calls its public methods. Errors are answers too: type, text, traceback.
"""

import importlib
import os
import socket
import traceback
from typing import Any

from cuda_agent.sandbox.wire import WireError, receive_blocking, send_blocking

MAX_REQUEST = 4 * 2**30
TEXT = 4_000


def serve(sock: socket.socket) -> None:
    """Answer requests of the form {target, payload, keep} and then {method, payload}."""
    try:
        request = receive_blocking(sock, MAX_REQUEST)
        made = _answer(sock, lambda: _load(request["target"])(request["payload"]), keep=bool(request["keep"]))
        while request["keep"] and made is not None:
            call = receive_blocking(sock, MAX_REQUEST)
            _answer(sock, lambda call=call: getattr(made, call["method"])(call["payload"]), keep=False)
    except (EOFError, OSError):
        return


def _load(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def _answer(sock: socket.socket, call: Any, *, keep: bool) -> Any:
    result: Any = None
    try:
        result = call()
        answer = {"ok": None if keep else result}
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


def run(descriptor: int) -> None:
    """Serve on a socket descriptor, then end the process without running what untrusted code may have registered."""
    try:
        serve(socket.socket(fileno=descriptor))
    finally:  # nothing may unwind into the code that set the sandbox up
        os._exit(0)

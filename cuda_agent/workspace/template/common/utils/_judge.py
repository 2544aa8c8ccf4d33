"""Asks the judge over its socket and prints the answer; the measuring happens outside the sandbox, from the sources."""

import json
import os
import socket
import sys


def ask(request: dict[str, object]) -> int:
    """Send one request; print the answer's text; return 0 if it passed."""
    path = os.environ.get("CUDA_AGENT_JUDGE_SOCKET", "")
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            connection.sendall(json.dumps(request).encode() + b"\n")
            connection.shutdown(socket.SHUT_WR)
            answer = json.loads(b"".join(iter(lambda: connection.recv(65_536), b"")))
    except (OSError, ValueError) as error:
        print(f"[FAIL] the judge does not answer: {error}")
        return 2
    print(answer["text"])
    return 0 if answer["passed"] else 1


def main(command: str) -> None:
    """Ask for `command` and end with its status."""
    sys.exit(ask({"command": command}))

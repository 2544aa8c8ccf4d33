"""An HTTP server on loopback that plays an OpenAI-compatible endpoint."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Endpoint:
    """Answers with what it is told, one after another, and keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Any]] = []
        self.requests: list[dict[str, Any]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                endpoint.requests.append({"path": self.path, "key": self.headers["Authorization"], **body})
                status, answer = endpoint.answers.pop(0)
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"

    def say(self, content: str | None, *calls: tuple[str, str]) -> None:
        wire = [{"id": "x", "type": "function", "function": {"name": name, "arguments": text}} for name, text in calls]
        self.answers.append(
            (200, {"choices": [{"message": {"role": "assistant", "content": content, "tool_calls": wire or None}}]})
        )


@contextmanager
def running_endpoint() -> Iterator[Endpoint]:
    """An endpoint that answers for the time of the block."""
    running = Endpoint()
    thread = threading.Thread(target=running.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield running
    finally:
        running.server.shutdown()
        thread.join()
        running.server.server_close()

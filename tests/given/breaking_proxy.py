"""A proxy that breaks off at chosen requests: before they reach the server, or before their answer reaches the client."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

import httpx2

from given.http_server import connect

Break = Literal["before", "after"]


class BreakingProxy:
    """Forwards requests to `to`. At the next request whose line contains `at`, `act` is called and the connection ends."""

    def __init__(self, to: str) -> None:
        self.to = to
        self.url = ""
        self.seen: list[str] = []
        self._at = ""
        self._when: Break = "before"
        self._act: Callable[[], object] = lambda: None

    def break_at(self, at: str, when: Break, act: Callable[[], object]) -> None:
        self._at, self._when, self._act = at, when, act

    def forward(self, method: str, path: str, headers: dict[str, str], body: bytes) -> httpx2.Response | None:
        line = f"{method} {path}"
        self.seen.append(line)
        breaks = bool(self._at) and self._at in line
        if breaks:
            self._at = ""
        if breaks and self._when == "before":
            self._act()
            return None
        with suppress(httpx2.TransportError), connect(self.to, timeout=60) as client:
            answer = client.request(method, path, headers=headers, content=body)
            if not breaks:
                return answer
        if breaks:
            self._act()
        return None


@contextmanager
def open_breaking_proxy(to: str) -> Iterator[BreakingProxy]:
    proxy = BreakingProxy(to)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {
                name.lower(): value
                for name, value in self.headers.items()
                if name.lower() not in ("host", "connection", "content-length", "accept-encoding")
            }
            answer = proxy.forward(self.command, self.path, headers, body)
            self.close_connection = answer is None
            if answer is not None:
                self.send_response(answer.status_code)
                self.send_header("content-type", answer.headers.get("content-type", "text/plain"))
                self.send_header("content-length", str(len(answer.content)))
                self.end_headers()
                self.wfile.write(answer.content)

        do_GET = do_POST = do_PUT = do_DELETE = _forward  # noqa: N815  http.server looks for these names

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    proxy.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

"""A web server on loopback that serves the pages of a test and records the requests."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Answer(NamedTuple):
    body: bytes
    status: int = 200
    kind: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


class WebRequest(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Web(NamedTuple):
    url: str
    requests: list[WebRequest]


@contextmanager
def open_web(pages: Mapping[str, Answer]) -> Iterator[Web]:
    """Serve `pages` by path, for every method; any other path is a 404."""
    requests: list[WebRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            headers = {name.lower(): value for name, value in self.headers.items()}
            requests.append(WebRequest(self.command, self.path, headers, self.rfile.read(length)))
            page = pages.get(self.path, Answer(b"no such page", 404, "text/plain"))
            self.send_response(page.status)
            self.send_header("content-type", page.kind)
            for name, value in page.headers:
                self.send_header(name, value)
            self.send_header("content-length", str(len(page.body)))
            self.end_headers()
            with suppress(ConnectionError):  # the client may have closed the connection
                self.wfile.write(page.body)

        do_GET = do_POST = answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield Web(f"http://127.0.0.1:{server.server_port}", requests)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

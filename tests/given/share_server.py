"""A share server on loopback that accepts only what OpenCode's accepts: strict about paths, bodies and secrets."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
from msgspec import Struct

TYPES = {"session", "message", "part", "session_diff", "model"}


class HostedShare(Struct):
    """One share: its secret, and the last value of each item."""

    session: str
    secret: str
    items: dict[str, Any] = {}
    batches: list[list[dict[str, Any]]] = []


class ShareServer(Struct):
    """`next_statuses` are statuses to answer with before anything else, `next_sync_statuses` to updates,
    `next_delete_statuses` to revocations; `holds` are awaited by the next updates before they count; `created` counts all shares
    ever created."""

    url: str
    shares: dict[str, HostedShare] = {}
    requests: list[tuple[str, str]] = []
    bodies: list[str] = []
    authorizations: list[str] = []
    next_statuses: list[int] = []
    next_sync_statuses: list[int] = []
    next_delete_statuses: list[int] = []
    holds: list[threading.Event] = []
    arrived: threading.Condition = msgspec.field(default_factory=threading.Condition)
    created: int = 0
    pages: str = "/share/"

    async def wait_for_batches(self, id: str, count: int) -> None:
        """Wait until `count` batches were sent to a share."""
        await asyncio.to_thread(self._wait, id, count)

    def _wait(self, id: str, count: int) -> None:
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.shares[id].batches) >= count, timeout=60)

    def wait_for_release(self) -> None:
        """Wait for the next hold, if there is one."""
        if self.holds:
            assert self.holds.pop(0).wait(60)

    def all_text(self) -> str:
        """Return all bodies ever received, as one text."""
        return "\n".join(self.bodies)


def key_of(item: dict[str, Any]) -> str:
    assert set(item) == {"type", "data"}, item
    kind, data = item["type"], item["data"]
    assert kind in TYPES, kind
    match kind:
        case "session" | "message":
            return f"{kind}/{data['id']}"
        case "part":
            return f"part/{data['messageID']}/{data['id']}"
        case _:
            assert isinstance(data, list)
            return str(kind)


@contextmanager
def open_share_server() -> Iterator[ShareServer]:
    shares = ShareServer(url="")

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length") or 0))
            shares.requests.append((self.command, self.path))
            shares.authorizations.append(self.headers.get("authorization") or "")
            if shares.next_statuses:
                self.reply(shares.next_statuses.pop(0), {"error": "not now"})
                return
            assert self.headers["content-type"] == "application/json"
            shares.bodies.append(raw.decode())
            body = json.loads(raw)
            match self.command, self.path.split("/")[1:]:
                case "POST", ["api", "share"]:
                    self.make(body)
                case "POST", ["api", "share", id, "sync"]:
                    self.sync(id, body)
                case "DELETE", ["api", "share", id]:
                    self.drop(id, body)
                case _:
                    self.reply(404, {})

        def make(self, body: dict[str, Any]) -> None:
            assert set(body) <= {"sessionID", "expires"}, body
            shares.created += 1
            id, secret = f"shr{shares.created}", f"the-secret-{shares.created}"
            shares.shares[id] = HostedShare(body["sessionID"], secret)
            self.reply(200, {"id": id, "url": f"{shares.url}{shares.pages}{id}", "secret": secret})

        def sync(self, id: str, body: dict[str, Any]) -> None:
            assert set(body) == {"secret", "data"}, set(body)
            if shares.next_sync_statuses:
                self.reply(shares.next_sync_statuses.pop(0), {})
                return
            hosted = shares.shares.get(id)
            if hosted is None or hosted.secret != body["secret"]:
                self.reply(404, {})
                return
            shares.wait_for_release()
            keys = [key_of(item) for item in body["data"]]
            assert len(keys) == len(set(keys)), "an item comes once in a batch"
            with shares.arrived:
                hosted.items.update(zip(keys, (item["data"] for item in body["data"]), strict=True))
                hosted.batches.append(body["data"])
                shares.arrived.notify_all()
            self.reply(200, {})

        def drop(self, id: str, body: dict[str, Any]) -> None:
            if shares.next_delete_statuses:
                self.reply(shares.next_delete_statuses.pop(0), {})
                return
            hosted = shares.shares.get(id)
            if hosted is None or body != {"secret": hosted.secret}:
                self.reply(404, {})
                return
            del shares.shares[id]
            self.reply(200, {})

        def reply(self, status: int, value: Any) -> None:
            raw = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            with suppress(ConnectionError):  # the client may be gone
                self.wfile.write(raw)

        do_GET = do_POST = do_DELETE = answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    shares.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield shares
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

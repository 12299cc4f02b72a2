"""Rate limits of share pages, and what a server with public pages lets through without a password."""

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from weft.api import Api
from weft.errors import NotFoundError, StoreError, WeftError
from weft.server import share_pages
from weft.server.access import AccessPolicy
from weft.server.http_server import HttpServer, ServerSetup
from weft.server.share_pages import (
    RateLimit,
    ShareDataEndpoint,
    ShareLiveEndpoint,
    SharePageCache,
    SharePageEndpoint,
)

HERE = {"host": "localhost"}
DOOR = AccessPolicy(password="pw", open_to_all="/s/")


def test_a_rate_limit_allows_a_burst_and_then_so_many_requests_a_second() -> None:
    bucket = RateLimit(size=3, rate=2)
    assert [bucket.take(10.0) for _ in range(4)] == [True, True, True, False]
    assert [bucket.take(11.0) for _ in range(3)] == [True, True, False]


def refuse_to_open(directory: str) -> AbstractAsyncContextManager[Api]:
    raise AssertionError(f"{directory} was opened")


@pytest.mark.parametrize("kind", [SharePageEndpoint, ShareDataEndpoint, ShareLiveEndpoint])
async def test_too_many_requests_are_told_to_wait_and_read_nothing(kind: Any) -> None:
    def note(_: object) -> None:
        pass

    setup = ServerSetup(
        open=refuse_to_open, default_directory="/", access=DOOR, name="x", note=note, now=lambda: 0
    )
    gallery = SharePageCache(HttpServer(setup, ()))
    gallery.rate_limit = RateLimit(size=0, rate=0)
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    await kind(gallery)({"path_params": {"shareID": "0" * 40}, "headers": []}, receive, send)
    assert sent[0]["status"] == 429
    assert (b"retry-after", b"1") in sent[0]["headers"]


class ScriptedPages(SharePageCache):
    """Pages whose versions are given; an error is raised."""

    def __init__(self, versions: list[str | WeftError]) -> None:
        setup = ServerSetup(
            open=refuse_to_open,
            default_directory="/",
            access=DOOR,
            name="x",
            note=lambda _: None,
            now=lambda: 0,
        )
        super().__init__(HttpServer(setup, ()))
        self._given = versions

    async def get_version(self, id: str) -> str:
        del id
        version = self._given.pop(0)
        if isinstance(version, WeftError):
            raise version
        return version


async def test_a_page_ends_when_its_share_does_and_not_when_the_store_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(share_pages, "POLL_SECONDS", 0.001)
    pages = ScriptedPages(["1", StoreError("no answer"), "2", NotFoundError("share", "a")])
    sent: list[bytes] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message.get("body", b""))

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    await ShareLiveEndpoint(pages)({"path_params": {"shareID": "a"}, "headers": []}, receive, send)
    assert [body.split(b"\n")[0] for body in sent if body.startswith(b"event:")] == [
        b"event: changed",
        b"event: ended",
    ]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/s/x", None),
        ("HEAD", "/s/x/data", None),
        ("POST", "/s/x", 401),
        ("DELETE", "/s/x", 401),
        ("GET", "/s", 401),
        ("GET", "/session", 401),
        ("GET", "/S/x", 401),
        ("GET", "//s/x", 401),
    ],
)
def test_public_pages_allow_reading_below_their_path_only(method: str, path: str, status: int | None) -> None:
    refusal = DOOR.check(method, HERE, path)
    assert (None if refusal is None else refusal.status) == status


def test_pages_need_the_password_unless_they_are_public() -> None:
    refusal = AccessPolicy(password="pw").check("GET", HERE, "/s/x")
    assert refusal is not None
    assert refusal.status == 401


def test_foreign_hosts_and_origins_are_refused_for_pages_too() -> None:
    for headers in ({"host": "evil.test"}, {**HERE, "origin": "https://evil.test"}):
        refusal = DOOR.check("GET", headers, "/s/x")
        assert refusal is not None
        assert refusal.status == 403

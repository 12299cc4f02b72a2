"""Who has access to a server, and who has not."""

import asyncio
import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import DirectoryNotServedError, StoreError
from weft.model.ids import ProjectID
from weft.model.principal import ADMINISTRATOR, Caller
from weft.model.project import Project, ProjectTime
from weft.server import access
from weft.server.access import (
    AccessMiddleware,
    AccessPolicy,
    Callers,
    check_served,
    decode_basic_auth,
    strip_port,
)
from weft.server.page_login import LOGIN_PATH, LoginEndpoint, PageLogins
from weft.server.response import Receive, Scope, Send, read_headers
from weft.server.state import MAX_DELAYED, PasswordAttempts, Tickets


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


DOOR = AccessPolicy(password="s3cret", origins=frozenset({"https://mine.example"}))
GOOD = {"host": "127.0.0.1:4096", "authorization": basic("opencode", "s3cret")}


def status(headers: dict[str, str], method: str = "GET", door: AccessPolicy = DOOR) -> int | None:
    refusal = door.check(method, headers)
    return None if refusal is None else refusal.status


def test_with_the_password_access_is_granted() -> None:
    assert status(GOOD) is None
    assert status({**GOOD, "origin": "https://mine.example"}) is None
    assert status({"host": "localhost"}, door=AccessPolicy(password=None)) is None


@pytest.mark.parametrize(
    "given",
    [
        "",
        "Basic",
        "Basic !!!",
        basic("opencode", ""),
        basic("opencode", "s3cre"),
        basic("root", "s3cret"),
        "Bearer s3cret",
    ],
)
def test_without_the_password_access_is_refused(given: str) -> None:
    assert status({**GOOD, "authorization": given}) == 401


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example:4096",
        "",
        "localhost.evil",
        "[::2]:1",
        "[::1].evil.example",
        "localhost:evil.example",
        "127.0.0.2",
    ],
)
def test_a_foreign_host_name_is_refused_even_with_the_password(host: str) -> None:
    assert status({**GOOD, "host": host}) == 403


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:3000", "https://mine.example.evil"]
)
def test_an_unlisted_origin_is_refused_even_with_the_password(origin: str) -> None:
    assert status({**GOOD, "origin": origin}) == 403
    assert DOOR.cors_headers(origin) == {}


def test_a_listed_origin_may_send_a_preflight_without_the_password() -> None:
    asked = {"host": "localhost:1", "origin": "https://mine.example"}
    assert status(asked, "OPTIONS") is None
    assert status(asked, "POST") == 401
    assert DOOR.cors_headers("https://mine.example")["access-control-allow-origin"] == "https://mine.example"


@pytest.mark.parametrize(
    ("host", "bare"),
    [
        ("LocalHost:80", "localhost"),
        ("[::1]:80", "[::1]"),
        ("[::1]", "[::1]"),
        ("127.0.0.1", "127.0.0.1"),
        ("localhost:", "localhost"),
        ("a:b:c", "a:b:c"),
    ],
)
def test_a_host_is_compared_without_its_port(host: str, bare: str) -> None:
    assert strip_port(host) == bare


def test_a_repeated_header_is_joined_and_refused() -> None:
    twice = [(b"host", b"evil.example"), (b"host", b"127.0.0.1"), (b"accept", b"*/*")]
    assert read_headers({"headers": twice}) == {"host": "evil.example, 127.0.0.1", "accept": "*/*"}
    assert status({**GOOD, **read_headers({"headers": twice})}) == 403


@given(st.text())
def test_no_header_can_break_the_access_check(text: str) -> None:
    assert status({"host": text, "authorization": text, "origin": text}) in {401, 403}
    assert isinstance(decode_basic_auth(text), bytes)


WRONG = basic("opencode", "guess")


class AccessHarness:
    """The middleware and the login behind it, with sleeps that last until they are released, or no time at all."""

    def __init__(self) -> None:
        self.delays: list[float] = []
        self.go, self.all_delayed = asyncio.Event(), asyncio.Event()
        self.go.set()
        self._attempts = PasswordAttempts(self._sleep)
        self._tickets, logins = Tickets(), PageLogins("s3cret", lambda: 0)
        self._login = LoginEndpoint(logins, self._tickets, self._attempts)
        self._middleware = AccessMiddleware(
            self._answer,
            DOOR,
            self._tickets,
            logins=logins,
            attempts=self._attempts,
            on_request=lambda _: None,
            route_paths={},
        )

    async def _sleep(self, seconds: float) -> None:
        self.delays.append(round(seconds, 3))
        if len(self.delays) == MAX_DELAYED:
            self.all_delayed.set()
        await self.go.wait()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == LOGIN_PATH:
            await self._login(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def ask(
        self, password: str = "", path: str = "/session", body: bytes = b"", client: str = "192.0.2.7"
    ) -> int:
        statuses: list[int] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        headers = {"host": "localhost", **({"authorization": password} if password else {})}
        scope = {
            "type": "http",
            "method": "POST" if body else "GET",
            "path": path,
            "client": (client, 1234),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
        await self._middleware(scope, receive, send)
        (status,) = statuses
        return status


async def test_password_guessing_is_slowed_down() -> None:
    door = AccessHarness()
    assert [await door.ask(WRONG) for _ in range(60)] == [401] * 60
    assert door.delays[:7] == [0.0] * 5 + [0.1, 0.2]
    assert sorted(door.delays) == door.delays
    assert door.delays[-1] == 5.0
    assert await door.ask(GOOD["authorization"]) == 200
    await door.ask(WRONG)
    assert door.delays[-1] == 0.0


async def test_only_a_valid_password_of_the_same_address_ends_the_delays() -> None:
    door = AccessHarness()
    for _ in range(10):
        assert await door.ask(WRONG) == 401
        assert await door.ask(path="/") == 200
        assert await door.ask(path="/web/assets/app.js") == 200
        assert await door.ask(WRONG, path="/") == 200
        assert await door.ask() == 401
        assert await door.ask(GOOD["authorization"], client="192.0.2.8") == 200
    assert door.delays == [0.0] * 5 + [0.1, 0.2, 0.3, 0.4, 0.5]


async def test_the_page_login_and_the_header_share_a_counter_of_attempts() -> None:
    door = AccessHarness()
    for _ in range(4):
        assert await door.ask(WRONG) == 401
        assert await door.ask(path=LOGIN_PATH, body=b'{"password": "guess"}') == 401
    assert door.delays == [0.0] * 5 + [0.1, 0.2, 0.3]
    assert await door.ask(path=LOGIN_PATH, body=b'{"password": "s3cret"}') == 200
    await door.ask(WRONG)
    assert door.delays[-1] == 0.0


async def test_passwords_are_not_tried_in_parallel() -> None:
    door = AccessHarness()
    door.go.clear()
    async with asyncio.TaskGroup() as tasks:
        guesses = [tasks.create_task(door.ask(WRONG)) for _ in range(MAX_DELAYED)]
        await door.all_delayed.wait()
        # The right one is not tried either: otherwise its answer would stand out among many guesses.
        assert await door.ask(GOOD["authorization"]) == 429
        assert await door.ask(path=LOGIN_PATH, body=b'{"password": "s3cret"}') == 429
        assert await door.ask(path="/") == 200
        assert await door.ask(GOOD["authorization"], client="192.0.2.8") == 200
        door.go.set()
    assert [guess.result() for guess in guesses] == [401] * MAX_DELAYED
    assert await door.ask(GOOD["authorization"]) == 200


class OneToken:
    """Knows one token, the administrator's, until it is revoked."""

    def __init__(self) -> None:
        self.is_revoked = False

    async def find_caller(self, secret: str) -> Caller | None:
        return ADMINISTRATOR if secret == "weft_t" and not self.is_revoked else None

    async def find_share_owner(self, share: str) -> Caller | None:
        raise AssertionError(f"nobody asks for the share {share}")


async def test_a_streamed_response_ends_when_its_token_is_revoked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "TOKEN_SECONDS", 0.0)
    tokens, sent = OneToken(), list[dict[str, Any]]()

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        tokens.is_revoked = True
        await send({"type": "http.response.body", "body": b"two", "more_body": True})

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def get_app(caller: Caller) -> Any:
        raise AssertionError(f"{caller} is no principal")

    middleware = AccessMiddleware(
        stream,
        DOOR,
        Tickets(),
        logins=PageLogins("s3cret", lambda: 0),
        attempts=PasswordAttempts(),
        on_request=lambda _: None,
        route_paths={},
        callers=Callers(tokens, get_app),
    )
    headers = [(b"host", b"localhost"), (b"authorization", b"Bearer weft_t")]
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/event",
        "client": ("192.0.2.7", 1),
        "headers": headers,
    }
    await middleware(scope, receive, send)
    assert [(each["body"], each["more_body"]) for each in sent[1:]] == [(b"one", True), (b"", False)]


class AwayStore:
    """Knows nothing while the store does not answer."""

    async def find_caller(self, secret: str) -> Caller | None:
        raise StoreError(f"/home/ada/weft.db is locked, so {len(secret)} characters mean nothing")

    async def find_share_owner(self, share: str) -> Caller | None:
        raise StoreError(f"/home/ada/weft.db is locked: {share}")

    async def is_ended(self, login: str) -> bool:
        raise StoreError(f"/home/ada/weft.db is locked: {login}")

    async def end(self, login: str, expires: int) -> None:
        raise StoreError(f"/home/ada/weft.db is locked: {login} {expires}")


@pytest.mark.parametrize("kind", ["token", "cookie", "share", "socket", "login"])
async def test_an_answer_says_that_the_store_is_away_and_not_why(kind: str) -> None:
    logins, sent = PageLogins("s3cret", lambda: 0, AwayStore()), list[dict[str, Any]]()
    login = LoginEndpoint(logins, Tickets(), PasswordAttempts())

    async def get_app(caller: Caller) -> Any:
        raise AssertionError(f"nobody knows {caller}")

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect" if kind == "socket" else "http.request", "body": b""}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    middleware = AccessMiddleware(
        login,
        AccessPolicy(password="s3cret", open_to_all="/s/"),
        Tickets(),
        logins=logins,
        attempts=PasswordAttempts(),
        on_request=lambda _: None,
        route_paths={},
        callers=Callers(AwayStore(), get_app),
    )
    cookie, bearer = ("cookie", f"weft={logins.make()}"), ("authorization", "Bearer weft_t")
    paths = {"share": "/s/0123", "login": LOGIN_PATH}
    headers = [
        ("host", "localhost"),
        *({"cookie": [cookie], "login": [cookie], "share": []}.get(kind, [bearer])),
    ]
    scope: Scope = {
        "type": "websocket" if kind == "socket" else "http",
        "method": "GET",
        "path": paths.get(kind, "/session"),
        "query_string": b"",
        "client": ("192.0.2.7", 1),
        "headers": [(name.encode(), value.encode()) for name, value in headers],
        "extensions": {"websocket.http.response": {}},
    }
    await middleware(scope, receive, send)
    assert [each["status"] for each in sent if "status" in each] == [507]
    assert b"weft.db" not in sent[-1]["body"]


def make_project(worktree: str, *sandboxes: str) -> Project:
    time = ProjectTime(created=1, updated=1)
    return Project(id=ProjectID("p"), worktree=worktree, sandboxes=sandboxes, time=time)


@pytest.mark.parametrize("directory", ["/home/ada/loom", "/home/ada/loom/src", "/trees/mend"])
def test_directories_in_a_checkout_of_a_project_are_served(directory: str) -> None:
    check_served(directory, [make_project("/"), make_project("/home/ada/loom", "/trees/mend")])


@pytest.mark.parametrize("directory", ["/home/ada", "/home/ada/loom-private", "/trees/mend2/src", "/"])
def test_directories_outside_every_checkout_are_not_served(directory: str) -> None:
    with pytest.raises(DirectoryNotServedError):
        check_served(directory, [make_project("/"), make_project("/home/ada/loom", "/trees/mend")])

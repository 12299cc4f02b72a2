"""Logins of browsers to the page: by a link or the password, kept in a cookie, and protected against other sites."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from given.http_server import ProjectServer, connect, serve_project
from weft.local.tokens import LOGINS_KEY, EndedLoginStore
from weft.server.access import AccessPolicy
from weft.server.page_login import LOGIN_SECONDS, PageLogins
from weft.store.url import open_store
from weft.testing.clock import HandClock

PASSWORD = "open sesame"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ProjectServer]:
    with serve_project(tmp_path, access=AccessPolicy(password=PASSWORD)) as server:
        server.client.auth = ("opencode", PASSWORD)
        yield server


@pytest.fixture
def browser(server: ProjectServer) -> Iterator[httpx2.Client]:
    """A client that keeps cookies and knows no password."""
    with connect(server.url, timeout=60) as client:
        yield client


def log_in(server: ProjectServer, browser: httpx2.Client) -> str:
    """Log in by a link, and return the token of the page."""
    ticket = server.post("/weft/login-link")["ticket"]
    answer = browser.post("/web/login", json={"ticket": ticket})
    assert answer.status_code == 200, answer.text
    token: str = answer.json()["token"]
    return token


def test_the_page_itself_needs_no_password_and_contains_no_data(browser: httpx2.Client) -> None:
    for path in ("/", "/web/session/ses_1", "/web/assets/app.js"):
        assert browser.get(path).status_code == 200
    assert browser.get("/web/assets/none.js").status_code == 404
    assert browser.get("/web/assets/../files.py").status_code in (200, 404)
    assert browser.get("/web/login").json() == {"needed": True, "token": ""}
    assert browser.get("/session").status_code == 401


def test_the_page_runs_nothing_but_its_own_files(browser: httpx2.Client) -> None:
    page = browser.get("/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "<script>" not in page.text
    assert "<style" not in page.text


def test_an_unchanged_file_is_not_sent_again(browser: httpx2.Client) -> None:
    first = browser.get("/web/assets/style.css")
    again = browser.get("/web/assets/style.css", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    plain = browser.get("/web/assets/style.css", headers={"accept-encoding": "identity"})
    assert (first.headers.get("content-encoding"), plain.headers.get("content-encoding")) == ("gzip", None)
    assert plain.text == first.text


def test_a_file_of_this_version_is_cached_and_one_of_another_is_revalidated(browser: httpx2.Client) -> None:
    (style,) = re.findall(r'"(/web/assets/[0-9a-f]+/style.css)"', browser.get("/").text)
    assert "immutable" in browser.get(style).headers["cache-control"]
    other = browser.get(f"/web/assets/{'0' * 16}/style.css")
    assert (other.status_code, other.headers["cache-control"]) == (200, "no-cache")
    assert browser.get("/").headers["cache-control"] == "no-cache"


def test_a_link_logs_a_browser_in_once(server: ProjectServer, browser: httpx2.Client) -> None:
    ticket = server.post("/weft/login-link")["ticket"]
    answer = browser.post("/web/login", json={"ticket": ticket})
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "Secure" not in cookie
    assert browser.get("/session").status_code == 200
    with httpx2.Client(base_url=server.url) as other:
        again = other.post("/web/login", json={"ticket": ticket})
        assert (again.status_code, "set-cookie" in again.headers) == (401, False)
        assert "weft web" in again.json()["data"]["message"]


def test_the_password_logs_a_browser_in_and_a_wrong_one_does_not(browser: httpx2.Client) -> None:
    assert browser.post("/web/login", json={"password": "wrong"}).status_code == 401
    assert browser.get("/session").status_code == 401
    assert browser.post("/web/login", json={"password": PASSWORD}).json()["token"]
    assert browser.get("/session").status_code == 200


@pytest.mark.parametrize("body", [b"", b"[]", b'{"ticket": 1}', b'{"other": ""}', b"\xff"])
def test_an_invalid_login_is_refused(browser: httpx2.Client, body: bytes) -> None:
    assert browser.post("/web/login", content=body).status_code == 400


def test_a_change_needs_the_token_of_the_page(server: ProjectServer, browser: httpx2.Client) -> None:
    token = log_in(server, browser)
    assert browser.post("/session", json={}).status_code == 403
    assert browser.post("/session", json={}, headers={"x-weft-page": "0" * 64}).status_code == 403
    assert browser.post("/session", json={}, headers={"x-weft-page": token}).status_code == 200


def test_a_request_from_another_site_is_refused_even_with_the_cookie(
    server: ProjectServer, browser: httpx2.Client
) -> None:
    headers = {"x-weft-page": log_in(server, browser)}
    for foreign in ({"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}):
        assert browser.get("/session", headers=foreign).status_code == 403
        assert browser.post("/session", json={}, headers=headers | foreign).status_code == 403
    for origin in ("https://evil.test", "null", "http://127.0.0.1:1"):
        assert browser.post("/session", json={}, headers=headers | {"origin": origin}).status_code == 403
    own = {"origin": server.url, "sec-fetch-site": "same-origin"}
    assert browser.post("/session", json={}, headers=headers | own).status_code == 200


def test_logging_out_also_ends_copies_of_the_cookie(server: ProjectServer, browser: httpx2.Client) -> None:
    token = log_in(server, browser)
    copy = dict(browser.cookies)
    assert browser.delete("/web/login").status_code == 403
    assert browser.delete("/web/login", headers={"x-weft-page": token}).status_code == 200
    assert browser.get("/session").status_code == 401
    with httpx2.Client(base_url=server.url, cookies=copy) as thief:
        assert thief.get("/session").status_code == 401


def test_logging_out_ends_the_streams_of_other_tabs_at_once(
    server: ProjectServer, browser: httpx2.Client
) -> None:
    token = log_in(server, browser)
    with (
        httpx2.Client(base_url=server.url, cookies=dict(browser.cookies), timeout=60) as tab,
        tab.stream("GET", "/weft/view/event") as stream,
    ):
        lines = stream.iter_lines()
        assert "server.connected" in next(line for line in lines if line.startswith("data: "))
        server.post("/session", {"title": "Before"})
        assert "Before" in next(line for line in lines if line.startswith("data: "))
        assert browser.delete("/web/login", headers={"x-weft-page": token}).status_code == 200
        server.post("/session", {"title": "After"})
        assert not any("After" in line for line in lines)


def test_a_login_survives_a_restart_and_ends_with_its_password(
    server: ProjectServer, browser: httpx2.Client, tmp_path: Path
) -> None:
    log_in(server, browser)
    ((_, value),) = dict(browser.cookies).items()

    def is_known(place: Path, password: str) -> bool:
        with serve_project(place, access=AccessPolicy(password=password)) as later:
            cookies = {f"weft-{later.url.rpartition(':')[2]}": value}
            return httpx2.get(f"{later.url}/session", cookies=cookies).status_code == 200

    assert is_known(tmp_path / "same", PASSWORD)
    assert not is_known(tmp_path / "other", "another")


async def test_a_logout_survives_a_restart_and_reaches_other_nodes(tmp_path: Path) -> None:
    clock, url = HandClock(), f"file:{tmp_path / 'storage'}"

    def to_headers(cookie: str) -> dict[str, str]:
        return {"cookie": f"weft={cookie}"}

    async with open_store(url) as store, open_store(url) as other:
        logins, node = (
            PageLogins(PASSWORD, clock.now, EndedLoginStore(each, clock.now)) for each in (store, other)
        )
        cookie, kept = logins.make(), logins.make()
        login = await node.find(to_headers(cookie))
        assert login is not None
        await logins.revoke(login)
        assert await node.find(to_headers(cookie)) is None
        assert login not in str(await store.find_value(LOGINS_KEY))
    async with open_store(url) as store:
        later = PageLogins(PASSWORD, clock.now, EndedLoginStore(store, clock.now))
        assert await later.find(to_headers(cookie)) is None
        assert await later.find(to_headers(kept)) is not None
        clock.turn((LOGIN_SECONDS + 1) * 1000)
        other_login = await later.find(to_headers(later.make()))
        assert other_login is not None
        await later.revoke(other_login)
        assert len(await store.find_value(LOGINS_KEY)) == 1  # what has expired is forgotten


async def test_a_login_that_has_expired_stays_invalid() -> None:
    clock = HandClock()
    logins = PageLogins(PASSWORD, clock.now)
    login = await logins.find({"cookie": f"weft={logins.make()}"})
    assert login is not None
    assert await logins.is_valid(login)
    clock.turn((LOGIN_SECONDS + 1) * 1000)
    assert [await logins.is_valid(login) for _ in range(2)] == [False, False]


@pytest.mark.parametrize("other", ['state={"a": 1}', "my cookie=1", "a,b=c", "", "weft-1=x", "naïve=é"])
async def test_cookies_of_other_programs_do_not_hide_ours(other: str) -> None:
    logins = PageLogins(PASSWORD, HandClock().now)
    for header in (f"{other}; weft={logins.make()}", f"weft={logins.make()}; {other}"):
        assert await logins.find({"cookie": header}) is not None, header


def test_a_changed_cookie_is_refused(server: ProjectServer, browser: httpx2.Client) -> None:
    log_in(server, browser)
    ((name, value),) = dict(browser.cookies).items()
    login, _, signature = value.rpartition(".")
    later = login.rpartition(".")[0] + ".99999999999"
    for forged in (f"{later}.{signature}", f"{login}.{'0' * 64}", login, "", "a.b.c", f"{login}.é"):
        answer = httpx2.get(
            f"{server.url}/session", headers={b"cookie": f"{name}={forged}".encode("latin-1")}
        )
        assert answer.status_code == 401, forged


def test_without_a_password_nobody_logs_in(tmp_path: Path) -> None:
    with serve_project(tmp_path, access=AccessPolicy(password=None)) as server:
        own = {"origin": server.url, "sec-fetch-site": "same-origin"}
        assert server.get("/web/login") == {"needed": False, "token": ""}
        assert server.client.post("/session", json={}, headers=own).status_code == 200
        assert (
            server.client.post("/session", json={}, headers={"origin": "https://evil.test"}).status_code
            == 403
        )

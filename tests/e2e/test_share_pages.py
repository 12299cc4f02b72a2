"""Pages of shared sessions in a real browser: nothing in them executes, and an open page follows its session."""

import io
import json
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from given.browser import Browser, Tab, open_browser
from given.hostile_session import PLACES, attempts, hostile_session, make_breakouts
from given.http_server import ProjectServer, prompt, serve_project
from given.session_exports import export
from given.web import Answer, Web, open_web
from weft.cli.main import run_command
from weft.model.share import SharedSession
from weft.model.wire import encode
from weft.page.document import LIVE_POLICY, render_page
from weft.provider.scripted import Say, UseTool
from weft.server.access import AccessPolicy
from weft.share.items import to_items

PAGES = "http://localhost"
GONE = "document.body.textContent.includes('there is no such page')"
SCRIPT = [[Say(text=f"answer {number}")] for number in range(1, 20)]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with open_browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture
def other_server() -> Iterator[Web]:
    with open_web({}) as web:
        yield web


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ProjectServer]:
    with serve_project(
        tmp_path, SCRIPT, access=AccessPolicy(password="pw", open_to_all="/s/"), pages=PAGES
    ) as server:
        server.client.auth = ("opencode", "pw")
        yield server


@pytest.fixture
def session(server: ProjectServer) -> str:
    id: str = server.post("/session", {"title": "warp"})["id"]
    server.post(f"/session/{id}/message", prompt("first words"))
    return id


@pytest.fixture
def page(server: ProjectServer, session: str) -> str:
    """The URL of the page of a shared session."""
    url: str = server.post(f"/session/{session}/share")["share"]["url"]
    return url.replace(PAGES, server.url)


def has_text(words: str) -> str:
    return f"document.querySelector('main').textContent.includes({json.dumps(words)})"


# --- content never acts ---


def get_executed(tab: Tab, elsewhere: Web) -> dict[str, Any]:
    """Return what executed in a page."""
    tab.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
    tab.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
    foreign = (
        "script:not(body>script), iframe, object, embed, svg, link, form, input, base, body style, body meta"
    )
    found = {
        "ran": tab.evaluate("typeof ran") != "undefined",
        "asked": [asked.path for asked in elsewhere.requests],
        "elements": tab.evaluate(f"[...document.querySelectorAll('{foreign}')].map(each => each.outerHTML)"),
        "handlers": tab.evaluate(
            "[...document.querySelectorAll('*')].flatMap(each => each.getAttributeNames())"
            ".filter(name => name.startsWith('on') || name == 'style')"
        ),
        "links": tab.evaluate(
            "[...document.links].map(each => each.protocol).filter(it => !/^https?:$/.test(it))"
        ),
        "complaints": tab.problems(),
    }
    return {what: it for what, it in found.items() if it}


def have_arrived(elsewhere: Web, names: Iterable[str]) -> bool:
    return {f"/{name}" for name in names} <= {asked.path for asked in elsewhere.requests}


def test_a_session_full_of_markup_is_shown_as_text(
    browser: Browser, server: ProjectServer, other_server: Web
) -> None:
    bad, hostile = make_breakouts(other_server.url), hostile_session(other_server.url)
    ticket = server.post("/api/share", {"sessionID": hostile.info.id})
    url = f"{server.url}/s/{ticket['id']}"

    def sync(data: list[Any]) -> None:
        server.post(f"/api/share/{ticket['id']}/sync", {"secret": ticket["secret"], "data": data})

    data = json.loads(encode(list(to_items(hostile).values())))
    sync(data)
    with browser.open(url) as tab:
        assert get_executed(tab, other_server) == {}
        assert (tab.evaluate("document.title"), tab.evaluate("location.href")) == (bad, url)
        assert tab.text().count(bad) == PLACES
        # The script of the page inserts changes: that is a second way in.
        first = next(item for item in data if item["type"] == "part")
        sync([{**first, "data": {**first["data"], "text": f"and then {bad}"}}])
        tab.wait_for(has_text("and then"))
        assert get_executed(tab, other_server) == {}
        assert tab.text().count(bad) == PLACES
        assert {request.removeprefix(url) for request in tab.requests()} == {"", "/live"}


def test_hostile_markup_runs_without_our_protection(
    browser: Browser, other_server: Web, tmp_path: Path
) -> None:
    tries = dict(attempts(other_server.url))
    refresh = {"refresh": tries.pop("refresh")}  # by itself: it leaves the page before the others can run
    for some in (tries, refresh):
        bare = tmp_path / "bare.html"
        bare.write_text(f"<!doctype html><body>{''.join(some.values())}</body>")
        with browser.open(bare.as_uri()) as tab:
            tab.wait(partial(have_arrived, other_server, some), "not all of them acted")


@pytest.mark.parametrize("kind", ["file", "live"])
def test_the_content_policy_would_stop_markup_in_a_page(
    browser: Browser, other_server: Web, tmp_path: Path, kind: Any
) -> None:
    # No policy prevents a page from redirecting its reader. Only the escaping of markup does.
    planted = "".join(markup for name, markup in attempts(other_server.url).items() if name != "refresh")
    page = render_page(SharedSession(id="x", export=export()), kind=kind).replace(
        b"<main>", b"<main>" + planted.encode()
    )
    file = tmp_path / "page.html"
    file.write_bytes(page)
    headers = (("content-security-policy", LIVE_POLICY),)
    with (
        open_web({"/s/x": Answer(page, kind="text/html", headers=headers)}) as web,
        browser.open(file.as_uri() if kind == "file" else f"{web.url}/s/x") as tab,
    ):
        found = get_executed(tab, other_server)
        assert (found.get("ran"), found.get("asked")) == (None, None)
        stopped = {"script-src-elem", "script-src-attr", "style-src-elem", "style-src-attr", "img-src"}
        assert stopped | {"frame-src", "object-src"} <= set(tab.violations())


# --- a page that is open ---


def test_an_open_page_follows_its_session_and_says_when_it_is_revoked(
    browser: Browser, server: ProjectServer, session: str, page: str
) -> None:
    with browser.open(page) as tab:
        tab.evaluate("here = 1")
        assert tab.evaluate(has_text("answer 1"))
        server.post(f"/session/{session}/message", prompt("second words"))
        tab.wait_for(has_text("answer 2"))
        server.send("PATCH", f"/session/{session}", {"title": "weft & <b>warp</b>"})
        tab.wait_for("document.title == 'weft & <b>warp</b>'")
        assert tab.evaluate("document.querySelector('h1').textContent") == "weft & <b>warp</b>"
        assert (tab.evaluate("here"), tab.problems()) == (1, [])
        server.send("DELETE", f"/session/{session}/share")
        tab.wait_for(GONE)
        assert "words" not in tab.text()
        tab.go(page)
        documents = [
            it["response"] for it in tab.events("Network.responseReceived") if it["type"] == "Document"
        ]
        assert [answer["status"] for answer in documents] == [200, 404, 404]
        assert {request.removeprefix(page) for request in tab.requests()} == {"", "/live"}


def test_events_before_the_page_began_to_listen_are_shown(
    browser: Browser, server: ProjectServer, session: str, page: str
) -> None:
    with browser.open("about:blank") as tab, tab.pause_requests("*/live") as held:
        tab.go(page)
        stream = held()
        server.post(f"/session/{session}/message", prompt("second words"))
        tab.call("Fetch.continueRequest", requestId=stream)
        tab.wait_for(has_text("answer 2"))


def test_a_page_of_a_revoked_share_says_so(
    browser: Browser, server: ProjectServer, session: str, page: str
) -> None:
    with browser.open("about:blank") as tab, tab.pause_requests("*/live") as held:
        tab.go(page)
        stream = held()
        server.send("DELETE", f"/session/{session}/share")
        tab.call("Fetch.continueRequest", requestId=stream)
        tab.wait_for(GONE)


def test_a_rate_limited_page_stays_and_asks_again(
    browser: Browser, server: ProjectServer, session: str, page: str
) -> None:
    with browser.open("about:blank") as tab:
        tab.speed_up_timers()
        tab.go(page)
        tab.evaluate("here = 1")
        tab.wait_for(
            "performance.getEntriesByName(location.href, 'resource').length"
        )  # its first request has been answered
        with tab.pause_requests(page) as held:
            server.post(f"/session/{session}/message", prompt("second words"))
            for _ in range(3):  # more often than one prompt causes events
                tab.call("Fetch.fulfillRequest", requestId=held(), responseCode=429)
            tab.call("Fetch.continueRequest", requestId=held())
            tab.wait_for(has_text("answer 2"))
        assert tab.evaluate("here") == 1


def test_a_page_that_may_not_listen_yet_retries(
    browser: Browser, server: ProjectServer, session: str, page: str
) -> None:
    with browser.open("about:blank") as tab, tab.pause_requests("*/live") as held:
        tab.speed_up_timers()
        tab.go(page)
        tab.call("Fetch.fulfillRequest", requestId=held(), responseCode=429)
        tab.call("Fetch.continueRequest", requestId=held())
        server.post(f"/session/{session}/message", prompt("second words"))
        tab.wait_for(has_text("answer 2"))


def test_unfolded_parts_stay_unfolded_while_the_session_continues(browser: Browser, tmp_path: Path) -> None:
    script = [[UseTool(tool="read", input={"filePath": "hello.txt"})], *SCRIPT]
    with serve_project(tmp_path, script, pages=PAGES) as server:
        session = server.post("/session", {"title": "warp"})["id"]
        server.post(f"/session/{session}/message", prompt("read it"))
        url = server.post(f"/session/{session}/share")["share"]["url"].replace(PAGES, server.url)
        with browser.open(url) as tab:
            tab.evaluate("document.querySelector('summary').click()")
            tab.evaluate("document.querySelector('summary').focus()")
            server.post(f"/session/{session}/message", prompt("second words"))
            tab.wait_for(has_text("answer 2"))
            assert tab.evaluate("document.querySelector('details').open")
            assert tab.evaluate("document.activeElement === document.querySelector('summary')")
            assert "hello there" in tab.evaluate("document.querySelector('details').innerText")


# --- a page in a file ---


def test_a_page_in_a_file_shows_the_conversation_and_requests_nothing(
    browser: Browser, tmp_path: Path, other_server: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    hostile, file = tmp_path / "hostile.json", tmp_path / "page.html"
    export = hostile_session(other_server.url)
    hostile.write_bytes(encode(export))
    where = ["--dir", str(tmp_path), "--store", f"file:{tmp_path / 'storage'}"]
    assert run_command(["import", str(hostile), *where]) == 0
    assert run_command(["share", export.info.id, "--to", str(file), *where]) == 0
    with browser.open(file.as_uri()) as tab:
        assert get_executed(tab, other_server) == {}
        assert tab.evaluate("document.title") == make_breakouts(other_server.url)
        assert tab.text().count(make_breakouts(other_server.url)) == PLACES
        assert tab.evaluate("document.scripts.length") == 0
        assert tab.requests() == [file.as_uri()]

"""What holds on every screen of the page: keys, phones, tabs, lost connections, accessibility, and no hostile content."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from given.hostile_session import make_breakouts
from given.http_server import ProjectServer
from given.page import (
    SCRIPTS,
    Visit,
    WordsProvider,
    ask,
    clean_environment,
    open_page_browser,
    serve_page,
    visit,
)
from given.serve_process import start_serve
from weft.provider.scripted import Say, Think, UseTool

ELSEWHERE = "http://127.0.0.1:9"
BAD = make_breakouts(ELSEWHERE)
MARKDOWN = (
    f"[one](javascript:ran=1) ![two]({ELSEWHERE}/p.png) <{ELSEWHERE}/auto>\n\n# {BAD}\n\n- {BAD}\n\n```html\n{BAD}\n```\n\n"
    f"a | b\n--|--\n{BAD} | x\n\n\x1b[31mred\x1b]0;title\x07 \u202egnp.exe\u202c a\u200bb"
)
HOSTILE = {
    **SCRIPTS,
    "hostile": [
        [Think(text=BAD), Say(text=MARKDOWN), UseTool(tool="read", input={"filePath": "hostile.html"})],
        [UseTool(tool="bash", input={"command": f"cat hostile.html # {BAD}", "description": BAD})],
        [Say(text="That was all.")],
    ],
}
SCREENS = ("/", "/?q=loom", "/?trash=1", "/web/pictures", "/web/trials", "/web/shares", "/web/settings?tab=health",
           "/web/settings?tab=storage", "/web/settings?tab=trust", "/web/settings?tab=providers", "/web/settings?tab=agents",
           "/web/settings?tab=mcp", "/web/settings?tab=permissions")  # fmt: skip
# What a menu of a session opens.
DIALOGS = ("Rename …", "Undo the last prompt …", "Share …", "Try several times …", "Compare …", "Find what broke a check …", "Replay …")  # fmt: skip
AXE = """async () => (await axe.run(document, {resultTypes: ['violations']})).violations
  .filter((each) => ['serious', 'critical'].includes(each.impact))
  .map((each) => each.id + ': ' + each.nodes.map((node) => node.html.slice(0, 120) + ' ' + node.any.map((check) => check.message).join(' ').slice(0, 160)).join(' | '))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_page_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProjectServer]:
    with serve_page(tmp_path_factory.mktemp("page"), provider=WordsProvider(HOSTILE)) as server:
        (server.project / "hostile.html").write_text(BAD)
        yield server


@pytest.fixture
def visitor(server: ProjectServer, browser: Browser) -> Iterator[Visit]:
    with visit(server, browser) as visitor:
        yield visitor


def test_everything_is_reachable_by_keyboard(visitor: Visit) -> None:
    page = visitor.log_in()
    visitor.make_session("say prose", title="By keys")
    expect(page.get_by_role("link", name="By keys")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="By keys")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("article", name="Answer")).to_be_visible()
    expect(page.get_by_text("Thought for")).to_be_visible()
    page.keyboard.press("k")
    page.keyboard.press("o")
    expect(page.locator("details.reasoning[open]")).to_be_visible()
    page.keyboard.press("i")
    page.keyboard.type("use the shell")
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="The agent asks for permission")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("y")
    expect(page.get_by_label("Conversation").get_by_text("The shell has spoken.")).to_be_visible()
    page.keyboard.press("c")
    expect(page.get_by_role("heading", name="What this session changed")).to_be_visible()
    page.keyboard.press("c")
    page.keyboard.press("u")
    expect(page.get_by_role("dialog", name="Undo to before this prompt")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("s")
    expect(page.get_by_role("heading", name="Sessions", exact=True)).to_be_visible()


def test_on_a_phone_enter_is_a_new_line_and_nothing_scrolls_sideways(
    server: ProjectServer, browser: Browser
) -> None:
    phone = {
        "viewport": {"width": 360, "height": 700},
        "has_touch": True,
        "is_mobile": True,
        "device_scale_factor": 2,
    }
    with visit(server, browser, **phone) as visitor:
        page = visitor.log_in()
        id = visitor.make_session("say prose", title="On a phone " + "long" * 30)
        visitor.server.post(
            f"/weft/session/{id}/submit", {"parts": [{"type": "text", "text": "use the shell"}]}
        )
        wide = "document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth"
        other = visitor.make_session("edit it", title="Another one")
        own = (f"/web/session/{id}", f"/web/session/{id}?panel=changes", compare(id, other), blame(server))
        for path in (*SCREENS, *own):
            page.goto(server.url + path)
            page.locator("h1").wait_for()
            settle(page)
            assert page.evaluate(wide) == 0, path
        page.goto(f"{server.url}/web/session/{id}")
        page.get_by_role("button", name="Allow once").tap()
        prompt = page.get_by_label("Your prompt")
        prompt.press_sequentially("one")
        prompt.press("Enter")
        prompt.press_sequentially("two")
        expect(prompt).to_have_value("one\ntwo")
        page.get_by_role("button", name=re.compile("Send|Queue")).tap()
        expect(page.get_by_role("article", name="Prompt").last).to_contain_text("two")


STREAMS = """window.streams = [];
window.EventSource = class extends EventSource {
  constructor(url) { super(url); streams.push(this); this.count(); }
  close() { super.close(); this.count(); }
  count() { document.documentElement.dataset.streams = streams.filter((each) => each.readyState !== EventSource.CLOSED).length; }
};"""
HIDE = """(hidden) => {
  Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});
  document.dispatchEvent(new Event('visibilitychange'));
}"""


def test_two_tabs_show_the_same_state(visitor: Visit) -> None:
    visitor.context.add_init_script(STREAMS)
    one = visitor.log_in()
    id = visitor.open_session(one)
    two = visitor.context.new_page()
    two.goto(f"{visitor.server.url}/web/session/{id}")
    two.get_by_label("Your prompt").wait_for()
    ask(one, "use the shell")
    for tab in (one, two):
        expect(tab.get_by_role("button", name="Allow once")).to_be_visible()
    two.get_by_role("button", name="Allow once").click()
    for tab in (one, two):
        expect(tab.get_by_label("Conversation").get_by_text("The shell has spoken.")).to_be_visible()
        expect(tab.get_by_role("button", name="Allow once")).to_have_count(0)
    # A browser has six connections for all tabs: one that nobody looks at gives its own to the next, and catches up later.
    one.evaluate(HIDE, True)
    three = visitor.context.new_page()
    three.goto(visitor.server.url)
    expect(one.locator("html")).to_have_attribute("data-streams", "0")
    ask(two, "say prose")
    expect(two.get_by_role("heading", name="What I found")).to_be_visible()
    expect(one.get_by_role("heading", name="What I found")).to_have_count(0)
    one.evaluate(HIDE, False)
    expect(one.get_by_role("heading", name="What I found")).to_be_visible()


def test_without_a_login_nothing_is_shown_and_logging_out_ends_it(
    server: ProjectServer, browser: Browser
) -> None:
    with visit(server, browser) as visitor:
        page = visitor.context.new_page()
        page.goto(f"{server.url}/web/session/ses_1")
        page.get_by_label("Password").fill("wrong")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_contain_text("not the password")
        visitor.problems.clear()  # the browser reports the refusal, as it should
        page.get_by_label("Password").fill("a password for the page")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("heading", name="This session cannot be shown")).to_be_visible()
        other = visitor.context.new_page()
        other.goto(server.url)
        expect(other.get_by_role("heading", name="Sessions", exact=True)).to_be_visible()
        page.get_by_role("button", name="Log out").click()
        for tab in (page, other):
            expect(tab.get_by_label("Password")).to_be_visible()
        page.get_by_label("Password").fill("a password for the page")
        page.get_by_role("button", name="Log in").click()
        expect(other.get_by_role("heading", name="Sessions", exact=True)).to_be_visible()
        visitor.problems.clear()


@pytest.mark.slow
def test_the_page_reconnects_after_the_server_was_killed(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    project = tmp_path / "project"
    project.mkdir()
    context = browser.new_context()
    context.set_default_timeout(30_000)
    page = context.new_page()
    with clean_environment(tmp_path / "home"):
        with start_serve(project, "--auth", "none") as server:
            url, port = server.url, server.url.rpartition(":")[2]
            page.goto(url)
            page.get_by_role("button", name="New session").click()
            page.get_by_role("button", name="Start").click()
            page.get_by_label("Your prompt").wait_for()
            os.kill(server.process.pid, signal.SIGKILL)
            expect(page.get_by_text("The connection to the server was lost")).to_be_visible(timeout=30_000)
            server.process.wait()
        with start_serve(project, "--auth", "none", "--port", port):
            expect(page.get_by_text("The connection to the server was lost")).to_have_count(0, timeout=30_000)
            page.get_by_label("Your prompt").fill("!echo here again")
            page.get_by_role("button", name="Send").click()
            expect(page.locator("details.call")).to_be_visible(timeout=30_000)
    context.close()


def axe() -> str:
    path = os.environ.get("WEFT_AXE", "")
    if not path or not Path(path).is_file():
        missing = "there is no axe-core: `make test` installs it if there is npm, and sets WEFT_AXE"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(missing)
    return Path(path).read_text()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_screen_has_a_serious_accessibility_fault(
    server: ProjectServer, browser: Browser, theme: str
) -> None:
    script = axe()
    with visit(server, browser, color_scheme=theme, bypass_csp=True) as visitor:
        page = visitor.log_in()
        (server.project / "hello.txt").write_text("hello there\n")
        id = visitor.make_session(
            "say prose", "edit it", "make todos", "use a child", "break it", title="Accessible"
        )
        waiting = visitor.make_session(title="Waiting")
        visitor.server.post(
            f"/weft/session/{waiting}/submit", {"parts": [{"type": "text", "text": "use the shell"}]}
        )
        found: dict[str, list[str]] = {}
        for path in (
            *SCREENS,
            f"/web/session/{id}",
            f"/web/session/{id}?panel=changes&style=split",
            f"/web/session/{waiting}",
            f"/web/pictures?session={id}",
            compare(id, waiting),
            blame(server),
        ):
            page.goto(visitor.server.url + path)
            page.locator("h1").wait_for()
            settle(page)
            if path == f"/web/session/{id}":
                page.locator("details.call").first.wait_for()
                page.keyboard.press("o")
                page.locator(".details").first.wait_for()
            page.evaluate(script)
            found[path] = page.evaluate(AXE)
        page.keyboard.press("?")
        page.get_by_role("dialog").wait_for()
        found["keys"] = page.evaluate(AXE)
        page.goto(f"{visitor.server.url}/web/session/{id}")
        page.evaluate(script)
        for name in DIALOGS:
            page.get_by_label("What to do with this session").click()
            page.get_by_role("button", name=name, exact=True).click()
            page.get_by_role("dialog").wait_for()
            settle(page)
            found[name] = page.evaluate(AXE)
            page.keyboard.press("Escape")
            page.get_by_role("dialog").wait_for(state="detached")
        visitor.server.post(f"/session/{waiting}/abort")
        assert {path: faults for path, faults in found.items() if faults} == {}


def compare(*sessions: str) -> str:
    return f"/web/trials?session={','.join(sessions)}"


def blame(server: ProjectServer) -> str:
    return f"/web/blame?path=hello.txt&directory={server.project}"


def settle(page: Page) -> None:
    """Wait until nothing is being loaded."""
    expect(page.get_by_text("Loading …")).to_have_count(0)


def test_hostile_content_is_shown_as_text(visitor: Visit) -> None:
    page = visitor.log_in()
    visitor.open_session(page, title=BAD)
    ask(page, "hostile " + BAD)
    request = page.get_by_role("region", name="The agent asks for permission")
    expect(request).to_contain_text("cat hostile.html")
    request.get_by_role("button", name="Allow once").click()
    expect(page.get_by_label("Conversation").get_by_text("That was all.")).to_be_visible()
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("o")
    expect(page.locator(".details")).to_have_count(3)
    settle(page)
    shown = page.locator("main").inner_text()
    assert page.evaluate("window.ran") is None
    assert page.locator("main :is(script, iframe, object, style, link, svg, input[autofocus])").count() == 0
    assert "<script>" in shown
    assert "\u202e" not in shown
    assert "\x1b" not in shown
    links = [str(each.get_attribute("href")) for each in page.locator(".prose a").all()]
    assert [link for link in links if not link.startswith(ELSEWHERE)] == []
    page.goto(visitor.server.url)
    expect(page.locator("a.row-title").filter(has_text="<script>")).to_be_visible()


def test_a_session_is_saved_as_one_file_and_printed_completely(visitor: Visit, tmp_path: Path) -> None:
    page = visitor.log_in()
    visitor.open_session(page, "say prose", title="To keep")
    page.get_by_label("What to do with this session").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as one HTML file").click()
    download.value.save_as(tmp_path / "kept.html")
    saved = (tmp_path / "kept.html").read_text()
    assert "What I found" in saved
    assert "Content-Security-Policy" in saved
    page.emulate_media(media="print")
    expect(page.get_by_label("Your prompt")).to_be_hidden()
    expect(page.get_by_role("heading", name="What I found")).to_be_visible()

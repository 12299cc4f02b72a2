"""The list of sessions and the other screens of the page, in a real browser."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from given.http_server import ProjectServer
from given.mcp_servers.remote import OAuthProvider, app_with_login, serve_app
from given.page import Visit, ask, open_page_browser, serve_page, visit


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_page_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProjectServer]:
    with serve_page(tmp_path_factory.mktemp("page")) as server:
        yield server


@pytest.fixture
def visitor(server: ProjectServer, browser: Browser) -> Iterator[Visit]:
    with visit(server, browser) as visitor:
        yield visitor


@pytest.fixture
def page(visitor: Visit) -> Page:
    return visitor.log_in()


def row(page: Page, title: str) -> Page:
    found: Page = page.locator("li.row").filter(has=page.get_by_role("link", name=title))  # type: ignore[assignment]
    return found


def choose(page: Page, title: str, action: str) -> None:
    """Choose an action from the menu of a session."""
    page.get_by_label(f"What to do with {title}").click()
    page.get_by_role("button", name=action, exact=True).click()


def test_sessions_appear_run_and_are_sorted(visitor: Visit, page: Page) -> None:
    first = visitor.make_session("one", title="Warp")
    expect(page.get_by_role("link", name="Warp")).to_be_visible()
    visitor.make_session("two", title="Woof")
    expect(page.locator("a.row-title").first).to_have_text("Woof")
    choose(page, "Warp", "Pin")
    expect(page.locator("a.row-title").first).to_contain_text("Warp")
    choose(page, "Warp", "Rename …")
    page.get_by_label("Title").fill("Warp threads")
    page.get_by_role("button", name="Rename").click()
    choose(page, "Warp threads", "Tags …")
    page.get_by_label("Tags, separated by spaces").fill("loom linen")
    page.get_by_role("button", name="Save").click()
    expect(row(page, "Warp threads").locator(".tag")).to_have_text(["loom", "linen"])
    assert visitor.server.get(f"/session/{first}")["weft"]["tags"] == ["loom", "linen"]
    page.get_by_role("link", name="linen").click()
    expect(page.get_by_role("link", name="Woof")).to_have_count(0)


def test_a_session_is_archived_trashed_and_restored(visitor: Visit, page: Page) -> None:
    visitor.make_session("one", title="Shed")
    choose(page, "Shed", "Archive")
    expect(page.get_by_role("link", name="Shed")).to_have_count(0)
    page.get_by_label("archived").check()
    expect(page.get_by_role("link", name="Shed")).to_be_visible()
    choose(page, "Shed", "Unarchive")
    page.get_by_label("archived").uncheck()
    choose(page, "Shed", "Move to trash")
    expect(page.get_by_role("link", name="Shed")).to_have_count(0)
    page.get_by_label("trash").check()
    page.get_by_role("button", name="Restore").click()
    page.get_by_label("trash").uncheck()
    expect(page.get_by_role("link", name="Shed")).to_be_visible()


def test_a_search_shows_where_the_words_are(visitor: Visit, page: Page) -> None:
    visitor.make_session(
        "where is the heddle?", *(f"prompt {number}" for number in range(25)), title="Looking"
    )
    page.get_by_label("Search all sessions").fill("heddle")
    expect(page.locator("mark")).to_have_text("heddle")
    assert "q=heddle" in page.url
    page.get_by_role("link", name="Looking").click()
    expect(page.get_by_text("where is the heddle?")).to_be_in_viewport()


def test_sessions_are_found_by_their_agent_and_model(visitor: Visit, page: Page) -> None:
    visitor.make_session("use a child", title="Built")
    planned = visitor.make_session(title="Planned")
    visitor.server.post(
        f"/session/{planned}/message", {"agent": "plan", "parts": [{"type": "text", "text": "heddles first"}]}
    )
    page.get_by_label("Agent", exact=True).fill("plan")
    page.get_by_label("Agent", exact=True).press("Enter")
    expect(page.locator("a.row-title")).to_have_text(["Planned"])
    page.reload()
    expect(page.locator("a.row-title")).to_have_text(["Planned"])
    page.get_by_label("Agent", exact=True).fill("general")
    page.get_by_label("Agent", exact=True).press("Enter")
    expect(page.get_by_role("link", name="look around").first).to_be_visible()
    page.get_by_label("Agent", exact=True).fill("")
    page.get_by_label("Model", exact=True).fill("no such model'")
    page.get_by_label("Model", exact=True).press("Enter")
    expect(page.get_by_role("heading", name="No session matches")).to_be_visible()
    page.get_by_label("Model", exact=True).fill("scripted/")
    page.get_by_label("Model", exact=True).press("Enter")
    expect(page.get_by_role("link", name="Planned")).to_be_visible()
    page.get_by_label("Agent", exact=True).fill("plan")
    page.get_by_label("Search all sessions").fill("heddles")
    expect(page.locator(".hits a.row-title")).to_have_text(["Planned"])


def test_a_session_is_exported_forked_and_its_family_is_shown(
    visitor: Visit, page: Page, tmp_path: Path
) -> None:
    visitor.make_session("use a child", title="Family")
    page.reload()
    page.get_by_label("What to do with Family").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Export", exact=True).click()
    download.value.save_as(tmp_path / "export.json")
    assert json.loads((tmp_path / "export.json").read_text())["info"]["title"] == "Family"
    page.get_by_label("Sessions below Family").click()
    expect(page.locator(".below a.row-title")).to_have_count(1)
    choose(page, "Family", "Fork")
    expect(page.get_by_role("article", name="Prompt")).to_be_visible()


def test_a_new_session_is_started(visitor: Visit, page: Page) -> None:
    page.get_by_role("button", name="New session").click()
    expect(page.get_by_label("Directory")).to_have_value(str(visitor.server.project))
    page.get_by_role("button", name="Start").click()
    ask(page, "hello")
    expect(page.get_by_label("Conversation").get_by_text("Here is a short answer.")).to_be_visible()


def test_running_and_waiting_sessions_are_marked_in_the_list(visitor: Visit, page: Page) -> None:
    id = visitor.make_session(title="Busy")
    visitor.server.post(f"/weft/session/{id}/submit", {"parts": [{"type": "text", "text": "use the shell"}]})
    expect(row(page, "Busy").get_by_text("waiting for you")).to_be_visible()
    page.get_by_label("Status").select_option("waiting")
    expect(page.locator("a.row-title")).to_have_text(["Busy"])
    page.get_by_role("link", name="An agent needs you").click()
    page.get_by_role("button", name="Allow once").click()
    expect(page.get_by_label("Conversation").get_by_text("The shell has spoken.")).to_be_visible()


def test_charts_show_cost_and_where_time_went(visitor: Visit, page: Page) -> None:
    (visitor.server.project / "hello.txt").write_text("hello there\n")
    id = visitor.make_session("edit it", title="Drawn")
    page.goto(f"{visitor.server.url}/web/pictures")
    expect(page.get_by_role("heading", name="Cost by day")).to_be_visible()
    expect(page.locator(".tile").filter(has_text="Cost")).to_contain_text("$")
    expect(page.locator(".bars").filter(has_text="edit")).to_contain_text("call")
    expect(page.locator(".heat")).to_contain_text("hello.txt")
    page.get_by_role("button", name="Count the cost and tokens of their steps").click()
    expect(page.locator(".bars").filter(has_text="edit")).to_contain_text("$")
    page.get_by_role("button", name="all time").click()
    expect(page.get_by_role("button", name="all time")).to_have_attribute("aria-pressed", "true")
    visitor.server.post(f"/weft/session/{id}/submit", {"parts": [{"type": "text", "text": "use the shell"}]})
    page.get_by_role("link", name="An agent needs you").click()
    page.get_by_role("button", name="Allow once").click()
    expect(page.get_by_label("Conversation").get_by_text("The shell has spoken.")).to_be_visible()
    page.goto(f"{visitor.server.url}/web/pictures?session={id}")
    expect(page.locator(".timeline .wait")).to_have_count(1)
    expect(page.locator(".curve")).to_be_visible()


def test_a_prompt_is_tried_several_times_and_one_result_is_adopted(visitor: Visit, page: Page) -> None:
    file = visitor.server.project / "hello.txt"
    file.write_text("hello there\n")
    page.goto(f"{visitor.server.url}/web/trials")
    page.get_by_role("button", name="New trials").click()
    page.get_by_label("Prompt").fill("edit it")
    page.get_by_label("Trials of each model").press("ArrowDown")
    page.get_by_label("Check", exact=False).fill("grep loom hello.txt")
    page.get_by_role("button", name="Start").click()
    table = page.get_by_role("group", name="Comparison")
    expect(table.get_by_text("finished")).to_have_count(2, timeout=60_000)
    expect(table.get_by_role("row").last).to_contain_text("nowhere")
    page.get_by_role("button", name="Run a check …").click()
    page.get_by_role("button", name="Run it").click()
    expect(table.get_by_text("passed")).to_have_count(2)
    expect(page.locator("pre.output").first).to_have_text("hello loom")
    page.get_by_role("button", name="Adopt 2 …").click()
    page.get_by_role("button", name="Adopt 1 file").click()
    expect(page.get_by_text("1 file adopted, not committed")).to_be_visible()
    assert file.read_text() == "hello loom\nand weft\n"
    page.get_by_role("button", name="Undo the adoption").click()
    expect(page.get_by_text("1 file adopted")).to_have_count(0)
    assert file.read_text() == "hello there\n"
    page.get_by_role("button", name="Discard …").click()
    page.get_by_role("button", name="Discard 2 worktrees").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("link", name="All trials").click()
    expect(page.locator(".trial-group")).to_contain_text("2 trials")


def test_settings_are_shown_with_their_sources(visitor: Visit, page: Page) -> None:
    page.goto(f"{visitor.server.url}/web/settings")
    expect(page.get_by_text("The server accepts work")).to_be_visible()
    for tab, words in {
        "Providers and models": "Scripted",
        "Agents and commands": "build",
        "MCP servers": "No MCP server is configured",
        "Permissions": "bash",
    }.items():
        page.get_by_role("link", name=tab).click()
        expect(page.locator(".settings")).to_contain_text(words)


def test_health_lists_findings_and_storage_lists_sizes(visitor: Visit, page: Page) -> None:
    visitor.make_session("one", title="Weighed")
    page.goto(f"{visitor.server.url}/web/settings")
    expect(page.get_by_role("heading", name="What the doctor finds")).to_be_visible()
    expect(page.locator(".card").filter(has_text="What the doctor finds")).to_contain_text("Python 3")
    page.get_by_role("link", name="Storage").click()
    expect(page.get_by_role("group", name="By kind")).to_contain_text("messages")
    page.get_by_role("group", name="By session").get_by_role("link", name="Weighed").click()
    expect(page.get_by_role("heading", name="Weighed")).to_be_visible()


def test_a_project_is_trusted_after_its_programs_were_shown(visitor: Visit, page: Page) -> None:
    config = visitor.server.project / "opencode.json"
    formatter = {"loom": {"command": ["./comb", "$FILE"], "extensions": [".x"]}}
    config.write_text(json.dumps({"formatter": formatter, "permission": {"doom_loop": "allow"}}))
    page.goto(f"{visitor.server.url}/web/settings?tab=trust")
    expect(page.get_by_role("group", name="Looser than your settings")).to_contain_text(
        "permission.doom_loop"
    )
    held = page.get_by_role("group", name="What it brings along")
    expect(held).to_contain_text("./comb")
    expect(page.get_by_text("not trusted", exact=True)).to_be_visible()
    page.get_by_role("button", name="Trust this project …").click()
    config.write_text(config.read_text().replace("comb", "claw"))
    page.get_by_role("button", name="Trust it as it is now").click()
    expect(page.get_by_role("alert")).to_contain_text("has changed since it was shown")
    expect(held).to_contain_text("./claw")
    page.get_by_role("button", name="Trust this project …").click()
    page.get_by_role("button", name="Trust it as it is now").click()
    expect(page.get_by_text("You trusted it as it is now.")).to_be_visible()
    page.get_by_role("button", name="Stop trusting it").click()
    expect(page.get_by_text("You have not been asked about it.")).to_be_visible()
    config.unlink()
    # The refused request was shown, not hidden.
    visitor.problems = [each for each in visitor.problems if "409" not in each]


def find_free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_a_browser_logs_in_to_an_mcp_server_and_returns(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with serve_app(app_with_login(OAuthProvider())) as far:
        config = {
            "mcp": {"far": {"type": "remote", "url": f"{far}/mcp"}},
            "experimental": {"weft": {"mcp": {"callbackPort": find_free_port()}}},
        }
        place = tmp_path_factory.mktemp("far")
        with serve_page(place, config=config) as server, visit(server, browser) as visitor:
            page = visitor.log_in()
            page.goto(f"{server.url}/web/settings?tab=mcp")
            expect(page.get_by_text("needs a login")).to_be_visible()
            page.get_by_role("button", name="Log in").click()
            with visitor.context.expect_page() as opened:
                page.get_by_role("link", name="Open the login page").click()
            expect(opened.value.locator("body")).not_to_be_empty()
            expect(page.get_by_text("connected", exact=True)).to_be_visible()
            expect(page.get_by_role("dialog")).to_have_count(0)
            page.get_by_role("button", name="Forget the login").click()
            expect(page.get_by_text("needs a login")).to_be_visible()
            # The login page is elsewhere, as it should be.
            visitor.requests.clear()
            visitor.problems = [each for each in visitor.problems if "favicon.ico" not in each]

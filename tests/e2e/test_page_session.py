"""A session on the page, in a real browser: it is followed live, answered, steered, undone and shared."""

import base64
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from given.http_server import ProjectServer
from given.page import Visit, ask, make_png, open_page_browser, serve_page, visit

DROP = """([name, type, content]) => {
  const bytes = Uint8Array.from(atob(content), (each) => each.charCodeAt(0));
  const data = new DataTransfer();
  data.items.add(new File([bytes], name, {type}));
  return data;
}"""
# Firefox makes no clipboard event with files for a script.
PASTE = """([data]) => {
  const event = Object.defineProperty(new Event('paste', {bubbles: true, cancelable: true}), 'clipboardData', {value: data});
  document.getElementById('prompt').dispatchEvent(event);
}"""
LISTEN = """() => {
  const live = document.querySelector('[aria-live]');
  window.heard = [];
  new MutationObserver(() => (document.body.dataset.heard = heard.push(live.textContent) && heard.join())).observe(live, {childList: true});
}"""


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


def test_an_answer_is_shown_while_it_is_written(visitor: Visit, page: Page) -> None:
    visitor.open_session(page)
    page.evaluate(LISTEN)
    ask(page, "say prose")
    answer = page.get_by_role("article", name="Answer")
    expect(answer.get_by_role("heading", name="What I found")).to_be_visible()
    expect(answer.get_by_role("listitem").filter(has_text="the first waits")).to_be_visible()
    expect(answer.locator("code .k").first).to_have_text("def")
    expect(answer.get_by_role("cell", name="12")).to_be_visible()
    expect(answer.locator(".tail")).to_have_count(0)
    # A screen reader is told each block once, when it has ended.
    expect(page.locator("body")).to_have_attribute("data-heard", re.compile("second0"))
    heard = "".join(page.evaluate("heard"))
    assert [heard.count(words) for words in ("What I found", "two shuttles", "def meet")] == [1, 1, 1]
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    page.get_by_text("Thought for").click()
    expect(answer.get_by_text("I should look at both shuttles first.").last).to_be_visible()


def test_text_arrives_before_the_answer_ends_and_stop_ends_it(visitor: Visit, page: Page) -> None:
    visitor.open_session(page)
    ask(page, "speak slowly")
    expect(page.get_by_role("article", name="Answer")).to_contain_text("word word")
    expect(page.locator(".activity")).to_contain_text("Working")
    page.get_by_label("Your prompt").fill("and then this")
    expect(page.get_by_role("button", name="Queue")).to_be_enabled()
    page.get_by_role("button", name="Queue").click()
    expect(page.get_by_role("article", name="Prompt").last.get_by_text("queued")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("alert").first).to_contain_text("Stopped.")
    expect(page.locator(".activity")).to_have_count(0)


def test_a_failure_is_explained(visitor: Visit, page: Page) -> None:
    visitor.open_session(page)
    ask(page, "break it")
    expect(page.get_by_role("alert")).to_contain_text("the model is out of thread")


def test_a_call_is_one_line_and_opens_on_demand(visitor: Visit, page: Page) -> None:
    (visitor.server.project / "hello.txt").write_text("hello there\n")
    visitor.open_session(page, "edit it")
    call = page.locator("details.call").filter(has_text="edit")
    expect(call.locator("summary")).to_contain_text("hello.txt")
    expect(call.get_by_role("img", name="done")).to_be_visible()
    expect(page.locator("table.diff")).to_have_count(0)
    call.locator("summary").click()
    expect(call.locator("tr.del .line")).to_have_text("hello there")
    expect(call.locator("tr.add .line").first).to_have_text("hello loom")
    call.locator("summary").click()
    expect(page.locator("table.diff")).to_have_count(0)


def test_changes_are_shown_unified_and_side_by_side_for_a_prompt_and_the_session(
    visitor: Visit, page: Page
) -> None:
    (visitor.server.project / "hello.txt").write_text("hello there\n")
    visitor.open_session(page, "edit it")
    page.get_by_role("link", name="1 file changed").click()
    expect(page.get_by_role("heading", name="What this prompt changed")).to_be_visible()
    expect(page.locator("table.diff.unified tr.add")).to_have_count(2)
    page.get_by_role("button", name="Side by side").click()
    expect(page.locator("table.diff.split td.line.del")).to_have_text("hello there")
    page.get_by_role("button", name="Whole session").click()
    expect(page.get_by_role("heading", name="What this session changed")).to_be_visible()
    page.reload()
    expect(page.locator("table.diff.split td.line.del")).to_have_text("hello there")
    page.get_by_role("button", name="Close").click()
    expect(page.get_by_role("article", name="Prompt")).to_be_visible()


def test_blame_bisection_and_replay_are_shown(visitor: Visit, page: Page) -> None:
    (visitor.server.project / "hello.txt").write_text("hello there\n")
    id = visitor.open_session(page, "edit it", title="Explained")
    page.get_by_label("What to do with this session").click()
    page.get_by_role("button", name="Find what broke a check …").click()
    page.get_by_role("textbox", name="Check").fill("grep there hello.txt")
    page.get_by_role("button", name="Find it").click()
    found = page.get_by_role("dialog").get_by_role("status")
    expect(found.get_by_role("heading", name="Step 2 broke it: edit hello.txt")).to_be_visible()
    expect(found.locator(".plain-diff .del").last).to_contain_text("-hello there")
    page.keyboard.press("Escape")
    page.get_by_label("What to do with this session").click()
    page.get_by_role("button", name="Replay …").click()
    page.get_by_role("button", name="Replay", exact=True).click()
    expect(page.get_by_role("heading", name="The same: all 3 steps as recorded")).to_be_visible()
    page.keyboard.press("Escape")
    page.goto(f"{visitor.server.url}/web/session/{id}?panel=changes")
    page.get_by_role("link", name="Who wrote it").click()
    lines = page.get_by_role("group", name="Lines")
    expect(lines.get_by_role("row").filter(has_text="hello loom")).to_contain_text("Explained step 2")
    expect(page.get_by_role("group", name="Changes by sessions")).to_contain_text("Explained")


def test_a_permission_shows_what_would_be_done_and_is_granted_once(visitor: Visit, page: Page) -> None:
    visitor.open_session(page)
    ask(page, "use the shell")
    request = page.get_by_role("region", name="The agent asks for permission")
    expect(request).to_contain_text("echo warp and weft")
    expect(page.locator("[aria-live]")).to_contain_text("asks for permission: bash echo warp and weft")
    expect(request.get_by_role("button", name="Allow once")).to_be_in_viewport()
    request.get_by_role("button", name="Allow once").click()
    expect(page.get_by_label("Conversation").get_by_text("The shell has spoken.")).to_be_visible()
    expect(request).to_have_count(0)
    page.locator("details.call summary").click()
    expect(page.locator("pre.output")).to_contain_text("warp and weft")


def test_a_permission_shows_its_patterns_beside_the_command_and_why_it_is_asked(
    visitor: Visit, page: Page
) -> None:
    id = visitor.open_session(page)
    ask(page, "look outside")
    request = page.get_by_role("region", name="The agent asks for permission")
    expect(request.get_by_role("heading")).to_have_text("Allow external_directory?")
    expect(request.locator(".patterns")).to_contain_text("looms")
    expect(request.locator("pre.output")).to_have_text("ls ../looms")
    expect(request).to_contain_text("asked because: it is outside of the project")
    # Other tests count the requests of this server.
    visitor.server.post(f"/session/{id}/abort")
    expect(request).to_have_count(0)


def test_a_permission_requested_while_the_page_loads_is_shown(visitor: Visit, page: Page) -> None:
    id = visitor.make_session(title="Racing")

    def answer_late(route: Route) -> None:
        """Let the server look first, and deliver what it saw after the agent has asked."""
        seen = route.fetch()
        if not visitor.server.get("/permission"):
            visitor.server.post(
                f"/weft/session/{id}/submit", {"parts": [{"type": "text", "text": "use the shell"}]}
            )
            expect(page).to_have_title(re.compile(r"^\(1\)"))
        route.fulfill(response=seen)

    page.route("**/weft/view/status", answer_late, times=1)
    page.goto(f"{visitor.server.url}/web/session/{id}")
    expect(page.get_by_role("region", name="The agent asks for permission")).to_be_visible()
    page.get_by_role("button", name="Allow once").click()
    expect(page.get_by_label("Conversation").get_by_text("The shell has spoken.")).to_be_visible()


def test_a_permission_is_refused_with_a_reason(visitor: Visit, page: Page) -> None:
    id = visitor.open_session(page)
    ask(page, "use the shell")
    page.get_by_role("button", name="No …").click()
    page.get_by_label("What should the agent do instead?").fill("weave by hand")
    page.get_by_role("button", name="Refuse").click()
    expect(page.locator(".call.error")).to_be_visible()
    calls = [
        part
        for each in visitor.server.get(f"/session/{id}/message")
        for part in each["parts"]
        if part["type"] == "tool"
    ]
    assert "weave by hand" in calls[0]["state"]["error"]


def test_a_permission_is_granted_for_the_session_and_revoked_in_the_settings(
    visitor: Visit, page: Page
) -> None:
    visitor.open_session(page)
    ask(page, "use the shell")
    page.get_by_label("How far this permission reaches").select_option("project")
    page.get_by_role("button", name="Always allow").click()
    expect(page.get_by_label("Conversation").get_by_text("The shell has spoken.")).to_be_visible()
    assert [each["scope"] for each in visitor.server.get("/weft/grant")] == ["project"]
    page.goto(f"{visitor.server.url}/web/settings?tab=permissions")
    page.get_by_role("button", name="Revoke").click()
    expect(page.get_by_text("Nothing.")).to_be_visible()
    assert visitor.server.get("/weft/grant") == []


def test_a_question_is_answered(visitor: Visit, page: Page) -> None:
    id = visitor.open_session(page)
    ask(page, "ask a question")
    page.get_by_label("silk").check()
    page.get_by_role("button", name="Answer").click()
    expect(page.get_by_label("Conversation").get_by_text("Then so be it.")).to_be_visible()
    calls = [
        part
        for each in visitor.server.get(f"/session/{id}/message")
        for part in each["parts"]
        if part["type"] == "tool"
    ]
    assert "silk" in calls[0]["state"]["output"]


def test_todos_are_shown_beside_the_conversation(visitor: Visit, page: Page) -> None:
    visitor.open_session(page)
    ask(page, "make todos")
    beside = page.get_by_role("complementary", name="About this session")
    expect(beside.get_by_role("listitem")).to_have_text(
        ["☑ string the loom (completed)", "▸ throw the shuttle (in progress)", "☐ beat the weft (pending)"]
    )


def test_a_child_session_is_shown_inline(visitor: Visit, page: Page) -> None:
    visitor.open_session(page, "use a child")
    page.locator(".child summary").click()  # not the heading beside the conversation
    expect(page.locator(".child").get_by_role("heading", name="What I found")).to_be_visible()
    page.get_by_role("link", name="open it").click()
    expect(page.get_by_role("link", name="parent session")).to_be_visible()


def test_an_earlier_request_of_a_child_is_answered_in_its_parent(visitor: Visit, page: Page) -> None:
    id = visitor.make_session(title="Sends a child")
    visitor.server.post(f"/weft/session/{id}/submit", {"parts": [{"type": "text", "text": "run an errand"}]})
    expect(page.get_by_role("link", name="An agent needs you")).to_be_visible()
    page.goto(f"{visitor.server.url}/web/session/{id}")
    page.get_by_role("button", name="Allow once").click()
    expect(page.get_by_label("Conversation").get_by_text("The errand is run.")).to_be_visible()


def test_undo_shows_the_fate_of_each_file_and_redo_restores_them(visitor: Visit, page: Page) -> None:
    file = visitor.server.project / "hello.txt"
    file.write_text("hello there\n")
    visitor.open_session(page, "edit it")
    assert file.read_text() == "hello loom\nand weft\n"
    page.get_by_role("article", name="Prompt").get_by_label("What to do with this prompt").click()
    page.get_by_role("button", name="Undo to before this").click()
    expect(page.get_by_role("dialog")).to_contain_text("is restored")
    page.get_by_role("button", name="Undo and change 1 file").click()
    expect(page.get_by_text("What is greyed out was undone")).to_be_visible()
    assert file.read_text() == "hello there\n"
    page.get_by_role("button", name="Redo").click()
    page.get_by_role("dialog").get_by_role("button", name="Redo and change 1 file").click()
    expect(page.get_by_text("What is greyed out was undone")).to_have_count(0)
    assert file.read_text() == "hello loom\nand weft\n"


def test_a_session_is_forked_before_a_message(visitor: Visit, page: Page) -> None:
    id = visitor.open_session(page, "one", "two")
    expect(page.get_by_role("article", name="Prompt")).to_have_count(2)
    page.get_by_role("article", name="Prompt").last.get_by_label("What to do with this prompt").click()
    page.get_by_role("button", name="Fork before this").click()
    page.wait_for_url(lambda url: id not in url)
    expect(page.get_by_role("article", name="Prompt")).to_have_count(1)
    expect(page.get_by_role("heading", name="Forked from")).to_be_visible()
    page.goto(f"{visitor.server.url}/web/session/{id}")
    page.get_by_role("article", name="Answer").first.get_by_label("What to do with this answer").click()
    page.get_by_role("button", name="Fork after this").click()
    page.wait_for_url(lambda url: id not in url)
    expect(page.get_by_role("article", name="Answer")).to_have_count(1)


def test_a_session_is_compacted(visitor: Visit, page: Page) -> None:
    visitor.open_session(page, "one", "two")
    page.get_by_label("What to do with this session").click()
    page.get_by_role("button", name="Compact").click()
    expect(page.get_by_text("Earlier messages were summarised here")).to_be_visible()


def test_a_session_is_shared_after_a_preview_of_the_redactions(visitor: Visit, page: Page) -> None:
    visitor.open_session(
        page, "my key is sk-ant-api03-aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xY", title="To be shared"
    )
    page.get_by_label("What to do with this session").click()
    page.get_by_role("button", name="Share …").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading", name="What is redacted")).to_be_visible()
    dialog.get_by_role("button", name="Share", exact=True).click()
    expect(dialog.get_by_role("link")).to_contain_text("/s/")
    page.goto(f"{visitor.server.url}/web/shares")
    expect(page.get_by_role("link", name="To be shared")).to_be_visible()
    page.get_by_role("button", name="Revoke").click()
    expect(page.get_by_text("Nothing is shared")).to_be_visible()


def test_files_and_commands_are_completed(visitor: Visit, page: Page) -> None:
    id = visitor.open_session(page)
    prompt = page.get_by_label("Your prompt")
    prompt.press_sequentially("look at @hel")
    expect(page.get_by_role("option", name="hello.txt")).to_be_visible()
    prompt.press("Enter")
    expect(prompt).to_have_value("look at @hello.txt ")
    prompt.press("Enter")
    expect(page.get_by_label("Conversation").get_by_text("Here is a short answer.")).to_be_visible()
    parts = visitor.server.get(f"/session/{id}/message")[0]["parts"]
    assert any("hello" in part.get("text", "") and part.get("synthetic") for part in parts), parts
    prompt.press_sequentially("/ren")
    expect(page.get_by_role("option", name="/rename")).to_be_visible()
    prompt.press("Tab")
    prompt.press("Enter")
    page.get_by_label("Title").fill("A better name")
    page.get_by_role("button", name="Rename").click()
    expect(page.get_by_role("heading", name="A better name")).to_be_visible()


def test_a_late_answer_for_fewer_letters_replaces_no_newer_offer(visitor: Visit, page: Page) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    visitor.open_session(page)
    page.route(re.compile(r"/find/file\?query=&"), hold)
    prompt = page.get_by_label("Your prompt")
    offers = page.get_by_role("listbox", name="Completions").get_by_role("option")
    prompt.press_sequentially("look at @hel")
    expect(offers).to_have_text(["hello.txt"])
    with page.expect_response(re.compile(r"/find/file\?query=&")):
        held[0].continue_()
    page.evaluate("() => new Promise(requestAnimationFrame)")  # what the answer changed is drawn now
    expect(offers).to_have_text(["hello.txt"])
    prompt.press("Enter")
    expect(prompt).to_have_value("look at @hello.txt ")
    expect(offers).to_have_count(0)


def test_images_can_be_dropped_pasted_and_are_shown(visitor: Visit, page: Page) -> None:
    visitor.open_session(page)
    content = base64.b64encode(make_png()).decode()
    data = page.evaluate_handle(DROP, ["loom.png", "image/png", content])
    page.dispatch_event("form.prompt", "drop", {"dataTransfer": data})
    expect(page.get_by_label("Remove loom.png")).to_be_visible()
    page.evaluate(PASTE, [page.evaluate_handle(DROP, ["second.png", "image/png", content])])
    expect(page.get_by_label("Remove second.png")).to_be_visible()
    page.get_by_label("Remove second.png").click()
    notes = page.evaluate_handle(DROP, ["notes.txt", "text/plain", base64.b64encode(b"warp").decode()])
    page.dispatch_event("form.prompt", "drop", {"dataTransfer": notes})
    expect(page.get_by_label("Remove notes.txt")).to_be_visible()
    ask(page, "what is on it?")
    notes_link = page.get_by_role("link", name="notes.txt")
    expect(notes_link).to_have_attribute("download", "notes.txt")
    assert notes_link.evaluate("each => fetch(each.href).then((found) => found.text())") == "warp"
    picture = page.get_by_role("img", name="loom.png")
    expect(picture).to_be_visible()
    assert picture.evaluate("each => each.decode().then(() => each.naturalWidth)") == 24


def test_agent_and_model_are_chosen(visitor: Visit, page: Page) -> None:
    id = visitor.open_session(page)
    page.get_by_label("Agent").select_option("plan")
    page.get_by_label("Model").select_option("scripted/test")
    ask(page, "think about it")
    expect(page.get_by_label("Conversation").get_by_text("Here is a short answer.")).to_be_visible()
    info = visitor.server.get(f"/session/{id}/message")[0]["info"]
    assert (info["agent"], info["model"]) == ("plan", {"providerID": "scripted", "modelID": "test"})


def test_context_and_cost_are_shown(visitor: Visit, page: Page) -> None:
    visitor.open_session(page, "say prose")
    facts = page.locator(".facts")
    expect(facts).to_contain_text("Cost")
    facts.get_by_role("button").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("with the last answer")
    for part in ("System prompt", "Tools", "Prompts", "Answers"):
        expect(dialog.get_by_role("rowheader", name=part)).to_be_visible()
    expect(dialog.get_by_role("img")).to_have_attribute("aria-label", re.compile("Tools: [0-9]+ %"))


def test_a_message_is_copied_as_it_was_written(visitor: Visit, page: Page) -> None:
    visitor.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visitor.open_session(page, "say prose")
    page.get_by_label("What to do with this answer").click()
    page.get_by_role("listitem").get_by_role("button", name="Copy", exact=True).first.click()
    expect(page.get_by_role("status").filter(has_text="Copied")).to_be_attached()
    assert str(page.evaluate("navigator.clipboard.readText()")).startswith("## What I found")


def test_old_messages_are_loaded_on_demand(visitor: Visit, page: Page) -> None:
    id = visitor.make_session(*(f"prompt {number}" for number in range(25)))
    page.goto(f"{visitor.server.url}/web/session/{id}")
    expect(page.get_by_text("prompt 24", exact=True)).to_be_in_viewport()
    expect(page.get_by_text("prompt 0", exact=True)).to_have_count(0)
    page.mouse.wheel(0, -100_000)
    expect(page.get_by_text("prompt 0", exact=True)).to_be_attached()
    page.reload()
    expect(page.get_by_text("prompt 24", exact=True)).to_be_in_viewport()
    page.evaluate(
        "window.print = () => (document.body.dataset.printed = document.querySelectorAll('.message').length)"
    )
    page.get_by_label("What to do with this session").click()
    page.get_by_role("button", name="Print").click()
    expect(page.locator("body")).to_have_attribute("data-printed", "50")

"""What our page shows of messages: closed parts are small, opened ones complete, and growing text arrives in blocks."""

from typing import Any

from weft.model.failure import unknown_failure
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import AssistantMessage, AssistantTime, MessageWithParts
from weft.model.part import (
    CallTime,
    CompletedState,
    ErrorState,
    FilePart,
    ReasoningPart,
    Span,
    StepStartPart,
    TextPart,
    ToolPart,
)
from weft.page.code import compare_texts, parse_diff, render_diff
from weft.page.view import (
    BlockCache,
    GrowingView,
    PartGrowth,
    PartView,
    render_details,
    to_message_view,
    to_part_view,
)

IDS: dict[str, Any] = {"session_id": SessionID("ses_1"), "message_id": MessageID("msg_1")}
DIFF = "--- a\n+++ b\n@@ -1,2 +1,2 @@\n same\n-old <b>\n+new\n"


def make_call(**state: Any) -> ToolPart:
    times = CallTime(start=1000, end=3000)
    done = CompletedState(
        **{"input": {}, "output": "out", "title": "a file", "metadata": {}, "time": times} | state
    )
    return ToolPart(id=PartID("prt_1"), **IDS, call_id="c", tool="edit", state=done)


def test_a_text_is_rendered_once_for_all_listeners() -> None:
    cache = BlockCache()
    first = cache.render(PartID("prt_1"), "*warp*")
    assert first == ("<p><em>warp</em></p>",)
    assert cache.render(PartID("prt_1"), "*warp*") is first
    assert cache.render(PartID("prt_1"), "*weft*") == ("<p><em>weft</em></p>",)


def test_unused_entries_leave_the_cache() -> None:
    cache = BlockCache(size=2)
    first = cache.render(PartID("prt_1"), "a")
    for text in ("b", "a", "c"):
        cache.render(PartID("prt_1"), text)
    assert cache.render(PartID("prt_1"), "a") is first


def test_a_closed_call_is_one_line_without_its_output() -> None:
    view = to_part_view(make_call(metadata={"filediff": {"additions": 2, "deletions": 1}}), BlockCache())
    assert view == PartView(
        id=PartID("prt_1"),
        type="tool",
        tool="edit",
        title="a file",
        status="completed",
        started=1000,
        ended=3000,
        additions=2,
        deletions=1,
    )


def test_a_failed_call_shows_its_reason_on_its_line() -> None:
    state = ErrorState(input={}, error="no such file\nand more", time=CallTime(start=1, end=2))
    view = to_part_view(
        ToolPart(id=PartID("prt_1"), **IDS, call_id="c", tool="read", state=state), BlockCache()
    )
    assert view is not None
    assert (view.status, view.error) == ("error", "no such file")


def test_an_opened_call_shows_its_change_as_a_table() -> None:
    call = make_call(metadata={"diff": DIFF}, input={"filePath": "a", "oldString": "old"})
    html = render_details(call, BlockCache())
    assert '<td class="line">old &lt;b&gt;</td>' in html
    assert "oldString" not in html
    assert "filePath" in html
    assert 'class="diff split"' in render_details(call, BlockCache(), "split")


def test_reasoning_is_closed_when_it_has_ended_and_open_before() -> None:
    part = ReasoningPart(
        id=PartID("prt_1"), **IDS, text="**Look** first\n\nthen act", time=Span(start=1, end=2)
    )
    closed = to_part_view(part, BlockCache())
    assert closed is not None
    assert (closed.title, closed.blocks) == ("Look** first", ())
    open_part = ReasoningPart(id=PartID("prt_1"), **IDS, text="one\n\ntwo\n", time=Span(start=1))
    view = to_part_view(open_part, BlockCache())
    assert view is not None
    assert (view.open, view.blocks, view.tail) == (True, ("<p>one</p>",), "<p>two</p>")


def test_files_that_a_call_returned_are_shown_or_can_be_saved() -> None:
    def make_file(id: str, mime: str) -> FilePart:
        return FilePart(id=PartID(id), **IDS, mime=mime, filename='"a>', url=f"data:{mime};base64,AAAA")

    files = (make_file("prt_2", "image/png"), make_file("prt/3", "text/html"))
    shown = render_details(make_call(attachments=files), BlockCache())
    address = "/weft/session/ses_1/message/msg_1/part"
    name = "&quot;a&gt;"
    assert f'<img src="{address}/prt_2/file" alt="{name}" loading="lazy">' in shown
    assert f'<a href="{address}/prt%2F3/file" download="{name}">{name}</a>' in shown


def test_only_embedded_images_are_shown() -> None:
    def is_picture(mime: str, url: str) -> bool:
        view = to_part_view(FilePart(id=PartID("prt_1"), **IDS, mime=mime, url=url), BlockCache())
        return view is not None and view.picture

    assert is_picture("image/png", "data:image/png;base64,AAAA")
    assert not is_picture("image/png", "https://e.test/a.png")
    assert not is_picture("image/svg+xml", "data:image/svg+xml,<svg/>")


def test_a_failed_message_states_the_reason() -> None:
    info = AssistantMessage(
        id=MessageID("msg_1"),
        session_id=SessionID("ses_1"),
        time=AssistantTime(created=1),
        error=unknown_failure("out of thread"),
    )
    parts = (StepStartPart(id=PartID("prt_0"), **IDS), TextPart(id=PartID("prt_1"), **IDS, text="a"))
    view = to_message_view(MessageWithParts(info=info, parts=parts), BlockCache())
    assert view.failure == "out of thread"
    assert [part.blocks for part in view.parts] == [("<p>a</p>",)]


def test_a_growing_text_is_sent_as_blocks_that_follow_the_sent_ones() -> None:
    growing = GrowingView(TextPart(id=PartID("prt_1"), **IDS, text="one\n\ntwo\n", time=Span(start=1)))
    growing.grow("\nthree", 9)
    assert growing.take() == PartGrowth(
        **IDS, part_id=PartID("prt_1"), at=1, blocks=(), tail="<p>two</p><p>three</p>"
    )
    growing.grow("\nthree\n", 9)  # told twice: only the end is new
    assert growing.take() == PartGrowth(
        **IDS, part_id=PartID("prt_1"), at=1, blocks=("<p>two</p>",), tail="<p>three</p>"
    )


def test_a_diff_with_an_absurd_line_number_is_not_read() -> None:
    assert parse_diff(f"@@ -{'9' * 5000} +1 @@\n-a") == []


def test_a_diff_omits_unchanged_lines() -> None:
    before = "".join(f"line {number}\n" for number in range(20))
    rows = compare_texts(before, before.replace("line 10", "LINE 10"))
    assert [(row.kind, row.text) for row in rows if row.kind != "same"] == [
        ("skip", "7"),
        ("del", "line 10"),
        ("add", "LINE 10"),
        ("skip", "6"),
    ]
    assert "7 unchanged lines" in render_diff(rows)
    assert render_diff(compare_texts("a\n", "a\n")) == '<p class="about">No text changed.</p>'
    assert [(row.kind, row.old, row.new) for row in parse_diff(DIFF)] == [
        ("same", 1, 1),
        ("del", 2, None),
        ("add", None, 2),
    ]

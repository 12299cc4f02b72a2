"""What a terminal shows of a session: what has settled, each item once, and what is open."""

import unicodedata
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from given.conversation import SESSION, assistant_message, ids, text, tool_part, user_message
from weft.model.event import (
    Event,
    MessageUpdated,
    PartGrew,
    PartUpdated,
    PermissionAsked,
    PermissionReplied,
    QuestionAsked,
    SessionCreated,
    SessionFailed,
    SessionIdled,
    SessionUpdated,
    SessionWarned,
    StatusChanged,
    TodoUpdated,
)
from weft.model.failure import aborted_failure, unknown_failure
from weft.model.ids import MessageID, PartID, PermissionID, QuestionID, SessionID
from weft.model.message import AssistantMessage, AssistantTime
from weft.model.part import (
    CacheTokens,
    CallTime,
    CompletedState,
    ErrorState,
    PatchPart,
    ReasoningPart,
    RunningState,
    Span,
    StepFinishPart,
    Tokens,
    ToolPart,
)
from weft.model.permission import CallRef, PermissionRequest, QuestionRequest
from weft.model.session import (
    Busy,
    Retry,
    SessionInfo,
    SessionTime,
    Todo,
    WeftSessionData,
    with_weft_data,
)
from weft.model.spending import Ledger, Spent
from weft.tui.dialog import render_permission
from weft.tui.markdown import MarkdownBlock
from weft.tui.render import LiveContext, RenderOptions, render_item, render_live, render_plain, render_status
from weft.tui.text import to_plain_text
from weft.tui.view import (
    AnswerItem,
    CallItem,
    EndItem,
    Item,
    LinesItem,
    NoticeItem,
    PromptItem,
    ReasoningItem,
    RunningCall,
    SessionView,
    TableItem,
)

PROMPT, ANSWER = user_message("U1", 1), assistant_message("A1", 2, "U1")
STEP = StepFinishPart(
    **ids("A1", 9),
    reason="stop",
    cost=Decimal("0.5"),
    tokens=Tokens(input=1000, output=20, cache=CacheTokens(read=3000)),
)
REQUEST = PermissionRequest(
    id=PermissionID("per_1"),
    session_id=SESSION,
    permission="bash",
    patterns=("ls",),
    metadata={"why": ["rm is not allowed"]},
    always=(),
)


def start() -> SessionView:
    view = SessionView(SESSION)
    for event in (
        StatusChanged(session_id=SESSION, status=Busy()),
        MessageUpdated(info=PROMPT.info),
        PartUpdated(part=PROMPT.parts[0]),
        MessageUpdated(info=ANSWER.info),
    ):
        view.feed(event)
    return view


def growth(delta: str, offset: int) -> PartGrew:
    part = text("A1", "")
    return PartGrew(
        session_id=SESSION,
        message_id=part.message_id,
        part_id=part.id,
        field="text",
        delta=delta,
        offset=offset,
    )


def block(words: str, *, spaced: bool = False) -> MarkdownBlock:
    return MarkdownBlock(kind="text", text=words, spaced=spaced)


def test_a_run_settles_block_by_block_and_ends_with_its_cost() -> None:
    view = start()
    assert view.take_settled() == [PromptItem(text="prompt U1", message=MessageID("U1"), time=1)]
    view.feed(PartUpdated(part=text("A1", "", time=Span(start=1))))
    view.feed(growth("one\n\ntw", 0))
    assert view.take_settled() == []
    view.feed(growth("o\n\nthr", 7))
    assert view.take_settled() == [AnswerItem(block=block("one"), first=True)]
    assert view.tail == block("two\n\nthr", spaced=True)
    view.feed(growth("o\n\nthr", 7))  # twice is once
    view.feed(PartUpdated(part=text("A1", "one\n\ntwo\n\nthree", time=Span(start=1, end=2))))
    view.feed(PartUpdated(part=PatchPart(**ids("A1", 8), hash="h", files=("/p/a.py",))))
    view.feed(PartUpdated(part=STEP))
    view.feed(SessionIdled(session_id=SESSION))
    assert view.take_settled() == [
        AnswerItem(block=block("two", spaced=True)),
        AnswerItem(block=block("three", spaced=True)),
        EndItem(
            spent=Spent(cost=Decimal("0.5"), input=1000, output=20, cache_read=3000, steps=1),
            files=("/p/a.py",),
        ),
    ]
    assert (view.tail, view.calls, view.is_busy) == (None, [], False)


@given(st.text(alphabet="ab\n#- `", max_size=120), st.lists(st.integers(1, 9), max_size=12))
def test_settled_blocks_do_not_depend_on_how_the_text_arrives(words: str, sizes: list[int]) -> None:
    whole, pieces = start(), start()
    final = text("A1", words, time=Span(start=1, end=2))
    whole.feed(PartUpdated(part=final))
    pieces.feed(PartUpdated(part=text("A1", "", time=Span(start=1))))
    at = 0
    for size in sizes:
        pieces.feed(growth(words[at : at + size], at))
        at = min(at + size, len(words))
    pieces.feed(PartUpdated(part=final))
    assert pieces.take_settled() == whole.take_settled()


def test_a_call_is_open_first_and_settled_once() -> None:
    view = start()
    view.take_settled()
    done = tool_part("A1", 3)
    running = replace(done, state=RunningState(input={"filePath": "a.py"}, time=Span(start=5)))
    view.feed(PartUpdated(part=running))
    assert view.calls == [RunningCall(tool="read", title="a.py", start=5)]
    view.feed(PartUpdated(part=done))
    view.feed(PartUpdated(part=done))
    assert (view.calls, view.take_settled()) == ([], [CallItem(tool="read", title="t", ms=1, output="out")])
    error = ErrorState(input={"filePath": "a.py"}, error="no", time=CallTime(start=1, end=3))
    view.feed(PartUpdated(part=ToolPart(**ids("A1", 4), call_id="c", tool="read", state=error)))
    assert view.take_settled() == [CallItem(tool="read", title="a.py", ms=2, error="no")]


def test_a_command_that_failed_is_marked_with_its_exit_code() -> None:
    view = start()
    view.take_settled()
    done = tool_part("A1", 3)
    assert isinstance(done.state, CompletedState)
    failed = replace(done, tool="bash", state=replace(done.state, metadata={"exit": 3}))
    view.feed(PartUpdated(part=failed))
    (item,) = view.take_settled()
    assert to_plain_text(render_item(item, RenderOptions(width=40))).split("\n")[0] == "✗ Bash    t · exit 3"


def test_the_calls_of_a_child_wait_for_the_end_of_the_text_and_are_counted() -> None:
    view, child = start(), SessionID("ses_child")
    view.take_settled()
    info = SessionInfo(id=child, parent_id=SESSION, time=SessionTime(created=1, updated=1))
    view.feed(SessionCreated(info=info))
    view.feed(PartUpdated(part=text("A1", "a sentence", time=Span(start=1))))
    view.feed(PartUpdated(part=replace(tool_part("B1", 3), session_id=child)))
    view.feed(PartUpdated(part=replace(STEP, session_id=child)))
    assert view.take_settled() == []
    view.feed(PartUpdated(part=text("A1", "a sentence", time=Span(start=1, end=2))))
    assert view.take_settled() == [
        AnswerItem(block=block("a sentence"), first=True),
        CallItem(tool="read", title="t", ms=1, child=True),
    ]
    assert view.status.spent.cost == Decimal("0.5")


def test_a_call_that_ends_while_a_text_is_streamed_follows_the_whole_text() -> None:
    view = start()
    view.take_settled()
    view.feed(PartUpdated(part=text("A1", "a ", time=Span(start=1))))
    view.feed(PartUpdated(part=tool_part("A1", 3)))
    view.feed(growth("sentence", 2))
    assert view.take_settled() == []
    view.feed(PartUpdated(part=text("A1", "a sentence", time=Span(start=1, end=2))))
    assert view.take_settled() == [
        AnswerItem(block=block("a sentence"), first=True),
        CallItem(tool="read", title="t", ms=1, output="out"),
    ]


def test_failures_warnings_retries_reasoning_and_todos_are_shown() -> None:
    view = start()
    view.take_settled()
    thought = ReasoningPart(**ids("A1", 5), text="hm", time=Span(start=1))
    events: tuple[Event, ...] = (
        PartUpdated(part=thought),
        PartUpdated(part=replace(thought, time=Span(start=1, end=1500))),
        SessionWarned(session_id=SESSION, message="most is spent"),
        StatusChanged(session_id=SESSION, status=Retry(attempt=1, message="busy", next=9000)),
        TodoUpdated(session_id=SESSION, todos=(Todo(content="spin", status="in_progress", priority="high"),)),
        SessionFailed(session_id=SESSION, error=unknown_failure("it broke")),
        SessionFailed(session_id=SESSION, error=unknown_failure("it broke")),
    )
    for event in events:
        view.feed(event)
    assert view.take_settled() == [
        ReasoningItem(text="hm", ms=1499),
        NoticeItem(kind="warning", text="most is spent"),
        NoticeItem(kind="retry", text="attempt 1 failed: busy"),
        NoticeItem(kind="error", text="it broke"),
    ]
    live = render_live(view, LiveContext(width=40, height=5, now=8000))
    assert to_plain_text(live) == "☐ 0/1 spin"
    status = to_plain_text([render_status(view, LiveContext(width=80, height=1, now=8000))])
    assert status == " retrying in 1.0s · Esc interrupts · build · p/m "
    view.feed(SessionFailed(session_id=SESSION, error=aborted_failure()))
    assert view.take_settled() == [NoticeItem(kind="note", text="interrupted")]


def test_items_that_wait_for_the_end_of_the_text_are_shown_below_it() -> None:
    view = start()
    view.take_settled()
    view.feed(PartUpdated(part=text("A1", "half a sen", time=Span(start=1))))
    later = user_message("U2", 3)
    view.feed(MessageUpdated(info=later.info))
    view.feed(PartUpdated(part=later.parts[0]))
    view.add(NoticeItem(kind="warning", text="the server does not answer"))
    assert view.take_settled() == []
    live = to_plain_text(render_live(view, LiveContext(width=40, height=9, now=1)))
    assert live == "\nhalf a sen\nsent: prompt U2\nwarning: the server does not answer"


def test_a_summary_does_not_change_the_agent_in_the_status() -> None:
    view = start()
    summary = assistant_message("A2", 3, "U1", summary=True)
    view.feed(MessageUpdated(info=replace(summary.info, agent="compaction")))
    assert view.status.agent == "build"


def test_a_request_is_open_until_somebody_answers_it() -> None:
    view = start()
    view.feed(PermissionAsked(request=REQUEST))
    assert view.requests == [REQUEST]
    view.feed(PermissionReplied(session_id=SESSION, request_id=REQUEST.id, reply="once"))
    assert view.requests == []


def test_the_agent_that_asks_is_that_of_the_answer_with_the_call() -> None:
    view = start()
    view.feed(SessionCreated(info=CHILD))
    answer = replace(ANSWER.info, id=MessageID("A7"), session_id=CHILD.id, agent="explore")
    view.feed(MessageUpdated(info=answer))
    assert [
        view.find_agent(replace(REQUEST, tool=tool))
        for tool in (
            CallRef(message_id=ANSWER.info.id, call_id="call_1"),
            CallRef(message_id=answer.id, call_id="call_2"),
            CallRef(message_id=MessageID("A9"), call_id="call_3"),
            None,
        )
    ] == ["build", "explore", "", ""]


def test_events_of_other_sessions_change_nothing() -> None:
    view = start()
    assert view.feed(SessionIdled(session_id=SessionID("ses_other"))) is False
    assert view.is_busy


def test_the_end_of_a_history_is_shown_and_all_of_it_is_counted() -> None:
    view = SessionView(SESSION)
    history = [
        user_message("U1", 1),
        assistant_message("A1", 2, "U1", text("A1", "one"), STEP),
        user_message("U2", 3),
        assistant_message("A2", 4, "U2", text("A2", "two")),
    ]
    assert view.load(history, shown=2) == 2
    assert view.take_settled() == [
        PromptItem(text="prompt U2", message=MessageID("U2"), time=3),
        AnswerItem(block=block("two"), first=True),
    ]
    assert view.status.spent.cost == Decimal("0.5")


def test_the_failure_of_a_stored_answer_is_shown_after_it() -> None:
    view = SessionView(SESSION)
    history = []
    for id in ("A1", "A2"):
        answer = assistant_message(id, 2, "U1", text(id, f"half of {id}"))
        assert isinstance(answer.info, AssistantMessage)
        failed = replace(answer.info, error=aborted_failure(), time=AssistantTime(created=2, completed=3))
        history.append(replace(answer, info=failed))
    view.load(history, shown=2)
    interrupted = NoticeItem(kind="note", text="interrupted")
    assert view.take_settled() == [
        AnswerItem(block=block("half of A1"), first=True),
        interrupted,
        AnswerItem(block=block("half of A2"), first=True),
        interrupted,
    ]


def test_the_status_counts_what_the_session_recorded_besides_its_steps() -> None:
    view = SessionView(SESSION)
    view.load([user_message("U1", 1), assistant_message("A1", 2, "U1", STEP)], shown=2)
    ledger = Ledger(own=Spent(cost=Decimal("0.6"), input=1100, output=21, steps=1), until=2)
    info = SessionInfo(id=SESSION, time=SessionTime(created=1, updated=1))
    view.feed(SessionUpdated(info=with_weft_data(info, WeftSessionData(spent=ledger))))
    assert view.status.spent.cost == Decimal("0.6")
    view.feed(SessionUpdated(info=info))  # another server records nothing
    assert view.status.spent.cost == Decimal("0.6")


CHILD = SessionInfo(id=SessionID("ses_child"), parent_id=SESSION, time=SessionTime(created=5, updated=5))
CHILD_LEDGER = Ledger(own=Spent(cost=Decimal("0.01")), until=4)


def record(own: str, until: int, **more: Any) -> SessionUpdated:
    """Return the event that a session has recorded this much."""
    info = SessionInfo(id=SESSION, time=SessionTime(created=1, updated=1))
    ledger = Ledger(own=Spent(cost=Decimal(own), **more), until=until)
    return SessionUpdated(info=with_weft_data(info, WeftSessionData(spent=ledger)))


def test_the_end_of_a_run_counts_titles_and_no_earlier_cost() -> None:
    view = start()
    view.set_session(record("7", 1).info)
    view.feed(PartUpdated(part=STEP))
    view.feed(record("7.5", 2))  # the step
    view.feed(record("7.75", 2, input=100))  # the title
    view.feed(SessionCreated(info=CHILD))
    view.feed(SessionUpdated(info=with_weft_data(CHILD, WeftSessionData(spent=CHILD_LEDGER))))  # its title
    view.feed(SessionIdled(session_id=SESSION))
    view.feed(StatusChanged(session_id=SESSION, status=Busy()))
    view.feed(PartUpdated(part=replace(STEP, id=PartID("prt_later"))))
    view.feed(record("8.25", 3))
    view.feed(record("8.25", 3, priced=False))  # a title that was given up
    view.feed(SessionIdled(session_id=SESSION))
    first, second = (item.spent for item in view.take_settled() if isinstance(item, EndItem))
    assert (first.cost, first.input, first.steps, first.priced) == (Decimal("0.76"), 1100, 1, True)
    assert (second.cost, second.input, second.steps, second.priced) == (Decimal("0.5"), 1000, 1, False)
    assert (view.status.spent.cost, view.status.spent.priced) == (Decimal("8.25"), False)


WHOLE_STATUS = " ⠋ working 8.0s · Esc interrupts · build · p/model-of-1 (high) · context 4.0k · $0.50 "


@pytest.mark.parametrize(
    ("width", "left_out"),
    [
        (90, ()),
        (85, ("p/",)),
        (70, ("build · ", "p/", " (high)")),
        (65, ("build · ", "p/", "-of-1 (high)")),
        (40, (" · Esc interrupts", " · build", " · p/model-of-1 (high)")),
        (24, ("⠋ working 8.0s · ", "Esc interrupts · ", "build · ", "p/model-of-1 (high) · ")),
    ],
)
def test_a_narrow_status_keeps_context_and_cost(width: int, left_out: tuple[str, ...]) -> None:
    view = start()
    view.feed(PartUpdated(part=STEP))
    context = LiveContext(width=width, height=1, now=8000, model="p/model-of-1", variant="high")
    shown = to_plain_text([render_status(view, context)])
    expected = WHOLE_STATUS
    for piece in left_out:
        expected = expected.replace(piece, "")
    assert shown.replace("…", "") == expected
    assert len(shown) <= width


def test_plain_lines_are_complete_and_broken_between_words() -> None:
    options = RenderOptions(width=20)
    call = CallItem(tool="bash", title="a command with many words", ms=1, output="and its long output")
    assert [to_plain_text([line]) for line in render_plain(call, options)] == [
        "✓ Bash    a command",
        "with many words",
        "  and its long",
        "  output",
    ]
    code = MarkdownBlock(kind="code", text="x = 'as long as it has to be'", language="python")
    assert "x = 'as long as it has to be'" in to_plain_text(
        render_plain(AnswerItem(block=code), RenderOptions(width=20))
    )


def test_items_are_rendered_to_lines() -> None:
    options = RenderOptions(width=40, undo="weft undo")
    call = CallItem(tool="edit", title="a.py", ms=2500, diff="@@ -1 +1 @@\n-a\n+b")
    spent = Spent(cost=Decimal("0.5"), input=1000, output=20, cache_read=3000, steps=2)
    assert to_plain_text(render_item(call, options)).split("\n") == [
        "✓ Edit    a.py · 2.5s",
        "  @@ -1 +1 @@",
        "  -a",
        "  +b",
    ]
    assert to_plain_text(
        render_item(EndItem(spent=spent, files=("a",)), RenderOptions(width=200, undo="u"))
    ) == ("\n2 steps · 1 file · 4.0k tokens in, 20 out · 75% cached · $0.5000 · undo: u")
    assert to_plain_text(render_item(PromptItem(text="a\n  b"), options)) == "\n> a\n    b"
    lines = LinesItem(lines=[[("", "a table  of it")], [("", "words " * 8)]])
    assert to_plain_text(render_item(lines, options)).split("\n") == [
        "a table  of it",
        "words words words words words words",
        "words words",
    ]
    assert render_item(NoticeItem(kind="error", text="\x1b[2J"), options) == [
        [("bold ansired", "error: \\x1b[2J")]
    ]


@given(st.text(alphabet=st.characters(), max_size=60), st.integers(3, 60))
def test_no_item_controls_the_terminal(words: str, width: int) -> None:
    spent = Spent()
    items: tuple[Item, ...] = (
        PromptItem(text=words),
        ReasoningItem(text=words, ms=1),
        CallItem(tool=words, title=words, ms=1, error=words),
        CallItem(tool=words, title=words, ms=1, diff=words, child=True),
        CallItem(tool=words, title=words, ms=1, output=words),
        NoticeItem(kind="warning", text=words),
        TableItem(rows=[("a", "b"), (words, words)]),
        EndItem(spent=spent, files=(words,)),
    )
    request = replace(
        REQUEST,
        permission=words,
        patterns=(words,),
        always=(words,),
        metadata={"why": [words], "diff": words},
    )
    shown = [line for item in items for line in render_item(item, RenderOptions(width=width))]
    text = "".join(
        part for line in (*shown, *render_permission(request, width, agent=words)) for _, part in line
    )
    assert [char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Cs")] == []


def test_a_request_without_questions_is_not_shown() -> None:
    view = start()
    view.feed(
        QuestionAsked(request=QuestionRequest(id=QuestionID("que_1"), session_id=SESSION, questions=()))
    )
    assert view.requests == []

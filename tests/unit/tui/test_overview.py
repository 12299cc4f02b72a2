"""The panel beside the transcript, and the timeline."""

from decimal import Decimal

from given.conversation import SESSION, assistant_message, ids, user_message
from weft.model.event import TodoUpdated
from weft.model.ids import MessageID, SessionID
from weft.model.part import CacheTokens, PatchPart, StepFinishPart, Tokens
from weft.model.session import SessionInfo, SessionTime, SessionTree, Todo
from weft.model.spending import Spent
from weft.tui.overview import OverviewContext, TurnSummary, render_overview, to_turns
from weft.tui.text import measure, to_plain_text
from weft.tui.view import SessionView

STEP = StepFinishPart(
    **ids("A1", 9),
    reason="stop",
    cost=Decimal("0.5"),
    tokens=Tokens(input=1000, output=20, cache=CacheTokens(read=3000)),
)
HISTORY = [
    user_message("U1", 1),
    assistant_message("A1", 5, "U1", STEP, PatchPart(**ids("A1", 8), hash="h", files=("/p/a.py",))),
    user_message("U2", 7),
]
INFO = SessionInfo(id=SESSION, title="Weave", directory="/p", time=SessionTime(created=1, updated=1))


def test_each_prompt_shows_what_its_answers_cost_and_changed() -> None:
    spent = Spent(cost=Decimal("0.5"), input=1000, output=20, cache_read=3000, steps=1)
    assert to_turns(HISTORY) == [
        TurnSummary(message=MessageID("U1"), text="prompt U1", time=1, ms=4, spent=spent, files=("/p/a.py",)),
        TurnSummary(message=MessageID("U2"), text="prompt U2", time=7, ms=0, spent=Spent(), files=()),
    ]


def test_the_panel_shows_context_cost_files_todos_and_children() -> None:
    view = SessionView(SESSION)
    view.load(HISTORY, shown=9)
    todo = Todo(content="spin", status="in_progress", priority="high", id="1")
    view.feed(TodoUpdated(session_id=SESSION, todos=(todo,)))
    child = SessionInfo(id=SessionID("ses_child"), title="Spin", time=SessionTime(created=1, updated=1))
    tree = SessionTree(session=INFO, children=(SessionTree(session=child, children=()),))
    context = OverviewContext(
        width=30, session=INFO, tree=tree, sizes={"p/m": 8040}, budget="$2", shown_child="ses_child"
    )
    lines = render_overview(view, context)
    assert to_plain_text(lines).split("\n") == [
        "Weave",
        str(SESSION),
        "",
        "CONTEXT",
        "4.0k tokens  50%",
        "━" * 30,
        "",
        "COST",
        "$0.5000 of $2",
        "1 step",
        "4.0k in, 20 out",
        "75% of the input cached",
        "",
        "FILES CHANGED (1)",
        "a.py",
        "",
        "TODOS",
        "▸ spin",
        "",
        "CHILD SESSIONS",
        "▸ Spin",
    ]
    assert all(sum(measure(text) for _, text in line) <= 30 for line in lines)

"""Growth that is shown before it is in the log: whatever the log and the bus do, listeners get each character once, in order."""

from hypothesis import given
from hypothesis import strategies as st

from weft.model.event import Event, PartGrew, PartUpdated, SessionIdled
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.part import Span, TextPart
from weft.server.early_growth import EarlyGrowth, EventID, parse_event_id, trim_growth

SESSION, MESSAGE, PART = SessionID("ses_1"), MessageID("msg_1"), PartID("prt_1")


def text(words: str, *, ended: bool = False) -> PartUpdated:
    time = Span(start=1, end=2 if ended else None)
    return PartUpdated(part=TextPart(id=PART, session_id=SESSION, message_id=MESSAGE, text=words, time=time))


def growth(delta: str, offset: int) -> PartGrew:
    return PartGrew(
        session_id=SESSION, message_id=MESSAGE, part_id=PART, field="text", delta=delta, offset=offset
    )


def read(shown: list[Event]) -> str:
    """Return the text that a listener has, and check that each piece begins where the one before it ended."""
    found = ""
    for event in shown:
        if isinstance(event, PartUpdated):
            assert isinstance(event.part, TextPart)
            found = event.part.text
        elif isinstance(event, PartGrew):
            assert event.offset == len(found)
            found += event.delta
    return found


@given(
    st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=12),
    st.lists(st.integers(0, 3), max_size=40),
    st.data(),
)
def test_every_character_is_shown_once_and_in_order(
    pieces: list[str], turns: list[int], data: st.DataObject
) -> None:
    """The bus publishes pieces; the log merges them, and has them any time later."""
    early, shown = EarlyGrowth(), list[Event]()
    published: list[Event] = [text("")]
    offset = 0
    for piece in pieces:
        published.append(growth(piece, offset))
        offset += len(piece)
    whole = "".join(pieces)
    published.append(text(whole, ended=True))
    logged = _merge(published, data)
    at_bus = at_log = 0
    for turn in [*turns, *([0] * len(published)), *([1] * len(logged))]:
        if turn == 0 and at_bus < len(published):
            event = published[at_bus]
            at_bus += 1
            if not isinstance(event, PartGrew):
                early.expect(event)
            elif early.show_early(event) is not None:
                shown.append(event)
        elif at_log < len(logged) and _end(logged[at_log]) <= _end(published[at_bus - 1] if at_bus else None):
            passed = early.pass_logged(logged[at_log])
            at_log += 1
            shown += [passed] if passed is not None else []
    assert at_log == len(logged)
    assert read(shown) == whole
    assert early.list_unlogged() == []


def _end(event: Event | None) -> float:
    """How far the text is after an event."""
    match event:
        case PartGrew():
            return event.offset + len(event.delta)
        case PartUpdated(part=TextPart() as part):
            return float("inf") if part.time is not None and part.time.end else len(part.text)
        case _:
            return -1


def _merge(published: list[Event], data: st.DataObject) -> list[Event]:
    """Return the events as the log has them: consecutive growth may be one event."""
    merged: list[Event] = []
    for event in published:
        last = merged[-1] if merged else None
        if isinstance(event, PartGrew) and isinstance(last, PartGrew) and data.draw(st.booleans()):
            merged[-1] = growth(last.delta + event.delta, last.offset)
        else:
            merged.append(event)
    return merged


def test_growth_waits_for_earlier_events() -> None:
    early = EarlyGrowth()
    early.expect(text("On"))
    assert early.show_early(growth("ce", 2)) is None
    assert early.pass_logged(text("On")) == text("On")
    assert early.show_early(growth("upon", 4)) is None  # what is between comes through the log
    assert early.pass_logged(growth("ce", 2)) == growth("ce", 2)
    assert early.show_early(growth("upon", 4)) == growth("upon", 4)
    early.expect(SessionIdled(session_id=SESSION))
    assert early.show_early(growth("!", 8)) is None
    assert early.list_unlogged() == [growth("upon", 4)]
    assert early.place(7) == EventID(7, PART, 8)


def test_a_listener_that_saw_growth_early_is_sent_the_rest() -> None:
    id = EventID(41, PART, 5)
    assert id.format("log") == "log.41~prt_1:5"
    assert parse_event_id("log", "log.41~prt_1:5") == id
    assert parse_event_id("log", "log.7") == EventID(7)
    for wrong in (
        "",
        "7",
        "other.7",
        "log.",
        "log.x",
        "log.-1",
        f"log.{'9' * 30}",
        "log.7~prt",
        "log.7~:5",
        "log.٧",
    ):
        assert parse_event_id("log", wrong) is None
    assert trim_growth(growth("abcdef", 2), 5) == growth("def", 5)
    assert trim_growth(growth("abc", 2), 5) is None
    assert trim_growth(growth("abc", 6), 5) == growth("abc", 6)


def test_growth_settled_by_another_node_is_no_longer_shown_early() -> None:
    early = EarlyGrowth()
    early.expect(text("On"))
    early.pass_logged(text("On"))
    assert early.show_early(growth("ce", 2)) == growth("ce", 2)
    early.give_up(text("Once", ended=True))  # by the node that took over the session
    assert early.show_early(growth(" upon", 4)) is None
    assert early.place(7) == EventID(7)

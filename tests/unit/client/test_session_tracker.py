"""After a gap, a listener receives the differences, and no messages from before it listened."""

from msgspec.structs import replace

from weft.client.events import ServerState, SessionTracker
from weft.model.event import (
    Event,
    MessageRemoved,
    MessageUpdated,
    PartGrew,
    PartRemoved,
    PartUpdated,
    PermissionAsked,
    SessionCreated,
    SessionDeleted,
    SessionIdled,
    SessionUpdated,
    StatusChanged,
)
from weft.model.ids import MessageID, PartID, PermissionID, SessionID
from weft.model.message import MessageWithParts, UserMessage
from weft.model.part import Moment, TextPart
from weft.model.permission import PermissionRequest
from weft.model.session import Busy, Idle, SessionInfo, SessionTime
from weft.model.transcript import Transcript

ID = SessionID("ses_1")
SESSION = SessionInfo(id=ID, time=SessionTime(created=1, updated=10))


def message(number: int, *texts: str) -> MessageWithParts:
    info = UserMessage(id=MessageID(f"msg_{number}"), session_id=ID, time=Moment(created=number))
    parts = tuple(
        TextPart(id=PartID(f"prt_{number}{place}"), session_id=ID, message_id=info.id, text=text)
        for place, text in enumerate(texts)
    )
    return MessageWithParts(info=info, parts=parts)


def to_events(*messages: MessageWithParts) -> list[Event]:
    events: list[Event] = []
    for each in messages:
        events.append(MessageUpdated(info=each.info))
        events.extend(PartUpdated(part=part) for part in each.parts)
    return events


def track(*events: Event) -> SessionTracker:
    tracker = SessionTracker()
    for event in events:
        tracker.feed(event)
    return tracker


def state(*messages: MessageWithParts, session: SessionInfo | None = SESSION, **more: object) -> ServerState:
    sessions = {} if session is None else {ID: session}
    return ServerState(sessions=sessions, messages={ID: list(messages)}, **{"status": {}, **more})  # type: ignore[arg-type]


def test_unchanged_messages_are_not_reported_again() -> None:
    one = message(20, "a")
    assert list(track(SessionUpdated(info=SESSION), *to_events(one)).find_missed(state(one))) == []


def test_added_text_is_reported_as_growth() -> None:
    before, after = message(20, "ab"), message(20, "abcd")
    (growth,) = track(*to_events(before)).find_missed(state(after))
    assert isinstance(growth, PartGrew)
    assert (growth.delta, growth.offset) == ("cd", 2)


def test_a_whole_part_with_a_delta_becomes_growth() -> None:
    first, later = message(20, "ab"), message(20, "abcd")
    tracker = track(*to_events(first))
    (growth,) = tracker.to_growth(PartUpdated(part=later.parts[0], delta="cd"))
    assert isinstance(growth, PartGrew)
    assert growth.delta == "cd"
    fresh = PartUpdated(part=message(21, "x").parts[0], delta="x")
    assert tracker.to_growth(fresh) == [fresh]


def test_all_events_plus_the_missed_ones_give_the_state_of_the_server() -> None:
    before = (message(20, "ab", "gone"), message(21, "x"), message(22, "y"))
    after = (message(20, "other"), message(22, "y", "more"), message(23, "new"))
    missed = list(track(*to_events(*before)).find_missed(state(*after)))
    folded = Transcript()
    folded.feed(*to_events(*before), *missed)
    assert folded.messages() == list(after)
    assert {type(event) for event in missed} >= {MessageRemoved, PartRemoved, PartUpdated, MessageUpdated}


def test_messages_older_than_the_listener_are_not_reported() -> None:
    assert (
        list(track(*to_events(message(20, "a"))).find_missed(state(message(5, "old"), message(20, "a"))))
        == []
    )
    assert list(track(SessionUpdated(info=SESSION)).find_missed(state(message(5, "old")))) == []
    begun = track(SessionCreated(info=SESSION)).find_missed(state(message(5, "first")))
    assert list(begun) == to_events(message(5, "first"))


def test_the_end_of_a_run_is_reported_unless_this_client_waits_for_it() -> None:
    busy = StatusChanged(session_id=ID, status=Busy())
    end = [StatusChanged(session_id=ID, status=Idle()), SessionIdled(session_id=ID)]
    assert list(track(busy).find_missed(state())) == end
    assert list(track(busy).find_missed(state(running=[ID]))) == []
    expected = SessionTracker()
    expected.expect(ID, since=3)
    assert list(expected.find_missed(state(message(4, "a")))) == [*to_events(message(4, "a")), *end]


def test_a_run_that_goes_on_is_reported_before_its_messages() -> None:
    # Otherwise a listener that shows the answer says that the session is ready, and the next prompt is sent too early.
    answer, busy = message(20, "a"), StatusChanged(session_id=ID, status=Busy())
    for known in ([], [StatusChanged(session_id=ID, status=Idle())]):
        tracker = track(SessionUpdated(info=SESSION), *known)
        tracker.expect(ID, since=3)
        missed = list(tracker.find_missed(state(answer, status={ID: Busy()})))
        assert missed == [busy, *to_events(answer)]
        for event in missed:
            tracker.feed(event)
        assert list(tracker.find_missed(state(answer, status={ID: Busy()}))) == []


def test_changed_and_removed_sessions_and_open_requests_are_reported() -> None:
    renamed = replace(SESSION, title="Another")
    tracker = SessionUpdated(info=SESSION)
    assert list(track(tracker).find_missed(state(session=renamed))) == [SessionUpdated(info=renamed)]
    assert list(track(tracker).find_missed(state(session=None))) == [SessionDeleted(info=SESSION)]
    asked = PermissionRequest(
        id=PermissionID("per_1"), session_id=ID, permission="bash", patterns=("ls",), metadata={}, always=()
    )
    assert list(track(tracker).find_missed(state(permissions=[asked]))) == [PermissionAsked(request=asked)]
    assert list(track(tracker, PermissionAsked(request=asked)).find_missed(state(permissions=[asked]))) == []


def test_a_new_child_is_found_by_its_parent() -> None:
    child = SessionInfo(id=SessionID("ses_2"), parent_id=ID, time=SessionTime(created=2, updated=2))
    stranger = SessionInfo(id=SessionID("ses_3"), time=SessionTime(created=2, updated=2))
    there = {each.id: each for each in (SESSION, child, stranger)}
    assert track(SessionUpdated(info=SESSION)).find_new_children(there) == [child]

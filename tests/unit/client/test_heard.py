"""What a listener is told after a gap: the difference, and nothing that came before it listened."""

from msgspec.structs import replace

from weft.client.events import Heard, Now
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
    SessionRested,
    SessionUpdated,
    StatusChanged,
)
from weft.model.ids import MessageID, PartID, PermissionID, SessionID
from weft.model.message import MessageWithParts, UserMessage
from weft.model.part import Moment, TextPart
from weft.model.permission import PermissionRequest
from weft.model.session import Busy, Idle, Session, SessionTime
from weft.model.transcript import Transcript

ID = SessionID("ses_1")
SESSION = Session(id=ID, time=SessionTime(created=1, updated=10))


def message(number: int, *texts: str) -> MessageWithParts:
    info = UserMessage(id=MessageID(f"msg_{number}"), session_id=ID, time=Moment(created=number))
    parts = tuple(
        TextPart(id=PartID(f"prt_{number}{place}"), session_id=ID, message_id=info.id, text=text)
        for place, text in enumerate(texts)
    )
    return MessageWithParts(info=info, parts=parts)


def told(*messages: MessageWithParts) -> list[Event]:
    events: list[Event] = []
    for each in messages:
        events.append(MessageUpdated(info=each.info))
        events.extend(PartUpdated(part=part) for part in each.parts)
    return events


def heard(*events: Event) -> Heard:
    made = Heard()
    for event in events:
        made.note(event)
    return made


def now(*messages: MessageWithParts, session: Session | None = SESSION, **more: object) -> Now:
    sessions = {} if session is None else {ID: session}
    return Now(sessions=sessions, messages={ID: list(messages)}, status={}, **more)  # type: ignore[arg-type]


def test_what_is_as_it_was_told_is_not_told_again() -> None:
    one = message(20, "a")
    assert list(heard(SessionUpdated(info=SESSION), *told(one)).missed(now(one))) == []


def test_a_text_that_has_grown_grows() -> None:
    before, after = message(20, "ab"), message(20, "abcd")
    (growth,) = heard(*told(before)).missed(now(after))
    assert isinstance(growth, PartGrew)
    assert (growth.delta, growth.offset) == ("cd", 2)


def test_a_part_that_is_told_whole_with_each_piece_grows_by_the_piece() -> None:
    first, later = message(20, "ab"), message(20, "abcd")
    knows = heard(*told(first))
    (growth,) = knows.as_growth(PartUpdated(part=later.parts[0], delta="cd"))
    assert isinstance(growth, PartGrew)
    assert growth.delta == "cd"
    fresh = PartUpdated(part=message(21, "x").parts[0], delta="x")
    assert knows.as_growth(fresh) == [fresh]


def test_folded_what_was_told_and_what_was_missed_is_what_is_there() -> None:
    before = (message(20, "ab", "gone"), message(21, "x"), message(22, "y"))
    after = (message(20, "other"), message(22, "y", "more"), message(23, "new"))
    missed = list(heard(*told(*before)).missed(now(*after)))
    folded = Transcript()
    folded.feed(*told(*before), *missed)
    assert folded.messages() == list(after)
    assert {type(event) for event in missed} >= {MessageRemoved, PartRemoved, PartUpdated, MessageUpdated}


def test_what_was_said_before_anybody_listened_is_no_news() -> None:
    assert list(heard(*told(message(20, "a"))).missed(now(message(5, "old"), message(20, "a")))) == []
    assert list(heard(SessionUpdated(info=SESSION)).missed(now(message(5, "old")))) == []
    begun = heard(SessionCreated(info=SESSION)).missed(now(message(5, "first")))
    assert list(begun) == told(message(5, "first"))


def test_the_end_of_a_run_is_told_unless_it_is_awaited_elsewhere() -> None:
    busy = StatusChanged(session_id=ID, status=Busy())
    end = [StatusChanged(session_id=ID, status=Idle()), SessionRested(session_id=ID)]
    assert list(heard(busy).missed(now())) == end
    assert list(heard(busy).missed(now(awaited=[ID]))) == []
    expected = Heard()
    expected.expect(ID, since=3)
    assert list(expected.missed(now(message(4, "a")))) == [*told(message(4, "a")), *end]


def test_a_session_that_changed_or_went_and_what_is_asked_are_told() -> None:
    renamed = replace(SESSION, title="Another")
    knows = SessionUpdated(info=SESSION)
    assert list(heard(knows).missed(now(session=renamed))) == [SessionUpdated(info=renamed)]
    assert list(heard(knows).missed(now(session=None))) == [SessionDeleted(info=SESSION)]
    asked = PermissionRequest(
        id=PermissionID("per_1"), session_id=ID, permission="bash", patterns=("ls",), metadata={}, always=()
    )
    assert list(heard(knows).missed(now(permissions=[asked]))) == [PermissionAsked(request=asked)]
    assert list(heard(knows, PermissionAsked(request=asked)).missed(now(permissions=[asked]))) == []


def test_a_child_that_came_to_be_is_found_by_its_parent() -> None:
    child = Session(id=SessionID("ses_2"), parent_id=ID, time=SessionTime(created=2, updated=2))
    stranger = Session(id=SessionID("ses_3"), time=SessionTime(created=2, updated=2))
    there = {each.id: each for each in (SESSION, child, stranger)}
    assert heard(SessionUpdated(info=SESSION)).children(there) == [child]

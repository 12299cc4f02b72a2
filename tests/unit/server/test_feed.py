"""Events as frames: encoded once, in the style of the listener, and resumable."""

import asyncio
import json
from typing import Any, cast

import pytest
from msgspec.structs import replace

from given.conversation import SESSION, ids
from weft.errors import StoreError
from weft.model.event import Event, MessageRemoved, PartGrew, PartUpdated, SessionDeleted, SessionIdled
from weft.model.event_wire import encode_event
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.part import Span, TextPart
from weft.model.session import SessionInfo, SessionTime
from weft.server import feed as feeds
from weft.server import streams
from weft.server.feed import EventCounter, EventFeed, Signal, StreamStyle
from weft.server.streams import ServerEventStream

DELTAS = StreamStyle(granularity="deltas", wrapped=False)
WHOLE = StreamStyle(granularity="whole", wrapped=False)
VIEW_OF_SESSION = StreamStyle(granularity="view", wrapped=False, sessions=frozenset({SESSION}))
PART = TextPart(**ids("A1", 1), text="Hel", time=Span(start=1))


def growth(delta: str, offset: int) -> PartGrew:
    return PartGrew(
        session_id=SESSION,
        message_id=MessageID("A1"),
        part_id=PART.id,
        field="text",
        delta=delta,
        offset=offset,
    )


def idle() -> Event:
    return SessionIdled(session_id=SESSION)


def decode_read(read: tuple[bytes, int] | None) -> list[tuple[str, Any]]:
    """Return the id and the event of each frame."""
    assert read is not None
    return decode_frames(read[0])


def decode_frames(raw: bytes) -> list[tuple[str, Any]]:
    frames = [frame.split("\n") for frame in raw.decode().split("\n\n") if frame]
    return [(first.removeprefix("id: "), json.loads(data.removeprefix("data: "))) for first, data in frames]


def types(read: tuple[bytes, int] | None) -> list[str]:
    return [event["type"] for _, event in decode_read(read)]


@pytest.fixture
def counter() -> EventCounter:
    return EventCounter("boot")


def make(numbering: EventCounter, directory: str = "/work") -> EventFeed:
    return EventFeed(numbering, directory=directory, project="p1")


async def test_each_listener_receives_growth_in_the_form_it_asked_for(counter: EventCounter) -> None:
    feed = make(counter)
    feed.add_listener("whole")
    feed.add_listener("deltas")
    for event in (PartUpdated(part=PART), growth("lo", 3), growth(" th", 5), growth("ere", 8), idle()):
        feed.add(event)

    assert types(feed.read(0, DELTAS)) == [
        "message.part.updated",
        "message.part.delta",
        "message.part.delta",
        "message.part.delta",
        "session.idle",
    ]
    whole = [event for _, event in decode_read(feed.read(0, WHOLE))]
    assert [event["type"] for event in whole] == [
        "message.part.updated",
        "message.part.updated",
        "message.part.updated",
        "session.idle",
    ]
    sent = [(each["properties"]["part"]["text"], each["properties"]["delta"]) for each in whole[1:3]]
    assert sent == [("Hello", "lo"), ("Hello there", " there")]


async def test_a_growing_part_is_sent_whole_at_a_limited_rate(counter: EventCounter) -> None:
    feed = make(counter)
    feed.listeners["whole"] = 1
    feed.add(PartUpdated(part=PART))
    for number in range(1000):
        feed.add(growth("x", 3 + number))
    await asyncio.sleep(feeds.PAUSE_SECONDS * 2)
    texts = [event["properties"]["part"]["text"] for _, event in decode_read(feed.read(0, WHOLE))]
    assert texts == ["Hel", "Helx", "Hel" + "x" * 1000]


async def test_a_whole_part_is_sent_with_the_first_piece_after_its_pause(counter: EventCounter) -> None:
    feed = make(counter)
    feed.add_listener("whole")
    feed.add(PartUpdated(part=PART))
    feed.add(growth("l", 3))
    feed.add(growth("o", 4))
    await asyncio.sleep(
        feeds.WHOLE_PART_SECONDS * 1.1
    )  # the pause is over, and it is too early to send it without a piece
    feed.add(growth("!", 5))
    texts = [event["properties"]["part"]["text"] for _, event in decode_read(feed.read(0, WHOLE))]
    assert texts == ["Hel", "Hell", "Hello!"]


async def test_growth_is_encoded_from_the_first_listener_that_wants_it_on(counter: EventCounter) -> None:
    feed = make(counter)
    feed.add(PartUpdated(part=PART))
    feed.add(growth("l", 3))
    feed.add_listener("deltas")
    feed.add(growth("o", 4))
    feed.remove_listener("deltas")
    feed.add(growth("!", 5))
    assert types(feed.read(0, DELTAS)) == ["message.part.updated", "message.part.delta", "message.part.delta"]


async def test_repeated_growth_is_not_sent_twice(counter: EventCounter) -> None:
    feed = make(counter)
    feed.listeners["whole"] = 1
    for event in (PartUpdated(part=PART), growth("lo", 3), growth("lo", 3), growth("lo!", 3), idle()):
        feed.add(event)
    assert decode_read(feed.read(0, WHOLE))[-2][1]["properties"]["part"]["text"] == "Hello!"


async def test_whole_parts_are_encoded_only_if_a_listener_wants_them(counter: EventCounter) -> None:
    feed = make(counter)
    for event in (PartUpdated(part=PART), growth("lo", 3), idle()):
        feed.add(event)
    assert types(feed.read(0, WHOLE)) == ["message.part.updated", "session.idle"]


async def test_one_cursor_covers_all_directories(counter: EventCounter) -> None:
    one, other = make(counter), make(counter, "/other")
    one.add(idle())
    other.add(idle())
    one.add(idle())

    assert [id for id, _ in decode_read(one.read(0, DELTAS))] == ["boot.1", "boot.3"]
    heard = counter.find("boot.1")
    assert heard is not None
    assert one.position_after(heard) == 1
    assert other.position_after(heard) == 0
    assert [counter.find(id) for id in ("boot.4", "old.1", "boot.x", "", "boot.-1")] == [None] * 5
    assert counter.find("boot." + "9" * 5000) is None


async def test_wrapped_frames_contain_their_directory(counter: EventCounter) -> None:
    feed = make(counter)
    feed.add(idle())
    ((_, event),) = decode_read(feed.read(0, StreamStyle(granularity="deltas", wrapped=True)))
    assert event == {
        "directory": "/work",
        "project": "p1",
        "payload": {"type": "session.idle", "properties": {"sessionID": SESSION}},
    }


async def test_a_cursor_that_is_no_longer_held_is_refused(
    counter: EventCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "MAX_FRAMES", 3)
    feed = make(counter)
    for _ in range(5):
        feed.add(idle())
    assert feed.read(1, DELTAS) is None
    assert len(decode_read(feed.read(2, DELTAS))) == 3
    assert (feed.position_after(1), feed.position_after(2)) == (None, 2)


async def test_the_bytes_that_a_feed_holds_are_limited(
    counter: EventCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "MAX_FRAME_BYTES", 3 * len(encode_event(idle())))
    feed = make(counter)
    for _ in range(10):
        feed.add(idle())
    assert [feed.position_after(number) for number in (6, 7, 8, 9, 10)] == [None, 7, 8, 9, 10]


async def test_the_cursors_of_a_closed_feed_are_gone(counter: EventCounter) -> None:
    feed = make(counter)
    feed.add(idle())
    feed.add(idle())
    feed.close()
    assert (counter.find("boot.1"), counter.find("boot.2")) == (None, 2)


async def test_a_removed_part_does_not_grow(counter: EventCounter) -> None:
    feed = make(counter)
    feed.listeners["whole"] = 1
    feed.add(PartUpdated(part=PART))
    feed.add(
        PartGrew(
            session_id=SESSION,
            message_id=MessageID("A1"),
            part_id=PartID("prt_other"),
            field="text",
            delta="x",
            offset=0,
        )
    )
    feed.add(idle())
    assert types(feed.read(0, WHOLE)) == ["message.part.updated", "session.idle"]


async def test_a_signal_wakes_all_waiters_and_a_wait_can_time_out() -> None:
    signal = Signal()
    waiting = [asyncio.ensure_future(signal.wait(60)) for _ in range(3)]
    await asyncio.sleep(0)
    signal.fire()
    assert await asyncio.gather(*waiting) == [True, True, True]
    assert await signal.wait(0.001) is False


async def test_a_cancelled_wait_is_not_a_timeout() -> None:
    waiting = asyncio.ensure_future(Signal().wait(60))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


# --- listeners ---


async def receive_all(numbering: EventCounter, *listened: EventFeed) -> list[bytes]:
    """Return what a listener of these feeds receives, piece by piece, until there is no more."""
    sent: list[bytes] = []

    async def send(message: dict[str, Any]) -> None:
        if message.get("body"):
            sent.append(message["body"])

    style = StreamStyle(granularity="deltas", wrapped=True)
    listening = ServerEventStream(lambda: listened, numbering, numbering.signal, style, ends_with_feed=False)
    numbering.end()
    await listening.serve(send, after="boot.0")
    return sent[1:]  # the first is that it is connected


async def test_events_of_many_directories_are_sent_in_order(
    counter: EventCounter,
) -> None:
    one, two = make(counter, "/one"), make(counter, "/two")
    for feed in (one, two, two, one, two):
        feed.add(idle())
    (piece,) = await receive_all(counter, one, two)
    assert [id for id, _ in decode_frames(piece)] == [f"boot.{number}" for number in range(1, 6)]


async def test_a_listener_that_is_far_behind_reads_in_pieces(
    counter: EventCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (feeds, streams):
        monkeypatch.setattr(module, "CHUNK_BYTES", 200)
    feed = make(counter)
    for _ in range(20):
        feed.add(idle())
    pieces = await receive_all(counter, feed)
    assert max(map(len, pieces)) < 500
    assert [id for piece in pieces for id, _ in decode_frames(piece)] == [f"boot.{n}" for n in range(1, 21)]


@pytest.mark.parametrize("writes", [0, 1, 2])
async def test_a_failed_connection_is_no_longer_counted(counter: EventCounter, writes: int) -> None:
    feed = make(counter)
    left = [writes]

    async def send(_: dict[str, Any]) -> None:
        if not left[0]:
            raise ConnectionResetError
        left[0] -= 1

    style = StreamStyle(granularity="deltas", wrapped=False)
    listening = ServerEventStream(lambda: (feed,), counter, feed.signal, style, ends_with_feed=True)
    counter.end()
    with pytest.raises(ConnectionResetError):
        await listening.serve(send, after=None)
    assert feed.listeners == {"deltas": 0, "whole": 0, "view": 0}


async def test_a_part_that_began_before_anybody_listened_is_completed_from_the_store(
    counter: EventCounter,
) -> None:
    feed, style = make(counter), StreamStyle(granularity="whole", wrapped=False)
    part = TextPart(
        id=PartID("prt_far"), session_id=SESSION, message_id=MessageID("msg_1"), text="Once upon ", time=Span(start=1)
    )  # fmt: skip
    first, second = (
        PartGrew(
            session_id=SESSION,
            message_id=part.message_id,
            part_id=part.id,
            field="text",
            delta=delta,
            offset=at,
        )
        for delta, at in (("upon ", 5), ("a time", 10))
    )
    assert not feed.asks_for(first)  # nobody listens to whole parts
    feed.add_listener("whole")
    assert feed.asks_for(first)
    feed.add(first)
    assert not feed.asks_for(second)  # it was asked for already
    feed.add(second)
    feed.add_part(part.id, part)  # it was read when the first piece was stored
    feed.add(idle())
    shown = [event["properties"] for _, event in decode_read(feed.read(0, style))]
    assert shown[-2]["part"]["text"] == "Once upon a time"


async def test_a_part_that_was_updated_while_it_was_read_stays_as_it_was_updated(
    counter: EventCounter,
) -> None:
    feed = make(counter)
    feed.add_listener("whole")
    assert feed.asks_for(growth("lo", 3))
    feed.add(PartUpdated(part=replace(PART, text="Hello", time=Span(start=1, end=2))))
    feed.add_part(PART.id, PART)  # it was read before its end was stored
    assert feed.list_growing() == []


@pytest.mark.parametrize(
    "removal",
    [
        MessageRemoved(session_id=SESSION, message_id=PART.message_id),
        SessionDeleted(info=SessionInfo(id=SESSION, time=SessionTime(created=1, updated=1))),
    ],
)
async def test_a_part_is_gone_with_its_message_and_its_session(counter: EventCounter, removal: Event) -> None:
    feed = make(counter)
    feed.add_listener("view")
    other = replace(PART, id=PartID("prt_other"), message_id=MessageID("A2"), session_id=SessionID("ses_2"))
    for part in (PART, other):
        feed.add(PartUpdated(part=part))
        feed.add(replace(growth("lo", 3), part_id=part.id, session_id=part.session_id))
    feed.add(removal)
    assert [part.id for part in feed.list_growing()] == [other.id]
    shown = feed.position()
    feed.add(growth("!", 5))
    feed.add(idle())
    assert "weft.part.grew" not in types(feed.read(shown, VIEW_OF_SESSION))


class AwayCluster:
    """The nodes of a database that cannot be reached."""

    name = "log"
    position = 7

    async def wait_for(self, position: int) -> bool:
        return position <= self.position

    async def read(self, after: int, till: int) -> Any:
        raise StoreError(f"nothing from {after} to {till}")


async def test_a_listener_whose_missed_events_cannot_be_read_keeps_its_cursor() -> None:
    counter = EventCounter("boot", cast("Any", AwayCluster()))
    counter.position = 7
    feed, sent = make(counter), []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message.get("body", b""))

    listening = ServerEventStream(
        lambda: (feed,), counter, feed.signal, DELTAS, ends_with_feed=True, find_feed=lambda *_: feed
    )
    await listening.serve(send, after="log.3")
    assert b"".join(sent) == streams.RECONNECT
    assert feed.listeners == {"deltas": 0, "whole": 0, "view": 0}


async def test_a_page_that_comes_back_to_a_cluster_is_told_to_read_everything_again() -> None:
    counter = EventCounter("boot", cast("Any", AwayCluster()))
    counter.position = 7
    feed, sent = make(counter), []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message.get("body", b""))

    style = StreamStyle(granularity="view", wrapped=True)
    listening = ServerEventStream(lambda: (feed,), counter, feed.signal, style, ends_with_feed=False)
    counter.end()
    await listening.serve(send, after="log.3")
    received = b"".join(sent)
    assert (b"id: log.7\n" in received, b"server.resync" in received) == (True, True)

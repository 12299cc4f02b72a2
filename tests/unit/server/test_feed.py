"""Events as frames: encoded once, in the style of the listener, and resumable."""

import asyncio
import json
from typing import Any, cast

import pytest

from given.conversation import SESSION, ids
from weft.errors import StoreError
from weft.model.event import Event, PartGrew, PartUpdated, SessionIdled
from weft.model.ids import MessageID, PartID
from weft.model.part import Span, TextPart
from weft.server import feed as feeds
from weft.server import streams
from weft.server.feed import EventCounter, EventFeed, Signal, StreamStyle
from weft.server.streams import ServerEventStream

DELTAS = StreamStyle(granularity="deltas", wrapped=False)
WHOLE = StreamStyle(granularity="whole", wrapped=False)
PART = TextPart(**ids("A1", 1), text="Hel", time=Span(start=1))


def grew(delta: str, offset: int) -> PartGrew:
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
def numbering() -> EventCounter:
    return EventCounter("boot")


def make(numbering: EventCounter, directory: str = "/work") -> EventFeed:
    return EventFeed(numbering, directory=directory, project="p1")


async def test_each_listener_hears_of_growth_in_the_grain_it_knows(numbering: EventCounter) -> None:
    feed = make(numbering)
    feed.listeners["whole"] = 1
    for event in (PartUpdated(part=PART), grew("lo", 3), grew(" there", 5), idle()):
        feed.add(event)

    assert types(feed.read(0, DELTAS)) == [
        "message.part.updated",
        "message.part.delta",
        "message.part.delta",
        "session.idle",
    ]
    whole = [event for _, event in decode_read(feed.read(0, WHOLE))]
    assert [event["type"] for event in whole] == [
        "message.part.updated",
        "message.part.updated",
        "session.idle",
    ]
    properties = whole[1]["properties"]
    assert (properties["part"]["text"], properties["delta"]) == ("Hello there", "lo there")


async def test_a_growing_part_is_told_whole_at_a_bounded_rate(numbering: EventCounter) -> None:
    feed = make(numbering)
    feed.listeners["whole"] = 1
    feed.add(PartUpdated(part=PART))
    for number in range(1000):
        feed.add(grew("x", 3 + number))
    await asyncio.sleep(feeds.WHOLE_PART_SECONDS * 2)
    told_whole = decode_read(feed.read(0, WHOLE))
    assert len(told_whole) == 2
    assert told_whole[1][1]["properties"]["part"]["text"] == "Hel" + "x" * 1000


async def test_growth_that_was_said_before_is_not_said_twice(numbering: EventCounter) -> None:
    feed = make(numbering)
    feed.listeners["whole"] = 1
    for event in (PartUpdated(part=PART), grew("lo", 3), grew("lo", 3), grew("lo!", 3), idle()):
        feed.add(event)
    assert decode_read(feed.read(0, WHOLE))[1][1]["properties"]["part"]["text"] == "Hello!"


async def test_whole_parts_are_encoded_only_if_a_listener_wants_them(numbering: EventCounter) -> None:
    feed = make(numbering)
    for event in (PartUpdated(part=PART), grew("lo", 3), idle()):
        feed.add(event)
    assert types(feed.read(0, WHOLE)) == ["message.part.updated", "session.idle"]


async def test_one_cursor_covers_all_directories(numbering: EventCounter) -> None:
    one, other = make(numbering), make(numbering, "/other")
    one.add(idle())
    other.add(idle())
    one.add(idle())

    assert [id for id, _ in decode_read(one.read(0, DELTAS))] == ["boot.1", "boot.3"]
    heard = numbering.find("boot.1")
    assert heard is not None
    assert one.position_after(heard) == 1
    assert other.position_after(heard) == 0
    assert [numbering.find(id) for id in ("boot.4", "old.1", "boot.x", "", "boot.-1")] == [None] * 5
    assert numbering.find("boot." + "9" * 5000) is None


async def test_wrapped_frames_say_which_directory(numbering: EventCounter) -> None:
    feed = make(numbering)
    feed.add(idle())
    ((_, event),) = decode_read(feed.read(0, StreamStyle(granularity="deltas", wrapped=True)))
    assert event == {
        "directory": "/work",
        "project": "p1",
        "payload": {"type": "session.idle", "properties": {"sessionID": SESSION}},
    }


async def test_a_cursor_that_is_no_longer_held_is_refused(
    numbering: EventCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "MAX_FRAMES", 3)
    feed = make(numbering)
    for _ in range(5):
        feed.add(idle())
    assert feed.read(1, DELTAS) is None
    assert len(decode_read(feed.read(2, DELTAS))) == 3
    assert (feed.position_after(1), feed.position_after(2)) == (None, 2)


async def test_a_feed_that_closed_takes_its_numbers_with_it(numbering: EventCounter) -> None:
    feed = make(numbering)
    feed.add(idle())
    feed.add(idle())
    feed.close()
    assert (numbering.find("boot.1"), numbering.find("boot.2")) == (None, 2)


async def test_a_part_that_is_gone_grows_no_more(numbering: EventCounter) -> None:
    feed = make(numbering)
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


async def test_a_signal_wakes_all_who_wait_and_says_when_there_is_nothing() -> None:
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


async def heard_by(numbering: EventCounter, *listened: EventFeed) -> list[bytes]:
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


async def test_what_happens_in_many_directories_is_told_in_the_order_it_happened(
    numbering: EventCounter,
) -> None:
    one, two = make(numbering, "/one"), make(numbering, "/two")
    for feed in (one, two, two, one, two):
        feed.add(idle())
    (piece,) = await heard_by(numbering, one, two)
    assert [id for id, _ in decode_frames(piece)] == [f"boot.{number}" for number in range(1, 6)]


async def test_a_listener_far_behind_reads_in_pieces(
    numbering: EventCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (feeds, streams):
        monkeypatch.setattr(module, "CHUNK_BYTES", 200)
    feed = make(numbering)
    for _ in range(20):
        feed.add(idle())
    pieces = await heard_by(numbering, feed)
    assert max(map(len, pieces)) < 500
    assert [id for piece in pieces for id, _ in decode_frames(piece)] == [f"boot.{n}" for n in range(1, 21)]


@pytest.mark.parametrize("writes", [0, 1, 2])
async def test_a_failed_connection_is_no_longer_counted(numbering: EventCounter, writes: int) -> None:
    feed = make(numbering)
    left = [writes]

    async def send(_: dict[str, Any]) -> None:
        if not left[0]:
            raise ConnectionResetError
        left[0] -= 1

    style = StreamStyle(granularity="deltas", wrapped=False)
    listening = ServerEventStream(lambda: (feed,), numbering, feed.signal, style, ends_with_feed=True)
    numbering.end()
    with pytest.raises(ConnectionResetError):
        await listening.serve(send, after=None)
    assert feed.listeners == {"deltas": 0, "whole": 0, "view": 0}


async def test_a_part_that_began_before_anybody_listened_here_is_completed_from_the_store(
    numbering: EventCounter,
) -> None:
    feed, style = make(numbering), StreamStyle(granularity="whole", wrapped=False)
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
    assert shown[0]["part"]["text"] == "Once upon a time"


class AwayCluster:
    """The nodes of a database that cannot be reached."""

    name = "log"
    position = 7

    async def wait_for(self, position: int) -> bool:
        return position <= self.position

    async def read(self, after: int, till: int) -> Any:
        raise StoreError(f"nothing from {after} to {till}")


async def test_a_listener_that_cannot_be_told_what_it_missed_keeps_its_place_and_comes_back() -> None:
    counter = EventCounter("boot", cast("Any", AwayCluster()))
    counter.position = 7
    feed, sent = make(counter), []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message.get("body", b""))

    listening = ServerEventStream(lambda: (feed,), counter, feed.signal, DELTAS, ends_with_feed=True)
    await listening.serve(send, after="log.3")
    assert b"".join(sent) == streams.RECONNECT
    assert feed.listeners == {"deltas": 0, "whole": 0, "view": 0}

"""Event streams over HTTP: one frame per event, each with an id to resume after."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any, Final
from urllib.parse import parse_qsl

from weft.api.change_log import MissedEvent
from weft.api.cluster import Cluster, SharedEvent
from weft.errors import CursorLostError, StoreError, WeftError
from weft.model.event import Event, PartGrew
from weft.model.event_wire import encode_event, event_from_json
from weft.model.ids import SessionID
from weft.model.wire import encode
from weft.model.workspace_event import ServerConnected, ServerHeartbeat
from weft.server.early_growth import EventID, parse_event_id, trim_growth
from weft.server.feed import (
    CHUNK_BYTES,
    NO_LIMIT,
    EventCounter,
    EventFeed,
    Granularity,
    Signal,
    StreamStyle,
)
from weft.server.http_server import HttpServer
from weft.server.metrics import EventMetrics
from weft.server.request import find_directory
from weft.server.response import Receive, Scope, Send, make_error_response, read_headers, send_error
from weft.server.resume import MissedEventReader, make_directory_filter, want_everything

HEARTBEAT_SECONDS: Final = 10.0
HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]
CONNECTED_BODY: Final = encode_event(ServerConnected())
HEARTBEAT_BODY: Final = encode_event(ServerHeartbeat())
# Sent at the end of a stream: the listener is to reconnect soon, to another node if there is one.
RECONNECT: Final = b"retry: 200\n\n"
GROWTH_PREFIX: Final = b'{"type":"' + PartGrew.type.encode() + b'"'

FindFeed = Callable[[str, SessionID | None], EventFeed | None]


def encode_resync(reason: str) -> bytes:
    """Encode the event that tells a listener to read everything again."""
    return encode({"type": "server.resync", "properties": {"reason": reason}})


class ServerEventStream:
    """The stream to one listener, over one feed or over all of them; feeds may be added while it listens.

    * With `ends_with_feed` the stream ends when its feed does: a client of OpenCode then reconnects and reads everything again.
    * `find_feed` is for servers of a cluster. A listener that resumes there gets what it missed from the event log. `find_feed` returns
      the feed of a logged event, None if the listener does not listen to it. A stream of views has no `find_feed`, because the log has
      events and not what pages show of them: its listener is told to read everything again.
    * `missed` is for a server alone. With it, a listener also resumes if the feeds no longer hold what it missed, as after a restart.
    """

    def __init__(
        self,
        feeds: Callable[[], Sequence[EventFeed]],
        counter: EventCounter,
        signal: Signal,
        style: StreamStyle,
        *,
        ends_with_feed: bool,
        find_feed: FindFeed | None = None,
        missed: MissedEventReader | None = None,
    ) -> None:
        self._find_feed = find_feed
        self._missed = missed
        self._feeds = feeds
        self._counter = counter
        self._signal = signal
        self._style = style
        self._positions: dict[EventFeed, int] = {}
        self._ends_with_feed = ends_with_feed
        self._disconnected = False  # also set to end the stream
        self.dropped = False  # ended because the client was too slow

    def disconnect(self) -> None:
        """Note that the client has disconnected."""
        self._disconnected = True
        self._signal.wake()

    async def serve(self, send: Send, *, after: str | None) -> None:
        """Send events until the client disconnects, or falls so far behind that it must read everything again."""
        try:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            try:
                first_frames = await self._start(after)
            except StoreError:
                # What the listener missed cannot be read now. End the stream without an id, so that the listener asks for it again.
                self._disconnected, first_frames = True, RECONNECT
            await self._write(send, first_frames)
            is_quiet = False
            while not self._disconnected:
                ended = self._counter.ended  # checked before reading, so that the last events are still sent
                new_frames = self._read_feeds()
                if new_frames is None:
                    self.dropped = True
                    await self._write(send, self._to_frame(encode_resync("too slow")))
                    break
                if is_quiet:
                    new_frames = new_frames or self._make_heartbeat()
                    is_quiet = False
                await self._write(send, new_frames)
                if new_frames:
                    continue  # there may be more
                if ended or (self._ends_with_feed and not self._positions):
                    await self._write(send, b"" if self._counter.cluster is None else RECONNECT)
                    break
                is_quiet = not await self._signal.wait(HEARTBEAT_SECONDS)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            for feed in self._positions:
                feed.remove_listener(self._style.granularity)

    async def _start(self, after: str | None) -> bytes:
        """Choose the position in each feed and return the first frames.

        A client resumes after its last id if everything since is still held.
        """
        if after is not None and self._counter.cluster is not None:
            return await self._resume(after, self._counter.cluster)
        for feed in self._feeds():
            self._add_feed(feed, feed.position())
        start = b"id: " + self._counter.make_id().encode() + b"\n"
        if after is None:
            return start + self._to_frame(CONNECTED_BODY)
        number = self._counter.find(after)
        positions = {
            feed: None if number is None else feed.position_after(number) for feed in self._positions
        }
        if number is None or None in positions.values():
            with suppress(CursorLostError):
                if self._missed is not None:
                    return self._to_first_frames(start, await self._missed.read(after, list(self._positions)))
            return self._to_frame(CONNECTED_BODY) + start + self._to_frame(encode_resync("too old"))
        self._positions.update(
            {feed: position for feed, position in positions.items() if position is not None}
        )
        return self._to_frame(CONNECTED_BODY)

    def _to_first_frames(self, start: bytes, missed: Sequence[MissedEvent]) -> bytes:
        """Return the first frames of a listener that gets what it missed from the change log.

        Only the last one has an id. If the connection breaks before that, the listener gets all of them again when it reconnects.
        """
        *frames, last = [
            self._to_frame(CONNECTED_BODY),
            *(self._to_frame(encode_event(each.event), each) for each in missed),
        ]
        return b"".join(frames) + start + last

    def _make_heartbeat(self) -> bytes:
        """Return a heartbeat. Call this when everything was sent: with a log, a listener may resume after it."""
        frame = self._to_frame(HEARTBEAT_BODY)
        if self._counter.log is None:
            return frame
        self._counter.next()
        return b"id: " + self._counter.make_id().encode() + b"\n" + frame

    async def _resume(self, after: str, cluster: Cluster) -> bytes:
        """Return the first frames of a listener that was on this or another node: what it missed, from the log."""
        last = parse_event_id(self._counter.name, after)
        # This node may be behind the one that the listener comes from.
        known = last is not None and (
            last.position <= self._counter.position or await cluster.wait_for(last.position)
        )
        # Nothing is awaited between here and reading the position, so that what follows it is in the feeds.
        early: list[tuple[EventFeed, PartGrew]] = []
        for feed in self._feeds():
            self._add_feed(feed, feed.position())
            early += [(feed, growth) for growth in feed.early.list_unlogged()]
        till, start = self._counter.position, b"id: " + self._counter.make_id().encode() + b"\n"
        connected = self._to_frame(CONNECTED_BODY)
        find_feed = self._find_feed
        if last is not None and known and find_feed is not None:
            with suppress(CursorLostError):
                missed = self._to_missed(last, await cluster.read(last.position, till), early, find_feed)
                return connected + (missed if last.position < till or early else b"")
        return connected + start + self._to_frame(encode_resync("too old"))

    def _to_missed(
        self,
        last: EventID,
        events: Sequence[SharedEvent],
        early: Sequence[tuple[EventFeed, PartGrew]],
        find_feed: FindFeed,
    ) -> bytes:
        """Return the frames of events that a listener missed, then of growth that is not in the log yet."""
        frames: list[bytes] = []
        for event in events:
            feed = find_feed(event.directory, event.session)
            if feed is None:
                continue
            body: bytes | None = event.body
            if event.body.startswith(GROWTH_PREFIX):
                body = self._trim(last, event_from_json(event.body)) if self._sends_growth else None
            if body is not None:
                frames.append(feed.to_frame(f"{self._counter.name}.{event.position}", body, self._style))
        if self._sends_growth:
            trimmed = ((feed, self._trim(last, growth)) for feed, growth in early)
            frames += [feed.to_frame("", body, self._style) for feed, body in trimmed if body is not None]
        return b"".join(frames)

    @property
    def _sends_growth(self) -> bool:
        return self._style.granularity == "deltas"

    def _trim(self, last: EventID, event: Event) -> bytes | None:
        """Encode growth without what the listener was shown early; None if that was all of it."""
        if isinstance(event, PartGrew) and event.part_id == last.part:
            trimmed = trim_growth(event, last.end)
            return None if trimmed is None else encode_event(trimmed)
        return encode_event(event)

    def _add_feed(self, feed: EventFeed, position: int) -> None:
        self._positions[feed] = position
        feed.add_listener(self._style.granularity)

    def _read_feeds(self) -> bytes | None:
        """Return the new events of all feeds in the order in which they happened, None if some are no longer held.

        The order matters: a client that resumes after its last id must have received everything before it.
        """
        for feed in self._feeds():
            if feed not in self._positions and not feed.closed:
                self._add_feed(feed, 0)  # opened after we started: all of it is new
        new_frames: list[bytes] = []
        size = 0
        while size < CHUNK_BYTES and (next_feeds := self._list_feeds_with_new_frames()):
            feed = next_feeds[0][1]
            read = feed.read(
                self._positions[feed], self._style, before=next_feeds[1][0] if next_feeds[1:] else NO_LIMIT
            )
            if read is None:
                return None
            frames, self._positions[feed] = read
            new_frames.append(frames)
            size += len(frames)
        # A closed feed is no longer listed, and may have had last events.
        for feed in [
            each for each, position in self._positions.items() if each.closed and position == each.position()
        ]:
            del self._positions[feed]
            feed.remove_listener(self._style.granularity)
        return b"".join(new_frames)

    def _list_feeds_with_new_frames(self) -> list[tuple[int, EventFeed]]:
        """Return the feeds that have new events, ordered by the number of the next one."""
        numbers = ((feed.number_at(position), feed) for feed, position in self._positions.items())
        return sorted(((number, feed) for number, feed in numbers if number is not None), key=itemgetter(0))

    def _to_frame(self, body: bytes, missed: MissedEvent | None = None) -> bytes:
        """Return a frame that is not an event of a feed. It has no id to resume after."""
        if self._style.wrapped:
            place = {} if missed is None else {"directory": missed.directory, "project": missed.project}
            head = encode({**place, "payload": None}).removesuffix(b"null}")
            body = head + body + b"}"
        return b"data: " + body + b"\n\n"

    async def _write(self, send: Send, body: bytes) -> None:
        if body:
            await send({"type": "http.response.body", "body": body, "more_body": True})


class DirectoryEventsEndpoint:
    """`GET /event`: the events of one directory. Clients of 1.1.34 do not know `PartGrew`, so whole parts are sent unless
    the query has `deltas=1`."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            opened = await self._server.get_directory(self._server.resolve_directory(scope))
        except WeftError as error:
            await send_error(send, make_error_response(error))
            return
        feed, log = opened.feed, self._server.counter.log
        is_named = bool(find_directory(scope["query_string"], read_headers(scope)))
        is_wanted = make_directory_filter(feed, hears_relayed=not is_named)
        granularity: Granularity = "deltas" if _read_query(scope).get("deltas") in {"1", "true"} else "whole"
        style = StreamStyle(granularity=granularity, wrapped=False)

        def find_feed(directory: str, session: SessionID | None) -> EventFeed | None:
            relayed = session in self._server.list_relayed(feed.directory)
            return feed if directory == feed.directory or relayed else None

        stream = ServerEventStream(
            lambda: (feed,),
            self._server.counter,
            feed.signal,
            style,
            ends_with_feed=True,
            find_feed=find_feed,
            missed=None if log is None else MissedEventReader(log, lambda: (opened,), is_wanted),
        )
        await _serve(stream, scope, receive, send, metrics=self._server.event_metrics)


class GlobalEventsEndpoint:
    """`GET /global/event`: the events of all directories. Clients of 1.18 listen here and know `PartGrew`."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        counter = self._server.counter
        style = StreamStyle(granularity="deltas", wrapped=True)
        directories, log = self._server.directories, counter.log
        if log is not None:
            await self._server.settle_dead_runs(log)
        stream = ServerEventStream(
            directories.feeds,
            counter,
            counter.signal,
            style,
            ends_with_feed=False,
            find_feed=lambda directory, _: directories.find_feed(directory),
            missed=None
            if log is None
            else MissedEventReader(log, lambda: directories.list_open().values(), want_everything),
        )
        await _serve(stream, scope, receive, send, metrics=self._server.event_metrics)


class ViewEventsEndpoint:
    """`GET /weft/view/event`: the events of all directories as our page shows them, with the messages of some sessions."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        counter = self._server.counter
        sessions = frozenset(filter(None, _read_query(scope).get("session", "").split(",")))
        style = StreamStyle(granularity="view", wrapped=True, sessions=sessions)
        feeds = self._server.directories.feeds
        stream = ServerEventStream(feeds, counter, counter.signal, style, ends_with_feed=False)
        await _serve(stream, scope, receive, send, metrics=self._server.event_metrics)


async def _serve(
    stream: ServerEventStream, scope: Scope, receive: Receive, send: Send, *, metrics: EventMetrics
) -> None:
    after = read_headers(scope).get("last-event-id") or _read_query(scope).get("after")
    disconnect_task = asyncio.ensure_future(_wait_for_disconnect(receive, stream))
    metrics.streams += 1
    try:
        await stream.serve(send, after=after)
    finally:
        metrics.streams -= 1
        metrics.dropped += stream.dropped
        disconnect_task.cancel()


async def _wait_for_disconnect(receive: Receive, stream: ServerEventStream) -> None:
    try:
        while (await receive())["type"] != "http.disconnect":
            pass
    finally:  # however the connection ends
        stream.disconnect()


def _read_query(scope: Scope) -> dict[str, Any]:
    return dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))

"""Many directories in one server: each is opened once, on demand, and closed when idle; failures are not cached."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from given.engine import open_engine, text_prompt
from weft.api import Api
from weft.api.cluster import SharedEvent
from weft.errors import ConflictError, DirectoryError, EndingError
from weft.model.event import BranchChanged, Event, PublishedEvent, SessionIdled
from weft.model.event_wire import UnknownEvent, encode_event
from weft.model.ids import SessionID
from weft.model.input import SessionInput
from weft.provider.scripted import Say, Wait
from weft.server import directories as module
from weft.server.directories import Directories, DirectoryOptions, WatchFiles, watch_nothing
from weft.server.feed import EventCounter, StreamStyle


class CountingOpener:
    """Opens engines, and counts."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.closed: list[str] = []
        self.fail = 0
        self.gates: dict[str, asyncio.Event] = {}  # what opening or closing a directory waits for
        self.most_at_once = 0

    def __call__(self, directory: str) -> AbstractAsyncContextManager[Api]:
        return self._open(directory)

    @asynccontextmanager
    async def _open(self, directory: str) -> AsyncIterator[Api]:
        if (gate := self.gates.get(f"open {directory}")) is not None:
            await gate.wait()
        if self.fail:
            self.fail -= 1
            raise DirectoryError(directory, "is locked today")
        self.opened.append(directory)
        self.most_at_once = max(self.most_at_once, len(self.opened) - len(self.closed))
        async with open_engine([Say(text="hello")], [Wait(seconds=1)]) as engine:
            yield engine.api
        if (gate := self.gates.get(f"close {directory}")) is not None:
            await gate.wait()
        self.closed.append(directory)


@asynccontextmanager
async def open_directories(
    doors: Callable[[str], AbstractAsyncContextManager[Api]],
    *,
    rest: float = 60,
    note: Callable[[str], None] = print,
    watch_files: WatchFiles = watch_nothing,
) -> AsyncIterator[Directories]:
    async with asyncio.TaskGroup() as tasks:
        terms = DirectoryOptions(open=doors, note=note, idle_seconds=rest, watch_files=watch_files)
        found = Directories(terms, EventCounter("boot"), tasks)
        try:
            yield found
        finally:
            await found.end()


async def let_tasks_run() -> None:
    """Let all tasks run that can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_directory_is_opened_once_for_concurrent_requests() -> None:
    doors = CountingOpener()
    async with open_directories(doors) as directories:
        found = await asyncio.gather(*(directories.get("/a") for _ in range(5)), directories.get("/b"))
        assert len({id(each) for each in found}) == 2
        assert sorted(doors.opened) == ["/a", "/b"]
    assert sorted(doors.closed) == ["/a", "/b"]


async def test_a_failed_opening_is_reported_and_not_cached() -> None:
    doors = CountingOpener()
    doors.fail = 1
    async with open_directories(doors) as directories:
        with pytest.raises(DirectoryError):
            await directories.get("/a")
        assert (await directories.get("/a")).api is not None


async def test_a_closed_directory_is_reopened_after_it_has_settled() -> None:
    doors = CountingOpener()
    async with open_directories(doors) as directories:
        first = await directories.get("/a")
        closing = asyncio.ensure_future(directories.close("/a"))
        await asyncio.sleep(0)
        second = await directories.get("/a")
        assert await closing is True
        assert second is not first
        assert first.feed.closed is True
        assert (doors.opened, doors.closed) == (["/a", "/a"], ["/a"])
        assert await directories.close("/b") is False


async def test_an_idle_directory_is_closed_unless_it_has_listeners_calls_or_runs() -> None:
    doors = CountingOpener()
    async with open_directories(doors, rest=-1) as directories:
        idle, heard, asked, busy = [
            await directories.get(name) for name in ("/idle", "/heard", "/asked", "/busy")
        ]
        heard.feed.listeners["deltas"] += 1
        asked.calls += 1
        session = (await busy.api.create_session(SessionInput())).id
        await busy.api.prompt(session, text_prompt("first"))
        await busy.api.submit(session, text_prompt("second"))
        assert await directories.close_idle() == ["/idle"]
        assert idle.feed.closed is True
        assert set(directories.list_open()) == {"/heard", "/asked", "/busy"}


async def test_the_number_of_open_directories_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_OPEN_DIRECTORIES", 1)
    async with open_directories(CountingOpener()) as directories:
        await directories.get("/a")
        with pytest.raises(ConflictError):
            await directories.get("/b")


# --- races ---


async def test_after_a_failed_opening_all_waiting_requests_share_one_new_opening() -> None:
    doors = CountingOpener()
    doors.fail = 1
    doors.gates["open /a"] = asyncio.Event()
    async with asyncio.timeout(30), open_directories(doors) as directories:
        first = [asyncio.ensure_future(directories.get("/a")) for _ in range(2)]
        await let_tasks_run()
        doors.gates["open /a"].set()
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        later = [asyncio.ensure_future(directories.get("/a")) for _ in range(2)]
        results = await asyncio.gather(*first, *later, return_exceptions=True)
        assert len({id(each) for each in results if not isinstance(each, DirectoryError)}) == 1
        assert doors.opened == ["/a"]
    assert doors.closed == ["/a"]


async def test_cancelling_one_waiter_does_not_cancel_the_opening() -> None:
    doors = CountingOpener()
    doors.gates["open /a"] = asyncio.Event()
    async with asyncio.timeout(30), open_directories(doors) as directories:
        impatient, patient = [asyncio.ensure_future(directories.get("/a")) for _ in range(2)]
        await let_tasks_run()
        impatient.cancel()
        await let_tasks_run()
        newcomer = asyncio.ensure_future(directories.get("/a"))
        await let_tasks_run()
        doors.gates["open /a"].set()
        assert await patient is await newcomer
        assert doors.most_at_once == 1


async def test_closing_does_not_wait_for_an_opening_and_nothing_is_opened_afterwards() -> None:
    doors = CountingOpener()
    doors.gates["open /a"] = asyncio.Event()  # never set
    async with asyncio.timeout(30), open_directories(doors) as directories:
        waiting = asyncio.ensure_future(directories.get("/a"))
        await let_tasks_run()
        await directories.end()
        for asked in (waiting, directories.get("/b")):
            with pytest.raises(EndingError):
                await asked
    assert doors.opened == []


async def test_an_opening_cancelled_at_its_beginning_blocks_nobody() -> None:
    doors = CountingOpener()
    async with asyncio.timeout(30), open_directories(doors) as directories:
        waiting = asyncio.ensure_future(directories.get("/a"))
        ending = asyncio.ensure_future(directories.end())
        with pytest.raises(EndingError):
            await waiting
        await ending
        assert directories.list_open() == {}


async def test_a_run_that_begins_while_others_are_closed_continues() -> None:
    doors = CountingOpener()
    doors.gates["close /idle"] = asyncio.Event()
    async with asyncio.timeout(30), open_directories(doors, rest=-1) as directories:
        await directories.get("/idle")
        busy = await directories.get("/busy")
        session = (await busy.api.create_session(SessionInput())).id
        await busy.api.prompt(session, text_prompt("first"))
        closing = asyncio.ensure_future(directories.close_idle())
        await let_tasks_run()
        await busy.api.submit(session, text_prompt("second"))
        doors.gates["close /idle"].set()
        assert await closing == ["/idle"]
        assert set(directories.list_open()) == {"/busy"}
        assert set(await busy.api.list_status()) == {session}


async def test_a_directory_that_was_opened_again_while_others_are_closed_stays_open() -> None:
    doors = CountingOpener()
    async with open_directories(doors, rest=-1) as directories:
        for directory in ("/slow", "/again"):
            await directories.get(directory)
        doors.gates["close /slow"] = asyncio.Event()
        closing = asyncio.ensure_future(directories.close_idle())
        await let_tasks_run()
        await directories.close("/again")
        opened = await directories.get("/again")
        with opened.use():
            doors.gates["close /slow"].set()
            assert await closing == ["/slow"]
            assert directories.list_open() == {"/again": opened}


async def test_an_event_that_cannot_be_sent_is_noted_and_the_next_one_is_sent() -> None:
    noted: list[str] = []
    async with asyncio.timeout(30), open_directories(CountingOpener(), note=noted.append) as directories:
        opened = await directories.get("/a")
        await let_tasks_run()
        before = opened.feed.position()
        await opened.api.publish(UnknownEvent(named="odd", properties={"it": object()}))
        await let_tasks_run()
        # Earlier listeners are told that events are missing; new ones receive the next events.
        assert opened.feed.position_after(0) is None
        now = opened.feed.position()
        await opened.api.publish(SessionIdled(session_id=SessionID("ses_1")))
        await let_tasks_run()
        assert (before < now, opened.feed.position() - now, opened.feed.closed) == (True, 1, False)
        (line,) = noted
        assert line.startswith("/a: an event could not be sent: TypeError: ")


class SilentOpener(CountingOpener):
    """Opens engines whose events fail as soon as somebody listens."""

    @asynccontextmanager
    async def _open(self, directory: str) -> AsyncIterator[Api]:
        async with super()._open(directory) as api:
            yield SilentApi(api)


class SilentApi:
    """An `Api` that delegates everything except its events."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    async def events(self, *, after: int | None = None) -> AsyncIterator[PublishedEvent]:
        del after
        raise OSError("the line is dead")
        yield  # a generator all the same


async def test_a_directory_whose_events_cannot_be_followed_is_closed_with_a_note() -> None:
    noted: list[str] = []
    async with asyncio.timeout(30), open_directories(SilentOpener(), note=noted.append) as directories:
        opened = await directories.get("/a")
        for _ in range(10):
            await let_tasks_run()
        assert (opened.feed.closed, directories.list_open()) == (True, {})
        assert noted == [
            "/a: an event could not be sent: OSError: the line is dead",
            "/a is closed, because its events cannot be followed",
        ]


# --- watching files ---


async def test_files_are_watched_only_while_somebody_listens() -> None:
    seen: list[str] = []

    async def watch(directory: str, publish: Callable[[Event], Awaitable[None]]) -> None:
        seen.append(f"watch {directory}")
        await publish(BranchChanged(branch="one"))
        try:
            await asyncio.Event().wait()
        finally:
            seen.append(f"leave {directory}")

    async with asyncio.timeout(30), open_directories(CountingOpener(), watch_files=watch) as directories:
        feed = (await directories.get("/a")).feed
        await let_tasks_run()
        assert seen == []
        feed.add_listener("deltas")
        feed.add_listener("whole")
        await let_tasks_run()
        feed.remove_listener("deltas")
        await let_tasks_run()
        assert (seen, feed.position()) == (["watch /a"], 1)
        feed.remove_listener("whole")
        await let_tasks_run()
        assert seen == ["watch /a", "leave /a"]
        feed.add_listener("deltas")
        await let_tasks_run()
    assert seen == ["watch /a", "leave /a", "watch /a", "leave /a"]


async def test_a_failure_to_watch_files_is_noted_and_everything_else_continues() -> None:
    noted: list[str] = []

    async def watch(_: str, __: Callable[[Event], Awaitable[None]]) -> None:
        raise OSError("no more watches")

    async with (
        asyncio.timeout(30),
        open_directories(CountingOpener(), note=noted.append, watch_files=watch) as directories,
    ):
        opened = await directories.get("/a")
        opened.feed.add_listener("deltas")
        await let_tasks_run()
        assert noted == ["/a: files are not watched: OSError: no more watches"]
        await opened.api.publish(SessionIdled(session_id=SessionID("ses_1")))
        await let_tasks_run()
        assert opened.feed.position() == 1


async def test_listeners_of_a_closing_directory_still_receive_events_of_other_nodes() -> None:
    doors = CountingOpener()
    async with open_directories(doors) as directories:
        opened = await directories.get("/a")
        gate = doors.gates["close /a"] = asyncio.Event()
        closing = asyncio.ensure_future(directories.close("/a"))
        await let_tasks_run()
        event = SessionIdled(session_id=SessionID("ses_elsewhere"))
        directories.deliver(
            SharedEvent(position=7, directory="/a", session=None, body=encode_event(event), own=False)
        )
        read = opened.feed.read(0, StreamStyle(granularity="deltas", wrapped=False))
        assert read is not None
        assert b"ses_elsewhere" in read[0]
        gate.set()
        await closing
        assert directories.find_feed("/a") is not opened.feed

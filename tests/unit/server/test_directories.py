"""Many directories in one server: each opened once, when asked for; closed when idle; failures not remembered."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from given.house import open_house, say
from weft.api import Api
from weft.errors import ConflictError, DirectoryError
from weft.model.input import SessionInput
from weft.provider.scripted import Say, Wait
from weft.server import directories as module
from weft.server.directories import Directories, Terms
from weft.server.feed import Numbering


class Doors:
    """Opens houses, and counts."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.closed: list[str] = []
        self.fail = 0

    def __call__(self, directory: str) -> AbstractAsyncContextManager[Api]:
        return self._open(directory)

    @asynccontextmanager
    async def _open(self, directory: str) -> AsyncIterator[Api]:
        if self.fail:
            self.fail -= 1
            raise DirectoryError(directory, "is locked today")
        self.opened.append(directory)
        async with open_house([Say(text="hello")], [Wait(seconds=1)]) as house:
            yield house.api
        self.closed.append(directory)


@asynccontextmanager
async def open_directories(
    doors: Callable[[str], AbstractAsyncContextManager[Api]], *, rest: float = 60
) -> AsyncIterator[Directories]:
    async with asyncio.TaskGroup() as tasks:
        found = Directories(Terms(open=doors, note=print, rest=rest), Numbering("boot"), tasks)
        try:
            yield found
        finally:
            await found.close_all()


async def test_a_directory_is_opened_once_however_many_ask_at_once() -> None:
    doors = Doors()
    async with open_directories(doors) as directories:
        found = await asyncio.gather(*(directories.get("/a") for _ in range(5)), directories.get("/b"))
        assert len({id(each) for each in found}) == 2
        assert sorted(doors.opened) == ["/a", "/b"]
    assert sorted(doors.closed) == ["/a", "/b"]


async def test_a_failure_is_told_and_not_remembered() -> None:
    doors = Doors()
    doors.fail = 1
    async with open_directories(doors) as directories:
        with pytest.raises(DirectoryError):
            await directories.get("/a")
        assert (await directories.get("/a")).api is not None


async def test_one_that_is_closed_is_opened_anew_once_it_has_settled() -> None:
    doors = Doors()
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


async def test_what_nobody_has_asked_for_is_closed_unless_somebody_is_there() -> None:
    doors = Doors()
    async with open_directories(doors, rest=-1) as directories:
        idle, heard, asked, busy = [
            await directories.get(name) for name in ("/idle", "/heard", "/asked", "/busy")
        ]
        heard.feed.listeners["fine"] += 1
        asked.calls += 1
        session = (await busy.api.create_session(SessionInput())).id
        await busy.api.prompt(session, say("first"))
        await busy.api.submit(session, say("second"))
        assert await directories.close_idle() == ["/idle"]
        assert idle.feed.closed is True
        assert set(directories.list_open()) == {"/heard", "/asked", "/busy"}


async def test_there_is_an_end_to_how_many_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_OPEN", 1)
    async with open_directories(Doors()) as directories:
        await directories.get("/a")
        with pytest.raises(ConflictError):
            await directories.get("/b")

"""One MCP server at work: connected when it is needed, heard until it breaks off, tried again when it is due."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from msgspec import Struct

from weft.errors import McpError
from weft.model.workspace import (
    AnyMcpStatus,
    McpConnected,
    McpDisabled,
    McpFailed,
    McpNeedsAuth,
    McpNeedsRegistration,
)
from weft.tool.mcp.entry import LOGIN_SECONDS, AnyEntry, cut_middle
from weft.tool.mcp.link import (
    Dial,
    Link,
    Login,
    LoginNeededError,
    News,
    Offers,
    Progressed,
    RegistrationNeededError,
    first_of,
)

T = TypeVar("T")

# After a failure it is left alone, for twice as long each time.
FIRST_REST: Final = 2.0
LONGEST_REST: Final = 300.0
LONGEST_REASON: Final = 600
# How often it may have its offers looked at again, in seconds.
SETTLE_SECONDS: Final = 0.2
END_SECONDS: Final = 2.0

IDLE: Final = McpDisabled(note="not started: it is, when something is first to be done")
CONNECTING: Final = McpDisabled(note="connecting")
OFF: Final = McpDisabled()


class Around(Struct, frozen=True, kw_only=True):
    """What a server is run with: who connects, who is told of other offers, and who its tasks belong to."""

    dial: Dial
    changed: Callable[[str], Awaitable[None]]
    tasks: asyncio.TaskGroup


class Server:
    """`begin` starts its life, in a task of its own; everything else asks how it stands, or waits with an end."""

    def __init__(self, entry: AnyEntry, around: Around, *, enabled: bool = True) -> None:
        self.entry = entry
        self._rest = IDLE if enabled else OFF
        self.status: AnyMcpStatus = self._rest
        self.offers = Offers()
        self.begun_at = 0.0
        self.fails = 0
        self._around = around
        self._rested_at = 0.0
        self._link: Link | None = None
        self._life: asyncio.Task[None] | None = None
        self._lives: set[asyncio.Task[None]] = set()
        self._news = News()
        self._settled = asyncio.Event()
        self._changes_seen = 0
        self._looked = asyncio.Event()

    @property
    def is_connecting(self) -> bool:
        return self.status is CONNECTING

    @property
    def is_wanted(self) -> bool:
        """Whether it is to be started without anybody asking for it: it is not off, nor left alone for now."""
        due = isinstance(self.status, McpFailed) and asyncio.get_running_loop().time() >= self._rested_at
        return self.status is IDLE or due

    def begin(self, login: Login | None = None) -> None:
        """Connect, unless that is under way or done."""
        if self._life is not None:
            return
        self.status = CONNECTING
        self.begun_at = asyncio.get_running_loop().time()
        self._settled.clear()
        self._life = self._around.tasks.create_task(self._live(login))
        self._lives.add(self._life)
        self._life.add_done_callback(self._lives.discard)

    async def settled(self) -> None:
        """Wait until it is connected, or is not."""
        await self._settled.wait()

    async def caught_up(self) -> None:
        """Wait until the offers were looked at after the last change that it has told of by now."""
        told = self._news.changes
        while self._link is not None and self._changes_seen < told:
            await self._looked.wait()

    async def leave(self, *, off: bool = True) -> None:
        """End the connection. It stays off until somebody connects it again, or as it was."""
        while lives := set(self._lives):
            for life in lives:
                life.cancel()
            # Whoever hangs while saying good-bye is interrupted once more.
            await asyncio.wait(lives, timeout=END_SECONDS)
        self.status = OFF if off else self._rest

    # --- what is asked of it ---

    async def call(self, tool: str, arguments: dict[str, Any], progressed: Progressed) -> dict[str, Any]:
        """Call a tool. Time runs out if it neither answers nor tells of progress for as long as a call may take.

        Cancelled, the server is told, and not waited for.
        """
        limit = asyncio.timeout(self.entry.call + (0 if self._link else self.entry.connect))

        async def heard(done: float, of: float | None, words: str | None) -> None:
            self._wind(limit)
            await progressed(done, of, words)

        try:
            async with limit:
                link = await self._connected()
                self._wind(limit)
                return await self._apart(lambda: link.call(tool, arguments, heard))
        except TimeoutError as error:
            raise self._too_slow() from error

    async def render(self, prompt: str, arguments: dict[str, str]) -> dict[str, Any]:
        return await self._asked(lambda link: link.render(prompt, arguments))

    async def read(self, uri: str) -> dict[str, Any]:
        return await self._asked(lambda link: link.read(uri))

    async def _asked(self, ask: Callable[[Link], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        link = await self._connected()
        try:
            async with asyncio.timeout(self.entry.call):
                return await self._apart(lambda: ask(link))
        except TimeoutError as error:
            raise self._too_slow() from error

    def _wind(self, limit: asyncio.Timeout) -> None:
        if limit.when() is not None and not limit.expired():
            limit.reschedule(asyncio.get_running_loop().time() + self.entry.call)

    def _too_slow(self) -> McpError:
        return McpError(
            f"the MCP server {self.entry.name} did not answer within {self.entry.call:g} seconds",
            hint=f"mcp.{self.entry.name}.timeout (in milliseconds) gives it longer",
        )

    async def _connected(self) -> Link:
        """The connection, made anew if it broke off and is not to be left alone. Raises `McpError`."""
        if self._link is None:
            if self.is_wanted:
                self.begin()
            if self.is_connecting:
                await self.settled()
        if self._link is None:
            raise McpError(f"the MCP server {self.entry.name} is not connected: {describe(self.status)}")
        return self._link

    async def _apart(self, work: Callable[[], Awaitable[T]]) -> T:
        """Have something done in a task that is not the caller's: who is cancelled leaves it behind at once."""
        life = self._life
        task = self._around.tasks.create_task(_caught(work))
        try:
            await asyncio.wait([task, *([life] if life else ())], return_when=asyncio.FIRST_COMPLETED)
            done = task.result() if task.done() else McpError(describe(self.status))
        finally:
            task.cancel()
        if isinstance(done, McpError):
            lost = self._news.lost or (not task.done() and str(done))
            raise McpError(f"the MCP server {self.entry.name} broke off: {lost}") if lost else done
        return done

    # --- its life ---

    async def _live(self, login: Login | None) -> None:
        self._news = news = News()
        self._changes_seen = 0
        seconds = LOGIN_SECONDS if login else self.entry.connect
        limit = asyncio.timeout(seconds)
        try:
            async with limit, self._around.dial(self.entry, news, login) as link:
                self.offers = await link.list_offers()
                limit.reschedule(None)
                self._open(link)
                await self._follow(link, news)
                self._fail(news.lost)
                self._end_of(asyncio.current_task())
        except asyncio.CancelledError:
            if self._life is asyncio.current_task():
                self._close(OFF)
            raise
        except Exception as error:  # noqa: BLE001  a server is a stranger, and its library raises what it likes
            late = f"it did not answer within {seconds:g} seconds" if limit.expired() else ""
            if self._life is asyncio.current_task():
                self._break_off(first_of(error), news.lost or late)
        finally:
            self._end_of(asyncio.current_task())

    def _end_of(self, life: asyncio.Task[None] | None) -> None:
        """What ends is no longer its life; while it still says good-bye another may have begun."""
        if self._life is life:
            self._life = None
            self._settled.set()

    def _open(self, link: Link) -> None:
        self._link, self.fails = link, 0
        self.status = McpConnected(note=self.offers.left_out or None)
        self._settled.set()

    async def _follow(self, link: Link, news: News) -> None:
        """Until it is over, look again at what it offers whenever it says that this has changed."""
        while not news.lost:
            await news.next()
            if news.changes > self._changes_seen and not news.lost:
                await self._look_again(link, news)
                # One that says so all the time is not looked at all the time.
                await asyncio.sleep(SETTLE_SECONDS)

    def _break_off(self, error: BaseException, reason: str) -> None:
        match error:
            case LoginNeededError():
                self._close(McpNeedsAuth())
            case RegistrationNeededError():
                self._close(McpNeedsRegistration(error=cut_middle(str(error), LONGEST_REASON)))
            case _:
                self._fail(reason or str(error) or type(error).__name__)

    async def _look_again(self, link: Link, news: News) -> None:
        told = news.changes
        try:
            async with asyncio.timeout(self.entry.connect):
                self.offers = await link.list_offers()
        except (McpError, TimeoutError):
            return  # it goes by what it said before
        finally:
            self._changes_seen = told
            self._wake()
        self.status = McpConnected(note=self.offers.left_out or None)
        await self._around.changed(self.entry.name)

    def _wake(self) -> None:
        """Those who wait for a look see whether it was the one they wait for."""
        self._looked.set()
        self._looked = asyncio.Event()

    def _fail(self, reason: str) -> None:
        self.fails += 1
        rest = min(FIRST_REST * 2 ** (self.fails - 1), LONGEST_REST)
        self._rested_at = asyncio.get_running_loop().time() + rest
        self._close(McpFailed(error=cut_middle(reason, LONGEST_REASON)))

    def _close(self, status: AnyMcpStatus) -> None:
        self._link = None
        self.status = status
        self._wake()


async def _caught(work: Callable[[], Awaitable[T]]) -> T | McpError:
    """What went wrong as a value: raised in a task of a group, it would end the group."""
    try:
        return await work()
    except McpError as error:
        return error
    except Exception as error:  # noqa: BLE001  the same: nobody knows all that a library raises
        return McpError(f"{type(error).__name__}: {error}")


def describe(status: AnyMcpStatus) -> str:
    """How it stands, in words."""
    match status:
        case McpConnected():
            return "connected"
        case McpDisabled(note=note):
            return note or "it is switched off"
        case McpFailed(error=error):
            return error
        case McpNeedsAuth():
            return "it needs a login"
        case McpNeedsRegistration(error=error):
            return f"it needs a client id ({error})"

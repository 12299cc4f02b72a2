"""Keep one MCP server connected: connect it when it is needed, follow its changes, and retry after failures."""

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
from weft.tool.mcp.connection import (
    ConnectionEvents,
    LoginNeededError,
    McpConnection,
    McpConnector,
    McpLogin,
    McpOffers,
    OnProgress,
    RegistrationNeededError,
    get_first_error,
)
from weft.tool.mcp.contract import LOGIN_TIMEOUT_SECONDS
from weft.tool.mcp.entry import AnyEntry, cut_middle

T = TypeVar("T")

# The delay before a retry doubles with every failure.
FIRST_RETRY_DELAY_SECONDS: Final = 2.0
MAX_RETRY_DELAY_SECONDS: Final = 300.0
MAX_REASON_LENGTH: Final = 600
MIN_REFRESH_INTERVAL_SECONDS: Final = 0.2
DISCONNECT_TIMEOUT_SECONDS: Final = 2.0

IDLE: Final = McpDisabled(note="not started: it starts when it is first needed")
CONNECTING: Final = McpDisabled(note="connecting")
OFF: Final = McpDisabled()


class McpServerContext(Struct, frozen=True, kw_only=True):
    """What a server needs to run: a connector, a callback for changed offers, and the task group of its tasks."""

    connector: McpConnector
    on_change: Callable[[str], Awaitable[None]]
    tasks: asyncio.TaskGroup


class McpServerRunner:
    """One MCP server. `start_connecting` connects it in a task. The other methods return its state, or wait for it."""

    def __init__(self, entry: AnyEntry, context: McpServerContext, *, enabled: bool = True) -> None:
        self.entry = entry
        self._resting_status = IDLE if enabled else OFF
        self.status: AnyMcpStatus = self._resting_status
        self.offers = McpOffers()
        self.started_at = 0.0
        self.failures = 0
        self._context = context
        self._retry_at = 0.0
        self._connection: McpConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._events = ConnectionEvents()
        self._settled = asyncio.Event()
        self._changes_handled = 0
        self._refreshed = asyncio.Event()

    @property
    def is_connecting(self) -> bool:
        return self.status is CONNECTING

    @property
    def is_due(self) -> bool:
        """Return True if it should be connected without a request.

        That is the case if it is not connected, not switched off, and not waiting for a retry.
        """
        is_retry_due = (
            isinstance(self.status, McpFailed) and asyncio.get_running_loop().time() >= self._retry_at
        )
        return self.status is IDLE or is_retry_due

    def start_connecting(self, login: McpLogin | None = None) -> None:
        """Start to connect, unless it is connected or connecting."""
        if self._task is not None:
            return
        self.status = CONNECTING
        self.started_at = asyncio.get_running_loop().time()
        self._settled.clear()
        self._task = self._context.tasks.create_task(self._run(login))
        self._tasks.add(self._task)
        self._task.add_done_callback(self._tasks.discard)
        # A task that is cancelled before it begins runs nothing of `_run`.
        self._task.add_done_callback(self._forget_task)

    async def wait_until_settled(self) -> None:
        """Wait until it is connected or has failed."""
        await self._settled.wait()

    async def wait_for_refresh(self) -> None:
        """Wait until the offers have been read after the last change that the server announced so far."""
        announced = self._events.changes
        while self._connection is not None and self._changes_handled < announced:
            await self._refreshed.wait()

    async def disconnect(self, *, off: bool = True) -> None:
        """Disconnect. With `off`, it stays disconnected until somebody connects it again."""
        while tasks := set(self._tasks):
            for task in tasks:
                task.cancel()
            # Cancel again a task that hangs while it disconnects.
            await asyncio.wait(tasks, timeout=DISCONNECT_TIMEOUT_SECONDS)
        self.status = OFF if off else self._resting_status

    # --- requests ---

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any],
        report: OnProgress,
        *,
        before_sending: Callable[[], Awaitable[None]] | None = None,
    ) -> dict[str, Any]:
        """Call a tool. `before_sending` is awaited when the server is connected.

        The time limit restarts with every report of progress. If the caller is cancelled, the server is notified, but
        the caller does not wait for it. Raise `McpError` on failure.
        """
        deadline = asyncio.timeout(self.entry.call + (0 if self._connection else self.entry.connect))

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            self._extend(deadline)
            await report(progress, total, message)

        try:
            async with deadline:
                connection = await self._connect()
                if before_sending is not None:
                    await before_sending()
                self._extend(deadline)
                return await self._run_detached(lambda: connection.call(tool, arguments, on_progress))
        except TimeoutError as error:
            raise self._make_timeout_error() from error

    async def render(self, prompt: str, arguments: dict[str, str]) -> dict[str, Any]:
        return await self._request(lambda connection: connection.render(prompt, arguments))

    async def read(self, uri: str) -> dict[str, Any]:
        return await self._request(lambda connection: connection.read(uri))

    async def _request(self, send: Callable[[McpConnection], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        connection = await self._connect()
        try:
            async with asyncio.timeout(self.entry.call):
                return await self._run_detached(lambda: send(connection))
        except TimeoutError as error:
            raise self._make_timeout_error() from error

    def _extend(self, deadline: asyncio.Timeout) -> None:
        if deadline.when() is not None and not deadline.expired():
            deadline.reschedule(asyncio.get_running_loop().time() + self.entry.call)

    def _make_timeout_error(self) -> McpError:
        return McpError(
            f"the MCP server {self.entry.name} did not answer within {self.entry.call:g} seconds",
            hint=f"mcp.{self.entry.name}.timeout (in milliseconds) sets a longer limit",
        )

    async def _connect(self) -> McpConnection:
        """Return the connection, connecting again if it is due. Raise `McpError` if there is none."""
        if self._connection is None:
            if self.is_due:
                self.start_connecting()
            if self.is_connecting:
                await self.wait_until_settled()
        if self._connection is None:
            raise McpError(
                f"the MCP server {self.entry.name} is not connected: {describe_status(self.status)}"
            )
        return self._connection

    async def _run_detached(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run in a separate task, so that a cancelled caller does not have to wait for the server."""
        connection_task = self._task
        task = self._context.tasks.create_task(_return_error(work))
        try:
            await asyncio.wait(
                [task, *([connection_task] if connection_task else ())], return_when=asyncio.FIRST_COMPLETED
            )
            result = task.result() if task.done() else McpError(describe_status(self.status))
        finally:
            task.cancel()
        if isinstance(result, McpError):
            end_reason = self._events.end_reason or (not task.done() and str(result))
            raise (
                McpError(f"the MCP server {self.entry.name} disconnected: {end_reason}")
                if end_reason
                else result
            )
        return result

    # --- the connection task ---

    async def _run(self, login: McpLogin | None) -> None:
        self._events = events = ConnectionEvents()
        self._changes_handled = 0
        seconds = LOGIN_TIMEOUT_SECONDS if login else self.entry.connect
        deadline = asyncio.timeout(seconds)
        try:
            async with deadline, self._context.connector(self.entry, events, login) as connection:
                self.offers = await connection.list_offers()
                deadline.reschedule(None)
                self._mark_connected(connection)
                await self._follow_changes(connection, events)
                self._fail(events.end_reason)
                self._forget_task(asyncio.current_task())
        except asyncio.CancelledError:
            if self._task is asyncio.current_task():
                self._close(OFF)
            raise
        except Exception as error:  # noqa: BLE001  the library may raise anything
            timeout_reason = f"it did not answer within {seconds:g} seconds" if deadline.expired() else ""
            if self._task is asyncio.current_task():
                self._handle_failure(get_first_error(error), events.end_reason or timeout_reason)
        finally:
            self._forget_task(asyncio.current_task())

    def _forget_task(self, task: asyncio.Task[None] | None) -> None:
        """Forget a task that is ending. Another one may have started while it was disconnecting."""
        if self._task is task:
            self._task = None
            self._settled.set()

    def _mark_connected(self, connection: McpConnection) -> None:
        self._connection, self.failures = connection, 0
        self.status = McpConnected(note=self.offers.left_out or None)
        self._settled.set()

    async def _follow_changes(self, connection: McpConnection, events: ConnectionEvents) -> None:
        """Read the offers again whenever the server announces a change, until the connection ends."""
        while not events.end_reason:
            await events.wait()
            if events.changes > self._changes_handled and not events.end_reason:
                await self._refresh(connection, events)
                # A server that announces changes all the time must not keep us busy.
                await asyncio.sleep(MIN_REFRESH_INTERVAL_SECONDS)

    def _handle_failure(self, error: BaseException, reason: str) -> None:
        match error:
            case LoginNeededError():
                self._close(McpNeedsAuth())
            case RegistrationNeededError():
                self._close(McpNeedsRegistration(error=cut_middle(str(error), MAX_REASON_LENGTH)))
            case _:
                self._fail(reason or str(error) or type(error).__name__)

    async def _refresh(self, connection: McpConnection, events: ConnectionEvents) -> None:
        announced = events.changes
        try:
            async with asyncio.timeout(self.entry.connect):
                self.offers = await connection.list_offers()
        except (McpError, TimeoutError):
            return  # keep the previous offers
        finally:
            self._changes_handled = announced
            self._notify_refreshed()
        self.status = McpConnected(note=self.offers.left_out or None)
        await self._context.on_change(self.entry.name)

    def _notify_refreshed(self) -> None:
        """Wake those who wait for a refresh; each checks whether it was the one it waits for."""
        self._refreshed.set()
        self._refreshed = asyncio.Event()

    def _fail(self, reason: str) -> None:
        self.failures += 1
        # Bounded before the multiplication: after a thousand failures, the power is too large for a float.
        factor = min(2 ** (self.failures - 1), MAX_RETRY_DELAY_SECONDS / FIRST_RETRY_DELAY_SECONDS)
        delay = FIRST_RETRY_DELAY_SECONDS * factor
        self._retry_at = asyncio.get_running_loop().time() + delay
        self._close(McpFailed(error=cut_middle(reason, MAX_REASON_LENGTH)))

    def _close(self, status: AnyMcpStatus) -> None:
        self._connection = None
        self.status = status
        self._notify_refreshed()


async def _return_error(work: Callable[[], Awaitable[T]]) -> T | McpError:
    """Return an error as a value: raised in a task, it would end the whole task group."""
    try:
        return await work()
    except McpError as error:
        return error
    except Exception as error:  # noqa: BLE001  the library may raise anything
        return McpError(f"{type(error).__name__}: {error}")


def describe_status(status: AnyMcpStatus) -> str:
    """Describe a status in words."""
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

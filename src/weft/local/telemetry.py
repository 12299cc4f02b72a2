"""Send telemetry in the background, if it is configured."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from weft.bus import Bus
from weft.config.load import LoadedConfig
from weft.config.schema import TelemetryConfig
from weft.errors import ConfigError, CursorLostError, InvalidInputError, UnsupportedError
from weft.host.tasks import open_tasks

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.telemetry.fold import TelemetryFold
    from weft.telemetry.record import Record

TRUE_VALUES = ("1", "true")


class TelemetrySettings(Struct, frozen=True, kw_only=True):
    """With `content`, prompts and answers are recorded too. Without an `endpoint`, the environment names the collector."""

    content: bool = False
    endpoint: str | None = None


def read_telemetry_settings(loaded: LoadedConfig, env: Mapping[str, str]) -> TelemetrySettings | None:
    """Read the settings. Return None if telemetry is off. OpenCode's own switch is `experimental.openTelemetry`."""
    experimental = loaded.trusted_config.experiments
    configured = loaded.trusted_config.weft_settings.telemetry
    if isinstance(configured, bool):
        configured = TelemetryConfig(enabled=configured)
    configured = configured or TelemetryConfig()
    enabled = configured.enabled if configured.enabled is not None else experimental.open_telemetry is True
    if not enabled or env.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    content = configured.content
    if content is None:
        content = env.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "").lower() in TRUE_VALUES
    return TelemetrySettings(content=content, endpoint=configured.endpoint)


# How long closing waits for the collector. Records that are not sent by then are dropped.
CLOSE_SECONDS = 1.0
KEY = "experimental.weft.telemetry"

Warn = Callable[[ConfigError], None]


class RecordSink(Protocol):
    """Takes records. `flush` sends the rest and may block."""

    def take(self, record: Record) -> None: ...

    def flush(self) -> None: ...


@asynccontextmanager
async def open_telemetry(settings: TelemetrySettings | None, bus: Bus, warn: Warn) -> AsyncIterator[None]:
    """Send telemetry until the context is left. Warn if it cannot be sent."""
    sink = None if settings is None else _find_sink(settings, warn)
    if settings is None or sink is None:
        yield
        return
    from weft.telemetry.fold import TelemetryFold  # noqa: PLC0415  few configure telemetry

    async with open_follower(bus, TelemetryFold(os.urandom, content=settings.content), sink):
        yield


def _find_sink(settings: TelemetrySettings, warn: Warn) -> RecordSink | None:
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
        warn(
            ConfigError(
                KEY,
                "telemetry is enabled, but its package is not installed; in weft's checkout: pip install '.[otel]'",
            )
        )
        return None
    from weft.telemetry.export import FirstErrorReporter, TelemetryEmitter, make_exporters  # noqa: PLC0415  optional

    try:
        once = FirstErrorReporter(lambda what: warn(ConfigError(KEY, f"telemetry cannot be sent: {what}")))
        return TelemetryEmitter(make_exporters(settings.endpoint, os.environ, once))
    except (UnsupportedError, InvalidInputError) as error:
        warn(ConfigError(KEY, f"{error}{f': {error.hint}' if error.hint else ''}"))
        return None


@asynccontextmanager
async def open_follower(bus: Bus, fold: TelemetryFold, sink: RecordSink) -> AsyncIterator[None]:
    """Send the records of all events to the sink until the context is left."""
    follower = TelemetryFollower(bus, fold, sink)
    async with open_tasks() as tasks:
        task = tasks.create_task(follower.follow())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            await follower.finish()
            await flush_sink(sink)


class TelemetryFollower:
    """Folds the events of the bus into records, and hands them to the sink."""

    def __init__(self, bus: Bus, fold: TelemetryFold, sink: RecordSink) -> None:
        self._bus = bus
        self._fold = fold
        self._sink = sink
        self._listener = bus.listen(None)

    async def follow(self) -> None:
        while True:
            await self._read()

    async def _read(self) -> None:
        try:
            events = await self._listener.take()
        except CursorLostError:  # more events than the bus holds
            self._fold.lose()
            self._listener = self._bus.listen(None)
            return
        for published in events:
            for record in self._fold.feed(published.event):
                self._sink.take(record)

    async def finish(self) -> None:
        """Record the events that were not read yet, and end the open records."""
        if self._bus.cursor > self._listener.cursor:
            await self._read()
        for record in self._fold.close():
            self._sink.take(record)


async def flush_sink(sink: RecordSink, seconds: float = CLOSE_SECONDS) -> None:
    """Flush a sink in a daemon thread, and wait at most `seconds` for it."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def flush() -> None:
        sink.flush()
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(done.set)

    threading.Thread(target=flush, name="weft-telemetry", daemon=True).start()
    with suppress(TimeoutError):
        await asyncio.wait_for(done.wait(), seconds)

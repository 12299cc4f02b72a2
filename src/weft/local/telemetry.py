"""Send telemetry of a running weft in the background, if configuration asks for it."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from typing import Protocol

from msgspec import Struct

from weft.bus import Bus
from weft.config.load import Loaded
from weft.config.schema import Experimental, Own, Telemetry
from weft.errors import ConfigError, CursorLostError, InvalidInputError, UnsupportedError
from weft.host.tasks import open_tasks
from weft.telemetry.fold import Fold
from weft.telemetry.record import Record

YES = ("1", "true")


class Asked(Struct, frozen=True, kw_only=True):
    """`content`: what is said is recorded, too. Without an `endpoint` the environment says where it goes."""

    content: bool = False
    endpoint: str | None = None


def read_telemetry(loaded: Loaded, env: Mapping[str, str]) -> Asked | None:
    """None if nobody asks for it. OpenCode's own switch is `experimental.openTelemetry`."""
    experimental = loaded.vouched.experimental or Experimental()
    said = (experimental.weft or Own()).telemetry
    if isinstance(said, bool):
        said = Telemetry(enabled=said)
    said = said or Telemetry()
    enabled = said.enabled if said.enabled is not None else experimental.open_telemetry is True
    if not enabled or env.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    content = said.content
    if content is None:
        content = env.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "").lower() in YES
    return Asked(content=content, endpoint=said.endpoint)


# What is left is sent within this, or not at all: whoever ran a prompt does not wait for a collector.
CLOSE_SECONDS = 1.0
KEY = "experimental.weft.telemetry"

Warn = Callable[[ConfigError], None]


class Sink(Protocol):
    """Who takes records; `flush` sends what is left, and may take its time."""

    def take(self, record: Record) -> None: ...

    def flush(self) -> None: ...


@asynccontextmanager
async def open_telemetry(asked: Asked | None, bus: Bus, warn: Warn) -> AsyncIterator[None]:
    """While this is open what happens is told to whoever was asked for. What stands in the way of that is warned of."""
    sink = None if asked is None else _find_sink(asked, warn)
    if asked is None or sink is None:
        yield
        return
    async with following(bus, Fold(os.urandom, content=asked.content), sink):
        yield


def _find_sink(asked: Asked, warn: Warn) -> Sink | None:
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
        warn(
            ConfigError(KEY, "telemetry is asked for, and its package is not there: pip install 'weft[otel]'")
        )
        return None
    from weft.telemetry.export import (  # noqa: PLC0415
        Emitter,
        Once,
        find_outlets,
    )

    try:
        once = Once(lambda what: warn(ConfigError(KEY, f"telemetry cannot be sent: {what}")))
        return Emitter(find_outlets(asked.endpoint, os.environ, once))
    except (UnsupportedError, InvalidInputError) as error:
        warn(ConfigError(KEY, f"{error}{f': {error.hint}' if error.hint else ''}"))
        return None


@asynccontextmanager
async def following(bus: Bus, fold: Fold, sink: Sink) -> AsyncIterator[None]:
    follower = Follower(bus, fold, sink)
    async with open_tasks() as tasks:
        task = tasks.create_task(follower.follow())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            await follower.hear_out()
            await flushed(sink)


class Follower:
    def __init__(self, bus: Bus, fold: Fold, sink: Sink) -> None:
        self._bus = bus
        self._fold = fold
        self._sink = sink
        self._listening = bus.listen(None)

    async def follow(self) -> None:
        while True:
            await self._hear()

    async def _hear(self) -> None:
        try:
            heard = await self._listening.take()
        except CursorLostError:  # more happened at once than is held
            self._fold.lose()
            self._listening = self._bus.listen(None)
            return
        for told in heard:
            for record in self._fold.feed(told.event):
                self._sink.take(record)

    async def hear_out(self) -> None:
        """What happened and was not heard yet, and what of it will be heard no more."""
        if self._bus.cursor > self._listening.cursor:
            await self._hear()
        for record in self._fold.close():
            self._sink.take(record)


async def flushed(sink: Sink, seconds: float = CLOSE_SECONDS) -> None:
    """Have what is left sent. A thread that is still at it then keeps nobody from leaving."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def flush() -> None:
        sink.flush()
        with suppress(RuntimeError):  # whoever waited has left
            loop.call_soon_threadsafe(done.set)

    threading.Thread(target=flush, name="weft-telemetry", daemon=True).start()
    with suppress(TimeoutError):
        await asyncio.wait_for(done.wait(), seconds)

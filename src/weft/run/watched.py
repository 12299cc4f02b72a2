"""A tool that does not say what it changes: all that changes while it runs is its doing."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from msgspec.structs import replace

from weft.tool.contract import Ask, ToolContext


@asynccontextmanager
async def watched(context: ToolContext) -> AsyncIterator[ToolContext]:
    """The context for such a tool. While a person is asked nothing is watched: what they do meanwhile is theirs."""
    window = _Window(context.watch)
    await window.open()
    try:
        yield replace(context, ask=_asking(context, window))
    finally:
        await window.close()


class _Window:
    def __init__(self, watch: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        self._watch = watch
        self._held = AsyncExitStack()
        self._asking = 0

    async def open(self) -> None:
        await self._held.enter_async_context(self._watch())

    async def close(self) -> None:
        await self._held.aclose()

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        self._asking += 1
        await self.close()
        try:
            yield
        finally:
            self._asking -= 1
            if not self._asking:
                await self.open()


def _asking(context: ToolContext, window: _Window) -> Ask:
    async def ask(
        permission: str,
        *patterns: str,
        always: tuple[str, ...] = (),
        metadata: dict[str, Any] | None = None,
    ) -> None:
        async with window.away():
            await context.ask(permission, *patterns, always=always, metadata=metadata)

    return ask

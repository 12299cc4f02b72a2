"""The `event` hook: each plugin hears all that happens, in order and at its own pace, and nobody waits for it."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from weft.bus import Bus
from weft.errors import CursorLostError
from weft.plugin.chain import Chain, Voice
from weft.plugin.conduct import Conduct
from weft.plugin.hooks import EVENT, Happened, Nothing

# How long plugins may take for what happened just before weft is closed.
LAST_WORDS: Final = 1.0


class Ear:
    """What one plugin hears. The bus holds what it has yet to hear, and what is too much is lost and told."""

    def __init__(self, plugin: str, voices: Sequence[Voice], bus: Bus) -> None:
        self._plugin = plugin
        self._voices = voices
        self._bus = bus
        self._listener = bus.listen()
        self._heard = self._listener.cursor
        self._moved = asyncio.Event()
        self._over = False

    async def listen(self, chain: Chain, conduct: Conduct) -> None:
        while not conduct.is_off(self._plugin):
            try:
                news = await self._listener.take()
            except CursorLostError:
                conduct.remark(self._plugin, "hook event cannot keep up, and misses some of what happened")
                self._listener = self._bus.listen()
                self._move(self._listener.cursor)
                continue
            for told in news:
                for voice in self._voices:
                    if not conduct.is_off(self._plugin):
                        await chain.ask_one(voice, EVENT, Happened(event=told.event), Nothing())
                self._move(told.cursor)
        self._over = True
        self._moved.set()

    def _move(self, to: int) -> None:
        self._heard = to
        self._moved.set()

    async def caught_up(self) -> None:
        """Wait until all has been heard that was told by now."""
        until = self._bus.cursor
        while self._heard < until and not self._over:
            self._moved.clear()
            await self._moved.wait()


def open_ears(chain: Chain, bus: Bus) -> list[Ear]:
    """One for each plugin that wants to hear what happens."""
    voices: dict[str, list[Voice]] = {}
    for voice in chain.voices(EVENT):
        voices.setdefault(voice.plugin, []).append(voice)
    return [Ear(plugin, each, bus) for plugin, each in voices.items()]


async def hear_last_words(ears: Iterable[Ear]) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(LAST_WORDS):
            await asyncio.gather(*(ear.caught_up() for ear in ears))

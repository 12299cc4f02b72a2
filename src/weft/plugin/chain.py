"""The chain: every hook of every plugin in order, each with its time, and none that can stop or spoil what it is asked about."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext
from functools import partial
from typing import Any, Final

from msgspec import Struct

from weft.errors import BlockedError, DeadlineError
from weft.host.clock import Clock
from weft.host.deadline import Deadline
from weft.plugin.carried import Hooked
from weft.plugin.conduct import Conduct
from weft.plugin.hooks import HOOKS, Hook, Now, Told
from weft.plugin.judge import copied, judge
from weft.plugin.room import Failed, Gave, Outcome, Room

SECONDS: Final = 10.0


class Voice(Struct, frozen=True, kw_only=True):
    """One that is asked at a hook: whose it is, by the path of its plugin, how long it may take, and how it is asked.

    With a `turn` it waits for it first: that is not held against it.
    """

    hook: str
    plugin: str
    ask: Callable[[Hook[Any, Any], Any, Any], Awaitable[Outcome]]
    seconds: float = SECONDS
    turn: asyncio.Lock | None = None


def voice_in(room: Room, hooked: Hooked, *, plugin: str, seconds: float) -> Voice:
    """A function that is asked in its plugin's room. What it gives is judged there, too: it is the plugin's object."""

    def work(hook: Hook[Any, Any], told: Any, now: Any) -> Any:
        given = hooked.function(copied(told), copied(now))
        return _judged(hook, now, given) if hasattr(given, "__await__") else judge(hook, now, given)

    async def ask(hook: Hook[Any, Any], told: Any, now: Any) -> Outcome:
        return await room.do(partial(work, hook, told, now))

    turn = None if inspect.iscoroutinefunction(hooked.function) else room.turn
    return Voice(hook=hooked.hook, plugin=plugin, ask=ask, seconds=seconds, turn=turn)


async def _judged(hook: Hook[Any, Any], now: Any, given: Awaitable[Any]) -> Any:
    return judge(hook, now, await given)


class Chain:
    """`Hooks` over all that were loaded."""

    def __init__(self, voices: Iterable[Voice], conduct: Conduct, clock: Clock) -> None:
        self._voices: dict[str, list[Voice]] = {name: [] for name in HOOKS}
        for voice in voices:
            self._voices[voice.hook].append(voice)
        self._conduct = conduct
        self._clock = clock

    def any(self, hook: Hook[Any, Any]) -> bool:
        return any(not self._conduct.is_off(voice.plugin) for voice in self._voices[hook.name])

    async def ask(self, hook: Hook[Told, Now], told: Told, now: Now) -> Now:
        for voice in self._voices[hook.name]:
            if not self._conduct.is_off(voice.plugin):
                now = await self.ask_one(voice, hook, told, now)
        return now

    async def ask_one(self, voice: Voice, hook: Hook[Told, Now], told: Told, now: Now) -> Now:
        """What one of them makes of it; `now` if it is at fault. Raises `BlockedError` if it says no, and may."""
        what = f"hook {hook.name}"
        try:
            async with voice.turn or nullcontext(), Deadline(what, voice.seconds, self._clock).running():
                outcome = await voice.ask(hook, told, now)
        except DeadlineError:
            self._conduct.fault(voice.plugin, f"{what} took longer than {voice.seconds:g} seconds")
            return now
        match outcome:
            case Gave(value=value) if type(value) is hook.now:
                return value
            case Gave():
                self._conduct.fault(voice.plugin, f"{what} gave nothing that can be used")
            case Failed(error=BlockedError(), reason=reason) if hook.blocks:
                raise BlockedError(reason or f"{voice.plugin} does not allow it")
            case Failed(error=BlockedError()):
                self._conduct.fault(voice.plugin, f"{what} cannot block anything")
            case Failed(reason=reason, lines=lines):
                line = lines.get(voice.plugin, 0)
                self._conduct.fault(voice.plugin, f"{what}: {reason}", line=line)
        return now

    def voices(self, hook: Hook[Any, Any]) -> list[Voice]:
        return self._voices[hook.name]

"""Call the hooks of all plugins in order, each with a deadline, and check what they return."""

import asyncio
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext
from functools import partial
from typing import Any, Final

from msgspec import Struct

from weft.errors import BlockedError, ConfigError, DeadlineError, InvalidInputError
from weft.host.clock import Clock
from weft.host.tasks import Deadline
from weft.model.wire import decode, encode, parse
from weft.plugin.hooks import HOOKS, Hook, Nothing, Now, Told
from weft.plugin.loading import Hooked
from weft.plugin.worker import Failed, Gave, Outcome, Room


def judge(hook: Hook[Any, Now], now: Now, given: Any) -> Now:
    """What is to be: `now` for None, else what was given, made anew so that nobody else holds on to it.

    A dict names what is to be otherwise, as it is called in JSON. Raises `WeftError` for anything else.
    """
    if given is None or hook.now is Nothing:
        return now
    if isinstance(given, dict):
        before = parse(encode(now))
        known = [field for field in hook.now.__struct_encode_fields__ if field != "$extra"]
        for key in given:
            if key not in known:
                hint = f"there is {', '.join(known)}"
                raise InvalidInputError("what it gave back", f"there is no {str(key)[:80]!r} here", hint=hint)
        return decode(encode({**before, **given}), hook.now, where="what it gave back")
    if type(given) is not hook.now:
        wanted = f"a {hook.now.__name__}, a dict or None"
        raise InvalidInputError("what it gave back", f"is a {type(given).__name__}, and should be {wanted}")
    return decode(encode(given), hook.now, where="what it gave back")


def copied(value: Any) -> Any:
    """The same value, with dicts and lists of its own: what a hook does to them is done to nobody else's."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(copied(item) for item in value)
    if isinstance(value, Struct):
        return type(value)(**{name: copied(getattr(value, name)) for name in value.__struct_fields__})
    return value


FAULTS: Final = 3

Report = Callable[[ConfigError], None]


class Conduct:
    """Counts faults by plugin. `report` is how a person hears of them."""

    def __init__(self, report: Report, *, faults: int = FAULTS) -> None:
        self._report = report
        self._allowed = faults
        self._faults: Counter[str] = Counter()

    def is_off(self, plugin: str) -> bool:
        return self._faults[plugin] >= self._allowed

    def fault(self, plugin: str, reason: str, *, line: int = 0) -> None:
        """Note a fault of a plugin, by the path it came from, and tell it. One that is left alone is not heard any more."""
        if self.is_off(plugin):
            return
        self._faults[plugin] += 1
        count = self._faults[plugin]
        after = f"; that was fault {count} of {self._allowed}"
        if self.is_off(plugin):
            after = f"; after {count} faults its hooks are not asked any more"
        self._report(ConfigError(plugin, f"{reason}{after}", at=(line, 0)))

    def give_up(self, plugin: str, reason: str, *, line: int = 0) -> None:
        """Tell what went wrong, and leave the plugin alone at once."""
        if not self.is_off(plugin):
            self._faults[plugin] = self._allowed
            self._report(ConfigError(plugin, f"{reason}; its hooks are not asked", at=(line, 0)))

    def remark(self, plugin: str, reason: str) -> None:
        """Tell something that is not held against the plugin."""
        self._report(ConfigError(plugin, reason))


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

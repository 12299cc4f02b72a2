"""Load plugins, each in a room of its own, at the same time and each with its time to do so."""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from msgspec import Struct

from weft.app.extending.finding import Wanted
from weft.errors import ConfigError, DeadlineError
from weft.host.clock import Clock
from weft.host.deadline import Deadline
from weft.plugin.carried import Carried, gather
from weft.plugin.load import load_file, load_module
from weft.plugin.room import Failed, Gave, Room, Stray

LOAD_SECONDS: Final = 30.0


class Plugin(Struct, frozen=True, kw_only=True):
    """One that was loaded."""

    wanted: Wanted
    carried: Carried
    room: Room


class Unloaded(Struct, frozen=True, kw_only=True):
    """One that could not be, and why."""

    wanted: Wanted
    error: ConfigError


class Loader:
    """`stray` gives who hears what goes wrong in a plugin while nobody waits for it."""

    def __init__(
        self, clock: Clock, stray: Callable[[Wanted], Stray], *, seconds: float = LOAD_SECONDS
    ) -> None:
        self._clock = clock
        self._stray = stray
        self._seconds = seconds
        self._rooms: list[Room] = []

    async def load_all(self, wanted: Iterable[Wanted]) -> list[Plugin | Unloaded]:
        """In the order wanted, whoever is ready first."""
        return list(await asyncio.gather(*(self._load(each) for each in wanted)))

    async def _load(self, wanted: Wanted) -> Plugin | Unloaded:
        room = Room(wanted.name, self._stray(wanted))
        self._rooms.append(room)
        try:
            async with Deadline("loading", self._seconds, self._clock).running():
                outcome = await room.do(partial(_read, wanted))
        except DeadlineError:
            reason = f"took longer than {self._seconds:g} seconds to load, and is left out"
            return Unloaded(wanted=wanted, error=ConfigError(wanted.where, reason))
        match outcome:
            case Gave(value=value):
                return Plugin(wanted=wanted, carried=value, room=room)
            case Failed(error=ConfigError() as error):
                return Unloaded(wanted=wanted, error=error)
            case Failed(reason=reason):
                return Unloaded(wanted=wanted, error=ConfigError(wanted.where, reason))

    async def close(self) -> None:
        await asyncio.gather(*(room.close() for room in self._rooms))


def _read(wanted: Wanted) -> Carried:
    match wanted.kind:
        case "given":
            return gather(wanted.given)
        case "file" | "tools":
            return gather(vars(load_file(wanted.where)))
        case "module" | "package":
            return gather(vars(load_module(wanted.where)))

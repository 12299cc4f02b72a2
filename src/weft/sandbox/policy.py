"""The sandbox policy: what tool processes may touch, and the command prefix that enforces it."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

Kind = Literal["", "bubblewrap", "landlock"]


class Wall(Struct, frozen=True, kw_only=True):
    """What may be touched behind it. All paths are real ones.

    Everything can be read but what lies in `hidden`, of which `readable` is an exception; nothing can be written but
    what lies in `writable`, of which `kept` is an exception.
    """

    hidden: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    network: bool = True


class Sandbox(Struct, frozen=True, kw_only=True):
    """A wall that stands, or none. With a `refusal` nothing may be run at all: a wall is required, and cannot be had.

    `lacks` is what this one cannot hold off. `kept` are paths that nothing run behind it may bring into being.
    """

    kind: Kind = ""
    before: tuple[str, ...] = ()
    refusal: str = ""
    lacks: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    def around(self, argv: Sequence[str]) -> tuple[str, ...]:
        """The command with the wall around it."""
        return (*self.before, *argv)


OPEN = Sandbox()

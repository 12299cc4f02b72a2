"""What a program runs in its turn."""

from collections.abc import Callable

from msgspec import Struct

from weft.tool.shell.field import Reading
from weft.tool.shell.scene import Feed, Scene


class Argv(Struct, frozen=True, kw_only=True):
    """A command that is run by another."""

    fields: Reading
    stdin: Feed | None = None


class Script(Struct, frozen=True, kw_only=True):
    """A text that is run as shell."""

    text: str
    stdin: Feed | None = None


class Setting(Struct, frozen=True, kw_only=True):
    """A variable put into the environment of what follows."""

    name: str
    value: str


Inner = Argv | Script | Setting


class Found(Struct, frozen=True, kw_only=True):
    """What a program runs in its turn; `quiet`: beside that it changes no file but those that were noted.

    `known` are those whose words we can tell apart; any other may take some of them for a command.
    """

    inner: tuple[Inner, ...] = ()
    quiet: bool = True
    known: bool = True


# Look at the words of a program, and at what it is fed, and note what it does with files.
Look = Callable[[Reading, Scene], Found]
LookFed = Callable[[Reading, Scene, Feed | None], Found]

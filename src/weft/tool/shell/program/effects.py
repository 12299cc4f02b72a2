"""The effects of a program besides the files it uses: the commands, scripts and assignments that it runs in turn."""

from collections.abc import Callable

from msgspec import Struct

from weft.tool.shell.arguments import Fields
from weft.tool.shell.state import ShellState, StreamContent


class InnerCommand(Struct, frozen=True, kw_only=True):
    """A command that a program runs."""

    fields: Fields
    stdin: StreamContent | None = None


class InnerScript(Struct, frozen=True, kw_only=True):
    """A text that a program runs as a shell script."""

    text: str
    stdin: StreamContent | None = None


class InnerAssignment(Struct, frozen=True, kw_only=True):
    """A variable that a program sets for the commands it runs."""

    name: str
    value: str


Inner = InnerCommand | InnerScript | InnerAssignment


class ProgramEffects(Struct, frozen=True, kw_only=True):
    """What a program does besides using the files that were noted already.

    `inner` is what it runs in turn. `may_write` means that it may change files other than those noted for it or for
    `inner`. `understood` means that we know what its arguments mean; any other program may take some of them for a
    command.
    """

    inner: tuple[Inner, ...] = ()
    may_write: bool = False
    understood: bool = True


# Note what a program does with files, given its arguments and, if it matters, its input.
Examine = Callable[[Fields, ShellState], ProgramEffects]
ExamineWithInput = Callable[[Fields, ShellState, StreamContent | None], ProgramEffects]

"""Files and terminals that an editor offers to tools."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from weft.model.ids import SessionID
from weft.model.permission import CallRef


class EditorFiles(Protocol):
    """The text files that are open in an editor, with unsaved changes.

    * `read` returns the text as the editor has it, or None if the editor does not have the file.
    * `write` gives the editor a text to show and to save. It returns False if the editor does not take it.
    """

    async def read(self, session: SessionID, path: str) -> str | None: ...

    async def write(self, session: SessionID, path: str, text: str) -> bool: ...


class TerminalEnd(Struct, frozen=True, kw_only=True):
    """How a command in a terminal ended: with an exit code or by a signal. Both are None if that is unknown."""

    code: int | None = None
    signal: str | None = None


class EditorTerminal(Protocol):
    """A command that runs in a terminal of the editor.

    * `read` returns the output, as far as the editor keeps it.
    * `wait` returns when the command has ended. `kill` ends the command and `release` gives the terminal back; neither
      fails if the terminal is gone.
    """

    async def read(self) -> str: ...

    async def wait(self) -> TerminalEnd: ...

    async def kill(self) -> None: ...

    async def release(self) -> None: ...


class EditorTerminals(Protocol):
    """Terminals that a person sees in their editor.

    `open_terminal` starts a command for a tool call. It returns None if the editor offers no terminal.
    """

    async def open_terminal(
        self, session: SessionID, call: CallRef, argv: Sequence[str], directory: str
    ) -> EditorTerminal | None: ...


class EditorWorkspace(EditorFiles, EditorTerminals, Protocol):
    """The parts of an editor that tools may use."""

"""The editor's own files and terminals, where it offers them to us."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from acp import RequestError
from pydantic import ValidationError

from weft.acp.questions import Editor
from weft.acp.session import Room
from weft.model.ids import SessionID
from weft.model.permission import CallRef
from weft.outlook import TerminalEnd

# An editor that does not answer must not hold a run: the file on disk will do.
ANSWER_SECONDS: Final = 10.0
OUTPUT_BYTES: Final = 16 << 20


class Workspace:
    """`EditorWorkspace` over the protocol. `find_room` gives the room of a session, or of the one it works for: those are
    the sessions that the editor knows."""

    def __init__(self, editor: Callable[[], Editor], find_room: Callable[[SessionID], Room | None]) -> None:
        self._editor = editor
        self._find_room = find_room

    async def read(self, session: SessionID, path: str) -> str | None:
        editor, room = self._editor(), self._find_room(session)
        if not editor.reads or room is None:
            return None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return (await editor.client.read_text_file(session_id=room.id, path=path)).content
        except (RequestError, ValidationError, ConnectionError):
            return None  # it has no such file, or none that it could show
        except TimeoutError:
            editor.note(f"the editor did not say what it has in {path}")
            return None

    async def write(self, session: SessionID, path: str, text: str) -> bool:
        editor, room = self._editor(), self._find_room(session)
        if not editor.writes or room is None:
            return False
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await editor.client.write_text_file(session_id=room.id, path=path, content=text)
        except (RequestError, ValidationError, ConnectionError, TimeoutError) as error:
            editor.note(f"the editor did not write {path}: {str(error) or type(error).__name__}")
            return False
        return True

    async def open_terminal(
        self, session: SessionID, call: CallRef, argv: Sequence[str], directory: str
    ) -> "Terminal | None":
        editor, room = self._editor(), self._find_room(session)
        if not editor.terminals or room is None:
            return None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                made = await editor.client.create_terminal(
                    session_id=room.id,
                    command=argv[0],
                    args=list(argv[1:]),
                    cwd=directory,
                    output_byte_limit=OUTPUT_BYTES,
                )
        except (RequestError, ValidationError, ConnectionError, TimeoutError) as error:
            editor.note(f"the editor gave no terminal: {str(error) or type(error).__name__}")
            return None
        shown = room.teller.show_terminal(call, made.terminal_id)
        if shown is not None:
            await editor.client.session_update(session_id=room.id, update=shown)
        return Terminal(editor, room.id, made.terminal_id)


class Terminal:
    """`EditorTerminal` over the protocol."""

    def __init__(self, editor: Editor, session: SessionID, id: str) -> None:
        self._editor = editor
        self._named: dict[str, Any] = {"session_id": session, "terminal_id": id}
        self._said = ""

    async def read(self) -> str:
        """What it has said. An editor that does not say has said nothing new."""
        answer = await self._ask(self._editor.client.terminal_output(**self._named))
        self._said = answer.output if answer is not None else self._said
        return self._said

    async def wait(self) -> TerminalEnd:
        try:
            end = await self._editor.client.wait_for_terminal_exit(**self._named)
        except (RequestError, ValidationError, ConnectionError) as error:
            self._editor.note(f"the editor did not say how a command ended: {error}")
            return TerminalEnd()
        return TerminalEnd(code=end.exit_code, signal=end.signal)

    async def kill(self) -> None:
        await self._ask(self._editor.client.kill_terminal(**self._named))

    async def release(self) -> None:
        await self._ask(self._editor.client.release_terminal(**self._named))

    async def _ask(self, asking: Awaitable[Any]) -> Any:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await asking
        except (RequestError, ValidationError, ConnectionError):
            return None  # the terminal is gone, or the editor is
        except TimeoutError:
            self._editor.note("the editor does not answer for one of its terminals")
            return None

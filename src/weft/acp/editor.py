"""Use the editor's own buffers and terminals, if it offers them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from acp import RequestError
from pydantic import ValidationError

from weft.acp.questions import EditorClient
from weft.acp.session import EditorSession
from weft.api.editor import TerminalEnd
from weft.model.ids import SessionID
from weft.model.permission import CallRef

# An editor that does not answer must not block a run: the file on disk is used then.
ANSWER_TIMEOUT_SECONDS: Final = 10.0
MAX_OUTPUT_BYTES: Final = 16 << 20


class AcpWorkspace:
    """`EditorWorkspace` over the protocol.

    `find_session` returns the open session for a session id: the session itself, or its ancestor that the editor has open.
    """

    def __init__(
        self, editor: Callable[[], EditorClient], find_session: Callable[[SessionID], EditorSession | None]
    ) -> None:
        self._editor = editor
        self._find_session = find_session

    async def read(self, session: SessionID, path: str) -> str | None:
        editor, open_session = self._editor(), self._find_session(session)
        if not editor.reads or open_session is None:
            return None
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
                return (await editor.client.read_text_file(session_id=open_session.id, path=path)).content
        except (RequestError, ValidationError, ConnectionError):
            return None  # it does not have the file, or cannot read it
        except TimeoutError:
            editor.note(f"the editor did not return the content of {path}")
            return None

    async def write(self, session: SessionID, path: str, text: str) -> bool:
        editor, open_session = self._editor(), self._find_session(session)
        if not editor.writes or open_session is None:
            return False
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
                await editor.client.write_text_file(session_id=open_session.id, path=path, content=text)
        except (RequestError, ValidationError, ConnectionError, TimeoutError) as error:
            editor.note(f"the editor did not write {path}: {str(error) or type(error).__name__}")
            return False
        return True

    async def open_terminal(
        self, session: SessionID, call: CallRef, argv: Sequence[str], directory: str
    ) -> "AcpTerminal | None":
        editor, open_session = self._editor(), self._find_session(session)
        if not editor.terminals or open_session is None:
            return None
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
                terminal = await editor.client.create_terminal(
                    session_id=open_session.id,
                    command=argv[0],
                    args=list(argv[1:]),
                    cwd=directory,
                    output_byte_limit=MAX_OUTPUT_BYTES,
                )
        except (RequestError, ValidationError, ConnectionError, TimeoutError) as error:
            editor.note(f"the editor opened no terminal: {str(error) or type(error).__name__}")
            return None
        update = open_session.updates.show_terminal(call, terminal.terminal_id)
        if update is not None:
            await editor.client.session_update(session_id=open_session.id, update=update)
        return AcpTerminal(editor, open_session.id, terminal.terminal_id)


class AcpTerminal:
    """`EditorTerminal` over the protocol."""

    def __init__(self, editor: EditorClient, session: SessionID, id: str) -> None:
        self._editor = editor
        self._ids: dict[str, Any] = {"session_id": session, "terminal_id": id}
        self._output = ""

    async def read(self) -> str:
        """Return the output so far. If the editor does not answer, return the last known output."""
        answer = await self._ask(self._editor.client.terminal_output(**self._ids))
        self._output = answer.output if answer is not None else self._output
        return self._output

    async def wait(self) -> TerminalEnd:
        try:
            end = await self._editor.client.wait_for_terminal_exit(**self._ids)
        except (RequestError, ValidationError, ConnectionError) as error:
            self._editor.note(f"the editor did not report how a command ended: {error}")
            return TerminalEnd()
        return TerminalEnd(code=end.exit_code, signal=end.signal)

    async def kill(self) -> None:
        await self._ask(self._editor.client.kill_terminal(**self._ids))

    async def release(self) -> None:
        await self._ask(self._editor.client.release_terminal(**self._ids))

    async def _ask(self, request: Awaitable[Any]) -> Any:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
                return await request
        except (RequestError, ValidationError, ConnectionError):
            return None  # the terminal or the editor is gone
        except TimeoutError:
            self._editor.note("the editor does not answer for one of its terminals")
            return None

"""Text files as tools see them: on disk, or as an editor has them open with unsaved changes."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Final

from weft.errors import ToolError
from weft.model.ids import SessionID
from weft.tool import files
from weft.tool.files import MAX_TEXT_BYTES, Stamp, TextFile, check_replaceable, with_tool_errors

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.api.editor import EditorFiles

_BOM: Final = "\ufeff"


class SessionFiles:
    """The text files of one session. Without an `editor`, they are the files on disk."""

    def __init__(self, session: SessionID = SessionID(""), editor: EditorFiles | None = None) -> None:  # noqa: B008
        self._session = session
        self._editor = editor

    async def find_text(self, path: str) -> TextFile | None:
        """Return a text file with the person's unsaved changes, or None if there is no such file."""
        return await self.find_unsaved(path) or await files.find_text(path)

    async def find_stamp(self, path: str) -> Stamp | None:
        """Return the stamp of a file with the person's unsaved changes, or None if there is no such file."""
        unsaved = await self.find_unsaved(path)
        return unsaved.stamp if unsaved is not None else await files.find_stamp(path)

    async def find_unsaved(self, path: str) -> TextFile | None:
        """Return the text that the person has typed but not saved, or None if the editor has the same text as the disk."""
        if self._editor is None:
            return None
        stamp = await files.find_stamp(path)
        if stamp is not None and stamp.size > MAX_TEXT_BYTES:
            return None
        disk = await files.find_text(path)
        if disk is not None and not _is_plain(disk.content):
            return None
        buffer = await self._editor.read(self._session, path)
        if buffer is None or not _is_plain(buffer) or _is_same(disk.content if disk else "", buffer):
            return None
        digest = hashlib.sha256(buffer.encode()).hexdigest()
        if disk is None:
            return TextFile(content=buffer, stamp=Stamp(modified=0, size=-1, unsaved=digest))
        stamp = Stamp(modified=disk.stamp.modified, size=disk.stamp.size, unsaved=digest)
        return TextFile(content=_convert_to_disk_form(disk.content, buffer), stamp=stamp)

    async def save(self, path: str, content: str) -> None:
        """Save the person's unsaved text before a tool changes the file, so that undo brings their text back.

        Raise `ToolError` if the editor cannot save it.
        """
        assert self._editor is not None, "without an editor nothing is unsaved"
        if not await self._editor.write(self._session, path, content):
            raise ToolError(
                f"{path} has changes in the editor that are not saved, and the editor could not save them. "
                "Ask the person to save the file."
            )
        await self._ensure_on_disk(path, content)

    async def write_text(self, path: str, content: str) -> Stamp:
        """Replace the text of a file in the editor, if there is one, and on disk. Return the new stamp."""
        if self._editor is not None and _is_plain(content):
            await asyncio.to_thread(with_tool_errors(lambda: check_replaceable(path)))
            await self._editor.write(self._session, path, content)
        return await self._ensure_on_disk(path, content)

    async def refresh_editor(self, path: str, sent: str) -> None:
        """Send the text on disk to the editor if it differs from `sent`, the last text that the editor received."""
        current = await files.find_text(path) if self._editor is not None else None
        if self._editor is not None and current and current.content != sent and _is_plain(current.content):
            await self._editor.write(self._session, path, current.content)

    async def _ensure_on_disk(self, path: str, content: str) -> Stamp:
        """Write the text to disk unless the editor has saved exactly this text, and return the stamp of the file."""
        if self._editor is not None:
            disk = await files.find_text(path)
            if disk is not None and disk.content == content:
                return disk.stamp
        return await files.write_text(path, content)


def _is_plain(text: str) -> bool:
    """Return True if an editor would return this text unchanged: it is valid UTF-8 and has no NUL."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def _is_same(disk: str, buffer: str) -> bool:
    """Compare texts regardless of line endings, the byte order mark and a final newline, which editors change."""
    one, other = (text.removeprefix(_BOM).replace("\r\n", "\n").removesuffix("\n") for text in (disk, buffer))
    return one == other


def _convert_to_disk_form(disk: str, buffer: str) -> str:
    """Return the editor's text with the line endings and the byte order mark of the file on disk."""
    body = buffer.removeprefix(_BOM).replace("\r\n", "\n")
    if disk.count("\r\n") == disk.count("\n") > 0:
        body = body.replace("\n", "\r\n")
    elif "\r\n" in disk:
        body = buffer.removeprefix(_BOM)
    return (_BOM if disk.startswith(_BOM) else "") + body

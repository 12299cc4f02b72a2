"""Files as tools see them: on disk, or as an editor has them open with what is not saved yet."""

import asyncio
import hashlib
from typing import Final

from weft.errors import ToolError
from weft.model.ids import SessionID
from weft.outlook import EditorFiles
from weft.tool import files
from weft.tool.files import TEXT_LIMIT, Stamp, Text, check_replaceable, told

_BOM: Final = "\ufeff"


class Files:
    """The text files of one session. Without an `editor` they are those on disk, and nothing else is asked."""

    def __init__(self, session: SessionID = SessionID(""), editor: EditorFiles | None = None) -> None:  # noqa: B008
        self._session = session
        self._editor = editor

    async def find_text(self, path: str) -> Text | None:
        """The whole of a text file that is to be changed, as the person sees it."""
        return await self.find_unsaved(path) or await files.find_text(path)

    async def find_stamp(self, path: str) -> Stamp | None:
        found = await self.find_unsaved(path)
        return found.stamp if found is not None else await files.find_stamp(path)

    async def find_unsaved(self, path: str) -> Text | None:
        """What the person has typed and not saved; None if the editor has nothing else than the disk."""
        if self._editor is None:
            return None
        stamp = await files.find_stamp(path)
        if stamp is not None and stamp.size > TEXT_LIMIT:
            return None
        disk = await files.find_text(path)
        if disk is not None and not _is_plain(disk.content):
            return None
        held = await self._editor.read(self._session, path)
        if held is None or not _is_plain(held) or _is_same(disk.content if disk else "", held):
            return None
        digest = hashlib.sha256(held.encode()).hexdigest()
        if disk is None:
            return Text(content=held, stamp=Stamp(modified=0, size=-1, unsaved=digest))
        stamp = Stamp(modified=disk.stamp.modified, size=disk.stamp.size, unsaved=digest)
        return Text(content=_in_form_of(disk.content, held), stamp=stamp)

    async def save(self, path: str, content: str) -> None:
        """Save what the person has typed, as theirs, before it is changed: undo then gives it back."""
        assert self._editor is not None, "without an editor nothing is unsaved"
        if not await self._editor.write(self._session, path, content):
            raise ToolError(
                f"{path} has changes in the editor that are not saved, and the editor could not save them. "
                "Ask the person to save the file."
            )
        await self._see_on_disk(path, content)

    async def write_text(self, path: str, content: str) -> Stamp:
        """Put a text in a file's place: through the editor if it can, and on disk in any case."""
        if self._editor is not None and _is_plain(content):
            await asyncio.to_thread(told(lambda: check_replaceable(path)))
            await self._editor.write(self._session, path, content)
        return await self._see_on_disk(path, content)

    async def show(self, path: str, known: str) -> None:
        """Give the editor what stands on disk, if that is something else than what it has been given."""
        stands = await files.find_text(path) if self._editor is not None else None
        if self._editor is not None and stands and stands.content != known and _is_plain(stands.content):
            await self._editor.write(self._session, path, stands.content)

    async def _see_on_disk(self, path: str, content: str) -> Stamp:
        """An editor may have taken the text and not saved it, or saved it in another form."""
        if self._editor is not None:
            disk = await files.find_text(path)
            if disk is not None and disk.content == content:
                return disk.stamp
        return await files.write_text(path, content)


def _is_plain(text: str) -> bool:
    """Whether an editor can have this text: what is not UTF-8, or not text, it would not give back as it was."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def _is_same(disk: str, held: str) -> bool:
    """Editors have their own ways with line endings, a byte order mark and the end of the last line."""
    one, other = (text.removeprefix(_BOM).replace("\r\n", "\n").removesuffix("\n") for text in (disk, held))
    return one == other


def _in_form_of(disk: str, held: str) -> str:
    """What is held, with the line endings and the byte order mark of the file."""
    body = held.removeprefix(_BOM).replace("\r\n", "\n")
    if disk.count("\r\n") == disk.count("\n") > 0:
        body = body.replace("\n", "\r\n")
    elif "\r\n" in disk:
        body = held.removeprefix(_BOM)
    return (_BOM if disk.startswith(_BOM) else "") + body

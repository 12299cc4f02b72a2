"""Change the paths of an imported session to its new location, and its ids if the original is already here."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import InvalidInputError
from weft.model.ids import ALPHABET, HEX_LENGTH, RANDOM_LENGTH, MessageID, PartID, SessionID
from weft.model.message import AnyMessage, AssistantMessage, MessageWithParts
from weft.model.part import AnyPart, CompletedState, FilePart, ToolPart
from weft.model.session import SessionRevert
from weft.model.transfer import SessionExport
from weft.model.wire import from_plain, to_plain

# Fields that hold text, which must not change even if it looks like a path.
TEXT_FIELDS = frozenset(
    {
        *("text", "output", "raw", "title", "content", "prompt", "description", "error", "system"),
        *("oldString", "newString", "patchText", "before", "after", "diff", "preview", "id", "slug"),
    }
)


class Rebind(Struct, frozen=True):
    """Paths below `old` become paths below `new`."""

    old: str
    new: str


def parse_rebind(text: str) -> Rebind:
    """Parse `OLD=NEW`. Both must be absolute; raise `InvalidInputError` otherwise."""
    old, equals, new = text.partition("=")
    if not equals or not os.path.isabs(old) or not os.path.isabs(new):
        raise InvalidInputError(
            "--rebind",
            f"{text!r} is not OLD=NEW with two absolute paths",
            hint="write it like /home/old/project=/home/new/project",
        )
    return Rebind(_strip_slash(old), _strip_slash(new))


def rebind_path(path: str, rebinds: Sequence[Rebind]) -> str:
    """Return a path after the first rebind that matches it."""
    for rebind in rebinds:
        if path == rebind.old:
            return rebind.new
        if path.startswith(f"{rebind.old}/"):
            return rebind.new + path[len(rebind.old) :]
    return path


def rebind_export(export: SessionExport, rebinds: Sequence[Rebind]) -> SessionExport:
    """Change all paths of a session. For each path, the first matching rebind applies."""
    effective = [rebind for rebind in rebinds if rebind.old != rebind.new]
    if not effective:
        return export
    urls = [Rebind(f"file://{quote(each.old)}", f"file://{quote(each.new)}") for each in effective]
    plain: Any = _rebind_value(to_plain(export), (*effective, *urls))
    return from_plain(plain, SessionExport, where=export.info.id)


def _rebind_value(value: Any, rebinds: Sequence[Rebind]) -> Any:
    match value:
        case str():
            return rebind_path(value, rebinds) if value[:1] == "/" or value[:5] == "file:" else value
        case Mapping():
            return {
                key: item if key in TEXT_FIELDS and isinstance(item, str) else _rebind_value(item, rebinds)
                for key, item in value.items()
            }
        case list() | tuple():
            return [_rebind_value(item, rebinds) for item in value]
        case _:
            return value


def choose_origin_checkout(export: SessionExport) -> str:
    """Return the root of the checkout in which a session was made, if its messages tell; otherwise its directory."""
    directory = export.info.directory
    for message in export.messages:
        if isinstance(message.info, AssistantMessage) and message.info.path is not None:
            root = message.info.path.root
            if root != "/" and (directory == root or directory.startswith(f"{root}/")):
                return root
    return directory


def find_rebinds(incoming: SessionExport, present: SessionExport) -> tuple[Rebind, ...]:
    """Return the rebinds that convert the paths of one state of a session to those of another state elsewhere."""
    if not incoming.info.directory or incoming.info.directory == present.info.directory:
        return ()
    old, new = choose_origin_checkout(incoming), choose_origin_checkout(present)
    if incoming.info.directory[len(old) :] != present.info.directory[len(new) :]:
        old, new = incoming.info.directory, present.info.directory
    return (Rebind(old, new),)


def _strip_slash(path: str) -> str:
    return path.rstrip("/") or "/"


_TIMED_ID = re.compile(rf"([a-z]+_[0-9a-f]{{{HEX_LENGTH}}})[0-9A-Za-z]+")


def make_letters(*words: str, length: int = RANDOM_LENGTH) -> str:
    """Return letters that look random but are derived from the words."""
    number = int.from_bytes(sha256("\0".join(words).encode("utf-8", "surrogatepass")).digest())
    letters = []
    for _ in range(length):
        number, digit = divmod(number, len(ALPHABET))
        letters.append(ALPHABET[digit])
    return "".join(letters)


def rename_id(id: str, seed: str) -> str:
    """Return a new id that is derived from an old one and a seed. It keeps the time in the id."""
    match = _TIMED_ID.fullmatch(id)
    prefix = id.partition("_")[0]
    head = match[1] if match else f"{prefix}_{int(sha256(id.encode()).hexdigest()[:HEX_LENGTH], 16):012x}"
    return head + make_letters(seed, id)


class IdRenamer:
    """Gives a session and everything in it new ids, which are derived from the old ones and a seed."""

    def __init__(self, export: SessionExport, seed: str) -> None:
        self._export = export
        self._seed = seed
        self._messages = {message.info.id for message in export.messages}

    def rename(self) -> SessionExport:
        """Return the session with new ids."""
        info = self._export.info
        revert = info.revert
        session = SessionID(rename_id(info.id, self._seed))
        return replace(
            self._export,
            # A shared link belongs to the original.
            info=replace(
                info, id=session, share=None, revert=None if revert is None else self._rename_revert(revert)
            ),
            messages=tuple(self._rename_message(message, session) for message in self._export.messages),
        )

    def _rename_revert(self, revert: SessionRevert) -> SessionRevert:
        part = None if revert.part_id is None else PartID(rename_id(revert.part_id, self._seed))
        return replace(revert, message_id=self._rename_message_id(revert.message_id), part_id=part)

    def _rename_message_id(self, id: MessageID) -> MessageID:
        return MessageID(rename_id(id, self._seed)) if id in self._messages else id

    def _rename_message(self, message: MessageWithParts, session: SessionID) -> MessageWithParts:
        id = self._rename_message_id(message.info.id)
        return replace(
            message,
            info=self._rename_info(message.info, id, session),
            parts=tuple(
                move_part(part, id, session, lambda old: PartID(rename_id(old, self._seed)))
                for part in message.parts
            ),
        )

    def _rename_info(self, info: AnyMessage, id: MessageID, session: SessionID) -> AnyMessage:
        if isinstance(info, AssistantMessage):
            return replace(info, id=id, session_id=session, parent_id=self._rename_message_id(info.parent_id))
        return replace(info, id=id, session_id=session)


def _keep_id(id: PartID) -> PartID:
    return id


def move_part(
    part: AnyPart, message: MessageID, session: SessionID, rename: Callable[[PartID], PartID] = _keep_id
) -> AnyPart:
    """Return the part and its attachments as parts of this message. `rename` returns the new id of each."""
    part = replace(part, id=rename(part.id), message_id=message, session_id=session)
    if not (isinstance(part, ToolPart) and isinstance(part.state, CompletedState) and part.state.attachments):
        return part
    files: tuple[FilePart, ...] = tuple(
        replace(file, id=rename(file.id), message_id=message, session_id=session)
        for file in part.state.attachments
    )
    return replace(part, state=replace(part.state, attachments=files))

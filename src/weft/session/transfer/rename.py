"""New names for a session that has to live beside its original: always the same ones for the same reason.

A session that is brought here twice must not be kept twice. So the names of a copy are not drawn by lot: they follow
from the old names and from why a copy was needed. They keep the part that says when, for order is read from it.
"""

import re
from collections.abc import Callable
from hashlib import sha256

from msgspec.structs import replace

from weft.model.ids import ALPHABET, HEX_LENGTH, RANDOM_LENGTH, MessageID, PartID, SessionID
from weft.model.message import AnyMessage, AssistantMessage, MessageWithParts
from weft.model.parcel import Parcel
from weft.model.part import AnyPart, CompletedState, FilePart, ToolPart
from weft.model.session import SessionRevert

_TIMED = re.compile(rf"([a-z]+_[0-9a-f]{{{HEX_LENGTH}}})[0-9A-Za-z]+")


def letters(*words: str, length: int = RANDOM_LENGTH) -> str:
    """Letters that follow from the words and look like nothing."""
    number = int.from_bytes(sha256("\0".join(words).encode("utf-8", "surrogatepass")).digest())
    found = []
    for _ in range(length):
        number, digit = divmod(number, len(ALPHABET))
        found.append(ALPHABET[digit])
    return "".join(found)


def renamed_id(id: str, why: str) -> str:
    timed = _TIMED.fullmatch(id)
    prefix = id.partition("_")[0]
    head = timed[1] if timed else f"{prefix}_{int(sha256(id.encode()).hexdigest()[:HEX_LENGTH], 16):012x}"
    return head + letters(why, id)


class Renaming:
    """Every id of one parcel, and what it becomes."""

    def __init__(self, parcel: Parcel, why: str) -> None:
        self._parcel = parcel
        self._why = why
        self._messages = {message.info.id for message in parcel.messages}

    def parcel(self) -> Parcel:
        info = self._parcel.info
        revert = info.revert
        session = SessionID(renamed_id(info.id, self._why))
        return replace(
            self._parcel,
            # A link that was shared leads to the original and not to this one.
            info=replace(
                info, id=session, share=None, revert=None if revert is None else self._revert(revert)
            ),
            messages=tuple(self._message(message, session) for message in self._parcel.messages),
        )

    def _revert(self, revert: SessionRevert) -> SessionRevert:
        part = None if revert.part_id is None else PartID(renamed_id(revert.part_id, self._why))
        return replace(revert, message_id=self._message_id(revert.message_id), part_id=part)

    def _message_id(self, id: MessageID) -> MessageID:
        return MessageID(renamed_id(id, self._why)) if id in self._messages else id

    def _message(self, message: MessageWithParts, session: SessionID) -> MessageWithParts:
        id = self._message_id(message.info.id)
        return replace(
            message,
            info=self._info(message.info, id, session),
            parts=tuple(
                placed(part, id, session, lambda old: PartID(renamed_id(old, self._why)))
                for part in message.parts
            ),
        )

    def _info(self, info: AnyMessage, id: MessageID, session: SessionID) -> AnyMessage:
        if isinstance(info, AssistantMessage):
            return replace(info, id=id, session_id=session, parent_id=self._message_id(info.parent_id))
        return replace(info, id=id, session_id=session)


def _same(id: PartID) -> PartID:
    return id


def placed(
    part: AnyPart, message: MessageID, session: SessionID, name: Callable[[PartID], PartID] = _same
) -> AnyPart:
    """The part as one of this message, the files a call brought back included."""
    part = replace(part, id=name(part.id), message_id=message, session_id=session)
    if not (isinstance(part, ToolPart) and isinstance(part.state, CompletedState) and part.state.attachments):
        return part
    files: tuple[FilePart, ...] = tuple(
        replace(file, id=name(file.id), message_id=message, session_id=session)
        for file in part.state.attachments
    )
    return replace(part, state=replace(part.state, attachments=files))

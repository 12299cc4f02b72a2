"""Messages of the tree with their parts, and the growth that parts have gained folded in."""

import os
from contextlib import suppress

from msgspec.structs import replace

from weft.errors import DocumentError
from weft.host.files import read_file
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import AnyMessage, MessageWithParts, message_order, place_of, sort_parts
from weft.model.part import AnyPart
from weft.model.wire import decode
from weft.store.documents import LIMIT
from weft.store.growth import fold, read_growth
from weft.store.tree import Tree


class Messages:
    """Reads without a lock: whoever must not see half a batch holds one."""

    def __init__(self, tree: Tree) -> None:
        self._layout = tree.layout
        self._documents = tree.documents

    def list_messages(
        self, session: SessionID, *, last: int | None = None, before: MessageID | None = None
    ) -> list[MessageWithParts]:
        """Oldest first; of the `last` few only, if so asked, and of those `before` a message, if one is named."""
        found = [info for id in self.list_ids(session) if (info := self._info(session, id)) is not None]
        infos = sorted(found, key=message_order)
        infos = infos[: place_of(before, (info.id for info in infos))]
        wanted = infos if last is None else infos[max(0, len(infos) - last) :]
        growing = self._growing()
        return [self._whole(info, grown=info.id in growing) for info in wanted]

    def list_ids(self, session: SessionID) -> list[MessageID]:
        """In no order, and those too that cannot be read."""
        return [MessageID(name) for name in self._documents.names(self._layout.messages(session))]

    def find_message(self, session: SessionID, id: MessageID) -> MessageWithParts | None:
        info = self._info(session, id)
        return None if info is None else self._whole(info, grown=True)

    def find_part(self, message: MessageID, id: PartID) -> AnyPart | None:
        part: AnyPart | None = self._documents.find(self._layout.part(message, id), AnyPart)
        return None if part is None else self._grown(message, id, part)

    def _whole(self, info: AnyMessage, *, grown: bool) -> MessageWithParts:
        directory, parts = self._layout.parts(info.id), []
        for name in self._documents.names(directory):
            id = PartID(name)
            part: AnyPart | None = self._documents.find(f"{directory}/{name}.json", AnyPart)
            if part is not None:
                part = self._grown(info.id, id, part) if grown else part
                parts.append(_placed(part, info, id))
        return MessageWithParts(info=info, parts=sort_parts(parts, info))

    def _info(self, session: SessionID, id: MessageID) -> AnyMessage | None:
        info: AnyMessage | None = self._documents.find(self._layout.message(session, id), AnyMessage)
        if info is None or (info.id == id and info.session_id == session):
            return info
        return replace(info, id=id, session_id=session)

    def _growing(self) -> set[str]:
        with suppress(OSError):
            return set(os.listdir(self._layout.growths))
        return set()

    def _grown(self, message: MessageID, id: PartID, part: AnyPart) -> AnyPart:
        growth = self._layout.growth(message, id)
        if not os.path.exists(growth):
            return part
        with suppress(OSError, DocumentError):
            # Read once more: what grew is these very bytes, and what was remembered may be older.
            raw, _ = read_file(self._layout.part(message, id), limit=LIMIT)
            return fold(decode(raw, AnyPart), read_growth(growth, raw).pieces)
        return part


def _placed(part: AnyPart, info: AnyMessage, id: PartID) -> AnyPart:
    """Where it lies is what it belongs to (see `tree`)."""
    if part.id == id and part.message_id == info.id and part.session_id == info.session_id:
        return part
    return replace(part, id=id, message_id=info.id, session_id=info.session_id)

"""Read messages and parts from the JSON tree without an event loop. Listing sessions does not load this module."""

import os
from collections.abc import Collection
from contextlib import suppress
from typing import NamedTuple

from msgspec.structs import replace

from weft.errors import DocumentError
from weft.host.files import Stamp, is_settled, read_file, stamp_of
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import AnyMessage, MessageWithParts, message_order, place_of, sort_parts
from weft.model.part import AnyPart
from weft.model.wire import decode
from weft.store.files.documents import LIMIT, Seen
from weft.store.files.growth import fold, read_growth
from weft.store.files.reader import Tree


class Listing(NamedTuple):
    """The names of the documents in a directory, by its stamp; without one when that would not tell of all changes."""

    stamp: Stamp | None
    names: frozenset[str]


NOT_LISTED = Listing(None, frozenset())


class Entry(NamedTuple):
    """A message as it was read, with the documents that it was made of; `grown` when there was more than those."""

    message: MessageWithParts
    info: Seen
    listing: Listing
    parts: dict[str, Seen]
    grown: bool

    @property
    def size(self) -> int:
        return self.info.size + sum(part.size for part in self.parts.values())


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
        growing = self.growing()
        return [self._whole(info, grown=info.id in growing) for info in wanted]

    def list_ids(self, session: SessionID) -> list[MessageID]:
        """In no order, and those too that cannot be read."""
        return [MessageID(name) for name in self._documents.names(self._layout.messages(session))]

    def list_again(self, session: SessionID, known: Listing) -> Listing:
        """The names of a session's messages, in no order, and those too that cannot be read."""
        return self._listed(self._layout.messages(session), known)

    def look(
        self, session: SessionID, id: MessageID, known: Entry | None, growing: Collection[str]
    ) -> Entry | None:
        """The message as it is now, the same object if it is as it is known. None if it cannot be read."""
        info = self._documents.see(self._layout.message(session, id), AnyMessage, known and known.info)
        if info is None:
            return None
        directory, before = self._layout.parts(id), known.parts if known else {}
        listing = self._listed(directory, known.listing if known else NOT_LISTED)
        parts: dict[str, Seen] = {}
        for name in listing.names:
            part = self._documents.see(f"{directory}/{name}.json", AnyPart, before.get(name))
            if part is not None:
                parts[name] = part
        grown = id in growing
        if known is not None and not (grown or known.grown) and _are_same(known, info, parts):
            return Entry(known.message, info, listing, parts, grown)
        message = self._message(_placed_message(info.value, session, id), parts, grown=grown)
        if known is not None and known.message == message:
            message = known.message
        return Entry(message, info, listing, parts, grown)

    def with_part(self, known: Entry, part: AnyPart) -> Entry | None:
        """The message with a part of it as we have just written it. None if that cannot be told without looking."""
        seen = known.parts.get(part.id)
        if seen is None or known.grown:
            return None
        parts = {**known.parts, part.id: Seen(None, part, seen.size)}
        message = self._message(known.message.info, parts, grown=False)
        return Entry(message, known.info, known.listing, parts, known.grown)

    def _message(self, info: AnyMessage, seen: dict[str, Seen], *, grown: bool) -> MessageWithParts:
        parts = [
            _placed(
                self._grown(info.id, PartID(name), part.value) if grown else part.value, info, PartID(name)
            )
            for name, part in seen.items()
        ]
        return MessageWithParts(info=info, parts=sort_parts(parts, info))

    def _listed(self, directory: str, known: Listing) -> Listing:
        try:
            found = os.stat(directory)
        except FileNotFoundError:
            return NOT_LISTED
        stamp = stamp_of(found)
        if stamp == known.stamp:
            return known
        names, others = self._documents.list_names(directory)
        # What is no document there is a problem, and named as often as it is looked for.
        return Listing(stamp if is_settled(found) and not others else None, frozenset(names))

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
        return None if info is None else _placed_message(info, session, id)

    def growing(self) -> set[str]:
        """The messages of which a part has grown since it was written."""
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


def _are_same(known: Entry, info: Seen, parts: dict[str, Seen]) -> bool:
    if info.value is not known.info.value or parts.keys() != known.parts.keys():
        return False
    return all(part.value is known.parts[name].value for name, part in parts.items())


def _placed_message(info: AnyMessage, session: SessionID, id: MessageID) -> AnyMessage:
    if info.id == id and info.session_id == session:
        return info
    return replace(info, id=id, session_id=session)


def _placed(part: AnyPart, info: AnyMessage, id: PartID) -> AnyPart:
    """Where it lies is what it belongs to (see `tree`)."""
    if part.id == id and part.message_id == info.id and part.session_id == info.session_id:
        return part
    return replace(part, id=id, message_id=info.id, session_id=info.session_id)

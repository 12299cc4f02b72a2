"""Read messages and parts from the JSON tree. Every function blocks. Listing sessions does not load this module."""

import os
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from msgspec.structs import replace

from weft.errors import DocumentError
from weft.host.files import Stamp, has_final_stamp, read_file, stamp_of
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import AnyMessage, MessageWithParts, find_end, message_sort_key, sort_parts
from weft.model.part import AnyPart
from weft.model.wire import decode
from weft.store.files.documents import LIMIT, CachedDocument
from weft.store.files.growth import apply_growth, read_growth
from weft.store.files.layout import SUFFIX
from weft.store.files.tree import Tree


class DirectoryListing(NamedTuple):
    """The names of the documents in a directory, and the stamp of the directory when it was read.

    It has no stamp if later changes could go unnoticed.
    """

    stamp: Stamp | None
    names: frozenset[str]


NOT_LISTED = DirectoryListing(None, frozenset())
MESSAGES_PER_PASS = 256


class CachedMessage(NamedTuple):
    """A message and the documents it was read from. `grown` means that growth files were applied too."""

    message: MessageWithParts
    info: CachedDocument
    listing: DirectoryListing
    parts: dict[str, CachedDocument]
    grown: bool

    @property
    def size(self) -> int:
        return self.info.size + sum(part.size for part in self.parts.values())


class MessageReader:
    """Reads without locks. A caller that must not see half a batch holds the lock of the session."""

    def __init__(self, tree: Tree) -> None:
        self._layout = tree.layout
        self._documents = tree.documents

    def list_messages(
        self, session: SessionID, *, last: int | None = None, before: MessageID | None = None
    ) -> list[MessageWithParts]:
        """Return the messages of a session, oldest first: the `last` ones, counted back from `before` if it is given."""
        found = [info for id in self.list_ids(session) if (info := self._find_info(session, id)) is not None]
        infos = sorted(found, key=message_sort_key)
        infos = infos[: find_end(before, (info.id for info in infos))]
        wanted = infos if last is None else infos[max(0, len(infos) - last) :]
        growing = self.list_growing()
        return [self._read_parts(info, grown=info.id in growing) for info in wanted]

    def list_ids(self, session: SessionID) -> list[MessageID]:
        """Return the ids of all messages, unsorted, including unreadable ones."""
        return [MessageID(name) for name in self._documents.list_names(self._layout.messages(session))]

    def list_again(self, session: SessionID, known: DirectoryListing) -> DirectoryListing:
        """List the message ids of a session, unsorted, including unreadable ones. Return `known` if nothing changed."""
        return self._list(self._layout.messages(session), known)

    def read_again(
        self, session: SessionID, ids: Sequence[MessageID], known: Mapping[str, CachedMessage]
    ) -> Generator[tuple[MessageID, CachedMessage | None]]:
        """Read these messages again. Yield each with its id, None if it is unreadable.

        The value of a message that did not change stays the same object.
        """
        growing = self.list_growing()
        for start in range(0, len(ids), MESSAGES_PER_PASS):
            some = ids[start : start + MESSAGES_PER_PASS]
            yield from zip(some, self._read_some_again(session, some, known, growing), strict=True)

    def _read_some_again(
        self,
        session: SessionID,
        ids: Sequence[MessageID],
        known: Mapping[str, CachedMessage],
        growing: Collection[str],
    ) -> Generator[CachedMessage | None]:
        directory, before = self._layout.messages(session), [known.get(id) for id in ids]
        infos = self._documents.find_again(
            [f"{directory}/{id}{SUFFIX}" for id in ids], AnyMessage, [each and each.info for each in before]
        )
        listings: list[DirectoryListing] = []
        paths: list[str] = []
        seen: list[CachedDocument | None] = []
        for id, each, info in zip(ids, before, infos, strict=True):
            parts = self._layout.parts(id)
            listing = NOT_LISTED if info is None else self._list(parts, each.listing if each else NOT_LISTED)
            listings.append(listing)
            paths += [f"{parts}/{name}{SUFFIX}" for name in listing.names]
            seen += [each.parts.get(name) if each else None for name in listing.names]
        found = iter(self._documents.find_again(paths, AnyPart, seen))
        for id, each, info, listing in zip(ids, before, infos, listings, strict=True):
            own = {name: part for name in listing.names if (part := next(found)) is not None}
            if info is None:
                yield None
                continue
            grown = id in growing
            if each is not None and not (grown or each.grown) and _are_same(each, info, own):
                message = each.message
            else:
                message = self._assemble(_correct_message(info.value, session, id), own, grown=grown)
                if each is not None and each.message == message:
                    message = each.message
            yield CachedMessage(message, info, listing, own, grown)

    def with_part(self, known: CachedMessage, part: AnyPart) -> CachedMessage | None:
        """Return the message with a part that was just written. Return None if the message has to be read again."""
        seen = known.parts.get(part.id)
        if seen is None or known.grown:
            return None
        parts = {**known.parts, part.id: CachedDocument(None, part, seen.size)}
        message = self._assemble(known.message.info, parts, grown=False)
        return CachedMessage(message, known.info, known.listing, parts, known.grown)

    def _assemble(
        self, info: AnyMessage, seen: dict[str, CachedDocument], *, grown: bool
    ) -> MessageWithParts:
        parts = [
            _correct_part(
                self._apply_growth(info.id, PartID(name), part.value) if grown else part.value,
                info,
                PartID(name),
            )
            for name, part in seen.items()
        ]
        return MessageWithParts(info=info, parts=sort_parts(parts, info))

    def _list(self, directory: str, known: DirectoryListing) -> DirectoryListing:
        try:
            found = os.stat(directory)
        except OSError:
            self._documents.scan(directory)  # reports why, unless there is none
            return NOT_LISTED
        stamp = stamp_of(found)
        if stamp == known.stamp:
            return known
        names, others = self._documents.scan(directory)
        # A file that is not a document is a problem, and has to be reported each time.
        return DirectoryListing(stamp if has_final_stamp(found) and not others else None, frozenset(names))

    def find_message(self, session: SessionID, id: MessageID) -> MessageWithParts | None:
        info = self._find_info(session, id)
        return None if info is None else self._read_parts(info, grown=True)

    def find_part(self, message: MessageID, id: PartID) -> AnyPart | None:
        part: AnyPart | None = self._documents.find(self._layout.part(message, id), AnyPart)
        return None if part is None else self._apply_growth(message, id, part)

    def _read_parts(self, info: AnyMessage, *, grown: bool) -> MessageWithParts:
        directory, parts = self._layout.parts(info.id), []
        for name in self._documents.list_names(directory):
            id = PartID(name)
            part: AnyPart | None = self._documents.find(f"{directory}/{name}{SUFFIX}", AnyPart)
            if part is not None:
                part = self._apply_growth(info.id, id, part) if grown else part
                parts.append(_correct_part(part, info, id))
        return MessageWithParts(info=info, parts=sort_parts(parts, info))

    def _find_info(self, session: SessionID, id: MessageID) -> AnyMessage | None:
        info: AnyMessage | None = self._documents.find(self._layout.message(session, id), AnyMessage)
        return None if info is None else _correct_message(info, session, id)

    def list_growing(self) -> set[str]:
        """Return the messages that have a part with a growth file."""
        with suppress(OSError):
            return set(os.listdir(self._layout.growths))
        return set()

    def _apply_growth(self, message: MessageID, id: PartID, part: AnyPart) -> AnyPart:
        growth = self._layout.growth(message, id)
        if not os.path.exists(growth):
            return part
        with suppress(OSError, DocumentError):
            # Read the document again: growth belongs to exactly these bytes, and the cached value may be older.
            raw, _ = read_file(self._layout.part(message, id), limit=LIMIT)
            return apply_growth(decode(raw, AnyPart), read_growth(growth, raw).pieces)
        return part


def _are_same(known: CachedMessage, info: CachedDocument, parts: dict[str, CachedDocument]) -> bool:
    if info.value is not known.info.value or parts.keys() != known.parts.keys():
        return False
    return all(part.value is known.parts[name].value for name, part in parts.items())


def _correct_message(info: AnyMessage, session: SessionID, id: MessageID) -> AnyMessage:
    if info.id == id and info.session_id == session:
        return info
    return replace(info, id=id, session_id=session)


def _correct_part(part: AnyPart, info: AnyMessage, id: PartID) -> AnyPart:
    """Take ids from the path, which decides where a part belongs."""
    if part.id == id and part.message_id == info.id and part.session_id == info.session_id:
        return part
    return replace(part, id=id, message_id=info.id, session_id=info.session_id)

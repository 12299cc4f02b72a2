"""Convert a session to the items that a share server receives, and back (pure).

An item is sent if it differs from what was sent before. So the last value of each item wins, failed items are sent
again, and nothing is sent twice. OpenCode queues every change, a growing part once for each token.
"""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, Final

from weft.errors import DocumentError, InvalidInputError
from weft.model.diff import FileDiff
from weft.model.ids import MessageID, check_file_name
from weft.model.message import AnyMessage, MessageWithParts, message_sort_key, sort_parts
from weft.model.part import AnyPart
from weft.model.session import SessionInfo
from weft.model.share import ShareItem
from weft.model.transfer import SessionExport
from weft.model.wire import encode, from_plain, to_plain

Items = Mapping[str, ShareItem]
# The hash of each item that was sent, by its name.
SentHashes = dict[str, str]

ITEM_TYPES: Final = ("session", "message", "part", "session_diff", "model")
MAX_BATCH_ITEMS: Final = 500
MAX_BATCH_BYTES: Final = 4 * 1024 * 1024


def to_items(export: SessionExport, models: Iterable[Any] = ()) -> dict[str, ShareItem]:
    """Return every item of a session, by a stable name."""
    items = {"session": ShareItem(type="session", data=to_plain(export.info))}
    for message in export.messages:
        id = message.info.id
        items[f"message/{id}"] = ShareItem(type="message", data=to_plain(message.info))
        for part in message.parts:
            items[f"part/{id}/{part.id}"] = ShareItem(type="part", data=to_plain(part))
    items["session_diff"] = ShareItem(type="session_diff", data=to_plain(export.diff))
    items["model"] = ShareItem(type="model", data=to_plain(list(models)))
    return items


def select_unsent(items: Items, sent: SentHashes) -> dict[str, ShareItem]:
    """Return the items that the server does not have. Removed parts are sent empty: the protocol has no removal."""
    changed = {name: item for name, item in items.items() if sent.get(name) != hash_item(item)}
    removed = (name for name in sent if name not in items and name.startswith("part/"))
    blanks = {name: _make_empty_part(name, items["session"].data["id"]) for name in removed}
    return changed | {name: item for name, item in blanks.items() if sent[name] != hash_item(item)}


def hash_item(item: ShareItem) -> str:
    return sha256(encode(item)).hexdigest()


def _make_empty_part(name: str, session: str) -> ShareItem:
    _, message, part = name.split("/")
    empty = {"id": part, "sessionID": session, "messageID": message, "type": "text", "text": ""}
    return ShareItem(type="part", data={**empty, "ignored": True})


def to_batches(items: Items) -> Iterator[dict[str, ShareItem]]:
    """Split the items into requests of bounded size."""
    batch: dict[str, ShareItem] = {}
    size = 0
    for name, item in items.items():
        length = len(encode(item))
        if batch and (len(batch) >= MAX_BATCH_ITEMS or size + length > MAX_BATCH_BYTES):
            yield batch
            batch, size = {}, 0
        batch[name] = item
        size += length
    if batch:
        yield batch


# --- items from others ---


def name_item(item: ShareItem) -> str:
    """Return the name of a received item. Raise `InvalidInputError` if it is invalid."""
    data = item.data
    try:
        match item.type:
            case "session":
                from_plain(data, SessionInfo)
                return "session"
            case "message":
                return f"message/{check_file_name('message', from_plain(data, AnyMessage).id)}"
            case "part":
                part = from_plain(data, AnyPart)
                return (
                    f"part/{check_file_name('message', part.message_id)}/{check_file_name('part', part.id)}"
                )
            case "session_diff":
                from_plain(data, tuple[FileDiff, ...])
                return "session_diff"
            case "model":
                if isinstance(data, list):
                    return "model"
                raise InvalidInputError("data", "the models are not a list")
            case _:
                raise InvalidInputError("type", f"{item.type[:40]!r} is none of {', '.join(ITEM_TYPES)}")
    except DocumentError as error:
        raise InvalidInputError("data", f"{item.type}: {error.reason}") from error


def from_items(items: Items) -> SessionExport | None:
    """Combine items into a session. Return None before the session item has arrived. Leave out parts without a message."""
    if "session" not in items:
        return None
    infos: dict[MessageID, AnyMessage] = {}
    parts: dict[MessageID, list[AnyPart]] = {}
    for name, item in items.items():
        if name.startswith("message/"):
            info: AnyMessage = from_plain(item.data, AnyMessage)
            infos[info.id] = info
        elif name.startswith("part/"):
            part: AnyPart = from_plain(item.data, AnyPart)
            parts.setdefault(part.message_id, []).append(part)
    messages = (
        MessageWithParts(info=info, parts=sort_parts(parts.get(info.id, ()), info))
        for info in sorted(infos.values(), key=message_sort_key)
    )
    diff = items["session_diff"].data if "session_diff" in items else []
    return SessionExport(
        info=from_plain(items["session"].data, SessionInfo),
        messages=tuple(messages),
        diff=from_plain(diff, tuple[FileDiff, ...]),
    )

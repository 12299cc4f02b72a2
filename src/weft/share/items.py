"""A session as the items that a share server is sent, and a session made of such items (pure).

What is to be sent is what differs from what was sent: so the last value of each item wins, whatever failed is sent
again, and nothing is sent twice. OpenCode queues every change, each growing part once a token.
"""

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, Final

from weft.errors import DocumentError, InvalidInputError
from weft.model.diff import FileDiff
from weft.model.ids import MessageID, file_name
from weft.model.message import AnyMessage, MessageWithParts, message_order, sort_parts
from weft.model.parcel import Parcel
from weft.model.part import AnyPart
from weft.model.session import Session
from weft.model.share import ShareItem
from weft.model.wire import encode, from_plain, to_plain

Items = Mapping[str, ShareItem]
Sent = dict[str, str]

TYPES: Final = ("session", "message", "part", "session_diff", "model")
MOST_ITEMS: Final = 500
MOST_BYTES: Final = 4 * 1024 * 1024


def to_items(parcel: Parcel, models: Iterable[Any] = ()) -> dict[str, ShareItem]:
    """Every item of a session, by a name that stays the same."""
    items = {"session": ShareItem(type="session", data=to_plain(parcel.info))}
    for message in parcel.messages:
        id = message.info.id
        items[f"message/{id}"] = ShareItem(type="message", data=to_plain(message.info))
        for part in message.parts:
            items[f"part/{id}/{part.id}"] = ShareItem(type="part", data=to_plain(part))
    items["session_diff"] = ShareItem(type="session_diff", data=to_plain(parcel.diff))
    items["model"] = ShareItem(type="model", data=to_plain(list(models)))
    return items


def to_send(items: Items, sent: Sent) -> dict[str, ShareItem]:
    """What the other side does not have yet. What is gone here is told to be empty: there is no word for removing."""
    fresh = {name: item for name, item in items.items() if sent.get(name) != stamp(item)}
    gone = (name for name in sent if name not in items and name.startswith("part/"))
    blanks = {name: _blank(name, items["session"].data["id"]) for name in gone}
    return fresh | {name: item for name, item in blanks.items() if sent[name] != stamp(item)}


def stamp(item: ShareItem) -> str:
    return sha256(encode(item)).hexdigest()


def _blank(name: str, session: str) -> ShareItem:
    _, message, part = name.split("/")
    empty = {"id": part, "sessionID": session, "messageID": message, "type": "text", "text": ""}
    return ShareItem(type="part", data={**empty, "ignored": True})


def to_batches(items: Items) -> Iterator[dict[str, ShareItem]]:
    """The items in requests of bounded size."""
    batch: dict[str, ShareItem] = {}
    size = 0
    for name, item in items.items():
        length = len(encode(item))
        if batch and (len(batch) >= MOST_ITEMS or size + length > MOST_BYTES):
            yield batch
            batch, size = {}, 0
        batch[name] = item
        size += length
    if batch:
        yield batch


# --- what others send us ---


def name_of(item: ShareItem) -> str:
    """The name of an item that came from somebody. Raises `InvalidInputError` for what is none."""
    data = item.data
    try:
        match item.type:
            case "session":
                from_plain(data, Session)
                return "session"
            case "message":
                return f"message/{file_name('message', from_plain(data, AnyMessage).id)}"
            case "part":
                part = from_plain(data, AnyPart)
                return f"part/{file_name('message', part.message_id)}/{file_name('part', part.id)}"
            case "session_diff":
                from_plain(data, tuple[FileDiff, ...])
                return "session_diff"
            case "model":
                if isinstance(data, list):
                    return "model"
                raise InvalidInputError("data", "the models are no list")
            case _:
                raise InvalidInputError("type", f"{item.type[:40]!r} is none of {', '.join(TYPES)}")
    except DocumentError as error:
        raise InvalidInputError("data", f"{item.type}: {error.reason}") from error


def from_items(items: Items) -> Parcel | None:
    """The session that items make up; None before its session has come. Parts without a message wait for it."""
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
        for info in sorted(infos.values(), key=message_order)
    )
    diff = items["session_diff"].data if "session_diff" in items else []
    return Parcel(
        info=from_plain(items["session"].data, Session),
        messages=tuple(messages),
        diff=from_plain(diff, tuple[FileDiff, ...]),
    )

"""The document a session is exported as, OpenCode's and ours: written, and read with suspicion."""

from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from msgspec.structs import replace

from weft.errors import DocumentError
from weft.model.ids import MessageID, SessionID, check_new, file_name
from weft.model.message import AssistantMessage, MessageWithParts, message_order, sort_parts
from weft.model.parcel import Parcel
from weft.model.session import without_secret
from weft.model.wire import encode, encode_pretty, from_plain, parse
from weft.transfer.rebind import placed


def to_document(parcel: Parcel) -> bytes:
    """As OpenCode exports a session: two spaces, a newline at the end, no todos and no diff."""
    return encode_pretty(replace(parcel, info=without_secret(parcel.info), todos=(), diff=())) + b"\n"


def from_document(raw: bytes, *, where: str) -> Parcel:
    """A parcel out of a document from anywhere. Raises `DocumentError`, or `InvalidIdError` for what is no id."""
    plain = parse(raw, where=where)
    if not (isinstance(plain, dict) and isinstance(plain.get("info"), dict) and "messages" in plain):
        raise DocumentError(where, _guess(plain))
    return sound(from_plain(plain, Parcel, where=where), where=where)


def sound(parcel: Parcel, *, where: str) -> Parcel:
    """The parcel, if it may be stored: every id can be a file's name, none comes twice, all belongs to the session."""
    session = SessionID(check_new("session", parcel.info.id))
    for id in (parcel.info.parent_id, parcel.info.project_id):
        if id:
            file_name("session or project", id)
    messages = [_belonging(message, session) for message in parcel.messages]
    _refuse_twice([message.info.id for message in messages], where)
    messages.sort(key=lambda message: message_order(message.info))
    return replace(parcel, messages=tuple(messages))


def _belonging(message: MessageWithParts, session: SessionID) -> MessageWithParts:
    id = MessageID(file_name("message", message.info.id))
    if isinstance(message.info, AssistantMessage) and message.info.parent_id:
        file_name("message", message.info.parent_id)
    for part in message.parts:
        file_name("part", part.id)
    _refuse_twice([part.id for part in message.parts], id)
    info = replace(message.info, session_id=session)
    # Where it lies is what it belongs to, whatever a copied file says.
    parts = (placed(part, id, session) for part in message.parts)
    return replace(message, info=info, parts=sort_parts(parts, info))


def _refuse_twice(ids: list[Any], where: str) -> None:
    seen: set[str] = set()
    for id in ids:
        if id in seen:
            raise DocumentError(where, f"{id} is in it twice")
        seen.add(id)


def _guess(plain: Any) -> str:
    if isinstance(plain, dict) and ("sessionId" in plain or plain.get("type") == "session_meta"):
        return (
            "not an exported session; for a transcript of another program say --from claude or --from codex"
        )
    return 'not an exported session: it has no "info" and "messages"'


def digest(parcel: Parcel) -> str:
    """Of all that the session says and holds. Where it lives, its title and the order of keys do not count."""
    hashed = sha256()
    for value in _held(parcel):
        hashed.update(encode(_sorted(parse(encode(value)))) + b"\n")
    return hashed.hexdigest()


def _held(parcel: Parcel) -> Iterable[Any]:
    yield from parcel.messages
    yield parcel.todos
    yield parcel.diff


def _sorted(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {key: _sorted(plain[key]) for key in sorted(plain)}
    if isinstance(plain, list):
        return [_sorted(item) for item in plain]
    return plain

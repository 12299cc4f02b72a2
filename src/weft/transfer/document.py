"""Encode an exported session in OpenCode's format, and decode and check one."""

from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from msgspec.structs import replace

from weft.errors import DocumentError
from weft.model.ids import MessageID, SessionID, check_file_name, check_new_id
from weft.model.message import AssistantMessage, MessageWithParts, message_sort_key, sort_parts
from weft.model.session import hide_share_secret
from weft.model.transfer import SessionExport
from weft.model.wire import decode, encode_pretty, encode_sorted, parse
from weft.transfer.rebind import move_part


def to_document(export: SessionExport) -> bytes:
    """Encode a session as OpenCode exports it: indented by two spaces, a final newline, no todos and no diff."""
    return encode_pretty(replace(export, info=hide_share_secret(export.info), todos=(), diff=())) + b"\n"


def from_document(raw: bytes, *, where: str) -> SessionExport:
    """Decode an exported session. Raise `DocumentError` if it is malformed, `InvalidIdError` if an id is."""
    try:
        export = decode(raw, SessionExport, where=where)
    except DocumentError:
        plain = parse(raw, where=where)
        if not (isinstance(plain, dict) and isinstance(plain.get("info"), dict) and "messages" in plain):
            raise DocumentError(where, _guess_format(plain)) from None
        raise
    return check_export(export, where=where)


def check_export(export: SessionExport, *, where: str) -> SessionExport:
    """Return the session if it can be stored: every id is a valid file name, and no id occurs twice.

    All messages and parts get the ids of their session and message. Raise `InvalidIdError` or `DocumentError` otherwise.
    """
    session = SessionID(check_new_id("session", export.info.id))
    for id in (export.info.parent_id, export.info.project_id):
        if id:
            check_file_name("session or project", id)
    messages = [_check_message(message, session) for message in export.messages]
    _check_unique([message.info.id for message in messages], where)
    messages.sort(key=lambda message: message_sort_key(message.info))
    return replace(export, messages=tuple(messages))


def _check_message(message: MessageWithParts, session: SessionID) -> MessageWithParts:
    id = MessageID(check_file_name("message", message.info.id))
    if isinstance(message.info, AssistantMessage) and message.info.parent_id:
        check_file_name("message", message.info.parent_id)
    for part in message.parts:
        check_file_name("part", part.id)
    _check_unique([part.id for part in message.parts], id)
    info = replace(message.info, session_id=session)
    # The position in the document decides where a part belongs, whatever ids it contains.
    parts = (move_part(part, id, session) for part in message.parts)
    return replace(message, info=info, parts=sort_parts(parts, info))


def _check_unique(ids: list[Any], where: str) -> None:
    seen: set[str] = set()
    for id in ids:
        if id in seen:
            raise DocumentError(where, f"{id} is in it twice")
        seen.add(id)


def _guess_format(plain: Any) -> str:
    if isinstance(plain, dict) and ("sessionId" in plain or plain.get("type") == "session_meta"):
        return "not an exported session; to import a transcript of another program, pass --from claude or --from codex"
    return 'not an exported session: it has no "info" and "messages"'


def hash_content(export: SessionExport) -> str:
    """Hash the messages, todos and diff of a session. Its location, title and order of keys do not matter."""
    digest = sha256()
    for value in _list_content(export):
        digest.update(encode_sorted(value) + b"\n")
    return digest.hexdigest()


def _list_content(export: SessionExport) -> Iterable[Any]:
    yield from export.messages
    yield export.todos
    yield export.diff

"""Turn error answers of a server into the errors that `weft.local` raises."""

import re
from typing import Any, Final

from weft.errors import (
    ConfigError,
    ConflictError,
    DocumentError,
    InvalidInputError,
    NotFoundError,
    NotPermittedError,
    ServerError,
    SessionBusyError,
    StoreError,
    UnsupportedError,
    WeftError,
)
from weft.model.error_wire import from_facts
from weft.model.wire import parse

PASSWORD_HINT: Final = "set OPENCODE_SERVER_PASSWORD, or WEFT_TOKEN if you have a token, or write it into the address: http://opencode:PASSWORD@host"
MAX_MESSAGE_LENGTH: Final = 500
BUSY: Final = re.compile(r"Session (ses_\w+) is busy")
# The kind of thing that a path names, by the segment before its id.
KINDS: Final = {
    "session": "session",
    "message": "message",
    "part": "part",
    "permission": "permission request",
    "question": "question",
    "project": "project",
    "pty": "terminal",
    "grant": "grant",
}
# With these statuses a proxy says that the server is not available.
PROXY_STATUSES: Final = frozenset({502, 503, 504})


def to_error(status: int, body: bytes, path: str) -> WeftError:
    """Return the error for an unsuccessful answer. OpenCode sends fewer facts than weft, so the path supplies the rest."""
    name, data = _parse_answer(body)
    message = (
        _get_first_line(data)
        or body[:MAX_MESSAGE_LENGTH].decode(errors="replace").strip()
        or f"status {status}"
    )
    known_error = from_facts(name, data)
    if known_error is not None:
        return known_error
    busy = BUSY.search(message)
    if busy:  # OpenCode 1.1.34 answers with status 500
        return SessionBusyError(busy[1])
    match status:
        case 400 | 413 | 422:
            return (
                ConfigError(path, message) if name == "ConfigError" else InvalidInputError("request", message)
            )
        case 401:
            return NotPermittedError(
                "the server requires a password, or the password is wrong", hint=PASSWORD_HINT
            )
        case 403:
            return NotPermittedError(message)
        case 404 | 405:
            return NotFoundError(*_to_subject(path))
        case 409:
            return ConflictError(*_to_subject(path), message)
        case 501:
            return UnsupportedError(message)
        case 507:
            return StoreError(message)
        case _:
            return ServerError(f"the server failed: {message[:MAX_MESSAGE_LENGTH]}")


def is_from_server(body: bytes) -> bool:
    """Return True if the error is from the server itself and not from a proxy."""
    return bool(_parse_answer(body)[0])


def _parse_answer(body: bytes) -> tuple[str, dict[str, Any]]:
    try:
        answer = parse(body)
    except DocumentError:
        return "", {}
    if not isinstance(answer, dict):
        return "", {}
    data = answer.get("data")
    # OpenCode lists invalid fields under `error`, and from 1.18 on names some errors by `_tag`.
    data = data if isinstance(data, dict) else {}
    issues = answer.get("error")
    if isinstance(issues, list) and issues:
        data = {"message": "; ".join(str(_format_issue(each)) for each in issues[:3])}
    elif "message" not in data and isinstance(answer.get("message"), str):
        data = data | {"message": answer["message"]}
    return str(answer.get("name") or answer.get("_tag") or ("BadRequest" if issues else "")), data


def _format_issue(issue: Any) -> str:
    if not isinstance(issue, dict):
        return str(issue)
    return f"{'.'.join(str(each) for each in issue.get('path', ()))}: {issue.get('message', 'is not valid')}"


def _get_first_line(data: dict[str, Any]) -> str:
    """Return the first line of the message. OpenCode appends a stack trace."""
    message = data.get("message")
    return message.partition("\n")[0] if isinstance(message, str) else ""


def _to_subject(path: str) -> tuple[str, str]:
    """Return the kind and the id of the last thing that a path names."""
    words = [word for word in path.split("/") if word]
    for before, name in zip(words[-2::-1], words[:0:-1], strict=False):
        if before in KINDS:
            return KINDS[before], name
    return "path", path

"""Turn a server's refusals into the errors raised in process."""

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

PASSWORD: Final = "set OPENCODE_SERVER_PASSWORD, or write it into the address: http://opencode:PASSWORD@host"
LONGEST: Final = 500
BUSY: Final = re.compile(r"Session (ses_\w+) is busy")
# What a path is about, by the word before the name in it.
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
# Between us and the server somebody says that it is not to be had just now.
AWAY: Final = frozenset({502, 503, 504})


def to_error(status: int, body: bytes, path: str) -> WeftError:
    """What to raise for an answer that is none. OpenCode says less than our own server does: the path tells the rest."""
    name, data = _read(body)
    message = _sentence(data) or body[:LONGEST].decode(errors="replace").strip() or f"status {status}"
    made = from_facts(name, data)
    if made is not None:
        return made
    busy = BUSY.search(message)
    if busy:  # OpenCode 1.1.34 says so with status 500
        return SessionBusyError(busy[1])
    match status:
        case 400 | 413 | 422:
            return (
                ConfigError(path, message) if name == "ConfigError" else InvalidInputError("request", message)
            )
        case 401:
            return NotPermittedError("the server wants a password, or another one", hint=PASSWORD)
        case 403:
            return NotPermittedError(message)
        case 404 | 405:
            return NotFoundError(*_named(path))
        case 409:
            return ConflictError(*_named(path), message)
        case 501:
            return UnsupportedError(message)
        case 507:
            return StoreError(message)
        case _:
            return ServerError(f"the server failed: {message[:LONGEST]}")


def is_ours(body: bytes) -> bool:
    """Whether a server itself says no, and not somebody on the way to it."""
    return bool(_read(body)[0])


def _read(body: bytes) -> tuple[str, dict[str, Any]]:
    try:
        said = parse(body)
    except DocumentError:
        return "", {}
    if not isinstance(said, dict):
        return "", {}
    data = said.get("data")
    # OpenCode lists what is wrong with a request under `error`, and from 1.18 on says `_tag` for some of them.
    data = data if isinstance(data, dict) else {}
    issues = said.get("error")
    if isinstance(issues, list) and issues:
        data = {"message": "; ".join(str(_issue(each)) for each in issues[:3])}
    elif "message" not in data and isinstance(said.get("message"), str):
        data = data | {"message": said["message"]}
    return str(said.get("name") or said.get("_tag") or ("BadRequest" if issues else "")), data


def _issue(issue: Any) -> str:
    if not isinstance(issue, dict):
        return str(issue)
    return f"{'.'.join(str(each) for each in issue.get('path', ()))}: {issue.get('message', 'is wrong')}"


def _sentence(data: dict[str, Any]) -> str:
    """The first line: behind it OpenCode puts where in its own code that happened."""
    message = data.get("message")
    return message.partition("\n")[0] if isinstance(message, str) else ""


def _named(path: str) -> tuple[str, str]:
    """The kind and the name of the last thing that a path is about."""
    words = [word for word in path.split("/") if word]
    for before, name in zip(words[-2::-1], words[:0:-1], strict=False):
        if before in KINDS:
            return KINDS[before], name
    return "path", path

"""Addresses of what has an id. An id that can be none is refused here, and never sent."""

from weft.client.http import Line
from weft.errors import UnsupportedError
from weft.model.ids import checked

OWN = "/weft"


def session_at(id: str, *rest: str) -> str:
    return "/".join(("/session", checked("session", id), *rest))


def message_at(session_id: str, id: str, *rest: str) -> str:
    return session_at(session_id, "message", checked("message", id), *rest)


def part_at(session_id: str, message_id: str, id: str) -> str:
    return message_at(session_id, message_id, "part", checked("part", id))


def own(path: str) -> str:
    """Where a route of weft's own is, beside OpenCode's."""
    return OWN + path


def need_weft(line: Line, what: str, *, hint: str = "") -> None:
    """Raises `UnsupportedError` if the server is OpenCode's, which has no such route. It is not tried: what OpenCode does
    not know it hands on to a host on the internet."""
    if not line.ours:
        raise UnsupportedError(f"{what} on a server of OpenCode {line.health.version}".rstrip(), hint=hint)

"""Answers and errors as bytes on the wire."""

import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final

from msgspec import Struct

from weft import errors
from weft.errors import WeftError
from weft.model.error_wire import name_of, to_facts
from weft.model.wire import encode
from weft.server.route import Answer

# The first that fits counts: a kind stands before what it is a kind of.
STATUS: tuple[tuple[type[WeftError], int], ...] = (
    (errors.InvalidInputError, 400),
    (errors.DocumentError, 400),
    (errors.NoModelError, 400),
    (errors.NotFoundError, 404),
    (errors.ModelNotFoundError, 400),
    (errors.DirectoryError, 404),
    (errors.OutsideError, 403),
    (errors.UnsupportedError, 501),
    (errors.SharingDisabledError, 403),
    (errors.SharingError, 502),
    (errors.ConfigError, 422),
    (errors.NotPermittedError, 403),
    (errors.SessionBusyError, 409),
    (errors.ConflictError, 409),
    (errors.GitError, 409),
    (errors.CursorLostError, 410),
    (errors.StoreError, 507),
    (errors.SnapshotMissingError, 409),
    (errors.RestoreFailedError, 507),
    (errors.CompactionIneffectiveError, 409),
    (errors.ProviderError, 502),
    (errors.McpError, 502),
    (errors.DeadlineError, 504),
)


class Refusal(Struct, frozen=True, kw_only=True):
    """What a client is told instead of an answer. No trace, no path of ours: `ref` finds it in the log. A client of ours
    makes the same error again of its `facts`."""

    status: int
    name: str
    message: str
    ref: str | None = None
    facts: dict[str, Any] = {}

    def body(self) -> bytes:
        data = self.facts | {"message": self.message} | ({"ref": self.ref} if self.ref else {})
        return encode({"name": self.name, "data": data})


def to_refusal(error: Exception) -> Refusal:
    for kind, status in STATUS:
        if isinstance(error, kind):
            hint = f" ({error.hint})" if error.hint else ""
            message = f"{error}{hint}"
            return Refusal(status=status, name=name_of(error), message=message, facts=to_facts(error))
    ref = f"err_{secrets.token_hex(8)}"
    return Refusal(
        status=500,
        name="UnknownError",
        message=f"something went wrong here; the log has it as {ref}",
        ref=ref,
    )


Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

NO_CONTENT: Final = 204


def headers_of(scope: Scope) -> dict[str, str]:
    """One that is sent twice is both of them in a row: a second `Host` does not hide the first from the door."""
    found: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


async def respond(send: Send, answer: Answer) -> None:
    body = b"" if answer.status == NO_CONTENT else encode(answer.value)
    await _send(send, answer.status, body, dict(answer.headers))


async def refuse(send: Send, refusal: Refusal, headers: dict[str, str] | None = None) -> None:
    await _send(send, refusal.status, refusal.body(), headers or {})


async def preflight(send: Send, headers: dict[str, str], shown: dict[str, str]) -> None:
    allowed = {
        "access-control-allow-methods": "GET,HEAD,PUT,POST,DELETE,PATCH",
        "access-control-allow-headers": headers.get("access-control-request-headers", ""),
        "access-control-max-age": "86400",
    }
    await _send(send, NO_CONTENT, b"", shown | (allowed if shown else {}))


async def _send(send: Send, status: int, body: bytes, headers: dict[str, str]) -> None:
    told = {"content-type": "application/json"} if body else {}
    told |= {"x-content-type-options": "nosniff"} | headers
    if status != NO_CONTENT:
        told["content-length"] = str(len(body))
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in told.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


def with_headers(send: Send, headers: dict[str, str]) -> Send:
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]

    async def sending(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *raw]}
        await send(message)

    return sending

"""Answers and refusals as bytes on the wire."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from weft.model.wire import encode
from weft.server.refusal import Refusal
from weft.server.route import Answer

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

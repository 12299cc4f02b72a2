"""Send answers and errors, and map errors to HTTP statuses."""

import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final

from msgspec import Struct

from weft import errors
from weft.errors import WeftError
from weft.model.error_wire import to_facts, wire_error_name
from weft.model.wire import encode
from weft.server.route import RouteResult

# The types of the ASGI interface.
Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

NO_CONTENT: Final = 204
# The first match counts: a subclass comes before its base class.
STATUS_BY_ERROR: tuple[tuple[type[WeftError], int], ...] = (
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
    (errors.LimitReachedError, 429),
    (errors.ConflictError, 409),
    (errors.EndingError, 503),
    (errors.GitError, 409),
    (errors.CursorLostError, 410),
    (errors.LeaseLostError, 409),
    (errors.StoreError, 507),
    (errors.SnapshotMissingError, 409),
    (errors.RestoreFailedError, 507),
    (errors.CompactionIneffectiveError, 409),
    (errors.ProviderError, 502),
    (errors.McpError, 502),
    (errors.DeadlineError, 504),
)


class ErrorResponse(Struct, frozen=True, kw_only=True):
    """An error as clients receive it. It contains no stack trace and no path of ours; `ref` identifies it in the log.

    Our own client raises the same error again from its `facts`.
    """

    status: int
    name: str
    message: str
    ref: str | None = None
    facts: dict[str, Any] = {}

    def body(self) -> bytes:
        data = self.facts | {"message": self.message} | ({"ref": self.ref} if self.ref else {})
        return encode({"name": self.name, "data": data})


def make_error_response(error: Exception) -> ErrorResponse:
    """Return the response for an error. Unknown errors get status 500 and a reference to the log."""
    for kind, status in STATUS_BY_ERROR:
        if isinstance(error, kind):
            hint = f" ({error.hint})" if error.hint else ""
            message = f"{error}{hint}"
            return ErrorResponse(
                status=status, name=wire_error_name(error), message=message, facts=to_facts(error)
            )
    ref = f"err_{secrets.token_hex(8)}"
    return ErrorResponse(
        status=500,
        name="UnknownError",
        message=f"the server failed; its log has the details under {ref}",
        ref=ref,
    )


def read_headers(scope: Scope) -> dict[str, str]:
    """Return the headers of a request. Repeated headers are joined, so that a second `Host` does not hide the first."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


async def send_result(send: Send, result: RouteResult) -> None:
    body = b"" if result.status == NO_CONTENT else encode(result.value)
    await _send(send, result.status, body, dict(result.headers))


async def send_error(send: Send, error: ErrorResponse, headers: dict[str, str] | None = None) -> None:
    await _send(send, error.status, error.body(), headers or {})


async def send_preflight(send: Send, headers: dict[str, str], cors: dict[str, str]) -> None:
    allow_headers = {
        "access-control-allow-methods": "GET,HEAD,PUT,POST,DELETE,PATCH",
        "access-control-allow-headers": headers.get("access-control-request-headers", ""),
        "access-control-max-age": "86400",
    }
    await _send(send, NO_CONTENT, b"", cors | (allow_headers if cors else {}))


async def _send(send: Send, status: int, body: bytes, headers: dict[str, str]) -> None:
    all_headers = {"content-type": "application/json"} if body else {}
    all_headers |= {"x-content-type-options": "nosniff"} | headers
    if status != NO_CONTENT:
        all_headers["content-length"] = str(len(body))
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in all_headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


def add_headers(send: Send, headers: dict[str, str]) -> Send:
    """Return a `send` that adds headers to the response."""
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]

    async def send_with_headers(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *raw]}
        await send(message)

    return send_with_headers

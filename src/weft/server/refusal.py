"""Errors on the wire: which status each kind has, and one shape for all of them."""

import secrets
from typing import Any

from msgspec import Struct

from weft import errors
from weft.errors import WeftError
from weft.model.around.refusal import name_of, to_facts
from weft.model.wire import encode

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

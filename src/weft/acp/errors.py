"""Errors as answers of the Agent Client Protocol: a code, and one sentence with the way out."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from acp import RequestError

from weft.errors import (
    AmbiguousError,
    ConfigError,
    ConflictError,
    DirectoryError,
    InvalidInputError,
    ModelNotFoundError,
    NoModelError,
    NotFoundError,
    OutsideError,
    ProviderAuthError,
    SessionBusyError,
    UnsupportedError,
    WeftError,
)
from weft.model.failure import AnyFailure, AuthFailure

INVALID_REQUEST: Final = -32600
INVALID_PARAMS: Final = -32602
INTERNAL: Final = -32603
AUTH_REQUIRED: Final = -32000
NOT_FOUND: Final = -32002

Takes = ParamSpec("Takes")
Gives = TypeVar("Gives")


def to_refusal(error: WeftError) -> RequestError:
    hint = f" ({error.hint})" if error.hint else ""
    return RequestError(code_of(error), f"{error}{hint}", {"name": type(error).__name__})


def code_of(error: WeftError) -> int:
    match error:
        case NotFoundError():
            return NOT_FOUND
        case ProviderAuthError() | NoModelError():
            return AUTH_REQUIRED
        case SessionBusyError() | ConflictError():
            return INVALID_REQUEST
        case InvalidInputError() | AmbiguousError() | DirectoryError() | OutsideError():
            return INVALID_PARAMS
        case UnsupportedError() | ModelNotFoundError() | ConfigError():
            return INVALID_PARAMS
        case _:
            return INTERNAL


def from_failure(failure: AnyFailure) -> RequestError:
    """A run that failed, as its prompt's answer. Editors show the message and nothing else."""
    data = getattr(failure, "data", None)
    said = getattr(data, "message", "") or "the run failed"
    hint = getattr(data, "hint", "")
    if isinstance(failure, AuthFailure):
        return RequestError(AUTH_REQUIRED, f"{said} (weft auth login {failure.data.provider_id})")
    return RequestError(INTERNAL, f"{said} ({hint})" if hint else said)


def refusing(
    method: Callable[Takes, Coroutine[Any, Any, Gives]],
) -> Callable[Takes, Coroutine[Any, Any, Gives]]:
    """The same, with our errors turned into the protocol's."""

    @wraps(method)
    async def refused(*args: Takes.args, **kwargs: Takes.kwargs) -> Gives:
        try:
            return await method(*args, **kwargs)
        except WeftError as error:
            raise to_refusal(error) from error

    return refused

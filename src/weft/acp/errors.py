"""Convert errors to those of the Agent Client Protocol: a code, and one sentence with a hint."""

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

Params = ParamSpec("Params")
Result = TypeVar("Result")


def to_request_error(error: WeftError) -> RequestError:
    hint = f" ({error.hint})" if error.hint else ""
    return RequestError(to_error_code(error), f"{error}{hint}", {"name": type(error).__name__})


def to_error_code(error: WeftError) -> int:
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


def to_failure_error(failure: AnyFailure) -> RequestError:
    """Return the error for a prompt whose run failed. Editors show only the message."""
    data = getattr(failure, "data", None)
    message = getattr(data, "message", "") or "the run failed"
    hint = getattr(data, "hint", "")
    if isinstance(failure, AuthFailure):
        return RequestError(AUTH_REQUIRED, f"{message} (weft auth login {failure.data.provider_id})")
    return RequestError(INTERNAL, f"{message} ({hint})" if hint else message)


def convert_errors(
    method: Callable[Params, Coroutine[Any, Any, Result]],
) -> Callable[Params, Coroutine[Any, Any, Result]]:
    """Decorate a method so that our errors become those of the protocol."""

    @wraps(method)
    async def wrapper(*args: Params.args, **kwargs: Params.kwargs) -> Result:
        try:
            return await method(*args, **kwargs)
        except WeftError as error:
            raise to_request_error(error) from error

    return wrapper

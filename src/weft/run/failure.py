"""Errors to failures: what was raised, as the value a message keeps (pure)."""

from msgspec.structs import replace

from weft.context.exclusions import mark
from weft.errors import (
    DeadlineError,
    ModelNotFoundError,
    ProviderAuthError,
    ProviderError,
    StoreError,
    WeftError,
)
from weft.model.failure import (
    AnyFailure,
    ApiData,
    ApiFailure,
    AuthData,
    AuthFailure,
    BudgetFailure,
    DeadlineData,
    DeadlineFailure,
    ModelNotFoundData,
    ModelNotFoundFailure,
    Said,
    StorageFailure,
    unknown,
)
from weft.model.part import ModelRef

A_MINUTE = 60_000


class OutOfTimeError(WeftError):
    """What was going on took longer than a budget allows. It brings what is to be kept of that, and never leaves a run."""

    def __init__(self, failure: BudgetFailure) -> None:
        super().__init__(failure.data.message, hint=failure.data.hint)
        self.failure = failure


def to_failure(error: BaseException) -> AnyFailure:
    match error:
        case OutOfTimeError(failure=failure):
            return failure
        case ProviderAuthError(provider_id=provider):
            return AuthFailure(data=AuthData(provider_id=provider, message=str(error)))
        case ProviderError():
            return ApiFailure(
                data=ApiData(
                    message=_told(error),
                    status_code=error.status,
                    is_retryable=error.retryable,
                    response_headers=error.headers or None,
                    response_body=error.body or None,
                    metadata=_metadata(error) or None,
                )
            )
        case ModelNotFoundError(provider_id=provider, model_id=model, near=near):
            data = ModelNotFoundData(
                provider_id=provider, model_id=model, suggestions=near, message=_with_hint(error)
            )
            return ModelNotFoundFailure(data=data)
        case DeadlineError(limit=limit, seconds=seconds):
            return DeadlineFailure(data=DeadlineData(message=str(error), limit=limit, seconds=seconds))
        case StoreError():
            return StorageFailure(data=Said(message=_with_hint(error)))
        case WeftError():
            return unknown(_with_hint(error))
        case _:
            return unknown(str(error) or type(error).__name__)


def _with_hint(error: WeftError) -> str:
    """Return the message with the way out, for whoever reads only the message."""
    return f"{error} ({error.hint})" if error.hint else str(error) or type(error).__name__


def _metadata(error: ProviderError) -> dict[str, str]:
    """Return what a failure says beyond OpenCode's other fields: the address, as OpenCode does; and that it was only
    slow, which a script is told by its exit code."""
    url = {"url": error.url} if error.url else {}
    return url | ({"kind": error.kind} if error.kind == "timeout" else {})


def _told(error: ProviderError) -> str:
    """What went wrong, and what whoever reads it can do: mend something, or come back later."""
    wait = -(-(error.wait_ms or 0) // A_MINUTE)
    later = f"it asks to be left alone for {wait} minutes" if wait > 1 else ""
    known = [each for each in (error.hint, later) if each]
    return f"{error} ({'; '.join(known)})" if known else str(error)


def to_setback(error: ProviderError, model: ModelRef) -> AnyFailure:
    """The failure of one attempt. It says whose it was: the message may be another model's in the end."""
    failure = to_failure(error)
    if not isinstance(failure, ApiFailure):
        return failure
    metadata = (failure.data.metadata or {}) | mark(error.kind, model)
    return replace(failure, data=replace(failure.data, metadata=metadata))

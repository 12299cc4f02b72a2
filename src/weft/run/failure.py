"""Turn errors into failures: the values that messages store (pure)."""

from msgspec.structs import replace

from weft.context.exclusions import make_attempt_mark
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
    MessageData,
    ModelNotFoundData,
    ModelNotFoundFailure,
    StorageFailure,
    unknown_failure,
)
from weft.model.part import ModelRef

MINUTE_MS = 60_000


class BudgetTimeError(WeftError):
    """A step took longer than a budget allows. It carries the failure to store, and never leaves a run."""

    def __init__(self, failure: BudgetFailure) -> None:
        super().__init__(failure.data.message, hint=failure.data.hint)
        self.failure = failure


def to_failure(error: BaseException) -> AnyFailure:
    """Return the failure to store for an error."""
    match error:
        case BudgetTimeError(failure=failure):
            return failure
        case ProviderAuthError(provider_id=provider):
            return AuthFailure(data=AuthData(provider_id=provider, message=str(error)))
        case ProviderError():
            return ApiFailure(
                data=ApiData(
                    message=_with_advice(error),
                    status_code=error.status,
                    is_retryable=error.retryable,
                    response_headers=error.headers or None,
                    response_body=error.body or None,
                    metadata=_make_metadata(error) or None,
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
            return StorageFailure(data=MessageData(message=_with_hint(error)))
        case WeftError():
            return unknown_failure(_with_hint(error))
        case _:
            return unknown_failure(str(error) or type(error).__name__)


def _with_hint(error: WeftError) -> str:
    """Return the message and the hint in one text."""
    return f"{error} ({error.hint})" if error.hint else str(error) or type(error).__name__


def _make_metadata(error: ProviderError) -> dict[str, str]:
    """Return the metadata of a failure: the address, as in OpenCode, and whether it was a timeout, which decides the exit code."""
    url = {"url": error.url} if error.url else {}
    return url | ({"kind": error.kind} if error.kind == "timeout" else {})


def _with_advice(error: ProviderError) -> str:
    """Return the message, followed by what the reader can do: the hint, or how long to wait."""
    minutes = -(-(error.wait_ms or 0) // MINUTE_MS)
    wait_advice = f"it asks you to wait {minutes} minutes" if minutes > 1 else ""
    advice = [each for each in (error.hint, wait_advice) if each]
    return f"{error} ({'; '.join(advice)})" if advice else str(error)


def to_attempt_failure(error: ProviderError, model: ModelRef) -> AnyFailure:
    """Return the failure of one attempt. It names the model, because another model may complete the message."""
    failure = to_failure(error)
    if not isinstance(failure, ApiFailure):
        return failure
    metadata = (failure.data.metadata or {}) | make_attempt_mark(error.kind, model)
    return replace(failure, data=replace(failure.data, metadata=metadata))

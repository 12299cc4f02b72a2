"""Errors to failures: what was raised, as the value a message keeps (pure)."""

from weft.errors import ProviderAuthError, ProviderError
from weft.model.failure import AnyFailure, ApiData, ApiFailure, AuthData, AuthFailure, unknown


def to_failure(error: BaseException) -> AnyFailure:
    match error:
        case ProviderAuthError(provider_id=provider):
            return AuthFailure(data=AuthData(provider_id=provider, message=str(error)))
        case ProviderError():
            return ApiFailure(
                data=ApiData(
                    message=str(error),
                    status_code=error.status,
                    is_retryable=error.retryable,
                    response_headers=error.headers or None,
                    response_body=error.body or None,
                )
            )
        case _:
            return unknown(str(error) or type(error).__name__)

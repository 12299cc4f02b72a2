"""Failures: what went wrong, as a value stored in a message. (Errors are raised; failures are kept.)"""

from typing import Any

from weft.model.wire import Wire


class Said(Wire, frozen=True, kw_only=True):
    message: str = ""


class AuthData(Wire, frozen=True, kw_only=True):
    provider_id: str
    message: str


class ApiData(Wire, frozen=True, kw_only=True):
    message: str
    status_code: int | None = None
    is_retryable: bool
    response_headers: dict[str, str] | None = None
    response_body: str | None = None
    metadata: dict[str, str] | None = None


class OutputLengthData(Wire, frozen=True, kw_only=True):
    pass


class Failure(Wire, frozen=True, kw_only=True, tag_field="name"):
    """`{name, data}`, as OpenCode serialises what went wrong."""


class AuthFailure(Failure, frozen=True, kw_only=True, tag="ProviderAuthError"):
    """The provider wants a key it did not get."""

    data: AuthData


class UnknownFailure(Failure, frozen=True, kw_only=True, tag="UnknownError"):
    """Anything unclassified."""

    data: Said


class OutputLengthFailure(Failure, frozen=True, kw_only=True, tag="MessageOutputLengthError"):
    """The answer did not fit its limit."""

    data: OutputLengthData


class AbortedFailure(Failure, frozen=True, kw_only=True, tag="MessageAbortedError"):
    """The run was ended before the answer was whole."""

    data: Said


class ApiFailure(Failure, frozen=True, kw_only=True, tag="APIError"):
    """The model's API refused or broke off."""

    data: ApiData


class OtherFailure(Failure, frozen=True, kw_only=True, tag="$other"):
    """A failure of a name we do not know; its own name is carried along."""

    data: dict[str, Any] | None = None


AnyFailure = AuthFailure | UnknownFailure | OutputLengthFailure | AbortedFailure | ApiFailure | OtherFailure


def unknown(message: str) -> UnknownFailure:
    return UnknownFailure(data=Said(message=message))


def aborted(message: str = "The operation was aborted.") -> AbortedFailure:
    return AbortedFailure(data=Said(message=message))

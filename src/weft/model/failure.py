"""Failures: the reason why a message has no complete answer, stored in the message. Errors are raised, failures are stored."""

from decimal import Decimal
from typing import Any, Literal

from weft.model.wire import Wire

BudgetScope = Literal["run", "session", "tree", "group", "day"]
BudgetMeasure = Literal["cost", "tokens", "steps", "seconds"]


class MessageData(Wire, frozen=True, kw_only=True):
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


class BudgetData(Wire, frozen=True, kw_only=True):
    """The budget that would have been exceeded: its limit, what was spent, and the estimate for the next request to the
    model. `hint` says how to continue.
    """

    message: str
    scope: BudgetScope
    measure: BudgetMeasure
    limit: Decimal
    spent: Decimal
    next: Decimal
    hint: str = ""


class DeadlineData(Wire, frozen=True, kw_only=True):
    """`limit` names the deadline (`turn`, `tree`, `tool`), `seconds` is its length."""

    message: str
    limit: str
    seconds: float


class StructureData(Wire, frozen=True, kw_only=True):
    """`retries` is the number of further attempts that the model had."""

    message: str
    retries: int


class ModelNotFoundData(Wire, frozen=True, kw_only=True):
    """OpenCode's fields, and a message that says what to do. `suggestions` are the nearest names."""

    provider_id: str
    model_id: str
    suggestions: tuple[str, ...] = ()
    message: str = ""


class Failure(Wire, frozen=True, kw_only=True, tag_field="name"):
    """A failure as OpenCode serialises it: `{name, data}`."""


class AuthFailure(Failure, frozen=True, kw_only=True, tag="ProviderAuthError"):
    """The provider requires a key."""

    data: AuthData


class UnknownFailure(Failure, frozen=True, kw_only=True, tag="UnknownError"):
    """A failure of no other kind."""

    data: MessageData


class OutputLengthFailure(Failure, frozen=True, kw_only=True, tag="MessageOutputLengthError"):
    """The answer exceeded its length limit."""

    data: OutputLengthData


class AbortedFailure(Failure, frozen=True, kw_only=True, tag="MessageAbortedError"):
    """The run was aborted before the answer was complete."""

    data: MessageData


class ApiFailure(Failure, frozen=True, kw_only=True, tag="APIError"):
    """The API of the model refused the request or broke off."""

    data: ApiData


class BudgetFailure(Failure, frozen=True, kw_only=True, tag="BudgetExceededError"):
    """The next request to the model would have exceeded a budget. OpenCode has no budgets and shows the message."""

    data: BudgetData


class DeadlineFailure(Failure, frozen=True, kw_only=True, tag="DeadlineError"):
    """A deadline passed. OpenCode has no deadlines and shows the message."""

    data: DeadlineData


class StorageFailure(Failure, frozen=True, kw_only=True, tag="StorageError"):
    """The answer could not be stored, for example on a full disk. OpenCode has no such failure and shows the message."""

    data: MessageData


class StructureFailure(Failure, frozen=True, kw_only=True, tag="StructuredOutputError"):
    """The model did not return a value that matches the schema."""

    data: StructureData


class ModelNotFoundFailure(Failure, frozen=True, kw_only=True, tag="ProviderModelNotFoundError"):
    """No provider has the model."""

    data: ModelNotFoundData


class OtherFailure(Failure, frozen=True, kw_only=True, tag="$other"):
    """A failure with a name that weft does not know. The name is kept among the unknown fields."""

    data: dict[str, Any] | None = None


AnyFailure = (
    AuthFailure
    | UnknownFailure
    | OutputLengthFailure
    | AbortedFailure
    | ApiFailure
    | BudgetFailure
    | DeadlineFailure
    | StorageFailure
    | StructureFailure
    | ModelNotFoundFailure
    | OtherFailure
)


def unknown_failure(message: str) -> UnknownFailure:
    return UnknownFailure(data=MessageData(message=message))


def aborted_failure(message: str = "The operation was aborted.") -> AbortedFailure:
    return AbortedFailure(data=MessageData(message=message))

"""Failures: what went wrong, as a value stored in a message. (Errors are raised; failures are kept.)"""

from decimal import Decimal
from typing import Any, Literal

from weft.model.wire import Wire

BudgetScope = Literal["run", "session", "tree", "day"]
BudgetMeasure = Literal["cost", "tokens", "steps", "seconds"]


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


class BudgetData(Wire, frozen=True, kw_only=True):
    """Which budget: whose (`run`, `session`, `tree`, `day`) and of what (`cost`, `tokens`, `steps`, `seconds`); its
    limit, what was spent of it, and about what the next call would have taken. `hint` says how to go on."""

    message: str
    scope: BudgetScope
    measure: BudgetMeasure
    limit: Decimal
    spent: Decimal
    next: Decimal
    hint: str = ""


class DeadlineData(Wire, frozen=True, kw_only=True):
    """`limit` is whose deadline it was (`turn`, `tree`, `tool`), `seconds` how long that is."""

    message: str
    limit: str
    seconds: float


class StructureData(Wire, frozen=True, kw_only=True):
    """`retries` is how often the model was given another try."""

    message: str
    retries: int


class ModelNotFoundData(Wire, frozen=True, kw_only=True):
    """OpenCode's fields, and a message with the way out. `suggestions` are the nearest names."""

    provider_id: str
    model_id: str
    suggestions: tuple[str, ...] = ()
    message: str = ""


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


class BudgetFailure(Failure, frozen=True, kw_only=True, tag="BudgetExceededError"):
    """The next call would have broken a budget, so it was not made. OpenCode has none, and shows the message."""

    data: BudgetData


class DeadlineFailure(Failure, frozen=True, kw_only=True, tag="DeadlineError"):
    """It took longer than it may. OpenCode has no deadlines, and shows the message."""

    data: DeadlineData


class StorageFailure(Failure, frozen=True, kw_only=True, tag="StorageError"):
    """The store could not take in the answer: a full disk, mostly. OpenCode has no such failure, and shows the message."""

    data: Said


class StructureFailure(Failure, frozen=True, kw_only=True, tag="StructuredOutputError"):
    """A value was asked for, and the model did not give one that keeps to the schema."""

    data: StructureData


class ModelNotFoundFailure(Failure, frozen=True, kw_only=True, tag="ProviderModelNotFoundError"):
    """No provider has the model that was to answer."""

    data: ModelNotFoundData


class OtherFailure(Failure, frozen=True, kw_only=True, tag="$other"):
    """A failure of a name we do not know; its own name is carried along."""

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


def unknown(message: str) -> UnknownFailure:
    return UnknownFailure(data=Said(message=message))


def aborted(message: str = "The operation was aborted.") -> AbortedFailure:
    return AbortedFailure(data=Said(message=message))

"""The answer to a question: its text or value, its steps, its cost and the files it changed (pure)."""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Generic, Literal, TypeVar

from msgspec import UNSET, Struct

from weft.errors import WeftError
from weft.model.diff import FileDiff
from weft.model.failure import (
    AbortedFailure,
    AnyFailure,
    ApiFailure,
    AuthFailure,
    BudgetData,
    BudgetFailure,
    DeadlineFailure,
    ModelNotFoundFailure,
    OtherFailure,
    OutputLengthFailure,
    StorageFailure,
    StructureFailure,
    UnknownFailure,
)
from weft.model.ids import MessageID, SessionID
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import (
    CacheTokens,
    CompletedState,
    ErrorState,
    PendingState,
    ReasoningPart,
    RunningState,
    TextPart,
    Tokens,
    ToolPart,
)
from weft.model.spending import Spent
from weft.run.doom import BLOCKED_PREFIX

T_co = TypeVar("T_co", covariant=True)

VALUE_HINT = (
    "say in the prompt what each field means, or loosen the schema; error.answer.text is what the model wrote"
)
REPR_LENGTH = 60

Ending = Literal["done", "failed", "refused", "budget", "timeout", "loop", "aborted"]


class Call(Struct, frozen=True, kw_only=True):
    """One call of a tool. A call that failed or was refused has an `error` and no output."""

    tool: str
    input: dict[str, object]
    output: str = ""
    error: str | None = None
    title: str = ""
    status: Literal["pending", "running", "completed", "error"]

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.input.items())
        return f"Call({self.tool}({_shorten(arguments)}), {self.status})"


class Step(Struct, frozen=True, kw_only=True):
    """One response of the model, with the calls it made. `cost` is None if the price is not known."""

    model: str
    text: str
    reasoning: str
    calls: tuple[Call, ...]
    tokens: Tokens
    cost: Decimal | None

    def __repr__(self) -> str:
        calls = ", ".join(call.tool for call in self.calls)
        return f"Step({_cut(self.text)}, calls=[{_shorten(calls)}], cost={_show_cost(self.cost)})"


class Answer(Struct, Generic[T_co], frozen=True, kw_only=True):
    """The answer to one question.

    `value` is the text, or the value of the requested type. `cost` includes child sessions and is None if a price is not
    known; `tokens` is None if a provider did not count them. `files` are the files that changed.

    A question that was asked with `check=False` and failed has an `error`; its `text` is what the model wrote before, and
    reading its `value` raises the error.
    """

    text: str
    outcome: "T_co | RunFailedError"
    cost: Decimal | None
    tokens: Tokens | None
    files: tuple[FileDiff, ...]
    steps: tuple[Step, ...]
    session: SessionID

    @property
    def value(self) -> T_co:
        """The text, or the value of the requested type. Raise the error if the question failed."""
        if isinstance(self.outcome, RunFailedError):
            raise self.outcome
        return self.outcome

    @property
    def error(self) -> "RunFailedError | None":
        """Why there is no answer; None if there is one."""
        return self.outcome if isinstance(self.outcome, RunFailedError) else None

    @property
    def calls(self) -> tuple[Call, ...]:
        """All calls of all steps, in order."""
        return tuple(call for step in self.steps for call in step.calls)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        failed = f", error={type(self.error).__name__}" if self.error is not None else ""
        return (
            f"Answer({_cut(self.text)}, cost={_show_cost(self.cost)}, steps={len(self.steps)}, "
            f"files={len(self.files)}, session={self.session!r}{failed})"
        )

    def _repr_markdown_(self) -> str:
        """Return what a notebook shows: the text, the changed files, and the cost."""
        files = "".join(f"\n- `{file.file}` +{file.additions} −{file.deletions}" for file in self.files)
        changed = f"\n\nFiles changed:\n{files}" if files else ""
        steps = f"{len(self.steps)} {'step' if len(self.steps) == 1 else 'steps'}"
        cost = f"{steps} · cost {_show_cost(self.cost)} · `{self.session}`"
        return f"{self.text}{changed}\n\n<small>{cost}</small>"


class RunFailedError(WeftError):
    """A question got no answer. `answer` is the unfinished answer, and `failure` the stored reason."""

    answer: Answer[object]

    def __init__(self, message: str, *, failure: AnyFailure | None = None, hint: str = "") -> None:
        super().__init__(f"{message} ({hint})" if hint else message)
        self.hint = hint
        self.__notes__ = []  # the message has the hint
        self.failure = failure


class RunRefusedError(RunFailedError):
    """The agent asked for a permission that it did not get."""


class BudgetExceededError(RunFailedError):
    """The next call of the model would have exceeded a budget."""


class RunTimeoutError(RunFailedError):
    """A deadline passed, or the provider did not answer in time."""


class RunLoopError(RunFailedError):
    """The agent repeated itself and was stopped."""


class RunAbortedError(RunFailedError):
    """Somebody aborted the run."""


class InvalidAnswerError(RunFailedError):
    """The model did not return a value of the requested type."""


def classify(answer: MessageWithParts, failure: AnyFailure | None) -> Ending:
    """Return how a run ended, from its last message and the failure it ended with."""
    info = answer.info
    error = (info.error if isinstance(info, AssistantMessage) else None) or failure
    if error is not None:
        return _classify_failure(error)
    if not isinstance(info, AssistantMessage):
        return "failed"  # no model answered
    # After tool calls a run goes on. If it ended there, the results of the calls kept it from going on.
    calls = [part for part in answer.parts if isinstance(part, ToolPart)]
    if not calls or info.structured is not UNSET:
        return "done"
    errors = [part.state.error for part in calls if isinstance(part.state, ErrorState)]
    return "loop" if any(each.startswith(BLOCKED_PREFIX) for each in errors) else "refused"


def _classify_failure(failure: AnyFailure) -> Ending:
    match failure:
        case AbortedFailure():
            return "aborted"
        case BudgetFailure():
            return "budget"
        case DeadlineFailure():
            return "timeout"
        case ApiFailure(data=data) if (data.metadata or {}).get("kind") == "timeout":
            return "timeout"
        case _:
            return "failed"


ERRORS: dict[Ending, type[RunFailedError]] = {
    "failed": RunFailedError,
    "refused": RunRefusedError,
    "budget": BudgetExceededError,
    "timeout": RunTimeoutError,
    "loop": RunLoopError,
    "aborted": RunAbortedError,
}


def explain_failure(failure: AnyFailure) -> str:
    """Return the message of a failure for a person."""
    match failure:
        case OutputLengthFailure():
            return "the answer exceeded its length limit"
        case OtherFailure(data=data):
            return str((data or {}).get("message") or "the run failed for an unknown reason")
        case (
            AuthFailure(data=data)
            | UnknownFailure(data=data)
            | AbortedFailure(data=data)
            | ApiFailure(data=data)
            | BudgetFailure(data=data)
            | DeadlineFailure(data=data)
            | StorageFailure(data=data)
            | StructureFailure(data=data)
            | ModelNotFoundFailure(data=data)
        ):
            return data.message or "the run failed for an unknown reason"


def list_steps(messages: Iterable[MessageWithParts], prompt: MessageID) -> tuple[Step, ...]:
    """Return the steps that answer a prompt, oldest first."""
    return tuple(
        to_step(message.info, message)
        for message in messages
        if isinstance(message.info, AssistantMessage) and message.info.parent_id == prompt
    )


def to_step(info: AssistantMessage, message: MessageWithParts) -> Step:
    return Step(
        model=f"{info.provider_id}/{info.model_id}",
        text=text_of(message),
        reasoning="".join(part.text for part in message.parts if isinstance(part, ReasoningPart)),
        calls=tuple(to_call(part) for part in message.parts if isinstance(part, ToolPart)),
        tokens=info.tokens,
        cost=info.cost if info.priced else None,
    )


def to_call(part: ToolPart) -> Call:
    match part.state:
        case PendingState(input=input):
            return Call(tool=part.tool, input=dict(input), status="pending")
        case RunningState(input=input, title=title):
            return Call(tool=part.tool, input=dict(input), title=title or "", status="running")
        case CompletedState(input=input, output=output, title=title):
            return Call(tool=part.tool, input=dict(input), output=output, title=title, status="completed")
        case ErrorState(input=input, error=error):
            return Call(tool=part.tool, input=dict(input), error=error, status="error")


def is_written(part: TextPart) -> bool:
    """Return True if the model wrote this text for the person."""
    return not part.synthetic and not part.ignored


def text_of(message: MessageWithParts) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, TextPart) and is_written(part))


def to_tokens(spent: Spent) -> Tokens | None:
    if not spent.counted:
        return None
    cache = CacheTokens(read=spent.cache_read, write=spent.cache_write)
    return Tokens(input=spent.input, output=spent.output, reasoning=spent.reasoning, cache=cache)


def subtract(after: Spent, before: Spent, steps: Sequence[Step]) -> Spent:
    """Return what was spent between two measurements.

    If a price was unknown before, the sum stays unknown, and only the steps tell whether the new part is known.
    """
    return Spent(
        cost=after.cost - before.cost,
        input=after.input - before.input,
        output=after.output - before.output,
        reasoning=after.reasoning - before.reasoning,
        cache_read=after.cache_read - before.cache_read,
        cache_write=after.cache_write - before.cache_write,
        priced=after.priced if before.priced else all(step.cost is not None for step in steps),
        counted=after.counted or not before.counted,
    )


def find_hint(failure: AnyFailure | None, refused: Sequence[str]) -> str:
    """Return what the caller can do about a failure. `refused` are the permissions that nobody gave."""
    match failure:
        case BudgetFailure(data=BudgetData(scope="run")):
            return "pass a larger budget; agent.converse(error.answer.session) goes on where it stopped"
        case BudgetFailure(data=data):
            return data.hint
        case AuthFailure(data=data) if "weft auth login" not in data.message:
            return f"run weft auth login {data.provider_id}, or set the provider's variable"
        case ApiFailure(data=data) if (data.metadata or {}).get("kind") == "auth":
            return "weft auth list shows where the key comes from, weft auth login replaces it"
        case StructureFailure():
            return VALUE_HINT
        case None if refused:
            return f"it asked for {', '.join(refused)}: pass permissions={{…}}, or a function that answers"
        case _:
            return ""


def _cut(value: object) -> str:
    return _shorten(repr(value))


def _shorten(text: str) -> str:
    return text if len(text) <= REPR_LENGTH else text[: REPR_LENGTH - 1] + "…"


def _show_cost(cost: Decimal | None) -> str:
    return "unknown" if cost is None else f"${cost}"

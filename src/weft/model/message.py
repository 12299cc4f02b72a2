"""Messages: the prompts of a person, and the answers of a model, one message per step."""

from collections.abc import Container, Iterable, Sequence
from decimal import Decimal
from typing import Any, ClassVar, Literal

from msgspec import UNSET

from weft.errors import NotFoundError
from weft.model.diff import FileDiff
from weft.model.failure import AnyFailure
from weft.model.ids import MessageID, SessionID, id_sort_key
from weft.model.part import AnyPart, CompactionPart, ModelRef, Moment, TextPart, Tokens
from weft.model.spending import Budget
from weft.model.wire import Wire, always, check_finite


class UserSummary(Wire, frozen=True, kw_only=True):
    """The result of a prompt: a title and the files that changed."""

    title: str | None = None
    body: str | None = None
    diffs: tuple[FileDiff, ...] = always(())


class AssistantTime(Wire, frozen=True, kw_only=True):
    created: int
    completed: int | None = None


class MessagePath(Wire, frozen=True, kw_only=True):
    """The directory of the agent, and the top of its checkout."""

    cwd: str
    root: str


class Format(Wire, frozen=True, kw_only=True, tag_field="type"):
    """The requested form of an answer."""


class TextFormat(Format, frozen=True, kw_only=True, tag="text"):
    """Text, the default."""


class JsonFormat(Format, frozen=True, kw_only=True, tag="json_schema"):
    """A value that matches a JSON schema. The model has `retry_count` further attempts before it is a failure."""

    schema: dict[str, Any]
    retry_count: int | None = None


class OtherFormat(Format, frozen=True, kw_only=True, tag="$other"):
    """A format of an unknown type."""


AnyFormat = TextFormat | JsonFormat | OtherFormat


class Message(Wire, frozen=True, kw_only=True, tag_field="role"):
    """A prompt or an answer. `metadata` holds the message as other frameworks wrote it, by the name of the framework."""

    id: MessageID
    session_id: SessionID
    metadata: dict[str, Any] | None = None


class UserMessage(Message, frozen=True, kw_only=True, tag="user"):
    """A prompt, with the agent and model that answer it and the budget for it.

    If the model fails for good, the models in `fallback` are tried. `format` is the requested form of the answer.
    """

    role: ClassVar[Literal["user"]] = "user"
    time: Moment
    summary: UserSummary | None = None
    agent: str = ""
    model: ModelRef | None = None
    system: str | None = None
    tools: dict[str, bool] | None = None
    variant: str | None = None
    budget: Budget | None = None
    format: AnyFormat | None = None
    fallback: tuple[ModelRef, ...] = ()


class AssistantMessage(Message, frozen=True, kw_only=True, tag="assistant"):
    """The answer of one step. `parent_id` is the prompt. Without `completed`, the answer has not ended.

    If `priced` is False, `cost` is only the known part: the model has no price, or an answer broke off before it was
    counted. If `counted` is False, the same holds for `tokens`: the provider did not report them, or weft died before it
    did. `structured` is the value that a `format` requested; it may be null.
    """

    role: ClassVar[Literal["assistant"]] = "assistant"
    time: AssistantTime
    error: AnyFailure | None = None
    parent_id: MessageID = MessageID("")
    model_id: str = ""
    provider_id: str = ""
    mode: str = ""
    agent: str = ""
    path: MessagePath | None = None
    summary: bool = False
    cost: Decimal = always(Decimal(0))
    tokens: Tokens = always(Tokens())
    structured: Any = UNSET
    finish: str | None = None
    priced: bool = True
    counted: bool = True

    def __post_init__(self) -> None:
        check_finite(self.cost)


AnyMessage = UserMessage | AssistantMessage


class MessageWithParts(Wire, frozen=True, kw_only=True):
    """A message with its parts."""

    info: AnyMessage
    parts: tuple[AnyPart, ...]


def is_human_prompt(message: MessageWithParts) -> bool:
    """Return True for a prompt that weft did not write itself."""
    return isinstance(message.info, UserMessage) and not is_synthetic(message)


def is_synthetic(message: MessageWithParts) -> bool:
    """Return True if weft wrote all of the message itself."""
    return bool(message.parts) and all(
        isinstance(part, CompactionPart) or (isinstance(part, TextPart) and part.synthetic)
        for part in message.parts
    )


def find_newest_human_prompt_id(history: Sequence[MessageWithParts]) -> MessageID | None:
    """Return the id of the newest prompt that weft did not write itself."""
    return next((message.info.id for message in reversed(history) if is_human_prompt(message)), None)


def list_from(history: Sequence[MessageWithParts], id: MessageID | None) -> Sequence[MessageWithParts]:
    """Return the messages from this one on; none if it is not there."""
    # Most callers look for one near the end.
    for index in reversed(range(len(history))):
        if history[index].info.id == id:
            return history[index:]
    return ()


def count_same(known: Sequence[MessageWithParts], history: Sequence[MessageWithParts]) -> int:
    """Return how many of the known messages a history still begins with. Only the last ones may differ: if an earlier one does, return 0."""
    count = min(len(known), len(history))
    while count and known[count - 1] is not history[count - 1]:
        count -= 1
    # Comparing lists checks identity first, so this is cheap for unchanged messages.
    return count if list(known[:count]) == list(history[:count]) else 0


def message_sort_key(message: AnyMessage) -> tuple[int, int, str]:
    """Return the sort key of a message: its time, then its id."""
    created = message.time.created
    return created, *id_sort_key(message.id, created)


def replace_messages(
    messages: Iterable[MessageWithParts], changed: Container[str], new: Iterable[MessageWithParts]
) -> list[MessageWithParts]:
    """Return sorted messages without those that `changed` names, and with the new ones sorted into them."""
    stayed = [message for message in messages if message.info.id not in changed]
    came = sorted(new, key=_get_sort_key)
    if stayed and came and _get_sort_key(came[0]) < _get_sort_key(stayed[-1]):
        return sorted([*stayed, *came], key=_get_sort_key)
    return [*stayed, *came]


def _get_sort_key(message: MessageWithParts) -> tuple[int, int, str]:
    return message_sort_key(message.info)


def find_end(id: MessageID | None, messages: Iterable[MessageID]) -> int | None:
    """Return the index of a message, for use as the end of a slice, or None if `id` is None. Raise `NotFoundError` if it is not there."""
    if id is None:
        return None
    for index, each in enumerate(messages):
        if each == id:
            return index
    raise NotFoundError("message", id)


def sort_parts(parts: Iterable[AnyPart], message: AnyMessage) -> tuple[AnyPart, ...]:
    """Sort parts by id, unwrapped around the time of their message, because parts have no time of their own."""
    found = tuple(parts)
    if len(found) < 2:  # noqa: PLR2004
        return found
    created = message.time.created
    return tuple(sorted(found, key=lambda part: id_sort_key(part.id, created)))

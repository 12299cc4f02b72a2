"""Messages: what a person asked, and what the model answered, one message a step."""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from msgspec import UNSET

from weft.errors import NotFoundError
from weft.model.diff import FileDiff
from weft.model.failure import AnyFailure
from weft.model.ids import MessageID, SessionID, in_order
from weft.model.part import AnyPart, ModelRef, Moment, Tokens
from weft.model.spending import Budget
from weft.model.wire import Wire, always


class UserSummary(Wire, frozen=True, kw_only=True):
    """What a prompt led to: a title and the files it changed."""

    title: str | None = None
    body: str | None = None
    diffs: tuple[FileDiff, ...] = always(())


class AssistantTime(Wire, frozen=True, kw_only=True):
    created: int
    completed: int | None = None


class MessagePath(Wire, frozen=True, kw_only=True):
    """Where the agent stood: its directory and the top of that checkout."""

    cwd: str
    root: str


class Format(Wire, frozen=True, kw_only=True, tag_field="type"):
    """What an answer is to be."""


class TextFormat(Format, frozen=True, kw_only=True, tag="text"):
    """Words, as ever."""


class JsonFormat(Format, frozen=True, kw_only=True, tag="json_schema"):
    """A value that keeps to a JSON schema. The model may get it wrong `retry_count` times before that is a failure."""

    schema: dict[str, Any]
    retry_count: int | None = None


class OtherFormat(Format, frozen=True, kw_only=True, tag="$other"):
    """A format of a kind we do not know."""


AnyFormat = TextFormat | JsonFormat | OtherFormat


class Message(Wire, frozen=True, kw_only=True, tag_field="role"):
    id: MessageID
    session_id: SessionID


class UserMessage(Message, frozen=True, kw_only=True, tag="user"):
    """A prompt, which agent and model are to answer it, and what that may take.

    When the model fails for good, those in `fallback` are asked. `format` says what the answer is to be.
    """

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
    """One step's answer. `parent_id` is the prompt it answers; without `completed` it is not over.

    When not `priced`, `cost` holds only what is known of it: the model has no price, or an answer broke off uncounted.
    When not `counted`, the same holds for `tokens`: the provider did not say how many it used.
    `structured` is the value that was asked for by a `format`; a null is a value too.
    """

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


AnyMessage = UserMessage | AssistantMessage


class MessageWithParts(Wire, frozen=True, kw_only=True):
    """A message and its parts, as they are read and exported."""

    info: AnyMessage
    parts: tuple[AnyPart, ...]


def message_order(message: AnyMessage) -> tuple[int, int, str]:
    """Messages stand in the order of their time; the id only breaks a tie."""
    created = message.time.created
    return created, *in_order(message.id, created)


def place_of(id: MessageID | None, messages: Iterable[MessageID]) -> int | None:
    """Where among these a message stands: the end of a slice that leaves it out. None, all of it, if none is named."""
    for index, each in enumerate(messages):
        if each == id:
            return index
    if id is not None:
        raise NotFoundError("message", id)
    return None


def sort_parts(parts: Iterable[AnyPart], message: AnyMessage) -> tuple[AnyPart, ...]:
    """Parts have no time of their own: they stand by id, unwrapped around their message's time."""
    created = message.time.created
    return tuple(sorted(parts, key=lambda part: in_order(part.id, created)))

"""Build the messages that are appended to a session from what a caller gives: text, reasoning, files, tool calls and results (pure)."""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from weft.errors import DocumentError, InvalidInputError
from weft.model.display import make_call_title
from weft.model.event import Durable, MessageUpdated, PartUpdated
from weft.model.ids import MessageID, Mint, PartID
from weft.model.message import (
    AnyMessage,
    AssistantMessage,
    AssistantTime,
    MessagePath,
    MessageWithParts,
    UserMessage,
)
from weft.model.part import (
    AnyPart,
    AnyToolState,
    CallTime,
    CompletedState,
    ErrorState,
    FilePart,
    ModelRef,
    Moment,
    PendingState,
    ReasoningPart,
    RunningState,
    Span,
    TextPart,
    Tokens,
    ToolPart,
)
from weft.model.session import SessionInfo
from weft.model.wire import encode, parse

Role = Literal["user", "assistant"]
ROLES: tuple[str, ...] = get_args(Role)

# The agent that OpenCode requires a message to name.
DEFAULT_AGENT = "build"
UNKNOWN_TOOL = "tool"


class NewText(Struct, frozen=True):
    """Text. `synthetic` text was not written by the person or the model, and `weft session show` leaves it out of prompts."""

    text: str
    synthetic: bool = False


class NewReasoning(Struct, frozen=True):
    """Reasoning of the model."""

    text: str


class NewFile(Struct, frozen=True):
    """A file by URL (`data:`, `file:`, `https:`)."""

    url: str
    mime: str
    filename: str | None = None


class NewToolCall(Struct, frozen=True):
    """A call of a tool. It is open until it has an `output` or an `error`, here or in a `NewToolResult`."""

    tool: str
    input: Mapping[str, object]
    call_id: str = ""
    output: str | None = None
    error: str | None = None


class NewToolResult(Struct, frozen=True):
    """The result of the last call with this id, in the same append or stored before. Without such a call it becomes a call of its own."""

    call_id: str
    output: str = ""
    error: str | None = None
    tool: str = UNKNOWN_TOOL


NewContent = NewText | NewReasoning | NewFile | NewToolCall | NewToolResult


class NewMessage(Struct, frozen=True, kw_only=True):
    """A message to append. Make one with `user_message` or `assistant_message`.

    `model` has the form `provider/model`. Without `tokens` and `cost` they are unknown, not zero. `metadata` is stored with
    the message, unread.
    """

    role: Role
    content: tuple[NewContent, ...]
    model: str = ""
    agent: str = ""
    tokens: Tokens | None = None
    cost: Decimal | None = None
    metadata: Mapping[str, object] | None = None


def user_message(
    *content: str | NewContent, model: str = "", metadata: Mapping[str, object] | None = None
) -> NewMessage:
    """Make a prompt. `model` is the model that is to answer."""
    return NewMessage(role="user", content=to_content(content), model=model, metadata=metadata)


def assistant_message(
    *content: str | NewContent,
    model: str = "",
    tokens: Tokens | None = None,
    cost: Decimal | None = None,
    metadata: Mapping[str, object] | None = None,
) -> NewMessage:
    """Make an answer of a model: one response, with its tool calls and their results."""
    return NewMessage(
        role="assistant",
        content=to_content(content),
        model=model,
        tokens=tokens,
        cost=cost,
        metadata=metadata,
    )


def to_content(content: Iterable[str | NewContent]) -> tuple[NewContent, ...]:
    return tuple(NewText(each) if isinstance(each, str) else each for each in content)


def check_messages(messages: Sequence[str | NewMessage], role: str) -> list[NewMessage]:
    """Return the messages in full; plain text gets the role. Raise `InvalidInputError` for what cannot be stored."""
    return [_check_message(_make_message(each, role)) for each in messages]


def _make_message(message: str | NewMessage, role: str) -> NewMessage:
    if isinstance(message, str):
        return NewMessage(role=_check_role(role), content=(NewText(message),))
    if isinstance(message, NewMessage):
        return message
    raise InvalidInputError(
        "message",
        f"{type(message).__name__} is not a message",
        hint="pass text, weft.user_message(…) or weft.assistant_message(…)",
    )


def _check_role(role: str) -> Role:
    match role:
        case "user" | "assistant":
            return role
        case _:
            raise InvalidInputError(
                "role",
                f"{role!r} is none of {', '.join(ROLES)}",
                hint="instructions belong to the agent, not to its history",
            )


def _check_message(message: NewMessage) -> NewMessage:
    _check_role(message.role)
    for each in message.content:
        _check_content(each)
    if message.cost is not None:
        _check_cost(message.cost)
    metadata = None if message.metadata is None else copy_json("metadata", message.metadata)
    content = tuple(
        replace(each, input=copy_json("input", each.input)) if isinstance(each, NewToolCall) else each
        for each in message.content
    )
    return replace(message, content=content, metadata=metadata)


def _check_cost(cost: object) -> None:
    if not isinstance(cost, Decimal | int) or not Decimal(cost).is_finite():
        raise InvalidInputError("cost", f"{cost!r} is not an amount of dollars", hint='write Decimal("0.01")')


def _check_content(content: NewContent) -> None:
    if not isinstance(content, NewContent):
        raise InvalidInputError(
            "content",
            f"{type(content).__name__} is not content of a message",
            hint="pass text, NewReasoning, NewFile, NewToolCall or NewToolResult",
        )
    for field in content.__struct_fields__:
        value = getattr(content, field)
        expected = bool if field == "synthetic" else Mapping if field == "input" else str
        if not isinstance(value, expected) and not (
            value is None and field in ("filename", "output", "error")
        ):
            raise InvalidInputError(field, f"{type(value).__name__} is not a {expected.__name__}")
    if isinstance(content, NewToolCall) and content.output is not None and content.error is not None:
        raise InvalidInputError("error", "a call has either an output or an error, not both")


def copy_json(field: str, value: Mapping[str, object]) -> dict[str, Any]:
    """Return a copy of a JSON object. Raise `InvalidInputError` if it is none."""
    try:
        copied = parse(encode(value))
    except (TypeError, ValueError, OverflowError, msgspec.EncodeError, DocumentError) as error:
        raise InvalidInputError(
            field, f"it is not JSON: {error}", hint="use texts, numbers, lists and mappings"
        ) from error
    if not isinstance(copied, dict):
        raise InvalidInputError(field, "it is not a mapping")
    return copied


def list_unmatched_results(messages: Sequence[NewMessage]) -> set[str]:
    """Return the ids of calls whose results are among the messages, but not the calls themselves."""
    called: set[str] = set()
    unmatched: set[str] = set()
    for each in (piece for message in messages for piece in message.content):
        if isinstance(each, NewToolCall):
            called.add(each.call_id)
        elif isinstance(each, NewToolResult) and each.call_id not in called:
            unmatched.add(each.call_id)
    return unmatched


def _split_model(name: str) -> tuple[str, str]:
    """Return provider and model. A model may have slashes in its name; a name without one names no provider."""
    provider, slash, model = name.partition("/")
    return (provider, model) if slash else ("", name)


class MessageBuilder:
    """Builds the messages of one append. All of them have the time `at`; their ids give the order.

    `prompt` is the last prompt of the session. `calls` are stored calls that the new messages may complete.
    """

    def __init__(
        self,
        session: SessionInfo,
        mint: Mint,
        *,
        at: int,
        prompt: MessageID,
        calls: Mapping[str, ToolPart],
    ) -> None:
        self._session = session
        self._mint = mint
        self._at = at
        self._prompt = prompt
        self._stored_calls = dict(calls)
        self._completed_calls: dict[PartID, ToolPart] = {}
        self._new_calls: dict[str, tuple[MessageID, PartID]] = {}
        self._infos: dict[MessageID, AnyMessage] = {}
        self._parts: dict[MessageID, dict[PartID, AnyPart]] = {}

    def add(self, message: NewMessage) -> None:
        info = self._make_info(message)
        self._infos[info.id] = info
        self._parts[info.id] = {}
        for content in message.content:
            self._add_content(info.id, content)

    def messages(self) -> list[MessageWithParts]:
        return [
            MessageWithParts(info=info, parts=tuple(self._parts[id].values()))
            for id, info in self._infos.items()
        ]

    def to_events(self) -> list[Durable]:
        """Return the events that store the messages, and the results of calls that were stored before."""
        events: list[Durable] = [PartUpdated(part=part) for part in self._completed_calls.values()]
        for id, info in self._infos.items():
            events.append(MessageUpdated(info=info))
            events += [PartUpdated(part=part) for part in self._parts[id].values()]
        return events

    def _make_info(self, message: NewMessage) -> AnyMessage:
        id, session = self._mint.message(), self._session
        metadata = None if message.metadata is None else dict(message.metadata)
        agent = message.agent or DEFAULT_AGENT
        provider, model = _split_model(message.model)
        if message.role == "user":
            self._prompt = id
            return UserMessage(
                id=id,
                session_id=session.id,
                metadata=metadata,
                time=Moment(created=self._at),
                agent=agent,
                model=ModelRef(provider_id=provider, model_id=model) if message.model else None,
            )
        calls = any(isinstance(each, NewToolCall) for each in message.content)
        return AssistantMessage(
            id=id,
            session_id=session.id,
            metadata=metadata,
            time=AssistantTime(created=self._at, completed=self._at),
            parent_id=self._prompt,
            model_id=model,
            provider_id=provider,
            mode=agent,
            agent=agent,
            path=MessagePath(cwd=session.directory, root=session.directory),
            cost=message.cost or Decimal(0),
            tokens=message.tokens or Tokens(),
            finish="tool-calls" if calls else "stop",
            priced=message.cost is not None,
            counted=message.tokens is not None,
        )

    def _add_content(self, message: MessageID, content: NewContent) -> None:
        ids: dict[str, Any] = {
            "id": self._mint.part(),
            "session_id": self._session.id,
            "message_id": message,
        }
        span = Span(start=self._at, end=self._at)
        match content:
            case NewText(text=text, synthetic=synthetic):
                self._put(TextPart(**ids, text=text, synthetic=synthetic, time=span))
            case NewReasoning(text=text):
                self._put(ReasoningPart(**ids, text=text, time=span))
            case NewFile(url=url, mime=mime, filename=filename):
                self._put(FilePart(**ids, mime=mime, filename=filename, url=url))
            case NewToolCall(tool=tool, input=input, output=output, error=error):
                call_id = content.call_id or f"call_{ids['id']}"
                started = RunningState(input=dict(input), time=Span(start=self._at))
                state = (
                    started if output is None and error is None else self._end(started, output or "", error)
                )
                self._new_calls[call_id] = message, ids["id"]
                self._put(ToolPart(**ids, call_id=call_id, tool=tool, state=state))
            case NewToolResult(call_id=call_id, output=output, error=error):
                if not self._complete(content):
                    state = self._end(RunningState(input={}, time=Span(start=self._at)), output, error)
                    self._put(ToolPart(**ids, call_id=call_id, tool=content.tool, state=state))

    def _put(self, part: AnyPart) -> None:
        self._parts[part.message_id][part.id] = part

    def _complete(self, result: NewToolResult) -> bool:
        """Complete the call that a result belongs to. Return False if there is none."""
        place = self._new_calls.get(result.call_id)
        part = self._parts[place[0]][place[1]] if place else self._stored_calls.get(result.call_id)
        if not isinstance(part, ToolPart):
            return False
        done = replace(part, state=self._end(part.state, result.output, result.error))
        if place:
            self._put(done)
        else:
            self._stored_calls[result.call_id] = self._completed_calls[done.id] = done
        return True

    def _end(self, state: AnyToolState, output: str, error: str | None) -> AnyToolState:
        start = self._at if isinstance(state, PendingState) else state.time.start
        time = CallTime(start=start, end=max(start, self._at))
        if error is not None:
            return ErrorState(input=state.input, error=error, time=time)
        title = make_call_title(state.input)
        return CompletedState(input=state.input, output=output, title=title, metadata={}, time=time)

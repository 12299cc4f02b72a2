"""Hooks: the places where plugins take part, with OpenCode's names, the facts they get and the values they may change.

    @hook("chat.params")
    async def colder(request: ChatRequest, params: ChatParams) -> ChatParams:
        return params.but(temperature=0)

A hook receives values and returns one; None leaves things as they are. OpenCode passes objects to change in place, so
half a change remains if a hook fails midway; here a hook that fails has changed nothing.
"""

import inspect
from collections.abc import Callable
from typing import Any, Final, Generic, Literal, Protocol, Self, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import InvalidInputError, NotFoundError, find_similar
from weft.model.catalog import Model
from weft.model.event import Event
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.input import AnyPartInput
from weft.model.message import MessageWithParts, UserMessage
from weft.model.part import AnyPart, ModelRef
from weft.model.permission import PermissionRequest
from weft.model.wire import wire_name

InputT = TypeVar("InputT")
OutputT = TypeVar("OutputT", bound="HookOutput")
Function = TypeVar("Function", bound=Callable[..., Any])

MARK: Final = "__weft_hooks__"


class HookInput(Struct, frozen=True, kw_only=True, rename=wire_name):
    """What a hook gets to know. For a command it is JSON with OpenCode's names."""


class HookOutput(Struct, frozen=True, kw_only=True, rename=wire_name):
    """A value that a hook may replace by another."""

    def but(self, **changes: Any) -> Self:
        """Return a copy with these changes."""
        return replace(self, **changes)


class Hook(Struct, Generic[InputT, OutputT], frozen=True):
    """A place where plugins are called: its name, their input, and the output that they may change.

    If it `blocks`, a plugin may refuse by raising `BlockedError`; in any other hook that is a fault.
    """

    name: str
    input: type[InputT]
    output: type[OutputT]
    blocks: bool = False


class Hooks(Protocol):
    """All hooks of all plugins, in the order in which they were loaded.

    * `ask` passes the result of one hook to the next and returns the last one; without hooks it returns `output`;
    * it always returns in time: a hook that raises, hangs or returns something else is skipped and reported, and
      after three such faults its plugin is called no more;
    * it raises `BlockedError` if a hook does;
    * `any` says whether a hook would be called, for values that are expensive to build.
    """

    def any(self, hook: Hook[Any, Any]) -> bool: ...

    async def ask(self, hook: Hook[InputT, OutputT], input: InputT, output: OutputT) -> OutputT: ...


class NoHooks:
    """`Hooks` without plugins."""

    def any(self, hook: Hook[Any, Any]) -> bool:
        del hook
        return False

    async def ask(self, hook: Hook[InputT, OutputT], input: InputT, output: OutputT) -> OutputT:
        del hook, input
        return output


NO_HOOKS: Final = NoHooks()


# --- requests to a model ---


class ChatMessageInput(HookInput, frozen=True, kw_only=True):
    """A prompt as it arrived."""

    session_id: SessionID
    agent: str | None
    model: ModelRef | None
    message_id: MessageID | None
    variant: str | None


class ChatMessage(HookOutput, frozen=True, kw_only=True):
    """The prompt as it is about to be stored."""

    message: UserMessage
    parts: tuple[AnyPart, ...]


class ChatRequest(HookInput, frozen=True, kw_only=True):
    """A request to a model: for an answer, a title or a summary."""

    session_id: SessionID
    agent: str
    model: Model
    message: UserMessage | None


class ChatParams(HookOutput, frozen=True, kw_only=True):
    temperature: float | None
    top_p: float | None
    top_k: int | None
    options: dict[str, Any]


class ChatHeaders(HookOutput, frozen=True, kw_only=True):
    headers: dict[str, str]


class SessionHookInput(HookInput, frozen=True, kw_only=True):
    session_id: SessionID


class ShownMessages(HookOutput, frozen=True, kw_only=True):
    """The conversation that a model is about to see. The stored one does not change."""

    messages: tuple[MessageWithParts, ...]


class SystemPrompt(HookOutput, frozen=True, kw_only=True):
    system: tuple[str, ...]


class Compacting(HookOutput, frozen=True, kw_only=True):
    """How a summary is requested: with more context, or with another prompt."""

    context: tuple[str, ...] = ()
    prompt: str | None = None


class TextHookInput(HookInput, frozen=True, kw_only=True):
    session_id: SessionID
    message_id: MessageID
    part_id: PartID


class FinishedText(HookOutput, frozen=True, kw_only=True):
    """A text that a model has finished, before it is stored."""

    text: str


# --- calls ---


class CommandHookInput(HookInput, frozen=True, kw_only=True):
    command: str
    session_id: SessionID
    arguments: str


class CommandParts(HookOutput, frozen=True, kw_only=True):
    """The prompt that a command was turned into."""

    parts: tuple[AnyPartInput, ...]


class CallHookInput(HookInput, frozen=True, kw_only=True):
    """A call of a tool. `args` are its arguments; in `tool.execute.before`, those that the model wrote."""

    tool: str
    session_id: SessionID
    call_id: str
    args: dict[str, Any]


class CallArguments(HookOutput, frozen=True, kw_only=True):
    args: dict[str, Any]


class CallOutcome(HookOutput, frozen=True, kw_only=True):
    """The result of a successful call."""

    title: str
    output: str
    metadata: dict[str, Any]


class PermissionAnswer(HookOutput, frozen=True, kw_only=True):
    """Whether a person is asked. A request that a rule denies never gets here, so it cannot be allowed here."""

    status: Literal["ask", "allow", "deny"]


# --- events and configuration ---


class Happened(HookInput, frozen=True, kw_only=True):
    """The input of the `event` hook: an event that was published."""

    event: Event


class NoChange(HookOutput, frozen=True, kw_only=True):
    """The value of a hook that is only notified."""


class ConfigHookScope(HookInput, frozen=True, kw_only=True):
    """Where the configuration applies."""

    directory: str


class ConfigHookValue(HookOutput, frozen=True, kw_only=True):
    """The merged configuration as its files state it."""

    config: dict[str, Any]


CHAT_MESSAGE: Final = Hook("chat.message", ChatMessageInput, ChatMessage, blocks=True)
CHAT_PARAMS: Final = Hook("chat.params", ChatRequest, ChatParams)
CHAT_HEADERS: Final = Hook("chat.headers", ChatRequest, ChatHeaders)
MESSAGES_TRANSFORM: Final = Hook("experimental.chat.messages.transform", SessionHookInput, ShownMessages)
SYSTEM_TRANSFORM: Final = Hook("experimental.chat.system.transform", SessionHookInput, SystemPrompt)
SESSION_COMPACTING: Final = Hook("experimental.session.compacting", SessionHookInput, Compacting)
TEXT_COMPLETE: Final = Hook("experimental.text.complete", TextHookInput, FinishedText)
COMMAND_BEFORE: Final = Hook("command.execute.before", CommandHookInput, CommandParts, blocks=True)
TOOL_BEFORE: Final = Hook("tool.execute.before", CallHookInput, CallArguments, blocks=True)
TOOL_AFTER: Final = Hook("tool.execute.after", CallHookInput, CallOutcome)
PERMISSION_ASK: Final = Hook("permission.ask", PermissionRequest, PermissionAnswer, blocks=True)
EVENT: Final = Hook("event", Happened, NoChange)
CONFIG: Final = Hook("config", ConfigHookScope, ConfigHookValue)

HOOKS: Final[dict[str, Hook[Any, Any]]] = {
    hook.name: hook
    for hook in (
        CHAT_MESSAGE,
        CHAT_PARAMS,
        CHAT_HEADERS,
        MESSAGES_TRANSFORM,
        SYSTEM_TRANSFORM,
        SESSION_COMPACTING,
        TEXT_COMPLETE,
        COMMAND_BEFORE,
        TOOL_BEFORE,
        TOOL_AFTER,
        PERMISSION_ASK,
        EVENT,
        CONFIG,
    )
}


def hook(name: str) -> Callable[[Function], Function]:
    """Register a function for a hook: it takes the input and the output so far, and returns a new output or None.

    Raise `NotFoundError` if there is no such hook, `InvalidInputError` if it is not used on a function.
    """
    if name not in HOOKS:
        near = find_similar(str(name), HOOKS, n=2, cutoff=0.75)  # a bare `@hook` passes the function
        raise NotFoundError(
            "hook", str(name), near=near, hint="" if near else f"there are {', '.join(HOOKS)}"
        )

    def mark(function: Function) -> Function:
        if not inspect.isfunction(function):
            raise InvalidInputError(f"hook {name}", "it is not on a function", hint="write @hook above a def")
        setattr(function, MARK, (*getattr(function, MARK, ()), name))
        return function

    return mark

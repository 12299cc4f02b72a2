"""Hooks: where a plugin has a say. OpenCode's names; what each one is told, and the value it may change.

    @hook("chat.params")
    async def colder(told: Asked, params: ChatParams) -> ChatParams:
        return params.but(temperature=0)

A hook is given values and gives one back: None leaves things as they are. OpenCode hands out objects to be changed in place,
so half a change stays when a hook fails midway; here a hook that fails has changed nothing.
"""

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, Final, Generic, Literal, Protocol, Self, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import InvalidInputError, NotFoundError
from weft.model.catalog import Model
from weft.model.event import Event
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.input import AnyPartInput
from weft.model.message import MessageWithParts, UserMessage
from weft.model.part import AnyPart, ModelRef
from weft.model.permission import PermissionRequest
from weft.model.wire import wire_name

Told = TypeVar("Told")
Now = TypeVar("Now", bound="Changeable")
Function = TypeVar("Function", bound=Callable[..., Any])

MARK: Final = "__weft_hooks__"


class Fact(Struct, frozen=True, kw_only=True, rename=wire_name):
    """What a hook is told. As JSON, for a command, it has OpenCode's names."""


class Changeable(Struct, frozen=True, kw_only=True, rename=wire_name):
    """What a hook may change, by giving back another one."""

    def but(self, **changes: Any) -> Self:
        """The same, but for this."""
        return replace(self, **changes)


class Hook(Struct, Generic[Told, Now], frozen=True):
    """A place in a run where plugins are asked: its name, what they are told, and what they may change.

    One that `blocks` may say no by raising `BlockedError`; for any other that is a fault.
    """

    name: str
    told: type[Told]
    now: type[Now]
    blocks: bool = False


class Hooks(Protocol):
    """All hooks of all plugins, in the order they were loaded.

    * `ask` hands what one hook gave back to the next, and gives the last; without hooks, `now` itself;
    * it always returns, and in time: a hook that raises, hangs or gives something else is passed over, reported, and its
      plugin left alone after three such faults;
    * one that raises `BlockedError` means it: that is raised;
    * `any` says whether there is anybody to ask, for what costs something to put together.
    """

    def any(self, hook: Hook[Any, Any]) -> bool: ...

    async def ask(self, hook: Hook[Told, Now], told: Told, now: Now) -> Now: ...


class Unhooked:
    """For where there are no plugins."""

    def any(self, hook: Hook[Any, Any]) -> bool:
        del hook
        return False

    async def ask(self, hook: Hook[Told, Now], told: Told, now: Now) -> Now:
        del hook, told
        return now


UNHOOKED: Final = Unhooked()


# --- what is asked of a model ---


class Prompted(Fact, frozen=True, kw_only=True):
    """A prompt as it came in."""

    session_id: SessionID
    agent: str | None
    model: ModelRef | None
    message_id: MessageID | None
    variant: str | None


class ChatMessage(Changeable, frozen=True, kw_only=True):
    """The prompt as it is about to be stored."""

    message: UserMessage
    parts: tuple[AnyPart, ...]


class Asked(Fact, frozen=True, kw_only=True):
    """A request to a model: for an answer, a title or a summary."""

    session_id: SessionID
    agent: str
    model: Model
    message: UserMessage | None


class ChatParams(Changeable, frozen=True, kw_only=True):
    temperature: float | None
    top_p: float | None
    top_k: int | None
    options: dict[str, Any]


class ChatHeaders(Changeable, frozen=True, kw_only=True):
    headers: dict[str, str]


class InSession(Fact, frozen=True, kw_only=True):
    session_id: SessionID


class ShownMessages(Changeable, frozen=True, kw_only=True):
    """The conversation a model is about to be shown. What is stored stays."""

    messages: tuple[MessageWithParts, ...]


class SystemPrompt(Changeable, frozen=True, kw_only=True):
    system: tuple[str, ...]


class Compacting(Changeable, frozen=True, kw_only=True):
    """What a summary is asked for with: more to keep in mind, or other words altogether."""

    context: tuple[str, ...] = ()
    prompt: str | None = None


class TextTold(Fact, frozen=True, kw_only=True):
    session_id: SessionID
    message_id: MessageID
    part_id: PartID


class FinishedText(Changeable, frozen=True, kw_only=True):
    """A text that a model has finished, before it comes to rest."""

    text: str


# --- what is done ---


class CommandTold(Fact, frozen=True, kw_only=True):
    command: str
    session_id: SessionID
    arguments: str


class CommandParts(Changeable, frozen=True, kw_only=True):
    """The prompt that a command has become."""

    parts: tuple[AnyPartInput, ...]


class CallTold(Fact, frozen=True, kw_only=True):
    """A call of a tool. `args` are those it is made with; before it, those the model wrote."""

    tool: str
    session_id: SessionID
    call_id: str
    args: dict[str, Any]


class CallArguments(Changeable, frozen=True, kw_only=True):
    args: dict[str, Any]


class CallOutcome(Changeable, frozen=True, kw_only=True):
    """What came of a call that went well."""

    title: str
    output: str
    metadata: dict[str, Any]


class PermissionAnswer(Changeable, frozen=True, kw_only=True):
    """Whether a person is asked. What a rule denies never comes here, so it cannot be allowed here."""

    status: Literal["ask", "allow", "deny"]


# --- what happens ---


class Happened(Fact, frozen=True, kw_only=True):
    event: Event


class Nothing(Changeable, frozen=True, kw_only=True):
    """For a hook that is only told."""


class Configured(Fact, frozen=True, kw_only=True):
    """Where the configuration is in force."""

    directory: str


class Configuration(Changeable, frozen=True, kw_only=True):
    """The configuration as its files say it, merged."""

    config: dict[str, Any]


CHAT_MESSAGE: Final = Hook("chat.message", Prompted, ChatMessage, blocks=True)
CHAT_PARAMS: Final = Hook("chat.params", Asked, ChatParams)
CHAT_HEADERS: Final = Hook("chat.headers", Asked, ChatHeaders)
MESSAGES_TRANSFORM: Final = Hook("experimental.chat.messages.transform", InSession, ShownMessages)
SYSTEM_TRANSFORM: Final = Hook("experimental.chat.system.transform", InSession, SystemPrompt)
SESSION_COMPACTING: Final = Hook("experimental.session.compacting", InSession, Compacting)
TEXT_COMPLETE: Final = Hook("experimental.text.complete", TextTold, FinishedText)
COMMAND_BEFORE: Final = Hook("command.execute.before", CommandTold, CommandParts, blocks=True)
TOOL_BEFORE: Final = Hook("tool.execute.before", CallTold, CallArguments, blocks=True)
TOOL_AFTER: Final = Hook("tool.execute.after", CallTold, CallOutcome)
PERMISSION_ASK: Final = Hook("permission.ask", PermissionRequest, PermissionAnswer, blocks=True)
EVENT: Final = Hook("event", Happened, Nothing)
CONFIG: Final = Hook("config", Configured, Configuration)

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
    """Have a function asked here: it takes what it is told and what is to be, and gives what is to be instead, or None."""
    if name not in HOOKS:
        near = get_close_matches(str(name), HOOKS, n=2, cutoff=0.75)  # a bare `@hook` hands us the function
        raise NotFoundError(
            "hook", str(name), near=near, hint="" if near else f"there are {', '.join(HOOKS)}"
        )

    def mark(function: Function) -> Function:
        if not inspect.isfunction(function):
            raise InvalidInputError(f"hook {name}", "it is not on a function", hint="write @hook above a def")
        setattr(function, MARK, (*getattr(function, MARK, ()), name))
        return function

    return mark

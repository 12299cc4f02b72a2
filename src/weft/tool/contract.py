"""The tool: what an agent may do, and what it is given to do it with."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from weft.errors import ToolError
from weft.host.clock import Clock
from weft.model.agent import Agent
from weft.model.ids import MessageID, SessionID
from weft.tool.desk import Desk
from weft.tool.watch import Watch, unwatched

Input = TypeVar("Input", bound=Struct)


class Attachment(Struct, frozen=True, kw_only=True):
    """A file handed back beside the text, as a `data:` URL."""

    mime: str
    url: str
    filename: str | None = None


class ToolResult(Struct, frozen=True, kw_only=True):
    """What came of a call: a title for people, the output for the model, metadata for screens."""

    title: str
    output: str
    metadata: dict[str, Any] = {}
    attachments: tuple[Attachment, ...] = ()


class Ask(Protocol):
    """May I? Returns when allowed, raises `NotPermittedError` when not."""

    async def __call__(
        self,
        permission: str,
        *patterns: str,
        always: tuple[str, ...] = (),
        metadata: dict[str, Any] | None = None,
    ) -> None: ...


class Permits(Protocol):
    """Whether the rules let this pass without anybody being asked. It asks nobody, and grants do not count."""

    def __call__(self, permission: str, pattern: str) -> bool: ...


def all_passes(permission: str, pattern: str) -> bool:
    """For what a person does with their own hand."""
    del permission, pattern
    return True


class Report(Protocol):
    """Tell how a call is getting on, while it runs."""

    async def __call__(self, *, title: str | None = None, metadata: dict[str, Any] | None = None) -> None: ...


class Errand(Struct, frozen=True, kw_only=True):
    """A task for a child session, and the agent that is to do it there; `session_id` goes on with an earlier one."""

    description: str
    prompt: str
    agent: str
    session_id: str | None = None


class Brought(Struct, frozen=True, kw_only=True):
    """What an errand brought back: the child's last words, and for screens what it did."""

    session_id: SessionID
    text: str
    metadata: dict[str, Any]


class Spawn(Protocol):
    """Send a child session on an errand, and wait for it. It has settled when this returns, raises or is cancelled."""

    async def __call__(self, errand: Errand) -> Brought: ...


async def alone(errand: Errand) -> Brought:
    """For where there is nobody to send."""
    del errand
    raise ToolError("No task can be handed on from here.")


class CallAlso(Protocol):
    """Have another tool called as if the model had called it: with a part, rules and limits of its own.

    Gives whether it went well. With `error` it is not called, and that is what its part says.
    """

    async def __call__(self, tool: str, arguments: dict[str, Any], *, error: str = "") -> bool: ...


async def nobody_calls(tool: str, arguments: dict[str, Any], *, error: str = "") -> bool:
    """For a use of a tool outside of an answer, where there is no place for more calls."""
    del tool, arguments, error
    raise ToolError("Other tools cannot be called from here.")


class ToolContext(Struct, frozen=True, kw_only=True):
    """All that a tool may touch. Cancelling its task is how a call is aborted."""

    session_id: SessionID
    message_id: MessageID
    call_id: str
    agent: str
    directory: str
    worktree: str
    clock: Clock
    ask: Ask
    report: Report
    desk: Desk
    agents: Mapping[str, Agent] = {}
    spawn: Spawn = alone
    call: CallAlso = nobody_calls
    watch: Watch = unwatched
    permits: Permits = all_passes


class Audience(Struct, frozen=True, kw_only=True):
    """Who is told of tools: a model under its provider's name for it, and an agent that is `allowed` some things.

    `allowed` says of a permission and a pattern whether no rule denies it; `agents` are all there are.
    """

    provider_id: str
    api_id: str
    allowed: Callable[[str, str], bool]
    agents: Mapping[str, Agent] = {}


class Tool(Struct, Generic[Input], frozen=True, kw_only=True):
    """A struct of what it takes, a function that does it, and a text that tells the model when to use it.

    `tell`, where the text depends on who reads it, gives that text, or None to whom the tool is not offered. A tool that
    `announces` says by `ctx.watch` what it is about to change; of any other, all that changes while it runs is its doing.
    One whose `schema` is somebody else's takes a `Given`: what was written reaches it as it is.
    """

    name: str
    about: str
    takes: type[Input]
    run: Callable[[Input, ToolContext], Awaitable[ToolResult]]
    tell: Callable[[Audience], str | None] | None = None
    announces: bool = False
    schema: dict[str, Any] | None = None


AnyTool = Tool[Any]


class Given(Struct, frozen=True):
    """Arguments as the model wrote them: any object, to be judged by whoever gave the schema."""

    arguments: dict[str, Any]


def schema_of(tool: AnyTool) -> dict[str, Any]:
    """The JSON schema of what the tool takes, as the model is told it. It is the same object every time."""
    takes: type[Struct] = tool.takes
    return _schema_of(takes) if tool.schema is None else tool.schema


@cache
def _schema_of(takes: type[Struct]) -> dict[str, Any]:
    (root,), components = msgspec.json.schema_components([takes], ref_template="#/$defs/{name}")
    own = components.pop(root["$ref"].rpartition("/")[2])
    return {**own, "additionalProperties": False} | ({"$defs": components} if components else {})


def to_input(tool: Tool[Input], given: dict[str, Any]) -> Input:
    """The model's arguments as what the tool takes, or an error the model can act on."""
    given = given if tool.schema is None else {"arguments": given}
    try:
        return msgspec.convert(given, tool.takes)
    except msgspec.ValidationError as error:
        # Some models put every value into quotes. What can only be meant one way is taken so.
        with suppress(msgspec.ValidationError):
            return msgspec.convert(given, tool.takes, strict=False)
        raise ToolError(
            f"The {tool.name} tool was called with invalid arguments: {error}.\n"
            "Please rewrite the input so it satisfies the expected schema."
        ) from error

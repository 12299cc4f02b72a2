"""Custom tools: a function with type hints becomes a tool.

    @tool
    async def deploy(service: Annotated[str, "which one"], ctx: ToolCallContext, dry: bool = True) -> str:
        \"\"\"Deploy a service.\"\"\"
        await ctx.ask("deploy", service)
        ...

The model sees the docstring and the hints, and its arguments are checked against them before the call. A blocking
function runs in a thread of its own; only an `async` one can ask and report.
"""

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Final, Protocol, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from weft.errors import InvalidInputError, ToolError
from weft.model.ids import MessageID, SessionID

Function = TypeVar("Function", bound=Callable[..., Any])

MARK: Final = "__weft_tool__"
# Every provider accepts such a name of a tool.
TOOL_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
SUPPORTED_TYPES: Final = (
    "use str, int, float, bool, list, dict, Literal, enums, dataclasses, or None with one of these"
)
# "Args:" begins a list of parameters; "    path: which file" and ":param path: which file" describe one.
_ARGUMENTS: Final = re.compile(r"(?:Args|Arguments|Parameters):\s*")
_ARGUMENT: Final = re.compile(r"(?P<name>\w+)(?:\s*\([^)]*\))?\s*:\s*(?P<text>\S.*)")
_PARAM: Final = re.compile(r":param\s+(?:\w+\s+)?(?P<name>\w+)\s*:\s*(?P<text>\S.*)")
# A function with one of these names is the tool of its file.
MAIN_NAMES: Final = ("default", "execute")


class AskFor(Protocol):
    """Ask for a permission. Raise `NotPermittedError` if it is refused."""

    async def __call__(self, permission: str, *patterns: str) -> None: ...


class ReportCallProgress(Protocol):
    """Show the progress of a call."""

    async def __call__(
        self, *, title: str | None = None, metadata: Mapping[str, object] | None = None
    ) -> None: ...


def check_is_async(what: str) -> None:
    """Raise `ToolError` if the caller cannot await: its tool would go on as if permission had been given."""
    try:
        asyncio.get_running_loop()
    except RuntimeError as error:
        raise ToolError(f"{what} needs an async tool: write async def, and await it") from error


class ToolCallContext(Struct, frozen=True, kw_only=True):
    """What a call of a custom tool may use.

    `ask` returns when the rules or the person allow it, and raises `NotPermittedError` otherwise; without patterns, it asks
    for `*`. `report` shows the progress of the call. Only an `async` tool can await them.
    """

    session_id: SessionID
    message_id: MessageID
    call_id: str
    agent: str
    directory: str
    worktree: str
    ask: AskFor
    report: ReportCallProgress


class ToolAnswer(Struct, frozen=True, kw_only=True):
    """The result of a tool with more than text for the model: a title for people, metadata for clients."""

    output: str
    title: str = ""
    metadata: Mapping[str, object] = {}


class CustomTool(Struct, frozen=True, kw_only=True):
    """A function as a tool: its name, its description for the model, and the struct of its arguments.

    `context` is the name of the parameter that takes the context, if there is one.
    """

    name: str
    about: str
    takes: type[Struct]
    function: Callable[..., Any]
    context: str | None = None

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    def call(
        self, arguments: Struct, context: ToolCallContext
    ) -> str | ToolAnswer | Awaitable[str | ToolAnswer]:
        values = {name: getattr(arguments, name) for name in self.takes.__struct_fields__}
        context_argument = {self.context: context} if self.context else {}
        result: str | ToolAnswer | Awaitable[str | ToolAnswer] = self.function(**values, **context_argument)
        return result


def tool(function: Function) -> Function:
    """Make a function a tool. Raise `InvalidInputError` if its signature is not complete."""
    if not inspect.isfunction(function):
        raise InvalidInputError("tool", "it is not on a function", hint="write @tool above a def")
    setattr(function, MARK, to_custom_tool(function))
    return function


def name_in_file(function: str, stem: str) -> str:
    """Return the name of a tool in a file of tools: that of the file and, unless it is the main one, of the function."""
    return stem if function in (*MAIN_NAMES, stem) else f"{stem}_{function}"


def to_custom_tool(function: Callable[..., Any]) -> CustomTool:
    """Return the tool that a function defines. Raise `InvalidInputError` if its signature is not complete."""
    name = function.__name__
    about, described = read_docstring(inspect.getdoc(function) or "")
    if not about:
        raise _to_error(name, "has no docstring", "describe the tool in it: the model reads it")
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError, SyntaxError, AttributeError) as error:
        raise _to_error(
            name, f"has an invalid hint: {error}", "write the type itself, or define it before the function"
        ) from error
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    context: str | None = None
    for parameter in inspect.signature(function).parameters.values():
        hint = _get_hint(name, parameter, hints)
        if _is_context(hint):
            context = parameter.name
        else:
            fields.append(_to_field(name, parameter, hint, described.get(parameter.name, "")))
    takes = _to_struct(name, fields)
    return CustomTool(name=name, about=about, takes=takes, function=function, context=context)


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Split a docstring into the description of the tool and those of its parameters (`Args:` or `:param name:`)."""
    about: list[str] = []
    described: dict[str, str] = {}
    in_arguments, last = False, ""
    for line in text.splitlines():
        is_indented = line.startswith((" ", "\t"))
        in_arguments = in_arguments and (is_indented or not line.strip())
        found = _ARGUMENT.fullmatch(line.strip()) if in_arguments else _PARAM.fullmatch(line.strip())
        if _ARGUMENTS.fullmatch(line):
            in_arguments = True
        elif found is not None:
            last = found["name"]
            described[last] = found["text"].strip()
        elif in_arguments and last and line.strip():
            described[last] += f" {line.strip()}"
        elif not in_arguments:
            about.append(line)
    return "\n".join(about).strip(), described


def _get_hint(function: str, parameter: inspect.Parameter, hints: Mapping[str, Any]) -> Any:
    if parameter.kind not in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
        raise _to_error(function, f"takes {parameter}, which a model cannot send", "name every parameter")
    if parameter.name not in hints:
        raise _to_error(function, f"has no type for {parameter.name!r}", f"write {parameter.name}: str")
    return hints[parameter.name]


def _is_context(hint: Any) -> bool:
    """Return True for a hint of the context, also in `ToolCallContext | None`: the model never sends it."""
    return hint is ToolCallContext or any(map(_is_context, get_args(hint)))


def _to_field(
    function: str, parameter: inspect.Parameter, hint: Any, description: str
) -> tuple[str, Any] | tuple[str, Any, Any]:
    kind = _with_description(hint)
    if description and get_origin(kind) is not Annotated:
        kind = Annotated[kind, Meta(description=description)]
    try:
        msgspec.json.schema(kind)
    except (TypeError, ValueError) as error:
        text = inspect.formatannotation(hint)
        raise _to_error(
            function, f"takes {parameter.name}: {text}, which cannot be read from JSON", SUPPORTED_TYPES
        ) from error
    if parameter.default is inspect.Parameter.empty:
        return (parameter.name, kind)
    default = parameter.default
    if isinstance(default, list | dict | set):
        return (parameter.name, kind, msgspec.field(default_factory=default.copy))
    return (parameter.name, kind, default)


def _with_description(hint: Any) -> Any:
    """Turn `Annotated[str, "which one"]` into a type with a description."""
    if get_origin(hint) is not Annotated:
        return hint
    kind, *notes = get_args(hint)
    for note in notes:
        if isinstance(note, str):
            kind = Annotated[kind, Meta(description=note)]
        elif isinstance(note, Meta):
            kind = Annotated[kind, note]
    return kind


def _to_struct(name: str, fields: list[tuple[str, Any] | tuple[str, Any, Any]]) -> type[Struct]:
    try:
        struct = msgspec.defstruct(
            f"{name.title().replace('_', '')}Input",
            fields,
            frozen=True,
            kw_only=True,
            forbid_unknown_fields=True,
        )
        msgspec.json.schema(struct)
    except (TypeError, ValueError) as error:
        raise _to_error(
            name, f"takes something that JSON cannot express: {error}", SUPPORTED_TYPES
        ) from error
    return struct


def _to_error(function: str, reason: str, hint: str = "") -> InvalidInputError:
    return InvalidInputError(f"tool {function}", reason, hint=hint)

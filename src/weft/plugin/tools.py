"""Custom tools: a function with type hints is all it takes.

    @tool
    async def deploy(service: Annotated[str, "which one"], ctx: ToolCallContext, dry: bool = True) -> str:
        \"\"\"Deploy a service.\"\"\"
        await ctx.ask("deploy", service)
        ...

What the model is told comes from the docstring and the hints; what it sends is held against them before the function is
called. A function that blocks is called in a thread of its own; only an `async` one can ask and report.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Final, Protocol, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from weft.errors import InvalidInputError
from weft.model.ids import MessageID, SessionID

Function = TypeVar("Function", bound=Callable[..., Any])

MARK: Final = "__weft_tool__"
# What every provider takes for the name of a tool.
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
KINDS: Final = (
    "there are str, int, float, bool, list, dict, Literal, enums, dataclasses, and None beside these"
)
# A function of one of these names is the tool of its file, without more.
MAIN: Final = ("default", "execute")


class AskFor(Protocol):
    async def __call__(self, permission: str, *patterns: str) -> None: ...


class Tell(Protocol):
    async def __call__(self, *, title: str | None = None, metadata: dict[str, Any] | None = None) -> None: ...


class ToolCallContext(Struct, frozen=True, kw_only=True):
    """What a call of a custom tool may know and use.

    `ask` returns when the rules, or the person, allow it, and raises `NotPermittedError` otherwise; `report` shows how the
    call is getting on.
    """

    session_id: SessionID
    message_id: MessageID
    call_id: str
    agent: str
    directory: str
    worktree: str
    ask: AskFor
    report: Tell


class ToolAnswer(Struct, frozen=True, kw_only=True):
    """For a tool that has more to give back than words for the model: a title for people, metadata for screens."""

    output: str
    title: str = ""
    metadata: dict[str, Any] = {}


class CustomTool(Struct, frozen=True, kw_only=True):
    """A function as a tool: what it is called, what the model is told, and the struct its arguments must fit.

    `context` names the parameter that takes the context, if one does.
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
        self, wanted: Struct, context: ToolCallContext
    ) -> str | ToolAnswer | Awaitable[str | ToolAnswer]:
        given = {name: getattr(wanted, name) for name in self.takes.__struct_fields__}
        more = {self.context: context} if self.context else {}
        called: str | ToolAnswer | Awaitable[str | ToolAnswer] = self.function(**given, **more)
        return called


def tool(function: Function) -> Function:
    """Make a tool of a function. Raises `InvalidInputError` where its signature leaves open what it takes."""
    if not inspect.isfunction(function):
        raise InvalidInputError("tool", "it is not on a function", hint="write @tool above a def")
    setattr(function, MARK, to_custom(function))
    return function


def name_in_file(function: str, stem: str) -> str:
    """What a tool in a file of tools is called: by its file, and unless it is the main one by its function too."""
    return stem if function in (*MAIN, stem) else f"{stem}_{function}"


def to_custom(function: Callable[..., Any]) -> CustomTool:
    name = function.__name__
    about = inspect.getdoc(function) or ""
    if not about.strip():
        raise _wrong(name, "has no docstring", "say in it what the tool is for: the model reads it")
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError, SyntaxError, AttributeError) as error:
        raise _wrong(name, f"has a hint that means nothing: {error}") from error
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    context: str | None = None
    for parameter in inspect.signature(function).parameters.values():
        hint = _hint(name, parameter, hints)
        if _is_context(hint):
            context = parameter.name
        else:
            fields.append(_to_field(name, parameter, hint))
    takes = _to_struct(name, fields)
    return CustomTool(name=name, about=about.strip(), takes=takes, function=function, context=context)


def _hint(function: str, parameter: inspect.Parameter, hints: Mapping[str, Any]) -> Any:
    if parameter.kind not in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
        raise _wrong(function, f"takes {parameter}, which cannot be told to a model", "name every parameter")
    if parameter.name not in hints:
        raise _wrong(function, f"does not say what {parameter.name!r} is", f"write {parameter.name}: str")
    return hints[parameter.name]


def _is_context(hint: Any) -> bool:
    """Also as one of several, `ToolCallContext | None`: whatever else it may be, it is not the model's to send."""
    return hint is ToolCallContext or any(map(_is_context, get_args(hint)))


def _to_field(
    function: str, parameter: inspect.Parameter, hint: Any
) -> tuple[str, Any] | tuple[str, Any, Any]:
    kind = _described(hint)
    try:
        msgspec.json.schema(kind)
    except (TypeError, ValueError) as error:
        said = inspect.formatannotation(hint)
        raise _wrong(
            function, f"takes {parameter.name}: {said}, which cannot be read from JSON", KINDS
        ) from error
    if parameter.default is inspect.Parameter.empty:
        return (parameter.name, kind)
    default = parameter.default
    if isinstance(default, list | dict | set):
        return (parameter.name, kind, msgspec.field(default_factory=default.copy))
    return (parameter.name, kind, default)


def _described(hint: Any) -> Any:
    """`Annotated[str, "which one"]` as a type with a description."""
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
        made = msgspec.defstruct(
            f"{name.title().replace('_', '')}Input",
            fields,
            frozen=True,
            kw_only=True,
            forbid_unknown_fields=True,
        )
        msgspec.json.schema(made)
    except (TypeError, ValueError) as error:
        raise _wrong(name, f"takes something that JSON cannot say: {error}", KINDS) from error
    return made


def _wrong(function: str, reason: str, hint: str = "") -> InvalidInputError:
    return InvalidInputError(f"tool {function}", reason, hint=hint)

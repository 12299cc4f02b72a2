"""What a plugin's module carries: hooks and tools in the order they stand in it, and how it is set up."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from weft.api import Api
from weft.errors import InvalidInputError
from weft.model.project import Project
from weft.plugin import hooks, tools
from weft.plugin.tools import CustomTool


class PluginContext(Struct, frozen=True, kw_only=True):
    """What a plugin's `setup` is given. `api` is weft itself: its coroutines may be awaited from the plugin's own loop."""

    directory: str
    worktree: str
    project: Project
    api: Api


class Hooked(Struct, frozen=True):
    """A function that is to be asked at a hook."""

    hook: str
    function: Callable[..., Any]


class Carried(Struct, frozen=True, kw_only=True):
    """`namespace` is all that stands in the module, for what else a plugin may declare there."""

    hooks: tuple[Hooked, ...] = ()
    tools: tuple[CustomTool, ...] = ()
    setup: Callable[[PluginContext], Any] | None = None
    namespace: Mapping[str, Any] = {}


def gather(namespace: Mapping[str, Any]) -> Carried:
    """Of a module's names, what is for us. Raises `InvalidInputError` for a `setup` that is no function."""
    setup = namespace.get("setup")
    if setup is not None and not callable(setup):
        raise InvalidInputError("setup", "is not a function", hint="call it something else")
    values = _once(namespace.values())
    return Carried(
        hooks=tuple(Hooked(name, each) for each in values for name in _mark(each, hooks.MARK, ())),
        tools=tuple(made for each in values if isinstance(made := _mark(each, tools.MARK, None), CustomTool)),
        setup=setup,
        namespace=namespace,
    )


def _once(values: Iterable[Any]) -> list[Any]:
    """A function that has two names is asked once."""
    return list({id(each): each for each in values}.values())


def _mark(value: Any, mark: str, otherwise: Any) -> Any:
    # Only functions: an object that answers to every name would answer to this one, too.
    return vars(value).get(mark, otherwise) if hasattr(value, "__code__") else otherwise

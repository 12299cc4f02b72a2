"""Load a plugin's code from source, and collect the hooks and tools it defines."""

import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from msgspec import Struct

from weft.api import Api
from weft.errors import ConfigError, InvalidInputError
from weft.host.files import read_file
from weft.model.project import Project
from weft.plugin import hooks, tools
from weft.plugin.tools import CustomTool
from weft.plugin.worker import to_failed

MAX_SOURCE_BYTES: Final = 4 << 20


def load_file(path: str) -> ModuleType:
    """Run the code of a file and return its module. Raise `ConfigError` with the line of the error."""
    module = ModuleType(_to_module_name(path), None)
    module.__file__ = path
    # A plugin's print must not mix with our output, which a script may read.
    vars(module)["print"] = partial(print, file=sys.stderr)
    try:
        code = compile(read_file(path, limit=MAX_SOURCE_BYTES)[0], path, "exec", dont_inherit=True)
        sys.modules[module.__name__] = module  # classes look up the names in their annotations there
        exec(code, vars(module))  # noqa: S102  running code is what a plugin is for
    except OSError as error:
        raise ConfigError(path, f"cannot be read: {error.strerror or error}") from error
    except SyntaxError as error:
        at = (error.lineno or 0, error.offset or 0) if error.filename == path else (0, 0)
        raise ConfigError(path, f"is not Python: {error.msg}", at=at) from error
    except BaseException as error:
        failed = to_failed(error)
        raise ConfigError(path, failed.reason, at=(failed.lines.get(path, 0), 0)) from error
    return module


def load_module(name: str) -> ModuleType:
    """Import an installed module. Raise `ConfigError` if that fails."""
    try:
        return import_module(name)
    except BaseException as error:
        raise ConfigError(name, to_failed(error).reason) from error


def _to_module_name(path: str) -> str:
    """Return a module name that is unique to the file and always the same."""
    stem = re.sub(r"\W", "_", os.path.splitext(os.path.basename(path))[0])
    return f"weft_plugin_{hashlib.sha256(os.fsencode(path)).hexdigest()[:12]}_{stem}"


class PluginContext(Struct, frozen=True, kw_only=True):
    """The argument of a plugin's `setup`. `api` is weft itself; the plugin may await it in its own loop."""

    directory: str
    worktree: str
    project: Project
    api: Api


class HookFunction(Struct, frozen=True):
    """A function to call at a hook."""

    hook: str
    function: Callable[..., Any]


class PluginContents(Struct, frozen=True, kw_only=True):
    """The hooks and tools of a plugin. `namespace` is its whole module, for other declarations."""

    hooks: tuple[HookFunction, ...] = ()
    tools: tuple[CustomTool, ...] = ()
    setup: Callable[[PluginContext], Any] | None = None
    namespace: Mapping[str, Any] = {}


def collect(namespace: Mapping[str, Any]) -> PluginContents:
    """Collect hooks, tools and `setup` of a module. Raise `InvalidInputError` if `setup` is not a function."""
    setup = namespace.get("setup")
    if setup is not None and not callable(setup):
        raise InvalidInputError("setup", "is not a function", hint="call it something else")
    values = _drop_duplicates(namespace.values())
    return PluginContents(
        hooks=tuple(HookFunction(name, each) for each in values for name in _find_mark(each, hooks.MARK, ())),
        tools=tuple(
            custom for each in values if isinstance(custom := _find_mark(each, tools.MARK, None), CustomTool)
        ),
        setup=setup,
        namespace=namespace,
    )


def _drop_duplicates(values: Iterable[Any]) -> list[Any]:
    """Return each value once: a function with two names is called once."""
    return list({id(each): each for each in values}.values())


def _find_mark(value: Any, mark: str, default: Any) -> Any:
    # Only functions: an object may answer to every attribute, even this one.
    return vars(value).get(mark, default) if hasattr(value, "__code__") else default

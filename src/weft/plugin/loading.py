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

LIMIT: Final = 4 << 20


def load_file(path: str) -> ModuleType:
    """A file's code, run. Raises `ConfigError` with the line where it went wrong, whatever that was."""
    module = ModuleType(_name(path), None)
    module.__file__ = path
    # What a person prints to see what goes on must not end up between the lines a script reads from our output.
    vars(module)["print"] = partial(print, file=sys.stderr)
    try:
        code = compile(read_file(path, limit=LIMIT)[0], path, "exec", dont_inherit=True)
        sys.modules[module.__name__] = module  # where classes look up the words in their annotations
        exec(code, vars(module))  # noqa: S102  this is what a plugin is
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
    """An installed module, imported as always."""
    try:
        return import_module(name)
    except BaseException as error:
        raise ConfigError(name, to_failed(error).reason) from error


def _name(path: str) -> str:
    """A name for a module that nobody else has, the same for the same file."""
    stem = re.sub(r"\W", "_", os.path.splitext(os.path.basename(path))[0])
    return f"weft_plugin_{hashlib.sha256(os.fsencode(path)).hexdigest()[:12]}_{stem}"


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

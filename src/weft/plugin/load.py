"""Load a plugin's code. A file is compiled from its source, as it is read now: no bytecode beside it counts, none is written."""

import hashlib
import os
import re
import sys
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Final

from weft.errors import ConfigError
from weft.host.files import read_file
from weft.plugin.room import to_failed

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

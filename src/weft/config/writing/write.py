"""Write a change into a configuration file: checked first, whole or not at all, nothing lost that stood there."""

import os
from typing import Any

from weft.config.check import check
from weft.config.jsonc import Document
from weft.config.layer import read_text
from weft.config.masks import MASK
from weft.config.sources import Situation
from weft.config.writing.amend import amend, merged
from weft.errors import ConfigError, InvalidInputError, OutsideError
from weft.host.files import locked, write_atomic

NAMES = ("opencode.json", "opencode.jsonc")
OWN_NAMES = ("opencode.jsonc", "opencode.json", "config.json")
SHARED_MODE = 0o644
OWN_MODE = 0o600


def project_file(situation: Situation) -> str:
    """The file a project's settings go into: the one that has the last word here, else a new one at the top."""
    top = situation.worktree if situation.worktree != os.sep else situation.directory
    for directory in (situation.directory, top):
        for name in NAMES:
            path = os.path.join(directory, name)
            if os.path.lexists(path):
                return _inside(path, top)
    return _inside(os.path.join(top, NAMES[0]), top)


def _inside(path: str, top: str) -> str:
    """OpenCode writes wherever a link leads."""
    real, root = os.path.realpath(path), os.path.realpath(top)
    if os.path.commonpath((real, root)) != root:
        raise OutsideError(path)
    return real


def own_file(config: str) -> str:
    """The file a person's own settings go into."""
    paths = [os.path.join(config, name) for name in OWN_NAMES]
    return os.path.realpath(next((path for path in paths if os.path.lexists(path)), paths[1]))


def check_change(change: dict[str, Any]) -> None:
    """Refuse what would not be in force, and what was covered when it was shown."""
    if _holds(change, MASK):
        raise InvalidInputError("config", f"{MASK} stands for a secret, and is none", hint="leave it out")
    _, findings = check(merged({}, change))
    if findings:
        first = findings[0]
        hint = f"did you mean {first.near!r}?" if first.near else ""
        # What a file is forgiven is refused here: it is not passed on, and not ignored.
        reason = first.reason.partition(",")[0] if first.mild else first.reason
        raise InvalidInputError(".".join(first.path) or "config", reason, hint=hint)


def _holds(value: Any, word: str) -> bool:
    if isinstance(value, dict):
        return any(_holds(item, word) for item in value.values())
    if isinstance(value, list):
        return any(_holds(item, word) for item in value)
    return isinstance(value, str) and word in value


def write_change(path: str, change: dict[str, Any], *, lock: str, mode: int = SHARED_MODE) -> tuple[str, str]:
    """Merge a change into a file; gives the text before and after. What cannot be changed with care is not changed."""
    with locked(lock):
        before = read_text(path) or ""
        old = Document(path, before, None).value
        after = amend(path, before, change)
        if Document(path, after, None).value != merged(old, change):
            raise ConfigError(path, "cannot be changed without losing something; change it by hand")
        if after != before:
            put_text(path, after, mode=mode)
        return before, after


def put_text(path: str, text: str, *, mode: int = SHARED_MODE) -> None:
    """Replace a file whole. One that was there keeps its permissions."""
    try:
        mode = os.stat(path).st_mode & 0o777
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    write_atomic(path, text.encode(), temp=f"{path}.{os.getpid()}.new", flush=True)
    os.chmod(path, mode)

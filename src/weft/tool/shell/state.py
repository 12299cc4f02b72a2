"""The state of the shell while a command is judged.

It consists of the possible directories and variable values, and the actions found so far.
"""

import os
import re
from collections.abc import Callable, Sequence
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from weft.model.permission import has_hole, mark_unknown
from weft.tool.paths import list_patterns
from weft.tool.shell.arguments import Field, FileListing, Number, Value
from weft.tool.shell.paths import (
    CommandLocation,
    expand_glob,
    find_sensitive,
    is_secret,
    list_deep_glob,
    list_files,
)
from weft.tool.shell.variables import NUMERIC_VARIABLES, Variables

# "look" uses a path without reading or changing the file, for example to list it or to enter a directory.
FileUse = Literal["look", "read", "write"]
# In the order in which they are asked.
PERMISSIONS: Final = ("external_directory", "read", "edit", "bash")
MAX_ACTIONS: Final = 2000
_UNKNOWN_PATH_REASON: Final = "the path is known only at run time"


class ShellAction(Struct, frozen=True, kw_only=True):
    """One action of a command, as the rules are asked about it. `always` is the pattern that an "always" reply allows.

    `may_write` marks a program that may change files which its arguments do not name. `perhaps` marks a command that
    runs only if an unknown program takes its arguments for one. It is not asked about, but if a rule for it by name
    says ask or deny, weft asks about the whole command.
    """

    permission: str
    pattern: str
    always: str = ""
    why: str = ""
    may_write: bool = False
    perhaps: bool = False


class StreamContent(Struct, frozen=True, kw_only=True):
    """The content of a command's input or output: a known text, a list of files, or a number.

    If none is set, it is unknown.
    """

    text: str | None = None
    listing: FileListing | None = None
    number: bool = False


class ShellState:
    """The state of the shell at one point of a command.

    `cwds` are the directories the shell may be in, None if they are unknown. `visited` are all directories it has been
    in. `cwds_on_success` are those after a `cd` that succeeds. `actions` has each action once, in the order in which
    they were found.
    """

    def __init__(self, location: CommandLocation, variables: Variables | None = None) -> None:
        self.location = location
        self.cwds: tuple[str, ...] | None = (location.directory,)
        self.visited: tuple[str, ...] = (location.directory,)
        self.cwds_on_success: tuple[str, ...] | None = None
        self.variables = variables or Variables(location.environment)
        # Returns all values that a variable may hold at this point. `ScriptWalker` sets it.
        self.lookup: Callable[[str], Sequence[Value] | None] = lambda _: None
        self.actions: dict[tuple[str, str], ShellAction] = {}

    def add(self, action: ShellAction) -> None:
        """Add an action. If it is known already, keep the stricter one. Beyond the limit, add an unclear one instead."""
        key = (action.permission, action.pattern)
        present = self.actions.get(key)
        if present is None and len(self.actions) >= MAX_ACTIONS:
            action = ShellAction(
                permission=action.permission, pattern=mark_unknown("and more"), why="it has too many parts"
            )
            key = (action.permission, action.pattern)
        if (
            present is None
            or (action.may_write and not present.may_write)
            or (present.perhaps and not action.perhaps)
        ):
            self.actions[key] = action

    def mark_unclear(self, text: str, why: str) -> None:
        """Note that a text may do anything: leave the project, read, write and run programs."""
        for permission in PERMISSIONS:
            self.add(
                ShellAction(
                    permission=permission, pattern=mark_unknown(text), why=why, may_write=permission == "bash"
                )
            )

    def mark_writer(self, pattern: str) -> None:
        """Mark a command that was added as one that may change files which its arguments do not name."""
        action = self.actions.get(("bash", pattern))
        if action is not None:
            self.actions["bash", pattern] = replace(action, may_write=True)

    # --- paths ---

    def looks_like_path(self, text: str) -> bool:
        """Return True if an argument of unknown meaning is probably a path."""
        if not text or text == "-" or has_hole(text):
            return False
        names = text.split("/")
        if text[0] in "/~" or ".." in names or is_secret(names[-1]):
            return True
        return self.exists(text)

    def exists(self, text: str) -> bool:
        """Return True if the file exists in one of the possible directories."""
        return any(self.location.exists(text, cwd) for cwd in self.cwds or ("/",))

    def is_directory(self, field: Field) -> bool:
        return any(map(os.path.isdir, self.resolve_roots(field)))

    def touch(self, field: Field, use: FileUse) -> None:
        """Note that a path is used. A path outside of the project is another action besides reading or writing."""
        text = field.glob_pattern or field.text
        if field.listing is not None:
            self.touch_tree(field.listing, use, links=True)
        elif text in ("", "-"):
            return
        elif has_hole(text) or (self.cwds is None and not os.path.isabs(text)):
            self._touch_unknown(text, use)
        else:
            for cwd in self.cwds or ("/",):
                self._touch_in_directory(field, cwd, use)

    def touch_all(self, field: Field, use: FileUse, *, links: bool = False) -> None:
        """Note that a path and everything below it are used."""
        self.touch(field, use)
        if use == "write":
            self.touch_below(*self.resolve_roots(field))
        else:
            self.touch_tree(FileListing(roots=self.resolve_roots(field)), use, links=links, follow=links)

    def touch_tree(
        self, listing: FileListing, use: FileUse, *, links: bool = False, follow: bool = False
    ) -> None:
        """Note that all files of a listing are used. With `links`, include the targets of links.

        With `follow`, include everything in the directories that links lead to.
        """
        for root in listing.roots:
            self._touch_path(root, root, "look")
        if use == "read":
            for path in find_sensitive(listing, links=links, follow=follow):
                self._touch_path(path, path, "read")
        if use == "write":
            self._touch_written_tree(listing)

    def touch_below(self, *roots: str) -> None:
        """Note that unknown files below these directories are written."""
        for root in roots:
            self._touch_path(root, root, "look")
            for pattern in self._list_patterns(root, self.location.real_path(root)):
                below = mark_unknown("everything below")
                self.add(
                    ShellAction(
                        permission="edit",
                        pattern=below if pattern == "." else f"{pattern}/{below}",
                        why="it changes whole directories",
                    )
                )

    def resolve_roots(self, field: Field) -> tuple[str, ...]:
        """Return the paths that a word may name, as far as they are known."""
        if field.listing is not None or has_hole(field.glob_pattern or field.text):
            return ()
        return tuple(
            os.path.normpath(os.path.join(cwd, text))
            for cwd in self.cwds or ()
            for text in (
                (expand_glob(field.glob_pattern, cwd) or ()) if field.glob_pattern else (field.text,)
            )
        )

    def _touch_written_tree(self, listing: FileListing) -> None:
        files = list_files(listing)
        if files is None:
            self.touch_below(*listing.roots)
        for path in files or ():
            self._touch_path(path, path, "write")

    def _touch_in_directory(self, field: Field, cwd: str, use: FileUse) -> None:
        if "**" in field.glob_pattern:
            self.touch_tree(list_deep_glob(field.glob_pattern, cwd), use, links=True)
        texts = expand_glob(field.glob_pattern, cwd) if field.glob_pattern else [field.text]
        if texts is None:
            self._touch_unknown(field.text, use)
            return
        if field.glob_pattern and any(text.startswith("-") for text in texts):
            self.mark_unclear(field.text, "the name of a file would be taken for an option")
        for text in texts:
            self._touch_path(text, cwd, use)

    def _touch_path(self, text: str, cwd: str, use: FileUse) -> None:
        try:
            resolved = self.location.resolve(text, cwd)
        except (ValueError, OSError):
            self._touch_unknown(text, use)
            return
        if resolved is None:
            return
        if not resolved.inside:
            self.mark_outside(resolved.real)
        if use == "read":
            for pattern in dict.fromkeys((resolved.path, resolved.real)):
                self.add(ShellAction(permission="read", pattern=pattern, always=_to_exact_pattern(pattern)))
        if use == "write":
            for pattern in self._list_patterns(resolved.path, resolved.real):
                self.add(ShellAction(permission="edit", pattern=pattern, always=_to_exact_pattern(pattern)))

    def mark_outside(self, real: str) -> None:
        """Note that a path outside of the project is used."""
        parent = real if os.path.isdir(real) else os.path.dirname(real)
        pattern = os.path.join(real, "*") if parent == real else real
        # OpenCode grants `<dirname>*`, which includes every sibling whose name starts alike.
        always = os.path.join(parent, "*") if parent != "/" and "*" not in parent else ""
        self.add(
            ShellAction(
                permission="external_directory",
                pattern=pattern,
                always=always,
                why="it is outside of the project",
            )
        )

    def _list_patterns(self, path: str, real: str) -> tuple[str, ...]:
        worktree = self.location.worktree
        return list_patterns((path, worktree), (real, self.location.real_path(os.path.normpath(worktree))))

    def _touch_unknown(self, text: str, use: FileUse) -> None:
        pattern = mark_unknown(text)
        self.add(ShellAction(permission="external_directory", pattern=pattern, why=_UNKNOWN_PATH_REASON))
        if use != "look":
            self.add(
                ShellAction(
                    permission="read" if use == "read" else "edit", pattern=pattern, why=_UNKNOWN_PATH_REASON
                )
            )

    # --- directories ---

    def change_directory(self, field: Field | None) -> None:
        """Follow `cd` from every possible directory. Without a field, go to the home directory."""
        target = field or Field(self.location.home)
        self.touch(target, "look")
        if field is not None and field.text == "-":
            self.add_directories(self.visited)
            return
        if not target.is_known or self.cwds is None:
            self.cwds = (target.text,) if target.is_known and os.path.isabs(target.text) else None
            self.cwds_on_success = self.cwds
            return
        # The shell resolves `..` after a link by name.
        reached = tuple(dict.fromkeys(os.path.normpath(os.path.join(cwd, target.text)) for cwd in self.cwds))
        if self._may_have_moved_directories() or not all(map(os.path.isdir, reached)):
            self.cwds_on_success = reached
            reached = tuple(dict.fromkeys((*self.cwds, *reached)))
        self.visited = tuple(dict.fromkeys((*self.visited, *reached)))
        self.cwds = reached

    def _may_have_moved_directories(self) -> bool:
        """Return True if the command may have removed or replaced a directory by now."""
        return any(action.permission == "edit" or action.may_write for action in self.actions.values())

    def add_directories(self, *others: tuple[str, ...] | None) -> None:
        """Add directories that the shell may be in. None means that they are unknown."""
        if self.cwds is None or None in others:
            self.cwds = None
            return
        self.cwds = tuple(dict.fromkeys((*self.cwds, *(cwd for other in others if other for cwd in other))))


def _to_exact_pattern(path: str) -> str:
    """Return the path as a pattern that matches only itself, or "" if there is none."""
    return path if "*" not in path and "?" not in path else ""


MAX_VARIABLE_DEPTH: Final = 5
_VARIABLE_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_EVALUATED_CHARACTERS: Final = frozenset("[]$`\\'\"{}")


def is_safe_number(value: Value, state: ShellState, depth: int = 0) -> bool:
    """Return True if evaluating a value as arithmetic yields a number and runs nothing.

    Arithmetic is not harmless: a value may name a variable, which may name another one, and `a[$(…)]` runs a command.
    """
    if isinstance(value, Number):
        return True
    if (
        isinstance(value, FileListing)
        or has_hole(value)
        or not _EVALUATED_CHARACTERS.isdisjoint(value)
        or depth > MAX_VARIABLE_DEPTH
    ):
        return False
    return all(names_safe_number(name, state, depth + 1) for name in _VARIABLE_NAME.findall(value))


def names_safe_number(name: str, state: ShellState, depth: int = 0) -> bool:
    """Return True if evaluating a variable as arithmetic yields a number and runs nothing."""
    if name in NUMERIC_VARIABLES or state.variables.is_unset(name):
        return True
    values = state.lookup(name)
    return values is not None and all(is_safe_number(value, state, depth) for value in values)

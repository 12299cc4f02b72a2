"""The scene of a command: where it may be by now, what its variables may hold, and what was found out about it."""

import os
from collections.abc import Callable, Sequence
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from weft.model.permission import hole
from weft.tool.paths import list_patterns
from weft.tool.shell.field import Field, Listing, Value, has_hole
from weft.tool.shell.places import Where, deep_listing, expand, files_of, is_secret, notable
from weft.tool.shell.variables import Variables

Use = Literal["look", "read", "write"]
PERMISSIONS: Final = ("external_directory", "read", "edit", "bash")
MOST_PARTS: Final = 2000
_LATER: Final = "where this leads is known only when it runs"


class Part(Struct, frozen=True, kw_only=True):
    """One thing a command does, as the rules are asked about it; `always` is what a lasting yes would cover.

    `may_write`: a program that may change files in ways its words do not tell. `perhaps`: a command only if a program that
    nobody knows takes its words for one; that matters where a rule forbids just this command.
    """

    permission: str
    pattern: str
    always: str = ""
    why: str = ""
    may_write: bool = False
    perhaps: bool = False


class Feed(Struct, frozen=True, kw_only=True):
    """What a command reads from its input: a known text, a list of files, some number, or (none of them) who knows."""

    text: str | None = None
    listing: Listing | None = None
    number: bool = False


class Scene:
    """Everything found out goes into `parts`, in the order found, each once."""

    def __init__(self, where: Where, variables: Variables | None = None) -> None:
        self.where = where
        self.cwds: tuple[str, ...] | None = (where.directory,)
        self.been: tuple[str, ...] = (where.directory,)
        self.landed: tuple[str, ...] | None = None
        self.variables = variables or Variables(where.environment)
        # All that a variable may hold here.
        self.lookup: Callable[[str], Sequence[Value] | None] = lambda _: None
        self.parts: dict[tuple[str, str], Part] = {}

    def add(self, part: Part) -> None:
        key = (part.permission, part.pattern)
        known = self.parts.get(key)
        if known is None and len(self.parts) >= MOST_PARTS:
            part = Part(permission=part.permission, pattern=hole("and more"), why="there is too much of it")
            key = (part.permission, part.pattern)
        if known is None or (part.may_write and not known.may_write) or (known.perhaps and not part.perhaps):
            self.parts[key] = part

    def unclear(self, text: str, why: str) -> None:
        """It may do anything: leave the project, read, write, run whatever there is."""
        for permission in PERMISSIONS:
            self.add(Part(permission=permission, pattern=hole(text), why=why, may_write=permission == "bash"))

    def mark_writer(self, pattern: str) -> None:
        """A command that was noted may change files in ways its words do not tell."""
        known = self.parts.get(("bash", pattern))
        if known is not None:
            self.parts["bash", pattern] = replace(known, may_write=True)

    # --- paths ---

    def looks_like_path(self, text: str) -> bool:
        """Whether a word that may be anything is a path after all."""
        if not text or text == "-" or has_hole(text):
            return False
        parts = text.split("/")
        if text[0] in "/~" or ".." in parts or is_secret(parts[-1]):
            return True
        return self.exists(text)

    def exists(self, text: str) -> bool:
        """Whether there is such a file wherever the command may be."""
        return any(self.where.exists(text, cwd) for cwd in self.cwds or ("/",))

    def is_directory(self, field: Field) -> bool:
        return any(map(os.path.isdir, self.rooted(field)))

    def touch(self, field: Field, use: Use) -> None:
        """A path is used: outside of the project that is said, and inside what it is used for."""
        text = field.wild or field.text
        if field.listing is not None:
            self.touch_tree(field.listing, use, links=True)
        elif text in ("", "-"):
            return
        elif has_hole(text) or (self.cwds is None and not os.path.isabs(text)):
            self._touch_unknown(text, use)
        else:
            for cwd in self.cwds or ("/",):
                self._touch_from(field, cwd, use)

    def touch_all(self, field: Field, use: Use, *, links: bool = False) -> None:
        """A path is used, and all that is below it."""
        self.touch(field, use)
        if use == "write":
            self.touch_below(*self.rooted(field))
        else:
            self.touch_tree(Listing(roots=self.rooted(field)), use, links=links, follow=links)

    def touch_tree(self, listing: Listing, use: Use, *, links: bool = False, follow: bool = False) -> None:
        """All below some directories is used; with `links` also what links there lead to.

        With `follow`, all that is in directories which links lead to.
        """
        for root in listing.roots:
            self._spot(root, root, "look")
        if use == "read":
            for path in notable(listing, links=links, follow=follow):
                self._spot(path, path, "read")
        if use == "write":
            self._write_tree(listing)

    def touch_below(self, *roots: str) -> None:
        """Files are written below some directories, nobody knows which."""
        for root in roots:
            self._spot(root, root, "look")
            for pattern in self._patterns(root, self.where.real(root)):
                below = hole("everything below")
                self.add(
                    Part(
                        permission="edit",
                        pattern=below if pattern == "." else f"{pattern}/{below}",
                        why="it changes whole directories",
                    )
                )

    def rooted(self, field: Field) -> tuple[str, ...]:
        """The paths that a word may name, as far as they can be told."""
        if field.listing is not None or has_hole(field.wild or field.text):
            return ()
        return tuple(
            os.path.normpath(os.path.join(cwd, text))
            for cwd in self.cwds or ()
            for text in ((expand(field.wild, cwd) or ()) if field.wild else (field.text,))
        )

    def _write_tree(self, listing: Listing) -> None:
        files = files_of(listing)
        if files is None:
            self.touch_below(*listing.roots)
        for path in files or ():
            self._spot(path, path, "write")

    def _touch_from(self, field: Field, cwd: str, use: Use) -> None:
        if "**" in field.wild:
            self.touch_tree(deep_listing(field.wild, cwd), use, links=True)
        found = expand(field.wild, cwd) if field.wild else [field.text]
        if found is None:
            self._touch_unknown(field.text, use)
            return
        if field.wild and any(text.startswith("-") for text in found):
            self.unclear(field.text, "the name of a file would be taken for an option")
        for text in found:
            self._spot(text, cwd, use)

    def _spot(self, text: str, cwd: str, use: Use) -> None:
        try:
            spot = self.where.spot(text, cwd)
        except (ValueError, OSError):
            self._touch_unknown(text, use)
            return
        if spot is None:
            return
        if not spot.inside:
            self.outside(spot.real)
        if use == "read":
            for pattern in dict.fromkeys((spot.path, spot.real)):
                self.add(Part(permission="read", pattern=pattern, always=_exact(pattern)))
        if use == "write":
            for pattern in self._patterns(spot.path, spot.real):
                self.add(Part(permission="edit", pattern=pattern, always=_exact(pattern)))

    def outside(self, real: str) -> None:
        parent = real if os.path.isdir(real) else os.path.dirname(real)
        pattern = os.path.join(real, "*") if parent == real else real
        # OpenCode grants `<dirname>*`, and with it every neighbour whose name begins alike.
        always = os.path.join(parent, "*") if parent != "/" and "*" not in parent else ""
        self.add(
            Part(
                permission="external_directory",
                pattern=pattern,
                always=always,
                why="it is outside of the project",
            )
        )

    def _patterns(self, path: str, real: str) -> tuple[str, ...]:
        worktree = self.where.worktree
        return list_patterns((path, worktree), (real, self.where.real(os.path.normpath(worktree))))

    def _touch_unknown(self, text: str, use: Use) -> None:
        pattern = hole(text)
        self.add(Part(permission="external_directory", pattern=pattern, why=_LATER))
        if use != "look":
            self.add(Part(permission="read" if use == "read" else "edit", pattern=pattern, why=_LATER))

    # --- going about ---

    def go(self, field: Field | None) -> None:
        """`cd`: from every place it may be in, to where that leads."""
        target = field or Field(self.where.home)
        self.touch(target, "look")
        if field is not None and field.text == "-":
            self.stay(self.been)
            return
        if not target.is_known or self.cwds is None:
            self.cwds = (target.text,) if target.is_known and os.path.isabs(target.text) else None
            self.landed = self.cwds
            return
        # The shell goes back from a link by its name.
        reached = tuple(dict.fromkeys(os.path.normpath(os.path.join(cwd, target.text)) for cwd in self.cwds))
        if self._changes_files() or not all(map(os.path.isdir, reached)):
            self.landed = reached
            reached = tuple(dict.fromkeys((*self.cwds, *reached)))
        self.been = tuple(dict.fromkeys((*self.been, *reached)))
        self.cwds = reached

    def _changes_files(self) -> bool:
        """Whether by now a directory may be gone, or another."""
        return any(part.permission == "edit" or part.may_write for part in self.parts.values())

    def stay(self, *others: tuple[str, ...] | None) -> None:
        """It may be in any of these places as well."""
        if self.cwds is None or None in others:
            self.cwds = None
            return
        self.cwds = tuple(dict.fromkeys((*self.cwds, *(cwd for other in others if other for cwd in other))))


def _exact(path: str) -> str:
    """The path as a pattern that fits it alone, if there is one."""
    return path if "*" not in path and "?" not in path else ""

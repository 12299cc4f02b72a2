"""Decide whether a project is trusted as it is now, and record what a person says."""

import os
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from weft.config.instructions import list_held, to_sources
from weft.config.load import Loaded, load_config
from weft.config.skills import list_scripted
from weft.config.sources import Situation
from weft.config.store_address import find_own_setting
from weft.config.trust import Held
from weft.errors import ConfigError, DirectoryError
from weft.host.paths import Paths, paths_from
from weft.project.look import look
from weft.trust.fingerprint import find_root, seal
from weft.trust.records import Book, Vouched

KEY = ("experimental", "weft", "trusted")
SHOWN = 6

# By its path from the top, each file that could act, with its hash.
Seal = dict[str, str]

Why = Literal["environment", "configured", "given", "refused", "changed", "unknown"]


class Change(Struct, frozen=True, kw_only=True):
    """A file that is not as it was when the person vouched for the project."""

    what: Literal["new", "changed"]
    name: str


class Standing(Struct, frozen=True, kw_only=True):
    """Whether a project is trusted, and by what; `changes` are why one that was is not any more."""

    trusted: bool
    why: Why
    changes: tuple[Change, ...] = ()


class Trusting:
    """The trust in the project of one directory."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._book = Book(situation.paths)
        self.root = find_root(situation)

    def standing(self) -> Standing:
        if self._situation.env.get("WEFT_TRUST") == "1":
            return Standing(trusted=True, why="environment")
        if self._is_named():
            return Standing(trusted=True, why="configured")
        found = self._book.find(self.root)
        if found is None:
            return Standing(trusted=False, why="unknown")
        changes = self._changes(found)
        if changes:
            return Standing(trusted=False, why="changed", changes=changes)
        return Standing(trusted=not found.refused, why="refused" if found.refused else "given")

    def held_back(self) -> list[Held]:
        """All that the project brings along and that does nothing as long as it is not trusted."""
        untrusted = replace(self._situation, trusted=False)
        return list_held_back(load_config(untrusted), untrusted)

    def take_seal(self) -> Seal:
        """The content as it is now. Taken before anything of it is shown, it is what the person has seen."""
        return seal(self._situation)

    def trust(self, now: int, seen: Seal | None = None) -> Vouched:
        """Vouch for the project as it was seen, else as it is now. What was vouched for elsewhere in it stays so."""
        found = self._book.find(self.root)
        before = {} if found is None or found.refused else found.files
        files = self.take_seal() if seen is None else seen
        return self._book.put(self.root, files=before | files, time=now)

    def refuse(self, now: int, seen: Seal | None = None) -> Vouched:
        """Remember that the person was asked, and said no to what was seen, else to what is there now."""
        files = self.take_seal() if seen is None else seen
        return self._book.put(self.root, files=files, time=now, refused=True)

    def revoke(self) -> bool:
        """Forget what was said of the project. Gives whether anything was."""
        return self._book.remove(self.root)

    def _is_named(self) -> bool:
        named = find_own_setting(self._situation.paths, KEY)
        known = {self._situation.worktree, self.root}
        return isinstance(named, list) and any(
            isinstance(each, str) and (each in known or os.path.realpath(each) == self.root) for each in named
        )

    def _changes(self, found: Vouched) -> tuple[Change, ...]:
        try:
            now = seal(self._situation)
        except DirectoryError as error:
            return (Change(what="changed", name=str(error)),)
        return tuple(
            Change(what="changed" if name in found.files else "new", name=name)
            for name, digest in now.items()
            if found.files.get(name) != digest
        )


def trusting_in(directory: str, env: Mapping[str, str]) -> Trusting:
    """The trust in what lies around a directory."""
    at = look(directory, fake_vcs=env.get("OPENCODE_FAKE_VCS", ""))
    worktree = at.top or os.sep
    return Trusting(
        Situation(directory=at.directory, worktree=worktree, paths=paths_from(env), env=env, trusted=False)
    )


def is_trusted(paths: Paths, env: Mapping[str, str], worktree: str, directory: str | None = None) -> bool:
    """Whether what the project brings along may act. `directory` is where in it one is, its top if left out."""
    situation = Situation(
        directory=directory or worktree, worktree=worktree, paths=paths, env=env, trusted=False
    )
    return Trusting(situation).standing().trusted


def list_held_back(loaded: Loaded, situation: Situation) -> list[Held]:
    """All that is held back of a project that is not trusted, given its configuration loaded as such."""
    return [*loaded.held, *list_scripted(situation), *list_held(to_sources(loaded, situation))]


def to_warning(situation: Situation, held: list[Held]) -> ConfigError:
    """One line that says what was held back."""
    named = [f"{each.kind} {each.name}" for each in held]
    more = f" and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
    said = f"not trusted, so held back: {', '.join(named[:SHOWN])}{more}; see: weft trust --show"
    return ConfigError(find_root(situation), said)

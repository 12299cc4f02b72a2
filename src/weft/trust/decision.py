"""Decide whether a project is trusted in its current state, and record the person's decision."""

import os
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from weft.config.instructions import list_held_instructions, to_sources
from weft.config.load import LoadedConfig, load_config
from weft.config.skills import list_scripted_skills
from weft.config.sources import ConfigScope
from weft.config.store_address import find_own_setting
from weft.config.trust import HeldItem
from weft.errors import ConfigError, DirectoryError
from weft.host.paths import Paths, paths_from
from weft.project.checkout import find_checkout
from weft.trust.fingerprint import find_root, take_fingerprint
from weft.trust.records import TrustRecord, TrustRecords

TRUSTED_KEY = ("experimental", "weft", "trusted")
MAX_SHOWN = 6

# The hash of each file that can have an effect, by its path from the root.
Fingerprint = dict[str, str]

TrustReason = Literal["environment", "configured", "given", "refused", "changed", "unknown"]


class TrustChange(Struct, frozen=True, kw_only=True):
    """A file that has changed since the person trusted the project."""

    what: Literal["new", "changed"]
    name: str


class TrustStatus(Struct, frozen=True, kw_only=True):
    """Whether a project is trusted, and why. `changes` are the reason why a trusted project no longer is."""

    trusted: bool
    why: TrustReason
    changes: tuple[TrustChange, ...] = ()


class ProjectTrust:
    """The trust in the project of one directory."""

    def __init__(self, scope: ConfigScope) -> None:
        self._situation = scope
        self._records = TrustRecords(scope.paths)
        self.root = find_root(scope)

    def get_status(self) -> TrustStatus:
        """Return whether the project is trusted now, and why."""
        if self._situation.env.get("WEFT_TRUST") == "1":
            return TrustStatus(trusted=True, why="environment")
        if self._is_configured():
            return TrustStatus(trusted=True, why="configured")
        found = self._records.find(self.root)
        if found is None:
            return TrustStatus(trusted=False, why="unknown")
        changes = self._changes(found)
        if changes:
            return TrustStatus(trusted=False, why="changed", changes=changes)
        return TrustStatus(trusted=not found.refused, why="refused" if found.refused else "given")

    def list_held_back(self) -> list[HeldItem]:
        """Return everything of the project that has no effect while it is not trusted."""
        untrusted = replace(self._situation, trusted=False)
        return list_held_back(load_config(untrusted), untrusted)

    def take_fingerprint(self) -> Fingerprint:
        """Return the fingerprint of the current content. Take it before showing anything, so that it is what the
        person saw."""
        return take_fingerprint(self._situation)

    def trust(self, now: int, seen: Fingerprint | None = None) -> TrustRecord:
        """Trust the project as it was `seen`, or as it is now. Files that were trusted before stay trusted."""
        found = self._records.find(self.root)
        before = {} if found is None or found.refused else found.files
        files = self.take_fingerprint() if seen is None else seen
        return self._records.put(self.root, files=before | files, time=now)

    def refuse(self, now: int, seen: Fingerprint | None = None) -> TrustRecord:
        """Record that the person refused to trust what was `seen`, or what is there now."""
        files = self.take_fingerprint() if seen is None else seen
        return self._records.put(self.root, files=files, time=now, refused=True)

    def revoke(self) -> bool:
        """Forget the decision about the project. Return False if there was none."""
        return self._records.remove(self.root)

    def _is_configured(self) -> bool:
        configured = find_own_setting(self._situation.paths, TRUSTED_KEY)
        known = {self._situation.worktree, self.root}
        return isinstance(configured, list) and any(
            isinstance(each, str) and (each in known or os.path.realpath(each) == self.root)
            for each in configured
        )

    def _changes(self, found: TrustRecord) -> tuple[TrustChange, ...]:
        try:
            now = take_fingerprint(self._situation)
        except DirectoryError as error:
            return (TrustChange(what="changed", name=str(error)),)
        return tuple(
            TrustChange(what="changed" if name in found.files else "new", name=name)
            for name, digest in now.items()
            if found.files.get(name) != digest
        )


def get_trust(directory: str, env: Mapping[str, str]) -> ProjectTrust:
    """Return the trust in the project around a directory."""
    at = find_checkout(directory, fake_vcs=env.get("OPENCODE_FAKE_VCS", ""))
    worktree = at.top or os.sep
    return ProjectTrust(
        ConfigScope(directory=at.directory, worktree=worktree, paths=paths_from(env), env=env, trusted=False)
    )


def is_trusted(paths: Paths, env: Mapping[str, str], worktree: str, directory: str | None = None) -> bool:
    """Return True if the project's own configuration and code may take effect. `directory` defaults to its root."""
    scope = ConfigScope(
        directory=directory or worktree, worktree=worktree, paths=paths, env=env, trusted=False
    )
    return ProjectTrust(scope).get_status().trusted


def list_held_back(loaded: LoadedConfig, scope: ConfigScope) -> list[HeldItem]:
    """Return everything that is held back of an untrusted project, given its configuration loaded as untrusted."""
    return [
        *loaded.held,
        *list_scripted_skills(scope),
        *list_held_instructions(to_sources(loaded, scope)),
    ]


def to_warning(scope: ConfigScope, held: list[HeldItem]) -> ConfigError:
    """Return a one-line warning that names what was held back."""
    names = [f"{each.kind} {each.name}" for each in held]
    more = f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
    message = f"not trusted, so held back: {', '.join(names[:MAX_SHOWN])}{more}; see: weft trust --show"
    return ConfigError(find_root(scope), message)

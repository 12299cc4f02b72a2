"""Decide whether a project is trusted in its current state, and record the person's decision."""

import os
from collections.abc import Mapping
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from weft.config.instructions import list_held_instructions, to_sources
from weft.config.load import LoadedConfig, load_config
from weft.config.skills import list_scripted_skills
from weft.config.sources import ConfigScope
from weft.config.store_address import find_own_setting
from weft.errors import ConfigError, ConflictError, DirectoryError
from weft.host.paths import Paths, paths_from
from weft.model.trust import HeldItem, TrustChange, TrustReason, TrustReport
from weft.model.wire import encode
from weft.project.checkout import find_checkout
from weft.trust.fingerprint import find_root, take_fingerprint
from weft.trust.looser import list_looser
from weft.trust.records import TrustRecord, TrustRecords

TRUSTED_KEY = ("experimental", "weft", "trusted")
MAX_SHOWN = 6

# The hash of each file that can have an effect, by its path from the root.
Fingerprint = dict[str, str]


class TrustStatus(Struct, frozen=True, kw_only=True):
    """Whether a project is trusted, and why. `changes` are the reason why a trusted project no longer is."""

    trusted: bool
    why: TrustReason
    changes: tuple[TrustChange, ...] = ()


class ProjectTrust:
    """The trust in the project of one directory."""

    def __init__(self, scope: ConfigScope) -> None:
        self._scope = scope
        self._records = TrustRecords(scope.paths)
        self.root = find_root(scope)

    def get_status(self) -> TrustStatus:
        """Return whether the project is trusted now, and why."""
        if self._scope.env.get("WEFT_TRUST") == "1":
            return TrustStatus(trusted=True, why="environment")
        if self._is_configured():
            return TrustStatus(trusted=True, why="configured")
        record = self._records.find(self.root)
        if record is None:
            return TrustStatus(trusted=False, why="unknown")
        changes = self._list_changes(record)
        if changes:
            return TrustStatus(trusted=False, why="changed", changes=changes)
        return TrustStatus(trusted=not record.refused, why="refused" if record.refused else "given")

    def list_held_back(self) -> list[HeldItem]:
        """Return everything of the project that is held back while it is not trusted."""
        untrusted = replace(self._scope, trusted=False)
        return list_held_back(load_config(untrusted), untrusted)

    def list_looser(self) -> list[HeldItem]:
        """Return the settings of the project that are looser than the person's, and have no effect while it is not trusted."""
        untrusted = replace(self._scope, trusted=False)
        return list_looser(load_config(untrusted), untrusted)

    def take_fingerprint(self) -> Fingerprint:
        """Return the fingerprint of the current content. Take it before showing anything, so that it is what the person saw."""
        return take_fingerprint(self._scope)

    def trust(self, now: int, fingerprint: Fingerprint | None = None) -> TrustRecord:
        """Trust the project as in the `fingerprint`, or as it is now. Files that were trusted before stay trusted."""
        record = self._records.find(self.root)
        trusted_files = {} if record is None or record.refused else record.files
        files = self.take_fingerprint() if fingerprint is None else fingerprint
        return self._records.put(self.root, files=trusted_files | files, time=now)

    def refuse(self, now: int, fingerprint: Fingerprint | None = None) -> TrustRecord:
        """Record that the person refused to trust the project as in the `fingerprint`, or as it is now."""
        files = self.take_fingerprint() if fingerprint is None else fingerprint
        return self._records.put(self.root, files=files, time=now, refused=True)

    def revoke(self) -> bool:
        """Forget the decision about the project. Return False if there was none."""
        return self._records.remove(self.root)

    def _is_configured(self) -> bool:
        configured = find_own_setting(self._scope.paths, TRUSTED_KEY)
        roots = {self._scope.worktree, self.root}
        return isinstance(configured, list) and any(
            isinstance(path, str) and (path in roots or os.path.realpath(path) == self.root)
            for path in configured
        )

    def _list_changes(self, record: TrustRecord) -> tuple[TrustChange, ...]:
        try:
            current = take_fingerprint(self._scope)
        except DirectoryError as error:
            return (TrustChange(what="changed", name=str(error)),)
        return tuple(
            TrustChange(what="changed" if name in record.files else "new", name=name)
            for name, digest in current.items()
            if record.files.get(name) != digest
        )


def get_trust(directory: str, env: Mapping[str, str]) -> ProjectTrust:
    """Return the trust in the project around a directory."""
    checkout = find_checkout(directory, fake_vcs=env.get("OPENCODE_FAKE_VCS", ""))
    worktree = checkout.top or os.sep
    return ProjectTrust(
        ConfigScope(
            directory=checkout.directory, worktree=worktree, paths=paths_from(env), env=env, trusted=False
        )
    )


def make_report(project: ProjectTrust) -> TrustReport:
    """Return a report: whether a project is trusted, what it brings along, and the fingerprint of the state that was examined."""
    # The fingerprint is taken before the content is read: what changes meanwhile is not trusted.
    fingerprint = to_digest(project.take_fingerprint())
    status = project.get_status()
    return TrustReport(
        path=project.root,
        trusted=status.trusted,
        why=status.why,
        changes=status.changes,
        held=tuple(project.list_held_back()),
        looser=tuple(project.list_looser()),
        fingerprint=fingerprint,
    )


def trust_as_reported(project: ProjectTrust, fingerprint: str, now: int) -> TrustReport:
    """Trust a project in the state that a report was about. Raise `ConflictError` if it has changed since."""
    current = project.take_fingerprint()
    if to_digest(current) != fingerprint:
        raise ConflictError(
            "project", project.root, "has changed since it was shown", hint="look at it again"
        )
    project.trust(now, current)
    return make_report(project)


def to_digest(fingerprint: Fingerprint) -> str:
    """Return a short name of a fingerprint."""
    return sha256(encode(sorted(fingerprint.items()))).hexdigest()


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


def to_warning(scope: ConfigScope, held: list[HeldItem], fate: str = "held back") -> ConfigError:
    """Return a one-line warning that names what was held back, or had another fate."""
    names = [f"{item.kind} {item.name}" for item in held]
    more = f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
    message = f"not trusted, so {fate}: {', '.join(names[:MAX_SHOWN])}{more}; see: weft trust --show"
    return ConfigError(find_root(scope), message)

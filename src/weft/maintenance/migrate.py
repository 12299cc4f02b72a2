"""Copy everything of one store into another through the `Store` contract, and compare counts and hashes."""

import hashlib
from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from weft.errors import NotFoundError, StoreError, UnreadableError, WeftError
from weft.model.damage import Damage
from weft.model.event import (
    Durable,
    MessageUpdated,
    PartUpdated,
    ProjectUpdated,
    SessionCreated,
    SessionDiffed,
    SessionUpdated,
    TodoUpdated,
)
from weft.model.ids import SessionID
from weft.model.session import SessionInfo, TrashBundle
from weft.model.transfer import SessionExport
from weft.model.wire import encode, parse
from weft.session.lifecycle import exists
from weft.share.records import copy_shares
from weft.store.contract import LogExtender, Store
from weft.transfer.session_import import compare_states

CopyProgress = Callable[[int, int], None]

_encoder = msgspec.json.Encoder(order="sorted", decimal_format="number")


class SessionDigest(Struct, frozen=True, kw_only=True):
    """The numbers of documents of a session, and a hash of their contents."""

    session: SessionID
    messages: int
    parts: int
    diffs: int
    todos: int
    hash: str


def digest_session(export: SessionExport) -> SessionDigest:
    """Two sessions have the same hash if and only if their contents are equal. The order of keys does not matter."""
    digest = hashlib.sha256()
    for value in (export.info, *export.messages, list(export.diff), list(export.todos)):
        raw = _to_canonical(value)
        digest.update(b"%d " % len(raw) + raw)
    return SessionDigest(
        session=export.info.id,
        messages=len(export.messages),
        parts=sum(len(message.parts) for message in export.messages),
        diffs=len(export.diff),
        todos=len(export.todos),
        hash=digest.hexdigest(),
    )


def _to_canonical(value: Any) -> bytes:
    plain = parse(encode(value))
    try:
        return _encoder.encode(plain)
    except UnicodeEncodeError:
        return encode(_sort_keys(plain))  # a lone surrogate, which only our own encoder accepts


def _sort_keys(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {key: _sort_keys(plain[key]) for key in sorted(plain)}
    return [_sort_keys(item) for item in plain] if isinstance(plain, list) else plain


async def read_export(store: Store, session: SessionInfo) -> SessionExport:
    return SessionExport(
        info=session,
        messages=tuple(await store.list_messages(session.id)),
        diff=tuple(await store.list_diff(session.id)),
        todos=tuple(await store.list_todos(session.id)),
    )


CopyOutcome = Literal["copied", "same", "grown", "ahead", "differs", "failed"]

BATCH_DOCUMENTS = 1000
UNDER_WAY = "migration"  # the values that mark bundles which are being copied
# Shares are merged with those of the target, and a server announces itself again.
NOT_COPIED = (UNDER_WAY, "sharing")
BUNDLE_PREFIX = "bundle "  # of the names of bundles in `Migration.kept`


class CopiedSession(Struct, frozen=True, kw_only=True):
    """What happened to one session. `before` is what the source has of it, `after` what the target has in the end.

    * `copied`: the target did not have it; `same`: it did; `grown`: it had a part, and the rest was added;
    * `ahead`: the target has all of it and more; `differs`: both have something the other lacks, and nothing was changed;
    * `failed`: it could not be read or written, and `reason` says why.
    """

    session: SessionID
    title: str
    outcome: CopyOutcome
    before: SessionDigest | None = None
    after: SessionDigest | None = None
    reason: str = ""


class Migration(Struct, frozen=True, kw_only=True):
    """The result: projects, sessions, and documents of the source that are unreadable and were not copied.

    `values`, `lines` and `bundles` are the numbers of private values, lines of logs and bundles in the trash that were copied.
    `kept` names those that the target has with another content, and bundles with a session that is not in the trash
    there (it was imported again); these were left alone. `explain_kept` says which of both is the case.
    """

    projects: int
    sessions: tuple[CopiedSession, ...]
    damage: tuple[Damage, ...]
    values: int = 0
    lines: int = 0
    bundles: int = 0
    kept: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        return not self.damage and all(each.outcome not in ("differs", "failed") for each in self.sessions)


async def migrate(
    source: Store,
    target: Store,
    *,
    dry_run: bool = False,
    at_once: int = BATCH_DOCUMENTS,
    on_progress: CopyProgress = lambda _, __: None,
) -> Migration:
    """Copy everything. About `at_once` documents are written in one batch, which is much faster than one by one.

    What the target has already is never overwritten, so a migration that was interrupted is continued by running it again.
    """
    # Private values come first, so that a session in the target has everything that belongs to it.
    records = RecordCopier(source, target, dry_run=dry_run)
    await records.copy_values()
    projects = await _copy_projects(source, target, dry_run=dry_run)
    sessions = await source.list_sessions()
    copier = SessionCopier(source, target, at_once=at_once, dry_run=dry_run)
    for number, session in enumerate(sessions):
        on_progress(number, len(sessions))
        await copier.take(session)
    await copier.write()
    await records.copy_logs()
    await records.copy_trash()
    if not dry_run:
        await copy_shares(source, target)
    return Migration(
        projects=projects,
        sessions=tuple(copier.results[session.id] for session in sessions),
        damage=tuple(await source.damage()),
        values=records.values,
        lines=records.lines,
        bundles=records.bundles,
        kept=tuple(records.kept),
    )


class RecordCopier:
    """Copies everything except sessions: private values, logs and the trash. `kept` names those that differ in the target."""

    def __init__(self, source: Store, target: Store, *, dry_run: bool) -> None:
        self._source = source
        self._target = target
        self._dry_run = dry_run
        self.values = 0
        self.lines = 0
        self.bundles = 0
        self.kept: list[str] = []

    async def copy_values(self) -> None:
        for key in await self._source.list_keys():
            if key[0] in NOT_COPIED:
                continue
            value, present = await self._source.find_value(key), await self._target.find_value(key)
            if present is None and value is not None:
                self.values += 1
                if not self._dry_run:
                    await self._target.put_value(key, value)
            elif present != value:
                self.kept.append(f"value {'/'.join(key)}")

    async def copy_logs(self) -> None:
        for log in await self._source.list_logs():
            lines, present = await self._source.read_log(log), await self._target.read_log(log)
            if lines[: len(present)] == present:
                rest = lines[len(present) :]
                self.lines += len(rest)
                if rest and not self._dry_run:
                    await self._target.append_log(log, _make_extender(present, rest))
            elif present[: len(lines)] != lines:
                self.kept.append(f"log {'/'.join(log)}")

    async def copy_trash(self) -> None:
        present = {trashed.id for trashed in await self._target.list_trash()}
        for trashed in await self._source.list_trash():
            if trashed.id in present:
                continue
            exports = await self._source.read_bundle(trashed.id)
            begun = await self._target.find_value((UNDER_WAY, trashed.id)) is not None
            if not begun and any([await self._lives(export.info.id) for export in exports]):
                self.kept.append(f"{BUNDLE_PREFIX}{trashed.id} in the trash")
                continue
            self.bundles += 1
            if not self._dry_run:
                await self._copy_bundle(trashed, exports)

    async def _lives(self, id: SessionID) -> bool:
        """Return True if a session is in the target, or would be: in a dry run, those of the source were not copied."""
        return await exists(self._target, id) or await exists(self._source, id)

    async def _copy_bundle(self, trashed: TrashBundle, exports: list[SessionExport]) -> None:
        """Write the sessions of a bundle and discard them. The mark tells a later migration that these are not living sessions."""
        await self._target.put_value((UNDER_WAY, trashed.id), True)
        await self._target.apply(*(event for export in exports for event in to_events(export)))
        await self._target.discard([export.info.id for export in exports], at=trashed.time)
        await self._target.put_value((UNDER_WAY, trashed.id), None)


def explain_kept(name: str) -> str:
    """Return why a record that `Migration.kept` names was left alone."""
    return (
        "one of its sessions is no longer in the trash"
        if name.startswith(BUNDLE_PREFIX)
        else "the target has another one"
    )


def _make_extender(present: list[bytes], rest: list[bytes]) -> LogExtender:
    """Return a function that appends the rest of a log, unless somebody has appended something else meanwhile."""
    last = present[-1] if present else None
    return lambda found: rest if found == last else []


class SessionCopier:
    """Compares sessions one by one, writes several in one batch, and reads back what it wrote."""

    def __init__(self, source: Store, target: Store, *, at_once: int, dry_run: bool) -> None:
        self._source = source
        self._target = target
        self._at_once = at_once
        self._dry_run = dry_run
        self._waiting: list[tuple[CopiedSession, list[Durable]]] = []
        self.results: dict[SessionID, CopiedSession] = {}

    async def take(self, session: SessionInfo) -> None:
        try:
            found, events = await self._compare(session)
        except WeftError as error:
            found, events = _to_failed(session, error), []
        self.results[session.id] = found
        if events:
            self._waiting.append((found, events))
        if sum(len(events) for _, events in self._waiting) >= self._at_once:
            await self.write()

    async def _compare(self, session: SessionInfo) -> tuple[CopiedSession, list[Durable]]:
        export = await read_export(self._source, session)
        present = await _find(self._target, session.id)
        outcome = _compare_copies(export, present)
        found = CopiedSession(
            session=session.id,
            title=session.title,
            outcome=outcome,
            before=digest_session(export),
            after=None if present is None else digest_session(present),
        )
        if outcome not in ("copied", "grown") or self._dry_run:
            return found, []
        return found, to_events(export, new=present is None)

    async def write(self) -> None:
        """Write all waiting sessions in one batch. If that fails, write them one by one, so that only the bad one fails."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        try:
            await self._target.apply(*(event for _, events in waiting for event in events))
        except WeftError:
            for found, events in waiting:
                try:
                    await self._target.apply(*events)
                except WeftError as error:
                    self.results[found.session] = replace(found, outcome="failed", reason=str(error))
        for found, _ in waiting:
            if self.results[found.session].outcome != "failed":
                self.results[found.session] = await self._check_copy(found)

    async def _check_copy(self, found: CopiedSession) -> CopiedSession:
        """Read a session back and compare it with the source."""
        try:
            written = await self._target.get_session(found.session)
            after = digest_session(await read_export(self._target, written))
        except WeftError as error:
            return replace(found, outcome="failed", reason=str(error))
        if after != found.before:
            reason = "the copy that was read back differs from the original"
            return replace(found, outcome="failed", after=after, reason=reason)
        return replace(found, after=after)


def _to_failed(session: SessionInfo, error: WeftError) -> CopiedSession:
    return CopiedSession(session=session.id, title=session.title, outcome="failed", reason=str(error))


async def _copy_projects(source: Store, target: Store, *, dry_run: bool) -> int:
    projects = await source.list_projects()
    for project in projects:
        known = await target.find_project(project.id)
        if not dry_run and (known is None or known.time.updated < project.time.updated):
            await target.apply(ProjectUpdated(info=project))
    return len(projects)


async def _find(store: Store, id: SessionID) -> SessionExport | None:
    try:
        return await read_export(store, await store.get_session(id))
    except UnreadableError as error:
        raise StoreError("the target has a session of this id that cannot be read") from error
    except NotFoundError:
        return None


def _compare_copies(export: SessionExport, present: SessionExport | None) -> CopyOutcome:
    if present is None:
        return "copied"
    if digest_session(export) == digest_session(present):
        return "same"
    newer = export.info.time.updated >= present.info.time.updated
    match compare_states(export, present):
        case "same":
            return "grown" if newer else "ahead"
        case "ahead":
            return "grown" if newer else "differs"
        case "behind":
            return "ahead"
        case "apart":
            return "differs"


def to_events(export: SessionExport, *, new: bool = True) -> list[Durable]:
    """Return the events that create this session."""
    made = SessionCreated(info=export.info) if new else SessionUpdated(info=export.info)
    id = export.info.id
    return [
        made,
        *(MessageUpdated(info=message.info) for message in export.messages),
        *(PartUpdated(part=part) for message in export.messages for part in message.parts),
        *([SessionDiffed(session_id=id, diff=export.diff)] if export.diff or not new else []),
        *([TodoUpdated(session_id=id, todos=export.todos)] if export.todos or not new else []),
    ]

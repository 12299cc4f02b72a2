"""Copy every session of one store into another through the `Store` contract, and compare counts and hashes."""

import hashlib
from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from weft.errors import NotFoundError, WeftError
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
from weft.model.ids import ProjectID, SessionID
from weft.model.session import Session
from weft.model.transfer import SessionExport
from weft.model.wire import encode, parse
from weft.share.records import copy_shares
from weft.store.contract import Key, Store
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


async def read_export(store: Store, session: Session) -> SessionExport:
    return SessionExport(
        info=session,
        messages=tuple(await store.list_messages(session.id)),
        diff=tuple(await store.list_diff(session.id)),
        todos=tuple(await store.list_todos(session.id)),
    )


CopyOutcome = Literal["copied", "same", "grown", "ahead", "differs", "failed"]

BATCH_DOCUMENTS = 1000

SESSION_KEYS = ("session_share", "share", "prompt")
PROJECT_KEYS = ("alias", "permission")


class CopiedSession(Struct, frozen=True, kw_only=True):
    """What happened to one session.

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
    """The result: projects, sessions, and documents of the source that are unreadable and were not copied."""

    projects: int
    moved: tuple[CopiedSession, ...]
    damage: tuple[Damage, ...]

    @property
    def complete(self) -> bool:
        return not self.damage and all(each.outcome not in ("differs", "failed") for each in self.moved)


async def migrate(
    source: Store,
    target: Store,
    *,
    dry_run: bool = False,
    at_once: int = BATCH_DOCUMENTS,
    on_progress: CopyProgress = lambda _, __: None,
) -> Migration:
    """Copy everything. About `at_once` documents are written in one batch, which is much faster than one by one."""
    projects = await _copy_projects(source, target, dry_run=dry_run)
    sessions = await source.list_sessions()
    copier = SessionCopier(source, target, at_once=at_once, dry_run=dry_run)
    for number, session in enumerate(sessions):
        on_progress(number, len(sessions))
        await copier.take(session)
    await copier.write()
    if not dry_run:
        await copy_shares(source, target)
    moved = tuple(copier.moved[session.id] for session in sessions)
    return Migration(projects=projects, moved=moved, damage=tuple(await source.damage()))


class SessionCopier:
    """Compares sessions one by one, writes several in one batch, and reads back what it wrote."""

    def __init__(self, source: Store, target: Store, *, at_once: int, dry_run: bool) -> None:
        self._source = source
        self._target = target
        self._at_once = at_once
        self._dry_run = dry_run
        self._waiting: list[tuple[CopiedSession, list[Durable]]] = []
        self.moved: dict[SessionID, CopiedSession] = {}

    async def take(self, session: Session) -> None:
        try:
            found, events = await self._compare(session)
        except WeftError as error:
            found, events = _to_failed(session, error), []
        self.moved[session.id] = found
        if events:
            self._waiting.append((found, events))
        if sum(len(events) for _, events in self._waiting) >= self._at_once:
            await self.write()

    async def _compare(self, session: Session) -> tuple[CopiedSession, list[Durable]]:
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
        # Private values come first, so that a session in the target has everything that belongs to it.
        keys: list[Key] = [(word, session.id) for word in SESSION_KEYS]
        await _copy_kept(self._source, self._target, keys, dry_run=self._dry_run)
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
                    self.moved[found.session] = replace(found, outcome="failed", reason=str(error))
        for found, _ in waiting:
            if self.moved[found.session].outcome != "failed":
                self.moved[found.session] = await self._check_copy(found)

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


def _to_failed(session: Session, error: WeftError) -> CopiedSession:
    return CopiedSession(session=session.id, title=session.title, outcome="failed", reason=str(error))


async def _copy_projects(source: Store, target: Store, *, dry_run: bool) -> int:
    projects = await source.list_projects()
    for project in projects:
        known = await target.find_project(project.id)
        if not dry_run and (known is None or known.time.updated < project.time.updated):
            await target.apply(ProjectUpdated(info=project))
        await _copy_kept(source, target, [(word, project.id) for word in PROJECT_KEYS], dry_run=dry_run)
    await _copy_kept(source, target, [(word, ProjectID("global")) for word in PROJECT_KEYS], dry_run=dry_run)
    return len(projects)


async def _copy_kept(source: Store, target: Store, keys: list[Key], *, dry_run: bool) -> None:
    for key in keys:
        value = await source.find_value(key)
        if value is not None and not dry_run and await target.find_value(key) is None:
            await target.put_value(key, value)


async def _find(store: Store, id: SessionID) -> SessionExport | None:
    try:
        return await read_export(store, await store.get_session(id))
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

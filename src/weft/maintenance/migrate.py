"""Copy every session of one store into another through their contract, and compare counts and hashes."""

import hashlib
from collections.abc import Callable, Sequence
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
from weft.model.parcel import Parcel
from weft.model.session import Session
from weft.model.wire import encode, parse
from weft.share.records import carry_over
from weft.store.contract import Key, Store
from weft.transfer.intake import relate

Told = Callable[[int, int], None]

_encoder = msgspec.json.Encoder(order="sorted", decimal_format="number")


class Tally(Struct, frozen=True, kw_only=True):
    """A session in numbers, and the hash of its content."""

    session: SessionID
    messages: int
    parts: int
    diffs: int
    todos: int
    hash: str


def tally(parcel: Parcel) -> Tally:
    """Two sessions have the same hash if and only if they say the same; the order of keys says nothing."""
    digest = hashlib.sha256()
    for value in (parcel.info, *parcel.messages, list(parcel.diff), list(parcel.todos)):
        raw = _canonical(value)
        digest.update(b"%d " % len(raw) + raw)
    return Tally(
        session=parcel.info.id,
        messages=len(parcel.messages),
        parts=sum(len(message.parts) for message in parcel.messages),
        diffs=len(parcel.diff),
        todos=len(parcel.todos),
        hash=digest.hexdigest(),
    )


def _canonical(value: Any) -> bytes:
    plain = parse(encode(value))
    try:
        return _encoder.encode(plain)
    except UnicodeEncodeError:
        return encode(_sorted(plain))  # half a surrogate pair: only our own encoder can spell it


def _sorted(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {key: _sorted(plain[key]) for key in sorted(plain)}
    return [_sorted(item) for item in plain] if isinstance(plain, list) else plain


async def read_parcel(store: Store, session: Session) -> Parcel:
    return Parcel(
        info=session,
        messages=tuple(await store.list_messages(session.id)),
        diff=tuple(await store.list_diff(session.id)),
        todos=tuple(await store.list_todos(session.id)),
    )


async def tally_all(store: Store, sessions: Sequence[Session], told: Told) -> list[Tally]:
    tallies: list[Tally] = []
    for number, session in enumerate(sessions):
        told(number, len(sessions))
        tallies.append(tally(await read_parcel(store, session)))
    return tallies


Outcome = Literal["copied", "same", "grown", "ahead", "differs", "failed"]

AT_ONCE = 1000

OF_SESSION = ("session_share", "share", "prompt")
OF_PROJECT = ("alias", "permission")


class Moved(Struct, frozen=True, kw_only=True):
    """What became of one session.

    * `copied`: it was not there; `same`: it was; `grown`: part of it was, and the rest was added;
    * `ahead`: what is there holds all of it and went on; `differs`: both went on, and nothing was changed;
    * `failed`: it could not be read or written, and `reason` says why.
    """

    session: SessionID
    title: str
    outcome: Outcome
    before: Tally | None = None
    after: Tally | None = None
    reason: str = ""


class Migration(Struct, frozen=True, kw_only=True):
    """The whole of it: projects, sessions, and documents of the source that cannot be read and stay behind."""

    projects: int
    moved: tuple[Moved, ...]
    damage: tuple[Damage, ...]

    @property
    def complete(self) -> bool:
        return not self.damage and all(each.outcome not in ("differs", "failed") for each in self.moved)


async def migrate(
    source: Store,
    target: Store,
    *,
    dry_run: bool = False,
    at_once: int = AT_ONCE,
    told: Told = lambda _, __: None,
) -> Migration:
    """Copy everything. About `at_once` documents are written in one piece: that is much faster than one by one."""
    projects = await _copy_projects(source, target, dry_run=dry_run)
    sessions = await source.list_sessions()
    mover = Mover(source, target, at_once=at_once, dry_run=dry_run)
    for number, session in enumerate(sessions):
        told(number, len(sessions))
        await mover.take(session)
    await mover.write()
    if not dry_run:
        await carry_over(source, target)
    moved = tuple(mover.moved[session.id] for session in sessions)
    return Migration(projects=projects, moved=moved, damage=tuple(await source.damage()))


class Mover:
    """Takes sessions one by one, writes several in one piece, and reads back what it wrote."""

    def __init__(self, source: Store, target: Store, *, at_once: int, dry_run: bool) -> None:
        self._source = source
        self._target = target
        self._at_once = at_once
        self._dry_run = dry_run
        self._waiting: list[tuple[Moved, list[Durable]]] = []
        self.moved: dict[SessionID, Moved] = {}

    async def take(self, session: Session) -> None:
        try:
            found, events = await self._compare(session)
        except WeftError as error:
            found, events = _failed(session, error), []
        self.moved[session.id] = found
        if events:
            self._waiting.append((found, events))
        if sum(len(events) for _, events in self._waiting) >= self._at_once:
            await self.write()

    async def _compare(self, session: Session) -> tuple[Moved, list[Durable]]:
        parcel = await read_parcel(self._source, session)
        present = await _find(self._target, session.id)
        outcome = _outcome(parcel, present)
        found = Moved(
            session=session.id,
            title=session.title,
            outcome=outcome,
            before=tally(parcel),
            after=None if present is None else tally(present),
        )
        # What is kept of a session comes before it: a session that is there has all that belongs to it.
        keys: list[Key] = [(word, session.id) for word in OF_SESSION]
        await _copy_kept(self._source, self._target, keys, dry_run=self._dry_run)
        if outcome not in ("copied", "grown") or self._dry_run:
            return found, []
        return found, to_events(parcel, new=present is None)

    async def write(self) -> None:
        """Write what waits, in one piece; where that fails, one session after the other, so that one fails alone."""
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
                self.moved[found.session] = await self._checked(found)

    async def _checked(self, found: Moved) -> Moved:
        """What became of it, as read back."""
        try:
            written = await self._target.get_session(found.session)
            after = tally(await read_parcel(self._target, written))
        except WeftError as error:
            return replace(found, outcome="failed", reason=str(error))
        if after != found.before:
            reason = "what was read back is not what was written"
            return replace(found, outcome="failed", after=after, reason=reason)
        return replace(found, after=after)


def _failed(session: Session, error: WeftError) -> Moved:
    return Moved(session=session.id, title=session.title, outcome="failed", reason=str(error))


async def _copy_projects(source: Store, target: Store, *, dry_run: bool) -> int:
    projects = await source.list_projects()
    for project in projects:
        known = await target.find_project(project.id)
        if not dry_run and (known is None or known.time.updated < project.time.updated):
            await target.apply(ProjectUpdated(info=project))
        await _copy_kept(source, target, [(word, project.id) for word in OF_PROJECT], dry_run=dry_run)
    await _copy_kept(source, target, [(word, ProjectID("global")) for word in OF_PROJECT], dry_run=dry_run)
    return len(projects)


async def _copy_kept(source: Store, target: Store, keys: list[Key], *, dry_run: bool) -> None:
    for key in keys:
        value = await source.kept(key)
        if value is not None and not dry_run and await target.kept(key) is None:
            await target.keep(key, value)


async def _find(store: Store, id: SessionID) -> Parcel | None:
    try:
        return await read_parcel(store, await store.get_session(id))
    except NotFoundError:
        return None


def _outcome(parcel: Parcel, present: Parcel | None) -> Outcome:
    if present is None:
        return "copied"
    if tally(parcel) == tally(present):
        return "same"
    newer = parcel.info.time.updated >= present.info.time.updated
    match relate(parcel, present):
        case "same":
            return "grown" if newer else "ahead"
        case "ahead":
            return "grown" if newer else "differs"
        case "behind":
            return "ahead"
        case "apart":
            return "differs"


def to_events(parcel: Parcel, *, new: bool = True) -> list[Durable]:
    """What happened, so that there is this session."""
    made = SessionCreated(info=parcel.info) if new else SessionUpdated(info=parcel.info)
    id = parcel.info.id
    return [
        made,
        *(MessageUpdated(info=message.info) for message in parcel.messages),
        *(PartUpdated(part=part) for message in parcel.messages for part in message.parts),
        *([SessionDiffed(session_id=id, diff=parcel.diff)] if parcel.diff or not new else []),
        *([TodoUpdated(session_id=id, todos=parcel.todos)] if parcel.todos or not new else []),
    ]

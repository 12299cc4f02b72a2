"""Create, list, change and touch sessions at rest."""

import os
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import ConflictError, InvalidInputError
from weft.host.clock import Clock
from weft.journal import Journal
from weft.model.event import TodoUpdated
from weft.model.ids import Mint, ProjectID, SessionID
from weft.model.input import SessionInput
from weft.model.project import Place
from weft.model.session import (
    Session,
    SessionChange,
    SessionQuery,
    SessionTime,
    Todo,
    default_title,
    make_slug,
    own_of,
    with_own,
    without_secret,
)
from weft.session.tree import child_own, child_rules, select
from weft.store.contract import Store
from weft.version import VERSION

Welcome = Callable[[Session], None]


def unnoticed(_: Session) -> None:
    """For where nobody waits for new sessions."""


class Maker(Struct, frozen=True, kw_only=True):
    """What it takes to make a session: where, when, and names for it."""

    journal: Journal
    clock: Clock
    mint: Mint
    random: Callable[[int], bytes]
    place: Place


async def create(
    maker: Maker,
    input: SessionInput,
    *,
    parent: Session | None = None,
    id: SessionID | None = None,
    directory: str | None = None,
) -> Session:
    """A new session, on disk before anyone learns its id. A child shares its parent's project, and none of its words."""
    now = maker.clock.now()
    session = Session(
        id=id or maker.mint.session(),
        slug=make_slug(maker.random),
        version=VERSION,
        project_id=maker.place.project.id,
        directory=maker.place.directory if directory is None else _checked(directory),
        parent_id=input.parent_id,
        title=input.title or default_title(now, child=input.parent_id is not None),
        permission=input.permission if parent is None else child_rules(input.permission, parent),
        time=SessionTime(created=now, updated=now),
        weft=None if parent is None else child_own(parent),
    )
    await maker.journal.begin(session)
    return session


async def list_sessions(store: Store, project: ProjectID, query: SessionQuery) -> list[Session]:
    """Those that are asked for, newest first."""
    return select(await store.list_sessions(None if query.everywhere else project), query)


async def touch(journal: Journal, session: SessionID, now: int) -> Session:
    """Somebody worked on it just now."""
    return await journal.edit(
        session, lambda it: replace(it, time=replace(it.time, updated=max(now, it.time.updated)))
    )


def _checked(directory: str) -> str:
    if not directory.startswith("/") or "\0" in directory:
        raise InvalidInputError("directory", f"{directory[:80]!r} is no absolute path")
    return directory


TITLE_LIMIT = 1000
TAG_LIMIT = 64
NOTE_LIMIT = 2000


async def edit(
    journal: Journal, id: SessionID, editor: Callable[[Session], Session], *, expected: Session | None = None
) -> Session:
    """Change a session. Raises `ConflictError` if it is no longer as `expected`."""

    def guarded(session: Session) -> Session:
        # As it was shown, which is without its secret.
        if expected is not None and without_secret(session) != without_secret(expected):
            raise ConflictError(
                "session", id, "has changed meanwhile", hint="read it again, then change it again"
            )
        return editor(session)

    return await journal.edit(id, guarded)


def changed(session: Session, change: SessionChange, now: int) -> Session:
    """The session with the change made. That is no work on it: the time of its last use stays."""
    title = session.title if change.title is None else checked_title(change.title)
    own, time = own_of(session), session.time
    tags = dict.fromkeys((*own.tags, *map(checked_tag, change.tag)))
    if change.archived is not None:
        time = replace(time, archived=_changed_archived(time.archived, change.archived, now))
    changed_own = replace(
        own,
        titled=own.titled or change.title is not None,
        pinned=own.pinned if change.pinned is None else change.pinned,
        tags=tuple(tag for tag in tags if tag not in change.untag),
        notes=_changed_notes(own.notes, change),
    )
    permission = session.permission if change.permission is None else change.permission
    return with_own(replace(session, title=title, time=time, permission=permission), changed_own)


def _changed_archived(known: float | None, wanted: bool | float, now: int) -> int | float | None:
    """Return since when a session is archived. OpenCode sets a time and never clears it."""
    match wanted:
        case False:
            return None
        case True:
            return known or now
        case _:
            return wanted


def _changed_notes(notes: tuple[str, ...], change: SessionChange) -> tuple[str, ...]:
    gone = [number for number in change.unnote if not 1 <= number <= len(notes)]
    if gone:
        raise InvalidInputError("note", f"there is no note {gone[0]}", hint=f"there are {len(notes)}")
    kept = (note for number, note in enumerate(notes, 1) if number not in change.unnote)
    return tuple(dict.fromkeys((*kept, *map(checked_note, change.note))))


def checked_note(given: str) -> str:
    note = given.strip()
    if not note or len(note) > NOTE_LIMIT:
        raise InvalidInputError("note", f"it is empty or longer than {NOTE_LIMIT} characters")
    return note


def checked_title(given: str) -> str:
    title = given.strip()
    if not title:
        raise InvalidInputError("title", "it is empty")
    if len(title) > TITLE_LIMIT:
        raise InvalidInputError("title", f"it is longer than {TITLE_LIMIT} characters")
    return title


def checked_tag(given: str) -> str:
    tag = given.strip()
    if not tag or len(tag) > TAG_LIMIT or not tag.isprintable() or "," in tag:
        raise InvalidInputError(
            "tag", f"{given[:80]!r} is none", hint=f"up to {TAG_LIMIT} printable characters, no comma"
        )
    return tag


def plan_path(session: Session, place: Place, plans: str) -> str:
    """In the checkout, where it can be looked at and kept; without one, in `plans`."""
    name = f"{session.time.created}-{session.slug or session.id}.md"
    if place.project.vcs is None:
        return os.path.join(plans, name)
    return os.path.join(place.worktree, ".opencode", "plans", name)


class SessionTodos:
    """The list as a tool sees it."""

    def __init__(self, store: Store, journal: Journal, session: SessionID) -> None:
        self._store = store
        self._journal = journal
        self._session = session

    async def read(self) -> Sequence[Todo]:
        return await self._store.list_todos(self._session)

    async def write(self, todos: Sequence[Todo]) -> None:
        await self._journal.commit(TodoUpdated(session_id=self._session, todos=tuple(todos)))

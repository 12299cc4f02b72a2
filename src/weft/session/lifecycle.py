"""Create, list and change sessions."""

import os
import re
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import ConflictError, InvalidInputError, NotFoundError, UnreadableError
from weft.host.clock import Clock
from weft.journal import Journal
from weft.model.ids import Mint, ProjectID, SessionID
from weft.model.input import SessionInput
from weft.model.project import Place
from weft.model.session import (
    NO_WEFT_DATA,
    SessionChange,
    SessionInfo,
    SessionTime,
    WeftSessionData,
    get_weft_data,
    hide_share_secret,
    make_default_title,
    make_slug,
    with_weft_data,
)
from weft.model.session_query import SessionQuery
from weft.permission.rules import make_child_rules
from weft.session.selection import FamilySearch
from weft.store.contract import Key, SessionEditor, Store
from weft.version import VERSION


class SessionMaker(Struct, frozen=True, kw_only=True):
    """What creating a session needs: where to write, the clock, ids, random bytes, and the place of the session."""

    journal: Journal
    clock: Clock
    mint: Mint
    random: Callable[[int], bytes]
    place: Place


async def create(
    maker: SessionMaker,
    input: SessionInput,
    *,
    parent: SessionInfo | None = None,
    id: SessionID | None = None,
    directory: str | None = None,
) -> SessionInfo:
    """Create and store a session. A child inherits the rules and limits of its parent, but none of its messages."""
    now = maker.clock.now()
    session = SessionInfo(
        id=id or maker.mint.session(),
        slug=make_slug(maker.random),
        version=VERSION,
        project_id=maker.place.project.id,
        directory=maker.place.directory if directory is None else _check_directory(directory),
        parent_id=input.parent_id,
        title=input.title or make_default_title(now, child=input.parent_id is not None),
        permission=input.permission if parent is None else make_child_rules(input.permission, parent),
        time=SessionTime(created=now, updated=now),
        weft=_make_own_data(input) if parent is None else make_child_data(parent),
    )
    await maker.journal.begin(session)
    return session


def _make_own_data(input: SessionInput) -> WeftSessionData | None:
    return None if input.workspace is None else WeftSessionData(workspace=input.workspace)


def make_child_data(parent: SessionInfo) -> WeftSessionData | None:
    """Return what a child inherits from its parent: the limits of its ancestors, the budget that it shares, and the owner."""
    data = get_weft_data(parent)
    inherited = WeftSessionData(limits=data.limits, shared_budget=data.shared_budget, owner=data.owner)
    return None if inherited == NO_WEFT_DATA else inherited


async def list_sessions(store: Store, project: ProjectID, query: SessionQuery) -> list[SessionInfo]:
    """Return the sessions that match a query, newest first."""
    if query.project_id is None and not query.everywhere:
        query = replace(query, project_id=project)
    return await store.query_sessions(query)


async def exists(store: Store, id: SessionID) -> bool:
    """Return True if a session exists, even if its document cannot be read."""
    try:
        await store.get_session(id)
    except UnreadableError:
        return True
    except NotFoundError:
        return False
    return True


async def list_descendants(store: Store, root: SessionID) -> list[SessionInfo]:
    """Return all sessions below one, each after its parent."""
    search = FamilySearch(root)
    while (query := search.next_query()) is not None:
        search.add(await store.query_sessions(query))
    return search.descendants


def make_touch(now: int) -> SessionEditor:
    """Return an editor that sets the time of last use to now."""
    return lambda stored: replace(stored, time=replace(stored.time, updated=max(now, stored.time.updated)))


def _check_directory(directory: str) -> str:
    if not directory.startswith("/") or "\0" in directory:
        raise InvalidInputError("directory", f"{directory[:80]!r} is not an absolute path")
    return directory


MAX_TITLE_LENGTH = 1000
MAX_TAG_LENGTH = 64
MAX_NOTE_LENGTH = 2000
PLAIN_NAME = r"[0-9A-Za-z_-]{1,64}"


async def edit(
    journal: Journal,
    id: SessionID,
    editor: SessionEditor,
    *,
    expected: SessionInfo | None = None,
) -> SessionInfo:
    """Change a session. Raise `ConflictError` if it is no longer as `expected`."""

    def check_and_edit(session: SessionInfo) -> SessionInfo:
        # Clients never see the secret, so it is not compared.
        if expected is not None and hide_share_secret(session) != hide_share_secret(expected):
            raise ConflictError(
                "session", id, "has changed meanwhile", hint="read it again, then change it again"
            )
        return editor(session)

    return await journal.edit(id, check_and_edit)


def refuse_departed(session: SessionInfo) -> None:
    """Raise `ConflictError` if a session was moved to another server, or may have been."""
    departed = get_weft_data(session).departed
    if departed is None:
        return
    if departed.done:
        hint = f"continue it there: weft attach {departed.url} -s {session.id}"
        raise ConflictError("session", session.id, f"was moved to {departed.url}", hint=hint)
    command = f"weft session move {session.id}"
    raise ConflictError(
        "session",
        session.id,
        f"is being moved to {departed.url}",
        hint=f"finish it: {command} --to {departed.url}; or take it back: {command} --cancel",
    )


def refuse_workspace(session: SessionInfo) -> None:
    """Raise `ConflictError` if the files of a session are those of a git workspace, which only its nodes may change."""
    workspace = get_weft_data(session).workspace
    if workspace:
        raise ConflictError(
            "session",
            session.id,
            f"is in the git workspace {workspace}, and only nodes have its files",
            hint=f"do it through a node: weft attach URL -s {session.id}",
        )


def apply_change(session: SessionInfo, change: SessionChange, now: int) -> SessionInfo:
    """Return the session with the change applied. The time of last use stays."""
    title = session.title if change.title is None else check_title(change.title)
    data, time = get_weft_data(session), session.time
    tags = dict.fromkeys((*data.tags, *map(check_tag, change.tag)))
    if change.archived is not None:
        time = replace(time, archived=_change_archived(time.archived, change.archived, now))
    changed_data = replace(
        data,
        titled=data.titled or change.title is not None,
        pinned=data.pinned if change.pinned is None else change.pinned,
        tags=tuple(tag for tag in tags if tag not in change.untag),
        notes=_change_notes(data.notes, change),
    )
    permission = session.permission if change.permission is None else change.permission
    return with_weft_data(replace(session, title=title, time=time, permission=permission), changed_data)


def _change_archived(current: float | None, requested: bool | float, now: int) -> int | float | None:
    """Return the time when a session was archived, or None. OpenCode never clears it."""
    match requested:
        case False:
            return None
        case True:
            return current or now
        case _:
            return requested


def _change_notes(notes: tuple[str, ...], change: SessionChange) -> tuple[str, ...]:
    unknown = [number for number in change.unnote if not 1 <= number <= len(notes)]
    if unknown:
        raise InvalidInputError(
            "note",
            f"there is no note {unknown[0]}",
            hint=f"it has the notes 1 to {len(notes)}" if notes else "it has no notes",
        )
    kept = (note for number, note in enumerate(notes, 1) if number not in change.unnote)
    return tuple(dict.fromkeys((*kept, *map(check_note, change.note))))


def check_note(text: str) -> str:
    """Return a note without surrounding spaces. Raise `InvalidInputError` if it is not valid."""
    note = text.strip()
    if not note or len(note) > MAX_NOTE_LENGTH:
        reason = f"it is longer than {MAX_NOTE_LENGTH} characters" if note else "it is empty"
        raise InvalidInputError("note", reason, hint=f"write up to {MAX_NOTE_LENGTH} characters")
    return note


def check_title(text: str) -> str:
    """Return a title without surrounding spaces. Raise `InvalidInputError` if it is not valid."""
    title = text.strip()
    if not title:
        raise InvalidInputError("title", "it is empty", hint=f"write up to {MAX_TITLE_LENGTH} characters")
    if len(title) > MAX_TITLE_LENGTH:
        raise InvalidInputError(
            "title", f"it is longer than {MAX_TITLE_LENGTH} characters", hint="shorten it"
        )
    return title


def check_tag(text: str) -> str:
    """Return a tag without surrounding spaces. Raise `InvalidInputError` if it is not valid."""
    tag = text.strip()
    if not tag or len(tag) > MAX_TAG_LENGTH or not tag.isprintable() or "," in tag:
        raise InvalidInputError(
            "tag",
            f"{text[:80]!r} is not a tag",
            hint=f"up to {MAX_TAG_LENGTH} printable characters, no comma",
        )
    return tag


def briefing_key(session: SessionID) -> Key:
    """Return the store key of the briefing, which the model gets before the conversation. The value is deleted with the session."""
    return ("prompt", session)


def get_plan_path(session: SessionInfo, place: Place, plans: str) -> str:
    """Return the path of a session's plan file: in the checkout, so that it can be committed, else in `plans`."""
    # An imported session may have any slug, also one that leads to another directory.
    slug = session.slug if re.fullmatch(PLAIN_NAME, session.slug) else session.id
    name = f"{session.time.created}-{slug}.md"
    if place.project.vcs is None:
        return os.path.join(plans, name)
    return os.path.join(place.worktree, ".opencode", "plans", name)

"""Edit: change what is known of a session in one step, and only if it still is as somebody saw it."""

from collections.abc import Callable

from msgspec.structs import replace

from weft.errors import ConflictError, InvalidInputError
from weft.journal import Journal
from weft.model.ids import SessionID
from weft.model.session import Session, SessionChange, own_of, with_own, without_secret

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

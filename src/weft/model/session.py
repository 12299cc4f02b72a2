"""Session values: a conversation at rest, its filters and changes, todos, slug and status."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

from msgspec import UNSET
from msgspec.structs import replace

from weft.model.diff import FileDiff, FileFate, Patch
from weft.model.ids import MessageID, PartID, ProjectID, SessionID
from weft.model.permission import Limits, Ruleset
from weft.model.spending import Ledger
from weft.model.wire import Wire, always

DEFAULT_TITLE = "New session - "
DEFAULT_CHILD_TITLE = "Child session - "
_DEFAULT = re.compile(r"(New|Child) session - \d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z", re.ASCII)


class SessionTime(Wire, frozen=True, kw_only=True):
    created: int
    updated: int
    compacting: int | None = None
    # OpenCode stores whatever number a client sends, with a fraction, too.
    archived: int | float | None = None


class SessionSummary(Wire, frozen=True, kw_only=True):
    """What a session did to files, in numbers. `diffs` stood here in old versions."""

    additions: int = always(0)
    deletions: int = always(0)
    files: int = always(0)
    diffs: tuple[FileDiff, ...] | None = None


class SessionShare(Wire, frozen=True, kw_only=True):
    url: str


class SessionRevert(Wire, frozen=True, kw_only=True):
    """The session was taken back to here; `diff` is what that did to files, `snapshot` how they stood before (in
    OpenCode's; our way back is in `SessionOwn.undo`)."""

    message_id: MessageID
    part_id: PartID | None = None
    snapshot: str | None = None
    diff: str | None = None


class ForkedFrom(Wire, frozen=True, kw_only=True):
    """Where a fork comes from, and the message it stops short of; a fork of everything stops short of none."""

    session_id: SessionID
    message_id: MessageID | None = None


class SessionOwn(Wire, frozen=True, kw_only=True):
    """What we know of a session and OpenCode does not. `titled` when a person chose the title: it is final then.

    `limits` are the rules of those above it, which have a say in it too. `undo` leads back from where the session was
    taken to, oldest first; `restored` names the last change of files by that which is to stand.
    """

    titled: bool = False
    pinned: bool = False
    tags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    forked_from: ForkedFrom | None = None
    spent: Ledger | None = None
    limits: Limits = ()
    undo: tuple[Patch, ...] = ()
    restored: str = ""


NOTHING_OWN = SessionOwn()


class Session(Wire, frozen=True, kw_only=True):
    """A conversation. Fields that early versions did not write are empty when absent. `weft` holds what is ours alone."""

    id: SessionID
    slug: str = ""
    version: str = ""
    project_id: ProjectID = ProjectID("")
    directory: str = ""
    parent_id: SessionID | None = None
    title: str = ""
    permission: Ruleset | None = None
    time: SessionTime
    summary: SessionSummary | None = None
    share: SessionShare | None = None
    revert: SessionRevert | None = None
    weft: SessionOwn | None = None


class Reverted(Wire, frozen=True, kw_only=True):
    """A session that was taken back, or brought forward again, and what became of each file. If it was only asked what
    would happen, the session is as it was. `caution` says what else may have been changed, and is not among the files."""

    session: Session
    files: tuple[FileFate, ...] = always(())
    caution: str = ""


class SessionTree(Wire, frozen=True, kw_only=True):
    """A session and all that is below it, oldest first."""

    session: Session
    children: tuple["SessionTree", ...] = always(())


Order = Literal["created", "updated"]


class SessionQuery(Wire, frozen=True, kw_only=True):
    """Which sessions to list. What is not said does not matter.

    `start` is the earliest time of last work (ms), `search` words of the title, `archived` whether only archived ones
    or none of them are wanted. `everywhere` looks beyond the project. `order` is newest first, by what.
    """

    roots: bool = False
    start: int | None = None
    search: str | None = None
    tag: str | None = None
    directory: str | None = None
    archived: bool | None = None
    everywhere: bool = False
    order: Order = "created"
    limit: int | None = None


EVERY = SessionQuery()


class SessionChange(Wire, frozen=True, kw_only=True):
    """What of a session is to be another. What is not said stays. Notes are taken away by number, counted from one.

    `archived` is a time since when (ms), or true for now, or false to bring the session back.
    """

    title: str | None = None
    archived: bool | int | float | None = None
    pinned: bool | None = None
    tag: tuple[str, ...] = ()
    untag: tuple[str, ...] = ()
    note: tuple[str, ...] = ()
    unnote: tuple[int, ...] = ()
    permission: Ruleset | None = None


class Trashed(Wire, frozen=True, kw_only=True):
    """A bundle in the trash: the sessions in it, the one it is named for first, and since when (ms)."""

    id: str
    time: int
    sessions: tuple[Session, ...]


def bundle_name(at: int, first: SessionID) -> str:
    """A bundle's name says since when, then of whom: names sort by age."""
    return f"{at}-{first}"


def without_secret(session: Session) -> Session:
    """The session as it is shown. OpenCode's auto-share leaves the secret of a share in it, where it stays."""
    share = session.share
    if share is None or share.extra_ is UNSET or "secret" not in share.extra_:
        return session
    rest = {name: item for name, item in share.extra_.items() if name != "secret"}
    return replace(session, share=replace(share, extra_=rest or UNSET))


def is_archived(session: Session) -> bool:
    """Return whether the session is put away. As OpenCode's clients read it, the time 0 means that it is not."""
    return bool(session.time.archived)


def own_of(session: Session) -> SessionOwn:
    return session.weft or NOTHING_OWN


def with_own(session: Session, own: SessionOwn) -> Session:
    """The session with this in place of what was ours; a document that has nothing of ours does not say so."""
    return replace(session, weft=None if own == NOTHING_OWN else own)


def may_be_titled(session: Session) -> bool:
    """Whether a title may be made up for it: nobody has named it yet."""
    return is_default_title(session.title) and not own_of(session).titled


def default_title(now: int, *, child: bool = False) -> str:
    """The title of a session nobody has named yet: it says when."""
    at = datetime.fromtimestamp(now / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return (DEFAULT_CHILD_TITLE if child else DEFAULT_TITLE) + at


def is_default_title(title: str) -> bool:
    return _DEFAULT.fullmatch(title) is not None


def newest_first(session: Session) -> tuple[int, str]:
    """Sort key: newest created first. The id only makes a tie stable."""
    return -session.time.created, session.id


class Todo(Wire, frozen=True, kw_only=True):
    """Status is pending, in_progress, completed or cancelled; priority high, medium or low. Nobody enforces it."""

    content: str
    status: str
    priority: str
    id: str = ""


FIRST = (
    "amber", "brisk", "calm", "clear", "copper", "dapper", "early", "fair", "fleet", "gentle", "golden", "hardy",
    "humble", "ivory", "jolly", "keen", "light", "lunar", "mellow", "nimble", "olive", "patient", "quick", "rustic",
    "silver", "steady", "tidy", "vivid", "warm", "wry",
)  # fmt: skip
SECOND = (
    "anchor", "aspen", "badger", "beacon", "birch", "bobbin", "brook", "cedar", "comet", "curlew", "fern", "finch",
    "garnet", "harbor", "heron", "juniper", "lantern", "loom", "maple", "meadow", "otter", "pebble", "quartz", "reed",
    "shuttle", "sparrow", "thistle", "thread", "tiller", "walnut", "willow", "wren",
)  # fmt: skip


def make_slug(random: Callable[[int], bytes]) -> str:
    one, two, three, four = random(4)
    return f"{FIRST[(one << 8 | two) % len(FIRST)]}-{SECOND[(three << 8 | four) % len(SECOND)]}"


class Status(Wire, frozen=True, kw_only=True, tag_field="type"):
    pass


class Idle(Status, frozen=True, kw_only=True, tag="idle"):
    """Nothing runs."""


class Busy(Status, frozen=True, kw_only=True, tag="busy"):
    """A run is under way. It stands still while a person has yet to answer what it is `waiting_for`: the ids of
    permission requests and questions.

    OpenCode knows no such state. A field more on `busy` is passed over by its clients; a fourth type would not be.
    """

    waiting_for: tuple[str, ...] = ()


class Retry(Status, frozen=True, kw_only=True, tag="retry"):
    """A run waits to try again at `next` (ms)."""

    attempt: int
    message: str
    next: int


AnyStatus = Idle | Busy | Retry

"""Sessions: their record, changes, todos, slug and status."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

from msgspec import UNSET
from msgspec.structs import replace

from weft.model.diff import FileDiff, FileFate, Patch
from weft.model.ids import MessageID, PartID, ProjectID, SessionID
from weft.model.move import SessionArrival, SessionDeparture, SessionResumption
from weft.model.permission import Ruleset, Rulesets
from weft.model.spending import Ledger, SharedBudget
from weft.model.wire import Wire, always

DEFAULT_TITLE = "New session - "
DEFAULT_CHILD_TITLE = "Child session - "
_DEFAULT_TITLE_PATTERN = r"(?a)(New|Child) session - \d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z"


class SessionTime(Wire, frozen=True, kw_only=True):
    created: int
    updated: int
    compacting: int | None = None
    # OpenCode stores any number that a client sends, also with a fraction.
    archived: int | float | None = None


class SessionSummary(Wire, frozen=True, kw_only=True):
    """The number of changed lines and files. Old versions of OpenCode stored `diffs` here."""

    additions: int = always(0)
    deletions: int = always(0)
    files: int = always(0)
    diffs: tuple[FileDiff, ...] | None = None


class SessionShare(Wire, frozen=True, kw_only=True):
    url: str


class SessionRevert(Wire, frozen=True, kw_only=True):
    """The message that the session was reverted to, and the diff of the files.

    `snapshot` is OpenCode's state before the revert; weft stores its own in `WeftSessionData.undo`.
    """

    message_id: MessageID
    part_id: PartID | None = None
    snapshot: str | None = None
    diff: str | None = None


class ForkedFrom(Wire, frozen=True, kw_only=True):
    """The session that a fork was made from, and the first message that was not copied, if any."""

    session_id: SessionID
    message_id: MessageID | None = None


CheckOutcome = Literal["passed", "failed", "hung"]
DEFAULT_CHECK_SECONDS = 600


class CheckResult(Wire, frozen=True, kw_only=True):
    """How a check command ended. `hung` means that it was ended because it took too long.

    `code` is its exit code, `output` the end of what it printed. `dirtied` are the files that it changed; they were put
    back. `tree` is the hash of the files that were checked.
    """

    command: str
    outcome: CheckOutcome
    code: int | None = None
    ms: int = always(0)
    output: str = always("")
    dirtied: tuple[str, ...] = always(())
    tree: str = ""


class TrialData(Wire, frozen=True, kw_only=True):
    """The place of a session among the trials of a prompt.

    `base` is the commit with the files at its start. `check` is the command that judges the result, `checked` its last result.
    """

    group: str
    number: int
    count: int
    base: str
    worktree: str
    check: str = ""
    check_seconds: int = DEFAULT_CHECK_SECONDS
    checked: CheckResult | None = None


class WeftSessionData(Wire, frozen=True, kw_only=True):
    """Data of a session that OpenCode does not have. `titled` means that a person chose the title, which is then final.

    `limits` are the rules of parent sessions, which also apply. `undo` are the patches that lead back from a revert, oldest
    first. `restored` is the label of the last undo or redo of files that was stored: after a crash, an interrupted one with this
    label is finished, and any other is rolled back. `shared_budget` also limits its children, `trial` is its place among the
    trials of one prompt. `owner` is the principal that the session belongs to; without one it is the
    administrator's. `departed` says to which server it was moved: from then on it continues only there. `arrived` says where it
    came from. `workspace` is the git workspace that it has a checkout in, `resumed` says that another node continued it.
    """

    titled: bool = False
    pinned: bool = False
    tags: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    forked_from: ForkedFrom | None = None
    spent: Ledger | None = None
    limits: Rulesets = ()
    undo: tuple[Patch, ...] = ()
    restored: str = ""
    shared_budget: SharedBudget | None = None
    trial: TrialData | None = None
    owner: str = ""
    departed: SessionDeparture | None = None
    arrived: SessionArrival | None = None
    workspace: str = ""
    resumed: SessionResumption | None = None


NO_WEFT_DATA = WeftSessionData()


class SessionInfo(Wire, frozen=True, kw_only=True):
    """A session. Fields that early versions of OpenCode did not write are empty. `weft` holds data that OpenCode does not have."""

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
    weft: WeftSessionData | None = None


class RevertResult(Wire, frozen=True, kw_only=True):
    """The session after a revert or unrevert, and the result for each file. After a dry run the session is unchanged.

    `caution` says which changes the undo does not know, so that it left them as they are.
    """

    session: SessionInfo
    files: tuple[FileFate, ...] = always(())
    caution: str = ""


class SessionTree(Wire, frozen=True, kw_only=True):
    """A session with its descendants, oldest first."""

    session: SessionInfo
    children: tuple["SessionTree", ...] = always(())


class SessionChange(Wire, frozen=True, kw_only=True):
    """A change of a session. Fields that are not set stay as they are. `unnote` removes notes by number, from 1.

    `archived` is a time (ms), True for now, or False to unarchive the session.
    """

    title: str | None = None
    archived: bool | int | float | None = None
    pinned: bool | None = None
    tag: tuple[str, ...] = ()
    untag: tuple[str, ...] = ()
    note: tuple[str, ...] = ()
    unnote: tuple[int, ...] = ()
    permission: Ruleset | None = None


class TrashBundle(Wire, frozen=True, kw_only=True):
    """Sessions that were removed together, the topmost first, and the time of removal (ms)."""

    id: str
    time: int
    sessions: tuple[SessionInfo, ...]


def make_bundle_name(time: int, first: SessionID) -> str:
    """Return the name of a trash bundle: the time, then the first session, so that names sort by age."""
    return f"{time}-{first}"


def hide_share_secret(session: SessionInfo) -> SessionInfo:
    """Return the session without the secret of its share, which OpenCode's auto-share stores in the session."""
    share = session.share
    if share is None or share.extra_ is UNSET or "secret" not in share.extra_:
        return session
    rest = {name: item for name, item in share.extra_.items() if name != "secret"}
    return replace(session, share=replace(share, extra_=rest or UNSET))


def is_archived(session: SessionInfo) -> bool:
    """Return True if the session is archived. As in OpenCode's clients, the time 0 means that it is not."""
    return bool(session.time.archived)


def get_weft_data(session: SessionInfo) -> WeftSessionData:
    return session.weft or NO_WEFT_DATA


def get_ledger(session: SessionInfo) -> Ledger:
    # A message older than its session was copied by a fork, and counts in the original. OpenCode counts it in both.
    return get_weft_data(session).spent or Ledger(until=session.time.created - 1)


def with_weft_data(session: SessionInfo, data: WeftSessionData) -> SessionInfo:
    """Replace the weft data of a session. Empty data is stored as None, so that it is not written."""
    return replace(session, weft=None if data == NO_WEFT_DATA else data)


def get_owner(session: SessionInfo) -> str:
    return session.weft.owner if session.weft is not None else ""


def with_owner(session: SessionInfo, owner: str) -> SessionInfo:
    """Return the session as one of this principal; with "" as one of the administrator's."""
    return (
        session
        if get_owner(session) == owner
        else with_weft_data(session, replace(get_weft_data(session), owner=owner))
    )


def may_be_titled(session: SessionInfo) -> bool:
    """Return True if a title may be generated, because no person has chosen one."""
    return is_default_title(session.title) and not get_weft_data(session).titled


def make_default_title(now: int, *, child: bool = False) -> str:
    """Return the default title of a new session, which contains the time."""
    time = datetime.fromtimestamp(now / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return (DEFAULT_CHILD_TITLE if child else DEFAULT_TITLE) + time


def is_default_title(title: str) -> bool:
    return re.fullmatch(_DEFAULT_TITLE_PATTERN, title) is not None


def newest_sort_key(session: SessionInfo) -> tuple[int, str]:
    """Return the sort key for newest created first. The id makes the order of ties stable."""
    return -session.time.created, session.id


class Todo(Wire, frozen=True, kw_only=True):
    """A todo. By convention, status is pending, in_progress, completed or cancelled, and priority high, medium or low."""

    content: str
    status: str
    priority: str
    id: str = ""


SLUG_ADJECTIVES = (
    "amber", "brisk", "calm", "clear", "copper", "dapper", "early", "fair", "fleet", "gentle", "golden", "hardy",
    "humble", "ivory", "jolly", "keen", "light", "lunar", "mellow", "nimble", "olive", "patient", "quick", "rustic",
    "silver", "steady", "tidy", "vivid", "warm", "wry",
)  # fmt: skip
SLUG_NOUNS = (
    "anchor", "aspen", "badger", "beacon", "birch", "bobbin", "brook", "cedar", "comet", "curlew", "fern", "finch",
    "garnet", "harbor", "heron", "juniper", "lantern", "loom", "maple", "meadow", "otter", "pebble", "quartz", "reed",
    "shuttle", "sparrow", "thistle", "thread", "tiller", "walnut", "willow", "wren",
)  # fmt: skip


def make_slug(random: Callable[[int], bytes]) -> str:
    a, b, c, d = random(4)
    return (
        f"{SLUG_ADJECTIVES[(a << 8 | b) % len(SLUG_ADJECTIVES)]}-{SLUG_NOUNS[(c << 8 | d) % len(SLUG_NOUNS)]}"
    )


class Status(Wire, frozen=True, kw_only=True, tag_field="type"):
    pass


class Idle(Status, frozen=True, kw_only=True, tag="idle"):
    """The session is not running."""


class Busy(Status, frozen=True, kw_only=True, tag="busy"):
    """The session is running. `waiting_for` are the ids of open permission requests and questions.

    If no node of a cluster can do the session's work now, `waits` says what it waits for. OpenCode does not have these
    fields. Its clients ignore an additional field of `busy`, but not an additional type.
    """

    waiting_for: tuple[str, ...] = ()
    waits: str = ""


class Retry(Status, frozen=True, kw_only=True, tag="retry"):
    """The run waits for the next attempt at `next` (ms)."""

    attempt: int
    message: str
    next: int


AnyStatus = Idle | Busy | Retry

"""Session: one conversation with an agent, at rest."""

import re
from datetime import UTC, datetime

from weft.model.diff import FileDiff
from weft.model.ids import MessageID, PartID, ProjectID, SessionID
from weft.model.permission import Ruleset
from weft.model.wire import Wire, always

DEFAULT_TITLE = "New session - "
DEFAULT_CHILD_TITLE = "Child session - "
_DEFAULT = re.compile(r"(New|Child) session - \d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z", re.ASCII)


class SessionTime(Wire, frozen=True, kw_only=True):
    created: int
    updated: int
    compacting: int | None = None
    archived: int | None = None


class SessionSummary(Wire, frozen=True, kw_only=True):
    """What a session did to files, in numbers. `diffs` stood here in old versions."""

    additions: int = always(0)
    deletions: int = always(0)
    files: int = always(0)
    diffs: tuple[FileDiff, ...] | None = None


class SessionShare(Wire, frozen=True, kw_only=True):
    url: str


class SessionRevert(Wire, frozen=True, kw_only=True):
    """The session was taken back to here; `snapshot` is how the files stood before that."""

    message_id: MessageID
    part_id: PartID | None = None
    snapshot: str | None = None
    diff: str | None = None


class Session(Wire, frozen=True, kw_only=True):
    """A conversation. Fields that early versions did not write are empty when absent."""

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


def default_title(now: int, *, child: bool = False) -> str:
    """The title of a session nobody has named yet: it says when."""
    at = datetime.fromtimestamp(now / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return (DEFAULT_CHILD_TITLE if child else DEFAULT_TITLE) + at


def is_default_title(title: str) -> bool:
    return _DEFAULT.fullmatch(title) is not None


def newest_first(session: Session) -> tuple[int, str]:
    """Sort key: newest created first. The id only makes a tie stable."""
    return -session.time.created, session.id

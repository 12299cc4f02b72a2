"""Results of searches, and statistics of sessions."""

from weft.model.ids import MessageID, ProjectID, SessionID
from weft.model.spending import Spent
from weft.model.wire import Wire


class Hit(Wire, frozen=True, kw_only=True):
    """A session that matches a search, with the best match: a message, or the title if there is no message.

    `marks` are the character ranges of the words in the snippet. `at` is the time of the message.
    """

    session_id: SessionID
    project_id: ProjectID
    message_id: MessageID | None
    title: str
    updated: int
    archived: bool
    at: int
    snippet: str
    marks: tuple[tuple[int, int], ...]


class UsageShare(Wire, frozen=True, kw_only=True):
    """The part of one day, one model or one project in the totals."""

    name: str
    sessions: int
    messages: int
    spent: Spent


class ToolUse(Wire, frozen=True, kw_only=True):
    """The number of calls of a tool, and of failed calls."""

    name: str
    calls: int
    failed: int


class Figures(Wire, frozen=True, kw_only=True):
    """Statistics of sessions. Days are in order, models and projects by cost, tools by use, highest first.

    `days` is the number of days that they cover. Tokens of a session are counted as in OpenCode, without cached ones.
    """

    sessions: int
    messages: int
    days: int
    spent: Spent
    by_day: tuple[UsageShare, ...]
    models: tuple[UsageShare, ...]
    projects: tuple[UsageShare, ...]
    tools: tuple[ToolUse, ...]
    average_tokens: int
    median_tokens: int


class HistoryMatch(Wire, frozen=True, kw_only=True):
    """A match in another session of the project: who wrote it, when, and the text around it. A match in the title has no message."""

    session_id: SessionID
    title: str
    message_id: MessageID | None
    by: str
    at: int
    excerpt: str


class RecallMatch(Wire, frozen=True, kw_only=True):
    """A match in the conversation of one session: who wrote it or which tool returned it, and the text around it."""

    message_id: MessageID
    by: str
    excerpt: str

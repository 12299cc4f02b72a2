"""Results of searching and counting sessions."""

from weft.model.ids import MessageID, ProjectID, SessionID
from weft.model.spending import Spent
from weft.model.wire import Wire


class Hit(Wire, frozen=True, kw_only=True):
    """A session in which words were found, and the best place: a message, or the title when there is no message.

    `marks` says from which to which character of the snippet the words stand; `at` is when it was said.
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


class Share(Wire, frozen=True, kw_only=True):
    """What one day, one model or one project had of it all."""

    name: str
    sessions: int
    messages: int
    spent: Spent


class ToolUse(Wire, frozen=True, kw_only=True):
    """How often a tool was called, and how often that failed."""

    name: str
    calls: int
    failed: int


class Figures(Wire, frozen=True, kw_only=True):
    """Sessions in numbers. Days come in order; models and projects dearest first, tools most used first.

    `days` is how many they cover. Tokens of a session are counted as OpenCode does, without what a cache gave.
    """

    sessions: int
    messages: int
    days: int
    spent: Spent
    by_day: tuple[Share, ...]
    models: tuple[Share, ...]
    projects: tuple[Share, ...]
    tools: tuple[ToolUse, ...]
    average_tokens: int
    median_tokens: int


class Recalled(Wire, frozen=True, kw_only=True):
    """A place where the words were found: who said it, or which tool brought it, and the text around."""

    message_id: MessageID
    by: str
    excerpt: str

"""Who wrote the lines of a file: the authors, the lines, and the history of a file by sessions."""

from decimal import Decimal
from typing import Literal

from weft.model.ids import MessageID, SessionID
from weft.model.wire import Wire, always

AuthorKind = Literal["session", "person", "unknown"]


class Author(Wire, frozen=True, kw_only=True):
    """Who wrote a line. Only a `session` has the other fields: the step, its call, its prompt and its model.

    `step` is the number of the step in its session, from 1. `cost` is that of the whole step. `path` is the name that the file
    had then.
    """

    kind: AuthorKind
    session_id: SessionID | None = None
    title: str = ""
    step_id: MessageID | None = None
    step: int = 0
    call_id: str = ""
    tool: str = ""
    prompt_id: MessageID | None = None
    prompt: str = ""
    agent: str = ""
    provider_id: str = ""
    model_id: str = ""
    time: int | None = None
    cost: Decimal | None = None
    priced: bool = True
    path: str = ""


class BlameLine(Wire, frozen=True, kw_only=True):
    """A line of a file: its number from 1, its text, and its author as an index into the list of authors."""

    number: int
    text: str
    author: int


class FileBlame(Wire, frozen=True, kw_only=True):
    """The lines of a file with their authors. `note` says what is not known, and why.

    `path` is relative to the top of the checkout. `revision` is the commit that is checked out, if there is one.
    """

    path: str
    lines: tuple[BlameLine, ...]
    authors: tuple[Author, ...]
    note: str = always("")
    revision: str | None = None


class FileStep(Wire, frozen=True, kw_only=True):
    """A change of a file by a step: its author, and how many lines it added and removed; None if that is not recorded."""

    author: Author
    additions: int | None = None
    deletions: int | None = None
    undone: bool = False


class FileLog(Wire, frozen=True, kw_only=True):
    """The changes of a file by sessions, newest first. `note` says what is not known, and why."""

    path: str
    steps: tuple[FileStep, ...]
    note: str = always("")

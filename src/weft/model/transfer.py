"""A session as it is exported and imported, and the result of an import."""

from typing import Literal

from weft.model.diff import FileDiff
from weft.model.ids import SessionID
from weft.model.message import MessageWithParts
from weft.model.session import SessionInfo, Todo
from weft.model.wire import Wire, always

ImportVerdict = Literal["new", "same", "updated", "older", "forked"]


class SessionExport(Wire, frozen=True, kw_only=True):
    """A session with all its data. Without todos and diff it is exactly what OpenCode exports."""

    info: SessionInfo
    messages: tuple[MessageWithParts, ...]
    todos: tuple[Todo, ...] = ()
    diff: tuple[FileDiff, ...] = ()


class ExportCounts(Wire, frozen=True, kw_only=True):
    messages: int = always(0)
    parts: int = always(0)
    todos: int = always(0)
    diffs: int = always(0)


class ImportResult(Wire, frozen=True, kw_only=True):
    """The result of importing one session.

    * `new`: it did not exist here. `same`: it existed with the same contents.
    * `older`: the one here has all its contents and more, so nothing was imported.
    * `updated`: its newer or additional contents were added to the one here.
    * `forked`: both had changed, so it was stored under new ids.

    `origin` is its id at the source, `id` its id here. `before` counts the contents at the source, `after` those here.
    `digest` is computed over the contents and must be the same on both sides.
    """

    id: SessionID
    origin: SessionID
    title: str
    verdict: ImportVerdict
    before: ExportCounts
    after: ExportCounts
    digest: str


def count_export(export: SessionExport) -> ExportCounts:
    return ExportCounts(
        messages=len(export.messages),
        parts=sum(len(message.parts) for message in export.messages),
        todos=len(export.todos),
        diffs=len(export.diff),
    )


def add_counts(counts: list[ExportCounts]) -> ExportCounts:
    return ExportCounts(
        messages=sum(each.messages for each in counts),
        parts=sum(each.parts for each in counts),
        todos=sum(each.todos for each in counts),
        diffs=sum(each.diffs for each in counts),
    )

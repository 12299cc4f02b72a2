"""Parcel: a session with all that belongs to it, on its way from one store to another."""

from typing import Literal

from weft.model.diff import FileDiff
from weft.model.ids import SessionID
from weft.model.message import MessageWithParts
from weft.model.session import Session, Todo
from weft.model.wire import Wire, always

Verdict = Literal["new", "same", "updated", "older", "forked"]


class Parcel(Wire, frozen=True, kw_only=True):
    """A session, whole. Without todos and diff it is, to the letter, what OpenCode exports."""

    info: Session
    messages: tuple[MessageWithParts, ...]
    todos: tuple[Todo, ...] = ()
    diff: tuple[FileDiff, ...] = ()


class Counts(Wire, frozen=True, kw_only=True):
    messages: int = always(0)
    parts: int = always(0)
    todos: int = always(0)
    diffs: int = always(0)


class Received(Wire, frozen=True, kw_only=True):
    """What became of a session that was brought here.

    * `new`: it was not here; `same`: it was, to the word; `older`: what is here holds all of it and more;
    * `updated`: what it had more, or newer, was added to what is here;
    * `forked`: both had gone on, so it is kept beside the other under new ids.

    `origin` is its id where it came from, `id` its id here. `before` counts what its source holds, `after` what came of
    it here; `digest` is of what it says, the same on both sides or the import has failed.
    """

    id: SessionID
    origin: SessionID
    title: str
    verdict: Verdict
    before: Counts
    after: Counts
    digest: str


def count(parcel: Parcel) -> Counts:
    return Counts(
        messages=len(parcel.messages),
        parts=sum(len(message.parts) for message in parcel.messages),
        todos=len(parcel.todos),
        diffs=len(parcel.diff),
    )


def total(counts: list[Counts]) -> Counts:
    return Counts(
        messages=sum(each.messages for each in counts),
        parts=sum(each.parts for each in counts),
        todos=sum(each.todos for each in counts),
        diffs=sum(each.diffs for each in counts),
    )

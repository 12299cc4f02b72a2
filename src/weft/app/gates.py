"""The gate and the questions of a directory, put together out of the books and the settings."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct

from weft.app.books import kept_asked, kept_grants, log_of
from weft.config.schema import Asking, Config
from weft.errors import BlockedError
from weft.host.clock import SystemClock
from weft.host.tasks import open_tasks
from weft.model.event import Event
from weft.model.ids import Mint, ProjectID
from weft.model.permission import Grant, PermissionRequest
from weft.permission.asked import Asked
from weft.permission.audit import Audit
from weft.permission.gate import Books, Gate
from weft.permission.questions import Questions
from weft.permission.shelf import FileShelf, MemoryShelf, Shelf
from weft.permission.terms import Around, Consult, Ruling, Terms
from weft.plugin.hooks import PERMISSION_ASK, Hooks, PermissionAnswer


class Permitting(Struct, frozen=True, kw_only=True):
    """On which terms a person is asked, and the directory of the books; without one they are kept in memory."""

    terms: Terms = Terms()
    directory: str = ""


def to_terms(vouched: Config, *, person: str, owner: str, answered: bool) -> Terms:
    """What the configuration says, as far as somebody has vouched for it."""
    own = vouched.experimental.weft if vouched.experimental else None
    said = (own.asking if own else None) or Asking()
    return Terms(
        answered=answered,
        unanswered=said.unanswered or "deny",
        timeout_seconds=said.timeout,
        always=said.always or "session",
        person=person,
        owner=owner,
    )


def consulting(hooks: Hooks) -> Consult:
    """Plugins, as the gate knows them."""

    async def consult(request: PermissionRequest) -> Ruling:
        if not hooks.any(PERMISSION_ASK):
            return Ruling()
        try:
            answer = await hooks.ask(PERMISSION_ASK, request, PermissionAnswer(status="ask"))
        except BlockedError as error:
            return Ruling(status="deny", reason=str(error))
        return Ruling(status=answer.status)

    return consult


@asynccontextmanager
async def open_gates(permitting: Permitting, around: Around) -> AsyncIterator[tuple[Gate, Questions]]:
    """Both for one directory. Leaving writes what is not in the log yet."""
    books, terms = open_books(permitting.directory, around), permitting.terms
    gate, questions = Gate(books, around, terms), Questions(books.asked, around, terms)
    async with open_tasks() as tasks:
        writing = tasks.create_task(books.audit.keep_flushing(around.clock))
        try:
            yield gate, questions
        finally:
            writing.cancel()
            await books.audit.settle()


@asynccontextmanager
async def open_gates_at_rest(directory: str, project: ProjectID, terms: Terms) -> AsyncIterator[Gate]:
    """A gate for who only answers and revokes: nothing runs here, and nobody listens."""
    clock = SystemClock()
    around = Around(clock=clock, mint=Mint(clock.now, os.urandom), project=project, tell=_to_nobody)
    async with open_gates(Permitting(terms=terms, directory=directory), around) as (gate, _):
        yield gate


async def _to_nobody(_: Event) -> None:
    """Whoever waits for an answer looks for it where it was written down."""


def open_books(directory: str, around: Around) -> Books:
    if not directory:
        asked: Shelf[Asked] = MemoryShelf()
        grants: Shelf[Grant] = MemoryShelf()
        return Books(asked=asked, grants=grants, audit=Audit(None))
    return Books(
        asked=FileShelf(kept_asked(directory)),
        grants=FileShelf(kept_grants(directory)),
        audit=Audit(log_of(directory, around.project)),
    )

"""Permissions of a directory: the gate, stored questions and grants, the decision log, and explaining a command."""

import hashlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from msgspec import Struct

from weft.config.schema import Asking, Config
from weft.errors import BlockedError
from weft.host.clock import SystemClock
from weft.host.paths import Paths, user_name
from weft.host.tasks import open_tasks
from weft.model.event import Event
from weft.model.ids import GLOBAL_PROJECT, Mint, ProjectID, file_name
from weft.model.permission import Action, Grant, Limits, PermissionRequest, Rule
from weft.model.project import Place, root_of
from weft.permission.audit import Audit, LogFiles
from weft.permission.gate import Books, Gate
from weft.permission.questions import Questions
from weft.permission.requests import Asked
from weft.permission.rules import judge as judge_pattern
from weft.permission.rules import strictest, watch_named, watch_writers
from weft.permission.storage import FileShelf, Kept, MemoryShelf, Shelf
from weft.permission.terms import Around, Consult, Ruling, Terms
from weft.plugin.hooks import PERMISSION_ASK, Hooks, PermissionAnswer
from weft.tool.shell.command import judge
from weft.tool.shell.places import Where
from weft.tool.shell.scene import Part

NAME_LENGTH: Final = 16


def permission_directory(paths: Paths) -> str:
    return os.path.join(paths.data, "permission")


def person_of(env: Mapping[str, str]) -> str:
    """Whose answers those are that are given here."""
    return user_name(env) or f"user {os.getuid()}"


def name_of(place: Place) -> ProjectID:
    """Under which name a place is in the books: its project's.

    Whatever is no repository with a commit is one project for all: what is allowed in one such directory must not hold in
    the next, so each has a name of its own.
    """
    if place.project.id != GLOBAL_PROJECT:
        return place.project.id
    real = os.path.realpath(root_of(place))
    return ProjectID(f"{GLOBAL_PROJECT}-{hashlib.sha256(os.fsencode(real)).hexdigest()[:NAME_LENGTH]}")


def kept_asked(directory: str) -> Kept[Asked]:
    return Kept(os.path.join(directory, "asked.json"), Asked)


def kept_grants(directory: str) -> Kept[Grant]:
    return Kept(os.path.join(directory, "grants.json"), Grant)


def log_of(directory: str, project: ProjectID) -> LogFiles:
    return LogFiles(_logs_in(directory), file_name("project", project), clean=covered)


def list_logs(directory: str) -> list[LogFiles]:
    """Those of all projects, by name."""
    with suppress(FileNotFoundError):
        names = {name.split(".")[0] for name in os.listdir(_logs_in(directory))}
        return [LogFiles(_logs_in(directory), name) for name in sorted(names)]
    return []


def _logs_in(directory: str) -> str:
    return os.path.join(directory, "log")


def covered(text: str) -> str:
    """The text without what looks like a key or a password."""
    from weft.transfer.redact import find_secrets  # noqa: PLC0415  wanted when the log is written, not before

    pieces: list[str] = []
    end = 0
    for span in find_secrets("", text):
        pieces += [text[end : span.start], f"[redacted:{span.kind}]"]
        end = span.end
    return "".join((*pieces, text[end:]))


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


class JudgedPart(Struct, frozen=True, kw_only=True):
    """One thing that a command does, and the rule that has the say on it."""

    part: Part
    rule: Rule


class Explanation(Struct, frozen=True, kw_only=True):
    """Every part of a command, in the order in which a tool asks for them."""

    parts: tuple[JudgedPart, ...]

    @property
    def verdict(self) -> Action:
        """The strictest of all."""
        return strictest(each.rule for each in self.parts).action


def explain(command: str, where: Where, limits: Limits) -> Explanation:
    """The same judgement, against the same rules, as a call of the `bash` tool meets. Blocks."""
    return hold(judge(command, where).in_order, limits)


def hold(parts: Sequence[Part], limits: Limits) -> Explanation:
    """Parts of a command, held against the rules."""
    watched = watch_writers(limits, "bash", (part.pattern for part in parts if part.may_write))
    watched = watch_named(watched, "bash", (part.pattern for part in parts if part.perhaps))
    return Explanation(
        parts=tuple(
            JudgedPart(part=part, rule=judge_pattern(part.permission, part.pattern, watched))
            for part in parts
            if not part.perhaps
        )
    )

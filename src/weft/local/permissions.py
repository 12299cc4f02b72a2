"""Permissions of a directory: the gate, stored requests and grants, the decision log, and explanations of commands."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from weft.config.schema import AskingConfig, Config
from weft.errors import BlockedError
from weft.host.clock import SystemClock
from weft.host.paths import Paths, find_user_name
from weft.host.tasks import open_tasks
from weft.model.event import Event
from weft.model.ids import GLOBAL_PROJECT, Mint, ProjectID, check_file_name
from weft.model.permission import Action, Grant, Limits, PermissionRequest, Rule
from weft.model.project import Place, get_root
from weft.permission.audit import AuditFiles, AuditLog
from weft.permission.gate import Gate, GateStorage
from weft.permission.policy import AskPolicy, Consult, GateContext, Ruling
from weft.permission.questions import QuestionGate
from weft.permission.requests import OpenRequest
from weft.permission.rules import ask_before_named, ask_before_writers, choose_strictest
from weft.permission.rules import judge as judge_pattern
from weft.permission.storage import FileItemStore, ItemFile, ItemStore, MemoryItemStore
from weft.plugin.hooks import PERMISSION_ASK, Hooks, PermissionAnswer

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.tool.shell.paths import CommandLocation
    from weft.tool.shell.state import ShellAction

NAME_LENGTH: Final = 16


def permission_directory(paths: Paths) -> str:
    return os.path.join(paths.data, "permission")


def find_person(env: Mapping[str, str]) -> str:
    """Return the name of the user, to record who gave an answer."""
    return find_user_name(env) or f"user {os.getuid()}"


def permission_project(place: Place) -> ProjectID:
    """Return the id under which permissions of a place are stored: the id of its project.

    All directories without a commit share one global project. A grant in one of them must not hold in the others, so each
    gets an id of its own.
    """
    if place.project.id != GLOBAL_PROJECT:
        return place.project.id
    real = os.path.realpath(get_root(place))
    return ProjectID(f"{GLOBAL_PROJECT}-{hashlib.sha256(os.fsencode(real)).hexdigest()[:NAME_LENGTH]}")


def request_file(directory: str) -> ItemFile[OpenRequest]:
    return ItemFile(os.path.join(directory, "asked.json"), OpenRequest)


def grant_file(directory: str) -> ItemFile[Grant]:
    return ItemFile(os.path.join(directory, "grants.json"), Grant)


def open_decision_log(directory: str, project: ProjectID) -> AuditFiles:
    return AuditFiles(_log_directory(directory), check_file_name("project", project), redact=redact_text)


def list_decision_logs(directory: str) -> list[AuditFiles]:
    """Return the decision logs of all projects, sorted by name."""
    with suppress(FileNotFoundError):
        names = {name.split(".")[0] for name in os.listdir(_log_directory(directory))}
        return [AuditFiles(_log_directory(directory), name) for name in sorted(names)]
    return []


def _log_directory(directory: str) -> str:
    return os.path.join(directory, "log")


def redact_text(text: str) -> str:
    """Return the text with keys and passwords redacted."""
    from weft.transfer.redact import find_secrets  # noqa: PLC0415  loaded when the log is first written

    pieces: list[str] = []
    end = 0
    for span in find_secrets("", text):
        pieces += [text[end : span.start], f"[redacted:{span.kind}]"]
        end = span.end
    return "".join((*pieces, text[end:]))


class PermissionSettings(Struct, frozen=True, kw_only=True):
    """How a person is asked, and the directory for requests, grants and the log; without one they are kept in memory."""

    terms: AskPolicy = AskPolicy()
    directory: str = ""


def to_terms(trusted_config: Config, *, person: str, owner: str, answered: bool) -> AskPolicy:
    """Read the terms from the trusted part of the configuration."""
    own = trusted_config.experimental.weft if trusted_config.experimental else None
    asking = (own.asking if own else None) or AskingConfig()
    return AskPolicy(
        answered=answered,
        unanswered=asking.unanswered or "deny",
        timeout_seconds=asking.timeout,
        always=asking.always or "session",
        person=person,
        owner=owner,
    )


def to_consult(hooks: Hooks) -> Consult:
    """Return the function by which the gate asks the `permission.ask` hooks."""

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
async def open_gates(
    settings: PermissionSettings, environment: GateContext
) -> AsyncIterator[tuple[Gate, QuestionGate]]:
    """Open the gate and the questions of a directory. Leaving the context flushes the log."""
    records, terms = open_permission_records(settings.directory, environment), settings.terms
    gate, questions = Gate(records, environment, terms), QuestionGate(records.asked, environment, terms)
    async with open_tasks() as tasks:
        writing = tasks.create_task(records.audit.keep_flushing(environment.clock))
        try:
            yield gate, questions
        finally:
            writing.cancel()
            await records.audit.settle()


@asynccontextmanager
async def open_offline_gate(directory: str, project: ProjectID, terms: AskPolicy) -> AsyncIterator[Gate]:
    """Open a gate to reply to requests and revoke grants, without a run and without listeners."""
    clock = SystemClock()
    environment = GateContext(
        clock=clock, mint=Mint(clock.now, os.urandom), project=project, publish=_ignore_event
    )
    async with open_gates(PermissionSettings(terms=terms, directory=directory), environment) as (gate, _):
        yield gate


async def _ignore_event(_: Event) -> None:
    """Drop an event. A run that waits for the reply reads it from the stored request."""


def open_permission_records(directory: str, environment: GateContext) -> GateStorage:
    if not directory:
        asked: ItemStore[OpenRequest] = MemoryItemStore()
        grants: ItemStore[Grant] = MemoryItemStore()
        return GateStorage(asked=asked, grants=grants, audit=AuditLog(None))
    return GateStorage(
        asked=FileItemStore(request_file(directory)),
        grants=FileItemStore(grant_file(directory)),
        audit=AuditLog(open_decision_log(directory, environment.project)),
    )


class JudgedPart(Struct, frozen=True, kw_only=True):
    """One action of a command, and the rule that decides on it."""

    part: ShellAction
    rule: Rule


class Explanation(Struct, frozen=True, kw_only=True):
    """The parts of a command, in the order in which the tool asks for permission."""

    parts: tuple[JudgedPart, ...]

    @property
    def verdict(self) -> Action:
        """The strictest action of all parts."""
        return choose_strictest(each.rule for each in self.parts).action


def explain(command: str, where: CommandLocation, limits: Limits) -> Explanation:
    """Judge a command by the same rules as a call of the `bash` tool. Blocks."""

    from weft.tool.shell.judgement import judge_command  # noqa: PLC0415  only a shell command needs it

    return judge_parts(judge_command(command, where).in_order, limits)


def judge_parts(parts: Sequence[ShellAction], limits: Limits) -> Explanation:
    """Find the rule that decides on each part of a command."""
    watched = ask_before_writers(limits, "bash", (part.pattern for part in parts if part.may_write))
    watched = ask_before_named(watched, "bash", (part.pattern for part in parts if part.perhaps))
    return Explanation(
        parts=tuple(
            JudgedPart(part=part, rule=judge_pattern(part.permission, part.pattern, watched))
            for part in parts
            if not part.perhaps
        )
    )

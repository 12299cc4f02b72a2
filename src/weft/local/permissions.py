"""Permissions of a directory: the gate, stored requests and grants, the decision log, and explanations of commands."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from weft.config.schema import AskingConfig, Config
from weft.errors import BlockedError
from weft.host.clock import SystemClock
from weft.host.paths import Paths, find_user_name
from weft.host.tasks import open_tasks
from weft.model.event import Event
from weft.model.ids import GLOBAL_PROJECT, Mint, ProjectID
from weft.model.permission import Action, Grant, PermissionRequest, Rule, Ruleset, Rulesets
from weft.model.project import Place, get_root
from weft.permission.audit import AuditChain, AuditLog
from weft.permission.gate import Gate, GateStorage
from weft.permission.policy import AskPolicy, Consult, GateContext, Ruling
from weft.permission.questions import QuestionGate
from weft.permission.requests import OpenRequest
from weft.permission.rules import STRICTEST_FIRST, add_questions, merge
from weft.permission.rules import judge as judge_pattern
from weft.permission.storage import GRANTS_KEY, REQUESTS_KEY, ItemStore, RecordStore
from weft.plugin.hooks import PERMISSION_ASK, Hooks, PermissionAnswer

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.tool.shell.paths import CommandLocation
    from weft.tool.shell.state import ShellAction

NAME_LENGTH: Final = 16
# Why a person is asked, or what is denied, if the rule alone does not say so.
NO_RULE_MATCHES: Final = "no rule matches it"
MAY_BE_DENIED: Final = "it may turn out to be what the rule denies"


def get_person_name(env: Mapping[str, str]) -> str:
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
    """How a person is asked. With `persistent`, the store outlives this process: decisions are logged, and a request may be
    answered by another process.
    """

    policy: AskPolicy = AskPolicy()
    persistent: bool = False


def to_ask_policy(trusted_config: Config, *, person: str, owner: str, can_ask: bool) -> AskPolicy:
    """Read how to ask a person from the trusted part of the configuration."""
    asking = trusted_config.weft_settings.asking or AskingConfig()
    return AskPolicy(
        can_ask=can_ask,
        unanswered=asking.unanswered or "deny",
        timeout_seconds=asking.timeout,
        always=asking.always or "session",
        person=person,
        owner=owner,
    )


def make_confinement(paths: Paths) -> Ruleset:
    """Return rules that keep a principal inside of its directories. The files that its own tools leave are part of them."""
    own = (paths.tool_output, paths.plans)
    return (
        Rule(permission="*", pattern="*", action="allow"),
        Rule(permission="external_directory", pattern="*", action="deny"),
        *(Rule(permission="external_directory", pattern=path, action="allow") for path in own),
        *(
            Rule(permission="external_directory", pattern=os.path.join(path, "*"), action="allow")
            for path in own
        ),
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
    settings: PermissionSettings, context: GateContext, store: RecordStore
) -> AsyncIterator[tuple[Gate, QuestionGate]]:
    """Open the gate and the questions of a directory. Leaving the context flushes the log."""
    records = make_gate_storage(store, context.project, persistent=settings.persistent)
    policy = settings.policy
    gate, questions = Gate(records, context, policy), QuestionGate(records.asked, context, policy)
    async with open_tasks() as tasks:
        flushing = tasks.create_task(records.audit.keep_flushing(context.clock))
        try:
            yield gate, questions
        finally:
            flushing.cancel()
            await records.audit.try_flush()


@asynccontextmanager
async def open_offline_gate(store: RecordStore, project: ProjectID, policy: AskPolicy) -> AsyncIterator[Gate]:
    """Open a gate to reply to requests and revoke grants, without a run and without listeners."""
    clock = SystemClock()
    context = GateContext(
        clock=clock, mint=Mint(clock.now, os.urandom), project=project, publish=_ignore_event
    )
    settings = PermissionSettings(policy=policy, persistent=True)
    async with open_gates(settings, context, store) as (gate, _):
        yield gate


async def _ignore_event(_: Event) -> None:
    """Drop an event. A run that waits for the reply reads it from the stored request."""


def make_gate_storage(store: RecordStore, project: ProjectID, *, persistent: bool) -> GateStorage:
    return GateStorage(
        asked=ItemStore(store, REQUESTS_KEY, OpenRequest, shared=persistent),
        grants=ItemStore(store, GRANTS_KEY, Grant, shared=persistent),
        audit=AuditLog(AuditChain(store, project, redact=redact_text) if persistent else None),
    )


class JudgedPart(Struct, frozen=True, kw_only=True):
    """One action of a command, what is decided about it, and by which rule. `reason` says why, if the rule alone does not.

    `is_added` says that weft added the rule for this command: the agent has no such rule. If the rule denies what the command may
    turn out to be, the action is `ask`, unlike that of the rule.
    """

    part: ShellAction
    action: Action
    rule: Rule
    reason: str = ""
    is_added: bool = False


class Explanation(Struct, frozen=True, kw_only=True):
    """The parts of a command, in the order in which the tool asks for permission."""

    parts: tuple[JudgedPart, ...]

    @property
    def verdict(self) -> Action:
        """The strictest action of all parts."""
        return min((each.action for each in self.parts), key=STRICTEST_FIRST.index)


def explain(command: str, location: CommandLocation, rulesets: Rulesets) -> Explanation:
    """Judge a command by the same rules as a call of the `bash` tool. Blocks."""
    from weft.tool.shell.judgement import judge_command  # noqa: PLC0415  only a shell command needs it

    return judge_parts(judge_command(command, location).in_order, rulesets)


def judge_parts(parts: Sequence[ShellAction], rulesets: Rulesets) -> Explanation:
    """Find the rule that decides on each part of a command."""
    added = add_questions(
        rulesets,
        "bash",
        [part.pattern for part in parts if part.permission == "bash"],
        may_write=[part.pattern for part in parts if part.may_write],
        perhaps=[part.pattern for part in parts if part.perhaps],
    )
    own_rules = set(merge(*rulesets))

    def judge_part(part: ShellAction) -> JudgedPart:
        rule = judge_pattern(part.permission, part.pattern, added.rulesets)
        if part.permission == "bash" and part.pattern in added.reasons:
            reason = ", ".join(filter(None, (part.why, added.reasons[part.pattern])))
            return JudgedPart(part=part, action=rule.action, rule=rule, reason=reason, is_added=True)
        denying = replace(rule, action="deny")
        if rule in own_rules:
            return JudgedPart(part=part, action=rule.action, rule=rule, reason=part.why)
        if denying in own_rules:
            return JudgedPart(part=part, action=rule.action, rule=denying, reason=part.why or MAY_BE_DENIED)
        reason = part.why or NO_RULE_MATCHES
        return JudgedPart(part=part, action=rule.action, rule=rule, reason=reason, is_added=True)

    return Explanation(parts=tuple(judge_part(part) for part in parts if not part.perhaps))

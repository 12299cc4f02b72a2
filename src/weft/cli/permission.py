"""`weft permission`: pending requests, grants, the audit log, and what the rules say about a command."""

import argparse
import asyncio
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from weft.cli.arguments import add_directory, add_format, add_place, parse_age
from weft.cli.exit import ExitCode
from weft.cli.output import (
    Paint,
    format_age,
    format_time_left,
    sanitize,
    to_table,
    write_json,
    write_json_line,
)
from weft.cli.session import open_reading
from weft.config.store_address import find_own_setting, resolve_store_url
from weft.errors import AmbiguousError, InvalidInputError, NotFoundError
from weft.host.now import now
from weft.host.paths import Paths, paths_from
from weft.local.permissions import (
    Explanation,
    JudgedPart,
    explain,
    find_person,
    grant_file,
    open_decision_log,
    open_offline_gate,
    permission_directory,
    permission_project,
    request_file,
)
from weft.local.place import list_sessions_here
from weft.local.reader import SessionReader
from weft.model.agent import Agent
from weft.model.ids import GrantID, PermissionID, ProjectID, SessionID
from weft.model.permission import Action, Grant, GrantTerms, Rule
from weft.model.wire import to_plain
from weft.permission.audit import AuditEntry, AuditFiles, ChainBreak, find_break, read_entries
from weft.permission.grants import is_expired, to_scope
from weft.permission.policy import AskPolicy
from weft.permission.requests import OpenRequest
from weft.store.reader import open_reader

SCOPES = ("turn", "session", "project", "user")
LAST = "last"
REQUEST_HINT = "weft permission list shows what is asked"
ALWAYS_KEY = ("experimental", "weft", "asking", "always")
GRANT_HINT = "weft permission grants lists them"
GRANT_HEAD = ("id", "allows", "agent", "reaches", "given", "by", "until")
EXITS: dict[Action, ExitCode] = {"allow": ExitCode.DONE, "ask": ExitCode.ASKED, "deny": ExitCode.REFUSED}
VERDICTS: dict[Action, str] = {
    "allow": "allowed: it is run unasked",
    "ask": "asked: a person decides first",
    "deny": "denied: it is not run",
}
LOG_HEAD = ("#", "when", "what", "agent", "permission", "why")


def add_list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="include every project")
    add_format(parser)
    add_place(parser)


def list_requests(chosen: argparse.Namespace) -> int:
    paths = paths_from(os.environ)
    project = None if chosen.all else permission_project(open_reading(chosen).place())
    found = [
        asked
        for asked in request_file(permission_directory(paths)).read()
        if asked.answer is None and project in (None, asked.project_id)
    ]
    running = _list_running(paths, chosen.store)
    rows = [_to_request_row(asked, waiting=asked.session_id in running) for asked in found]
    if chosen.format == "json":
        write_json(rows)
    elif rows:
        paint, at = Paint(sys.stdout), now()
        cells = [
            (row["id"], row["state"], row["agent"], _format_wanted(row), format_age(at - row["asked"]))
            for row in rows
        ]
        print("\n".join(to_table(("id", "run", "agent", "wants", "asked"), cells, paint)))
    return 0


def choose(kind: str, given: str, *, here: Sequence[str], ids: Sequence[str], hint: str) -> str:
    """Return the id that `given` means: an id, the start of one, or `last` for the last one of those `here`.

    `ids` are all ids, oldest first. Raise `NotFoundError` or `AmbiguousError`.
    """
    if given == LAST and here:
        return here[-1]
    if given in ids:
        return given
    found = [id for id in ids if given and id.startswith(given)]
    if not found:
        raise NotFoundError(kind, given, hint=hint)
    if len(found) > 1:
        raise AmbiguousError(kind, given, found)
    return found[0]


def _to_request_row(asked: OpenRequest, *, waiting: bool) -> dict[str, Any]:
    request = asked.permission
    said: dict[str, Any] = (
        {"permission": request.permission, "patterns": request.patterns, "always": request.always}
        if request is not None
        else {"questions": [each.question for each in (asked.question.questions if asked.question else ())]}
    )
    return {
        "id": asked.id,
        "sessionID": asked.session_id,
        "projectID": asked.project_id,
        "agent": asked.agent,
        "state": "waits" if waiting else "over",
        "asked": asked.time,
        **said,
    }


def _format_wanted(row: dict[str, Any]) -> str:
    if "permission" in row:
        return f"{row['permission']}: {', '.join(row['patterns'])}"
    return " ".join(row["questions"])


def _list_running(paths: Paths, store: str | None) -> set[str]:
    """Return the ids of the sessions that are running now."""
    url = resolve_store_url(os.environ, paths, store)
    if not url.startswith("file:"):
        return set()
    return set(open_reader(url).list_running())


def add_reply_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("id", metavar="ID", help="the id of the request, the start of its id, or `last`")
    add("reply", choices=("once", "always", "reject"), help="the answer")
    add("--message", default="", metavar="WORDS", help="with reject: what the agent should do instead")
    add("--scope", choices=SCOPES, help="with always: how far the grant reaches (usually the session)")
    add(
        "--expires",
        type=parse_age,
        metavar="AGE",
        help="with always: how long the grant is valid, such as 12h or 7d",
    )
    add(
        "--any-agent",
        action="store_true",
        help="with always: grant it to every agent, not only to the one that asks",
    )
    add_place(parser)


def reply_to_request(chosen: argparse.Namespace) -> int:
    if chosen.reply != "always" and (chosen.scope or chosen.expires is not None or chosen.any_agent):
        raise InvalidInputError("reply", "--scope, --expires and --any-agent are only for always")
    if chosen.reply != "reject" and chosen.message:
        raise InvalidInputError("--message", "it is only for reject")
    paths = paths_from(os.environ)
    directory = permission_directory(paths)
    unanswered = [each for each in request_file(directory).read() if each.answer is None]
    for each in unanswered:
        if each.question is not None and each.id == chosen.id:
            raise InvalidInputError(
                "id",
                f"{each.id} is a question, not a request for permission",
                hint=f'answer it in its session: weft run -s {each.session_id} "…"',
            )
    pending = [each for each in unanswered if each.permission]
    here = [each.id for each in _list_here(pending, open_reading(chosen))]
    id = choose("open question", chosen.id, here=here, ids=[each.id for each in pending], hint=REQUEST_HINT)
    asked = next(each for each in pending if each.id == id)
    asyncio.run(_reply(chosen, asked, directory, paths))
    _print_reply(chosen, asked)
    return 0


def _list_here(pending: list[OpenRequest], reading: SessionReader) -> list[OpenRequest]:
    """Return the requests of this project, without those of sessions in another checkout of it."""
    place = reading.place()
    own = [each for each in pending if each.project_id == permission_project(place)]
    found = [reading.store.find_session(SessionID(each.session_id)) for each in own]
    sessions = [each for each in found if each is not None]
    elsewhere = {each.id for each in sessions} - {each.id for each in list_sessions_here(sessions, place)}
    return [each for each in own if each.session_id not in elsewhere]


async def _reply(chosen: argparse.Namespace, asked: OpenRequest, directory: str, paths: Paths) -> None:
    terms = AskPolicy(person=find_person(os.environ), always=to_scope(find_own_setting(paths, ALWAYS_KEY)))
    expires = None if chosen.expires is None else now() + chosen.expires
    given = GrantTerms(scope=chosen.scope, expires=expires, any_agent=chosen.any_agent)
    async with open_offline_gate(directory, asked.project_id, terms) as gate:
        await gate.reply(PermissionID(asked.id), chosen.reply, message=chosen.message, terms=given)


def _print_reply(chosen: argparse.Namespace, asked: OpenRequest) -> None:
    paint = Paint(sys.stderr)
    wanted = sanitize(_format_wanted(_to_request_row(asked, waiting=False)))
    running = asked.session_id in _list_running(paths_from(os.environ), chosen.store)
    print(f"{paint.bold(chosen.reply)}  {wanted}", file=sys.stderr)
    if not running:
        print(f'go on with: weft run -s {asked.session_id} "go on"', file=sys.stderr)


def add_grants_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="include every project")
    add_format(parser)
    add_place(parser)


def list_grants(chosen: argparse.Namespace) -> int:
    project = None if chosen.all else _get_project(chosen)
    found = _list_in_force(project)
    if chosen.format == "json":
        write_json(found)
    elif found:
        at = now()
        print(
            "\n".join(
                to_table(GRANT_HEAD, [_to_grant_cells(grant, at) for grant in found], Paint(sys.stdout))
            )
        )
    return 0


def add_revoke_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="the id of the grant, the start of its id, or `last`")
    add_place(parser)


def revoke_grant(chosen: argparse.Namespace) -> int:
    found, project = _list_in_force(None), _get_project(chosen)
    here = [each.id for each in found if each.project_id in (None, project)]
    id = choose("grant", chosen.id, here=here, ids=[each.id for each in found], hint=GRANT_HINT)
    grant = next(each for each in found if each.id == id)
    asyncio.run(_revoke(grant, grant.project_id or project))
    print(f"revoked  {grant.permission}: {', '.join(grant.patterns)}", file=sys.stderr)
    return 0


async def _revoke(grant: Grant, project: ProjectID) -> None:
    directory = permission_directory(paths_from(os.environ))
    async with open_offline_gate(directory, project, AskPolicy(person=find_person(os.environ))) as gate:
        await gate.revoke(GrantID(grant.id))


def _list_in_force(project: ProjectID | None) -> list[Grant]:
    """Return the grants that have not expired, for one project or for all of them."""
    kept = grant_file(permission_directory(paths_from(os.environ))).read()
    at = now()
    return [
        grant
        for grant in kept
        if not is_expired(grant, at) and (project is None or grant.project_id in (None, project))
    ]


def _get_project(chosen: argparse.Namespace) -> ProjectID:
    return permission_project(open_reading(chosen).place())


def _to_grant_cells(grant: Grant, at: int) -> tuple[str, ...]:
    return (
        grant.id,
        f"{grant.permission}: {', '.join(grant.patterns)}",
        grant.agent or "any",
        f"{grant.scope} {grant.session_id or ''}".strip(),
        format_age(at - grant.created),
        grant.by,
        "you revoke it" if grant.expires is None else format_time_left(grant.expires - at),
    )


def add_explain_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "command",
        metavar="COMMAND",
        help="the command as an agent would pass it to the bash tool; it is never run",
    )
    add("--agent", metavar="NAME", help="the agent whose rules apply (default: the default agent)")
    add_format(parser)
    add_directory(parser)
    parser.epilog = "exit codes: 0 allowed, 7 a person is asked first, 3 denied, 2 wrong usage"


def explain_command(chosen: argparse.Namespace) -> int:
    from weft.host.processes import tool_environment  # noqa: PLC0415  the other commands do not need it
    from weft.project.checkout import find_checkout  # noqa: PLC0415  the other commands do not need it
    from weft.tool.shell.paths import locate_command  # noqa: PLC0415  it imports the parser of shell commands

    env, at = os.environ, find_checkout(chosen.dir)
    worktree = at.top or "/"
    agent = _find_agent(chosen.agent, at.directory, worktree, env)
    where = locate_command(at.directory, worktree, tool_environment(env))
    explanation = explain(chosen.command, where, (agent.permission, *agent.limits))
    if chosen.format == "json":
        write_json(_to_explanation(agent, chosen.command, explanation))
    else:
        _print_explanation(agent, explanation)
    return EXITS[explanation.verdict]


def _find_agent(name: str | None, directory: str, worktree: str, env: Mapping[str, str]) -> Agent:
    """Return the agent of this name, or the default agent. Raise `NotFoundError` if it does not exist."""
    from weft.cli.config import load_and_warn  # noqa: PLC0415  it imports everything that reads the configuration
    from weft.config.agents import build_agents, choose_agent  # noqa: PLC0415  it reads Markdown files with YAML
    from weft.config.check import find_nearest  # noqa: PLC0415  the other commands do not need it

    scope, loaded = load_and_warn(directory, worktree, env)
    agents = build_agents(loaded.config, scope.paths, worktree, loaded.trusted_config)
    key = name or choose_agent(agents, loaded.config)
    if key not in agents:
        near = find_nearest(key, agents)
        raise NotFoundError(
            "agent", key, near=[near] if near else [], hint="list them: weft agent list --all"
        )
    return agents[key]


def _to_explanation(agent: Agent, command: str, explanation: Explanation) -> dict[str, Any]:
    return {
        "command": command,
        "agent": agent.name,
        "verdict": explanation.verdict,
        "parts": [
            {
                "permission": each.part.permission,
                "pattern": each.part.pattern,
                "action": each.rule.action,
                "rule": _format_rule(each.rule),
                "always": each.part.always,
                "why": each.part.why,
                "mayWrite": each.part.may_write,
            }
            for each in explanation.parts
        ],
    }


def _print_explanation(agent: Agent, explanation: Explanation) -> None:
    paint = Paint(sys.stdout)
    rows = [
        (
            each.rule.action,
            each.part.permission,
            each.part.pattern,
            _format_rule(each.rule),
            _explain_part(each),
        )
        for each in explanation.parts
    ]
    print("\n".join(to_table(("verdict", "permission", "what", "rule", "why"), rows, paint)))
    colour = {"allow": paint.green, "ask": paint.yellow, "deny": paint.red}[explanation.verdict]
    print(f"\n{colour(VERDICTS[explanation.verdict])} (agent {sanitize(agent.name)})")


def _format_rule(rule: Rule) -> str:
    return f"{rule.permission} {rule.pattern} {rule.action}"


def _explain_part(each: JudgedPart) -> str:
    if each.part.why:
        return each.part.why
    return "it may change files" if each.part.may_write and each.rule.action == "ask" else ""


def add_log_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--verify", action="store_true", help="check that no record was changed, added or removed")
    add("--session", metavar="ID", help="only the decisions in this session")
    add("-n", "--max-count", type=int, metavar="N", help="only the last N decisions")
    add_format(parser)
    add_place(parser)


def show_log(chosen: argparse.Namespace) -> int:
    reading = open_reading(chosen)
    files = open_decision_log(
        permission_directory(paths_from(os.environ)), permission_project(reading.place())
    )
    if chosen.verify:
        return _verify(files, chosen.format)
    found = [
        (number, entry)
        for number, entry in read_entries(files)
        if not chosen.session or entry.session_id.startswith(chosen.session)
    ]
    if chosen.max_count is not None:
        found = found[len(found) - min(len(found), max(chosen.max_count, 0)) :]
    if chosen.format == "json":
        for number, entry in found:
            write_json_line({"seq": number, **to_plain(entry)})
    elif found:
        print("\n".join(to_table(LOG_HEAD, list(_to_log_rows(found)), Paint(sys.stdout))))
    _, broken = find_break(files)
    if broken is not None:
        _warn_broken(broken)
    return ExitCode.DONE


def _verify(files: AuditFiles, format: str) -> int:
    count, broken = find_break(files)
    end = files.find_end()
    if format == "json":
        report = {"records": count, "end": to_plain(end), "broken": to_plain(broken) if broken else None}
        write_json_line(report)
    elif broken is not None:
        _warn_broken(broken)
    else:
        note = f"; the end is {end.seq} {end.hash}" if end else ""
        print(f"{count} records, and the chain holds{note}")
    return ExitCode.DONE if broken is None else ExitCode.FAILED


def _warn_broken(broken: ChainBreak) -> None:
    mark, where = Paint(sys.stderr).red("broken:"), f"{broken.file}:{broken.line}"
    print(f"{mark} {where}: record {broken.seq} {broken.reason}", file=sys.stderr)


def _to_log_rows(found: list[tuple[int, AuditEntry]]) -> Iterator[tuple[str, ...]]:
    for number, entry in found:
        at = datetime.fromtimestamp(entry.time / 1000, UTC).astimezone()
        wanted = f"{entry.permission}: {', '.join(entry.patterns)}" if entry.permission else ""
        yield (
            str(number),
            f"{at:%Y-%m-%d %H:%M:%S}",
            _format_decision(entry),
            entry.agent,
            wanted,
            _format_reason(entry),
        )


def _format_decision(entry: AuditEntry) -> str:
    return f"{entry.what} {entry.reply}".strip()


def _format_reason(entry: AuditEntry) -> str:
    said = (
        entry.rule and f"rule {entry.rule}",
        ", ".join(entry.grants),
        entry.scope and f"for {entry.scope}",
        entry.by and f"by {entry.by}",
        entry.message and f"“{entry.message}”",
        str(entry.count) if entry.count else "",
    )
    return " ".join(part for part in said if part)

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
from weft.cli.session import make_reader
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
REQUEST_HINT = "weft permission list shows the open requests"
ALWAYS_SETTING = ("experimental", "weft", "asking", "always")
GRANT_HINT = "weft permission grants lists them"
GRANT_HEADER = ("id", "allows", "agent", "reaches", "given", "by", "until")
EXIT_CODE_BY_ACTION: dict[Action, ExitCode] = {
    "allow": ExitCode.DONE,
    "ask": ExitCode.ASK,
    "deny": ExitCode.REFUSED,
}
VERDICT_TEXTS: dict[Action, str] = {
    "allow": "allowed: it is run unasked",
    "ask": "asked: a person decides first",
    "deny": "denied: it is not run",
}
LOG_HEADER = ("#", "when", "what", "agent", "permission", "why")


def add_list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="include every project")
    add_format(parser)
    add_place(parser)


def list_requests(args: argparse.Namespace) -> int:
    paths = paths_from(os.environ)
    project = None if args.all else permission_project(make_reader(args).place())
    requests = [
        request
        for request in request_file(permission_directory(paths)).read()
        if request.answer is None and project in (None, request.project_id)
    ]
    running = _list_running(paths, args.store)
    rows = [_to_request_row(request, waiting=request.session_id in running) for request in requests]
    if args.format == "json":
        write_json(rows)
    elif rows:
        paint, time = Paint(sys.stdout), now()
        cells = [
            (row["id"], row["state"], row["agent"], _format_request(row), format_age(time - row["asked"]))
            for row in rows
        ]
        print("\n".join(to_table(("id", "run", "agent", "wants", "asked"), cells, paint)))
    return 0


def resolve_id(kind: str, text: str, *, local_ids: Sequence[str], ids: Sequence[str], hint: str) -> str:
    """Return the id that `text` means: an id, the start of one, or `last` for the last one of `local_ids`.

    `ids` are all ids, oldest first; `local_ids` are those of this checkout. Raise `NotFoundError` or `AmbiguousError`.
    """
    if text == LAST and local_ids:
        return local_ids[-1]
    if text in ids:
        return text
    matches = [id for id in ids if text and id.startswith(text)]
    if not matches:
        raise NotFoundError(kind, text, hint=hint)
    if len(matches) > 1:
        raise AmbiguousError(kind, text, matches)
    return matches[0]


def _to_request_row(request: OpenRequest, *, waiting: bool) -> dict[str, Any]:
    permission = request.permission
    content: dict[str, Any] = (
        {"permission": permission.permission, "patterns": permission.patterns, "always": permission.always}
        if permission is not None
        else {
            "questions": [each.question for each in (request.question.questions if request.question else ())]
        }
    )
    return {
        "id": request.id,
        "sessionID": request.session_id,
        "projectID": request.project_id,
        "agent": request.agent,
        "state": "waits" if waiting else "over",
        "asked": request.time,
        **content,
    }


def _format_request(row: dict[str, Any]) -> str:
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


def reply_to_request(args: argparse.Namespace) -> int:
    if args.reply != "always" and (args.scope or args.expires is not None or args.any_agent):
        raise InvalidInputError("reply", "--scope, --expires and --any-agent are only for always")
    if args.reply != "reject" and args.message:
        raise InvalidInputError("--message", "it is only for reject")
    paths = paths_from(os.environ)
    directory = permission_directory(paths)
    unanswered = [request for request in request_file(directory).read() if request.answer is None]
    for request in unanswered:
        if request.question is not None and request.id == args.id:
            raise InvalidInputError(
                "id",
                f"{request.id} is a question, not a request for permission",
                hint=f'answer it in its session: weft run -s {request.session_id} "…"',
            )
    pending = [request for request in unanswered if request.permission]
    local_ids = [request.id for request in _list_local_requests(pending, make_reader(args))]
    id = resolve_id(
        "open request",
        args.id,
        local_ids=local_ids,
        ids=[request.id for request in pending],
        hint=REQUEST_HINT,
    )
    request = next(request for request in pending if request.id == id)
    asyncio.run(_reply(args, request, directory, paths))
    _print_reply(args, request)
    return 0


def _list_local_requests(pending: list[OpenRequest], reader: SessionReader) -> list[OpenRequest]:
    """Return the requests of this project, without those of sessions in another checkout of it."""
    place = reader.place()
    own = [each for each in pending if each.project_id == permission_project(place)]
    found = [reader.store.find_session(SessionID(each.session_id)) for each in own]
    sessions = [each for each in found if each is not None]
    elsewhere = {each.id for each in sessions} - {each.id for each in list_sessions_here(sessions, place)}
    return [each for each in own if each.session_id not in elsewhere]


async def _reply(args: argparse.Namespace, request: OpenRequest, directory: str, paths: Paths) -> None:
    policy = AskPolicy(
        person=find_person(os.environ), always=to_scope(find_own_setting(paths, ALWAYS_SETTING))
    )
    expires = None if args.expires is None else now() + args.expires
    terms = GrantTerms(scope=args.scope, expires=expires, any_agent=args.any_agent)
    async with open_offline_gate(directory, request.project_id, policy) as gate:
        await gate.reply(PermissionID(request.id), args.reply, message=args.message, terms=terms)


def _print_reply(args: argparse.Namespace, request: OpenRequest) -> None:
    paint = Paint(sys.stderr)
    text = sanitize(_format_request(_to_request_row(request, waiting=False)))
    running = request.session_id in _list_running(paths_from(os.environ), args.store)
    print(f"{paint.bold(args.reply)}  {text}", file=sys.stderr)
    if not running:
        print(f'continue with: weft run -s {request.session_id} "go on"', file=sys.stderr)


def add_grants_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="include every project")
    add_format(parser)
    add_place(parser)


def list_grants(args: argparse.Namespace) -> int:
    project = None if args.all else _get_project(args)
    grants = _list_valid_grants(project)
    if args.format == "json":
        write_json(grants)
    elif grants:
        time = now()
        print(
            "\n".join(
                to_table(GRANT_HEADER, [_to_grant_cells(grant, time) for grant in grants], Paint(sys.stdout))
            )
        )
    return 0


def add_revoke_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="the id of the grant, the start of its id, or `last`")
    add_place(parser)


def revoke_grant(args: argparse.Namespace) -> int:
    grants, project = _list_valid_grants(None), _get_project(args)
    local_ids = [grant.id for grant in grants if grant.project_id in (None, project)]
    id = resolve_id(
        "grant", args.id, local_ids=local_ids, ids=[grant.id for grant in grants], hint=GRANT_HINT
    )
    grant = next(grant for grant in grants if grant.id == id)
    asyncio.run(_revoke(grant, grant.project_id or project))
    print(f"revoked  {grant.permission}: {', '.join(grant.patterns)}", file=sys.stderr)
    return 0


async def _revoke(grant: Grant, project: ProjectID) -> None:
    directory = permission_directory(paths_from(os.environ))
    async with open_offline_gate(directory, project, AskPolicy(person=find_person(os.environ))) as gate:
        await gate.revoke(GrantID(grant.id))


def _list_valid_grants(project: ProjectID | None) -> list[Grant]:
    """Return the grants that have not expired, for one project or for all of them."""
    grants = grant_file(permission_directory(paths_from(os.environ))).read()
    time = now()
    return [
        grant
        for grant in grants
        if not is_expired(grant, time) and (project is None or grant.project_id in (None, project))
    ]


def _get_project(args: argparse.Namespace) -> ProjectID:
    return permission_project(make_reader(args).place())


def _to_grant_cells(grant: Grant, time: int) -> tuple[str, ...]:
    return (
        grant.id,
        f"{grant.permission}: {', '.join(grant.patterns)}",
        grant.agent or "any",
        f"{grant.scope} {grant.session_id or ''}".strip(),
        format_age(time - grant.created),
        grant.by,
        "you revoke it" if grant.expires is None else format_time_left(grant.expires - time),
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


def explain_command(args: argparse.Namespace) -> int:
    from weft.host.processes import tool_environment  # noqa: PLC0415  the other commands do not need it
    from weft.project.checkout import find_checkout  # noqa: PLC0415  the other commands do not need it
    from weft.tool.shell.paths import locate_command  # noqa: PLC0415  it imports the parser of shell commands

    env, checkout = os.environ, find_checkout(args.dir)
    worktree = checkout.top or "/"
    agent = _find_agent(args.agent, checkout.directory, worktree, env)
    scope = locate_command(checkout.directory, worktree, tool_environment(env))
    explanation = explain(args.command, scope, (agent.permission, *agent.limits))
    if args.format == "json":
        write_json(_to_explanation(agent, args.command, explanation))
    else:
        _print_explanation(agent, explanation)
    return EXIT_CODE_BY_ACTION[explanation.verdict]


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
    print(f"\n{colour(VERDICT_TEXTS[explanation.verdict])} (agent {sanitize(agent.name)})")


def _format_rule(rule: Rule) -> str:
    return f"{rule.permission} {rule.pattern} {rule.action}"


def _explain_part(judged: JudgedPart) -> str:
    if judged.part.why:
        return judged.part.why
    return "it may change files" if judged.part.may_write and judged.rule.action == "ask" else ""


def add_log_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--verify", action="store_true", help="check that no record was changed, added or removed")
    add("--session", metavar="ID", help="only the decisions in this session")
    add("-n", "--max-count", type=int, metavar="N", help="only the last N decisions")
    add_format(parser)
    add_place(parser)


def show_log(args: argparse.Namespace) -> int:
    reader = make_reader(args)
    files = open_decision_log(
        permission_directory(paths_from(os.environ)), permission_project(reader.place())
    )
    if args.verify:
        return _verify(files, args.format)
    entries = [
        (number, entry)
        for number, entry in read_entries(files)
        if not args.session or entry.session_id.startswith(args.session)
    ]
    if args.max_count is not None:
        entries = entries[len(entries) - min(len(entries), max(args.max_count, 0)) :]
    if args.format == "json":
        for number, entry in entries:
            write_json_line({"seq": number, **to_plain(entry)})
    elif entries:
        print("\n".join(to_table(LOG_HEADER, list(_to_log_rows(entries)), Paint(sys.stdout))))
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


def _to_log_rows(entries: list[tuple[int, AuditEntry]]) -> Iterator[tuple[str, ...]]:
    for number, entry in entries:
        time = datetime.fromtimestamp(entry.time / 1000, UTC).astimezone()
        request = f"{entry.permission}: {', '.join(entry.patterns)}" if entry.permission else ""
        yield (
            str(number),
            f"{time:%Y-%m-%d %H:%M:%S}",
            _format_decision(entry),
            entry.agent,
            request,
            _format_reason(entry),
        )


def _format_decision(entry: AuditEntry) -> str:
    return f"{entry.what} {entry.reply}".strip()


def _format_reason(entry: AuditEntry) -> str:
    reasons = (
        entry.rule and f"rule {entry.rule}",
        ", ".join(entry.grants),
        entry.scope and f"for {entry.scope}",
        entry.by and f"by {entry.by}",
        entry.message and f"“{entry.message}”",
        str(entry.count) if entry.count else "",
    )
    return " ".join(reason for reason in reasons if reason)

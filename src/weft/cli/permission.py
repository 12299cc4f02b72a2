"""`weft permission`: pending requests, grants, the audit log, and what the rules say about a command."""

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, get_args

from weft.cli.arguments import (
    SESSION_HELP,
    add_directory,
    add_format,
    add_place,
    parse_age,
    parse_count,
)
from weft.cli.exit import ExitCode
from weft.cli.output import (
    Paint,
    format_age,
    format_time_left,
    print_note,
    sanitize,
    to_table,
    write_json,
    write_json_line,
)
from weft.cli.session import make_reader
from weft.config.store_address import find_own_setting, resolve_store_url
from weft.errors import AmbiguousError, InvalidInputError, NotFoundError
from weft.host.now import now
from weft.host.paths import paths_from
from weft.local.permissions import (
    Explanation,
    explain,
    get_person_name,
    open_offline_gate,
    permission_project,
)
from weft.local.place import is_here
from weft.local.reader import SessionReader
from weft.model.agent import AgentInfo
from weft.model.ids import GrantID, PermissionID, ProjectID, SessionID
from weft.model.permission import Action, Grant, GrantTerms, Rule
from weft.model.wire import to_plain
from weft.permission.audit import AuditEntry, ChainBreak, ChainEnd, find_break, read_end, read_entries
from weft.permission.gate import ADDED_RULE, EARLIER_ANSWER, PLUGIN_DECISION, UNANSWERED
from weft.permission.grants import is_expired, to_scope
from weft.permission.policy import AskPolicy, Unanswered
from weft.permission.requests import OpenRequest
from weft.permission.storage import GRANTS_KEY, REQUESTS_KEY, end_key, log_key, read_items
from weft.session.selection import ID_START
from weft.store.url import open_store

SCOPES = ("turn", "session", "project", "user")
LAST = "last"
REQUEST_HINT = "weft permission list shows the open requests"
ALWAYS_SETTING = ("experimental", "weft", "asking", "always")
GRANT_HINT = "weft permission grants lists them"
REQUEST_HEADER = ("id", "run", "agent", "wants", "why", "asked")
GRANT_HEADER = ("id", "allows", "agent", "reaches", "given", "by", "until")
EXIT_CODE_BY_ACTION: dict[Action, ExitCode] = {
    "allow": ExitCode.DONE,
    "ask": ExitCode.ASK,
    "deny": ExitCode.REFUSED,
}
VERDICT_TEXTS: dict[Action, str] = {
    "allow": "allowed: it runs without asking",
    "ask": "ask: a person decides before it runs",
    "deny": "denied: it does not run",
}
EXPLAIN_HEADER = ("verdict", "permission", "what", "rule", "source", "reason")
BUILT_IN = "built in"
EXPLAIN_EPILOG = """Each line is something that the bash tool would ask permission for, with the rule that decides: permission, pattern, action.
The source of a rule is the file that it is from, `built in`, or `added for this command`, for the reason in the last column.
The rules are those of the agent and of the configuration. Rules of a session, grants and plugins are not considered:
where this says ask, a grant may allow the command, and a plugin may allow or deny it.
⟦…⟧ stands for what is not known before the command runs, such as the value of a variable or the files below a directory.
weft permission log says why a command was allowed, asked about or denied in a run.

exit codes: 0 allowed, 7 a person is asked first, 3 denied, 2 wrong usage"""
LOG_HEADER = ("#", "when", "what", "agent", "permission", "why")


def add_list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="include every project")
    add_format(parser)
    add_place(parser)


def list_requests(args: argparse.Namespace) -> int:
    reader = make_reader(args)
    project = None if args.all else permission_project(reader.place())
    requests = [each for each in _list_unanswered(reader) if project in (None, each.project_id)]
    running = reader.store.list_running()
    rows = [_to_request_row(request, waiting=request.session_id in running) for request in requests]
    if args.format == "json":
        write_json(rows)
    elif rows:
        paint, time = Paint(sys.stdout), now()
        cells = [
            (
                row["id"],
                row["state"],
                row["agent"],
                _format_request(row),
                _format_why(request),
                format_age(time - row["asked"]),
            )
            for request, row in zip(requests, rows, strict=True)
        ]
        print("\n".join(to_table(REQUEST_HEADER, cells, paint)))
    else:
        elsewhere = "" if args.all else "; --all includes the other projects"
        print_note(f"no agent waits for permission here{elsewhere}")
    return 0


def _list_unanswered(reader: SessionReader) -> list[OpenRequest]:
    requests = read_items(reader.store.find_value(REQUESTS_KEY), OpenRequest)
    return [request for request in requests if request.answer is None]


def resolve_id(kind: str, text: str, *, local_ids: Sequence[str], ids: Sequence[str], hint: str) -> str:
    """Return the id that `text` means: an id, the start of one, or `last` for the last one of `local_ids`.

    `ids` are all ids, oldest first; `local_ids` are those that `last` may mean. Raise `NotFoundError` or `AmbiguousError`.
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


def _format_why(request: OpenRequest) -> str:
    """Say why a permission is asked for: a question has no such reason."""
    if request.permission is None:
        return ""
    why = request.permission.metadata.get("why")
    return (
        ", ".join(str(each) for each in why)
        if isinstance(why, list | tuple) and why
        else "a rule asks for it"
    )


def add_reply_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("id", metavar="ID", help="the id of the request, the start of its id, or `last`")
    add("reply", choices=("once", "always", "reject"), help="the answer")
    add("--message", default="", metavar="WORDS", help="with reject: what the agent should do instead")
    add(
        "--scope",
        choices=SCOPES,
        help="with always: how far the grant reaches (default: session, or experimental.weft.asking.always)",
    )
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
        raise InvalidInputError(
            "reply",
            "--scope, --expires and --any-agent are only for always",
            hint="leave them out, or answer always",
        )
    if args.reply != "reject" and args.message:
        raise InvalidInputError("--message", "it is only for reject", hint="leave it out, or answer reject")
    reader = make_reader(args)
    unanswered = _list_unanswered(reader)
    for request in unanswered:
        if request.question is not None and request.id == args.id:
            raise InvalidInputError(
                "id",
                f"{request.id} is a question, not a request for permission",
                hint=f'answer it in its session: weft run -s {request.session_id} "…"',
            )
    pending = [request for request in unanswered if request.permission]
    local_ids = [request.id for request in _list_local_requests(pending, reader)]
    id = resolve_id(
        "open request",
        args.id,
        local_ids=local_ids,
        ids=[request.id for request in pending],
        hint=REQUEST_HINT,
    )
    request = next(request for request in pending if request.id == id)
    asyncio.run(_reply(args, request))
    _print_reply(args, request, running=request.session_id in reader.store.list_running())
    return 0


def _list_local_requests(pending: list[OpenRequest], reader: SessionReader) -> list[OpenRequest]:
    """Return the requests of this project, without those of sessions in another checkout of it."""
    place = reader.place()
    own = [each for each in pending if each.project_id == permission_project(place)]
    found = [reader.store.find_session(SessionID(each.session_id)) for each in own]
    elsewhere = {each.id for each in found if each is not None and not is_here(each, place)}
    return [each for each in own if each.session_id not in elsewhere]


async def _reply(args: argparse.Namespace, request: OpenRequest) -> None:
    paths = paths_from(os.environ)
    policy = AskPolicy(
        person=get_person_name(os.environ), always=to_scope(find_own_setting(paths, ALWAYS_SETTING))
    )
    expires = None if args.expires is None else now() + args.expires
    terms = GrantTerms(scope=args.scope, expires=expires, any_agent=args.any_agent)
    async with (
        open_store(resolve_store_url(os.environ, paths, args.store)) as store,
        open_offline_gate(store, request.project_id, policy) as gate,
    ):
        await gate.reply(PermissionID(request.id), args.reply, message=args.message, terms=terms)


def _print_reply(args: argparse.Namespace, request: OpenRequest, *, running: bool) -> None:
    paint = Paint(sys.stderr)
    text = sanitize(_format_request(_to_request_row(request, waiting=False)))
    print(f"{paint.bold(args.reply)}  {text}", file=sys.stderr)
    if not running:
        print(f'continue with: weft run -s {request.session_id} "go on"', file=sys.stderr)


def add_grants_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="include every project")
    add_format(parser)
    add_place(parser)


def list_grants(args: argparse.Namespace) -> int:
    reader = make_reader(args)
    grants = _list_valid_grants(reader, None if args.all else permission_project(reader.place()))
    if args.format == "json":
        write_json(grants)
    elif grants:
        time = now()
        print(
            "\n".join(
                to_table(GRANT_HEADER, [_to_grant_cells(grant, time) for grant in grants], Paint(sys.stdout))
            )
        )
    else:
        print_note("nothing is granted: a request that is answered with `always` makes a grant")
    return 0


def add_revoke_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="the id of the grant, the start of its id, or `last`")
    add_place(parser)


def revoke_grant(args: argparse.Namespace) -> int:
    reader = make_reader(args)
    grants, project = _list_valid_grants(reader, None), permission_project(reader.place())
    local_ids = [grant.id for grant in grants if grant.project_id in (None, project)]
    id = resolve_id(
        "grant", args.id, local_ids=local_ids, ids=[grant.id for grant in grants], hint=GRANT_HINT
    )
    grant = next(grant for grant in grants if grant.id == id)
    asyncio.run(_revoke(args, grant, grant.project_id or project))
    print(f"revoked  {grant.permission}: {', '.join(grant.patterns)}", file=sys.stderr)
    return 0


async def _revoke(args: argparse.Namespace, grant: Grant, project: ProjectID) -> None:
    url = resolve_store_url(os.environ, paths_from(os.environ), args.store)
    policy = AskPolicy(person=get_person_name(os.environ))
    async with open_store(url) as store, open_offline_gate(store, project, policy) as gate:
        await gate.revoke(GrantID(grant.id))


def _list_valid_grants(reader: SessionReader, project: ProjectID | None) -> list[Grant]:
    """Return the grants that have not expired, for one project or for all of them."""
    grants, time = read_items(reader.store.find_value(GRANTS_KEY), Grant), now()
    return [
        grant
        for grant in grants
        if not is_expired(grant, time) and (project is None or grant.project_id in (None, project))
    ]


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
    parser.epilog = EXPLAIN_EPILOG


def explain_command(args: argparse.Namespace) -> int:
    from weft.host.processes import tool_environment  # noqa: PLC0415  the other commands do not need it
    from weft.project.checkout import find_checkout  # noqa: PLC0415  the other commands do not need it
    from weft.tool.shell.paths import locate_command  # noqa: PLC0415  it imports the parser of shell commands

    if not args.command.strip():
        raise InvalidInputError(
            "COMMAND", "it is empty", hint='quote a whole command: weft permission explain "make | tee x"'
        )
    env, checkout = os.environ, find_checkout(args.dir)
    worktree = checkout.top or "/"
    agent, to_source = _get_agent(args.agent, checkout.directory, worktree, env)
    location = locate_command(checkout.directory, worktree, tool_environment(env))
    explanation = explain(args.command, location, (agent.permission, *agent.limits))
    if args.format == "json":
        write_json(_to_explanation(agent, args.command, explanation, to_source))
    else:
        _print_explanation(agent, explanation, to_source)
    return EXIT_CODE_BY_ACTION[explanation.verdict]


def _get_agent(
    name: str | None, directory: str, worktree: str, env: Mapping[str, str]
) -> tuple[AgentInfo, Callable[[Rule], str]]:
    """Return the agent of this name, or the default agent, and a function that says where one of its rules comes from.

    Raise `NotFoundError` if there is no such agent.
    """
    from weft.cli.config import (  # noqa: PLC0415  it imports everything that reads the configuration
        DEFAULT_SOURCE,
        format_source,
        load_and_warn,
    )
    from weft.config.agents import (  # noqa: PLC0415  it reads Markdown files with YAML
        build_agents,
        choose_agent,
        list_configured_rules,
    )
    from weft.config.check import find_nearest  # noqa: PLC0415  the other commands do not need it

    scope, loaded = load_and_warn(directory, worktree, env)
    agents = build_agents(loaded.config, scope.paths, worktree, loaded.trusted_config)
    key = name or choose_agent(agents, loaded.config)
    if key not in agents:
        near = find_nearest(key, agents)
        raise NotFoundError(
            "agent", key, near=[near] if near else [], hint="list them: weft agent list --all"
        )
    configured = list_configured_rules(loaded.config, key, home=scope.paths.os_home)

    def to_source(rule: Rule) -> str:
        path = next((path for path, each in reversed(configured) if each == rule), None)
        source = DEFAULT_SOURCE if path is None else format_source(loaded, path)
        return BUILT_IN if source == DEFAULT_SOURCE else source

    return agents[key], to_source


def _to_explanation(
    agent: AgentInfo, command: str, explanation: Explanation, to_source: Callable[[Rule], str]
) -> dict[str, Any]:
    return {
        "command": command,
        "agent": agent.name,
        "verdict": explanation.verdict,
        "parts": [
            {
                "permission": each.part.permission,
                "pattern": each.part.pattern,
                "action": each.action,
                "rule": _format_rule(each.rule),
                "source": ADDED_RULE if each.is_added else to_source(each.rule),
                "always": each.part.always,
                "why": each.reason,
                "mayWrite": each.part.may_write,
            }
            for each in explanation.parts
        ],
    }


def _print_explanation(agent: AgentInfo, explanation: Explanation, to_source: Callable[[Rule], str]) -> None:
    paint = Paint(sys.stdout)
    rows = [
        (
            each.action,
            each.part.permission,
            each.part.pattern,
            _format_rule(each.rule),
            ADDED_RULE if each.is_added else to_source(each.rule),
            each.reason,
        )
        for each in explanation.parts
    ]
    print("\n".join(to_table(EXPLAIN_HEADER, rows, paint)))
    colour = {"allow": paint.green, "ask": paint.yellow, "deny": paint.red}[explanation.verdict]
    print(f"\n{colour(VERDICT_TEXTS[explanation.verdict])} (agent {sanitize(agent.name)})")


def _format_rule(rule: Rule) -> str:
    return f"{rule.permission} {rule.pattern} {rule.action}"


def add_log_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--verify", action="store_true", help="check that no record was changed, added or removed")
    add("--session", metavar="ID", help=f"{SESSION_HELP}; if left out, all decisions of the project")
    add("-n", "--max-count", type=parse_count, metavar="N", help="only the last N decisions")
    add_format(parser)
    add_place(parser)


def show_log(args: argparse.Namespace) -> int:
    if args.verify and (args.session is not None or args.max_count is not None):
        option = "-n" if args.session is None else "--session"
        raise InvalidInputError(
            option, "--verify checks every decision of the project", hint=f"leave out {option} or --verify"
        )
    reader = make_reader(args)
    project = permission_project(reader.place())
    lines = reader.store.read_log(log_key(project))
    end = read_end(reader.store.find_value(end_key(project)))
    if args.verify:
        return _verify(lines, end, args.format)
    entries = list(read_entries(lines))
    session = None
    if args.session is not None:
        session = _choose_logged_session(reader, args.session, [entry for _, entry in entries])
        entries = [each for each in entries if each[1].session_id == session]
    if args.max_count is not None:
        entries = entries[max(len(entries) - args.max_count, 0) :]
    if args.format == "json":
        for number, entry in entries:
            write_json_line({"seq": number, **to_plain(entry)})
    elif entries:
        print("\n".join(to_table(LOG_HEADER, list(_to_log_rows(entries)), Paint(sys.stdout))))
    elif args.max_count != 0:
        scope = f"the session {session}" if session is not None else "this project"
        print_note(f"no decision is recorded in {scope}")
    _, broken = find_break(lines, end)
    if broken is not None:
        _warn_broken(broken)
    return ExitCode.DONE


def _choose_logged_session(reader: SessionReader, given: str, entries: Sequence[AuditEntry]) -> str:
    """Return the id of the session that is named. A session that was removed can be named, too, if it is in the log."""
    try:
        return reader.get_session(given).id
    except NotFoundError:
        starts = (given, ID_START + given)
        removed = list(
            dict.fromkeys(each.session_id for each in entries if each.session_id.startswith(starts))
        )
        if len(removed) > 1:
            raise AmbiguousError("session", given, removed) from None
        if not removed:
            raise
        return removed[0]


def _verify(lines: Sequence[bytes], end: ChainEnd | None, format: str) -> int:
    count, broken = find_break(lines, end)
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
    mark = Paint(sys.stderr).red("broken:")
    print(f"{mark} line {broken.line}: record {broken.seq} {broken.reason}", file=sys.stderr)


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
        entry.rule and _format_decider(entry.rule),
        ", ".join(entry.grants),
        entry.scope and f"for {entry.scope}",
        entry.by and f"by {entry.by}",
        entry.message and f"“{entry.message}”",
        str(entry.count) if entry.count else "",
    )
    return " ".join(reason for reason in reasons if reason)


def _format_decider(decider: str) -> str:
    """Name the rule that decided, or the reason that the gate recorded instead of a rule."""
    if decider == PLUGIN_DECISION:
        return f"by {decider} hook"
    if decider.startswith(ADDED_RULE):
        return decider
    if decider.startswith(EARLIER_ANSWER):
        return f"by the {decider}"
    if decider.removeprefix(UNANSWERED) in get_args(Unanswered):
        return f"nobody answered (asking.unanswered: {decider.removeprefix(UNANSWERED)})"
    return f"rule {decider}"

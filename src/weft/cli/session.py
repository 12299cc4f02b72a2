"""`weft session list|tree|todo|jobs`: read sessions from the store, without an event loop and without writing."""

import argparse
import gc
import os
import sys
from collections.abc import Iterable
from typing import Any

from weft.cli.arguments import SESSION_HELP, add_format, add_place, add_session, parse_count
from weft.cli.output import Paint, format_age, format_time, print_note, sanitize, to_table, write_json
from weft.errors import IndexFailedError
from weft.host.now import now as read_clock
from weft.local.reader import SessionReader
from weft.model.session import SessionInfo, SessionTree, get_weft_data, is_archived
from weft.model.session_query import SessionQuery, select_sessions
from weft.session.selection import build_tree

ID_WIDTH = 30
TITLE_WIDTH = 60
TODO_MARKS = {"completed": "[x]", "in_progress": "[>]", "cancelled": "[-]"}


def make_reader(args: argparse.Namespace) -> SessionReader:
    """Return a reader of the store that `--dir` and `--store` name."""
    return SessionReader(args.dir, os.environ, store=args.store, must_exist=True, warn=_warn_about_index)


def _warn_about_index(error: IndexFailedError) -> None:
    warning = Paint(sys.stderr).yellow("warning:")
    print(f"{warning} {error}; reading everything instead", file=sys.stderr)


# --- list ---


def add_list_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-n", "--max-count", type=parse_count, metavar="N", help="list at most N sessions")
    add("--all", action="store_true", help="list the sessions of every project")
    add("--search", metavar="WORDS", help="only sessions with these words in their title")
    add("--tag", metavar="TAG", help="only sessions with this tag")
    add("--archived", action="store_true", help="only archived sessions")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--roots", action="store_true", help="without child sessions (the default)")
    kind.add_argument("--children", action="store_true", help="with child sessions")
    add_format(parser)
    add_place(parser)


def list_sessions(args: argparse.Namespace) -> int:
    """List matching sessions: pinned ones first, then the most recently updated."""
    gc.disable()  # the process lives for a tenth of a second, and collecting garbage would take a tenth of that
    reader = make_reader(args)
    query = SessionQuery(
        roots=not args.children,
        search=args.search,
        tags=(args.tag,) if args.tag else (),
        archived=args.archived,
        everywhere=args.all,
        order="updated",
        pinned_first=True,
        limit=args.max_count,
    )
    sessions = reader.query_sessions(query)
    if args.format == "json":
        write_json([to_row(session) for session in sessions])
    elif sessions:
        print_sessions(sessions, now=read_clock())
    report_damage(reader)
    if not sessions:
        report_newer_store(reader)
        if args.format != "json" and args.max_count != 0:
            print_note(explain_empty_list(args))
    return 0


def explain_empty_list(args: argparse.Namespace) -> str:
    """Return why no session is listed, and what to do about it."""
    if args.search or args.tag or args.archived:
        elsewhere = "" if args.all else "; --all searches every project"
        return f"no session matches{elsewhere}"
    if args.all:
        return 'there are no sessions yet: weft run "…" starts one, weft import brings in those of other programs'
    return (
        'this project has no sessions yet: weft run "…" starts one, weft session list --all lists all others'
    )


def to_row(session: SessionInfo) -> dict[str, Any]:
    """Return a session as OpenCode's `session list --format json` prints it. Our own fields are left out if empty."""
    data = get_weft_data(session)
    return {
        "id": session.id,
        "title": session.title,
        "updated": session.time.updated,
        "created": session.time.created,
        "projectId": session.project_id,
        "directory": session.directory,
        **({"parentId": session.parent_id} if session.parent_id else {}),
        **({"pinned": True} if data.pinned else {}),
        **({"tags": data.tags} if data.tags else {}),
        **({"archived": session.time.archived} if is_archived(session) else {}),
        **({"movedTo": data.departed.url} if data.departed and data.departed.done else {}),
    }


def print_sessions(sessions: Iterable[SessionInfo], *, now: int) -> None:
    paint = Paint(sys.stdout)
    lines = [paint.bold(f"{'Session ID':<{ID_WIDTH}}  {'Title':<{TITLE_WIDTH}}  Updated")]
    for session in sessions:
        data = get_weft_data(session)
        title = ("* " if data.pinned else "") + sanitize(session.title).replace("\n", " ")
        tags = f" · {', '.join(data.tags)}" if data.tags else ""
        if data.departed is not None and data.departed.done:
            tags += f" · moved to {data.departed.url}"
        shown_title = title if len(title) <= TITLE_WIDTH else title[: TITLE_WIDTH - 1] + "…"
        updated = paint.dim(format_time(session.time.updated, now=now) + sanitize(tags))
        lines.append(f"{session.id:<{ID_WIDTH}}  {shown_title:<{TITLE_WIDTH}}  {updated}")
    print("\n".join(lines))


def report_damage(reader: SessionReader) -> None:
    """Warn about each document that could not be read. It stays where it is, and the others are shown."""
    paint = Paint(sys.stderr)
    for damage in reader.problems():
        print(f"{paint.yellow('warning:')} {damage.where}: {damage.reason}; it is left out", file=sys.stderr)


def report_newer_store(reader: SessionReader) -> None:
    """If a later OpenCode keeps the sessions in a database, say so: that is why none are listed."""
    database = reader.store.find_opencode_database()
    if database is not None:
        how = f"weft import --from opencode-sqlite {database} copies them and leaves the database as it is"
        note = f"OpenCode 1.2 or later stores its sessions in {database}, which weft does not use ({how})"
        print(f"{Paint(sys.stderr).yellow('note:')} {note}", file=sys.stderr)


# --- tree ---


def add_tree_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "session", nargs="?", metavar="ID", help=f"{SESSION_HELP}; if left out, all sessions of the project"
    )
    add_format(parser)
    add_place(parser)


def show_tree(args: argparse.Namespace) -> int:
    """Draw a session with its child sessions, or all trees of the project, the most recently updated first."""
    reader = make_reader(args)
    if args.session is None:
        sessions = reader.list_sessions()
        roots = select_sessions(sessions, SessionQuery(roots=True, order="updated"))
    else:
        roots = [reader.get_session(args.session)]
        sessions = reader.list_descendants(roots[0].id)
    trees = [build_tree(sessions, root) for root in roots]
    if args.format == "json":
        value: object = trees if args.session is None else trees[0]
        write_json(value)
    else:
        paint, now = Paint(sys.stdout), read_clock()
        for tree in trees:
            for line in _draw_tree(tree, paint, now):
                print(line)
    report_damage(reader)
    return 0


def _draw_tree(tree: SessionTree, paint: Paint, now: int) -> Iterable[str]:
    session = tree.session
    title = sanitize(session.title).replace("\n", " ")
    yield f"{session.id}  {title}  {paint.dim(format_time(session.time.updated, now=now))}"
    for number, child in enumerate(tree.children, 1):
        corner, bar = ("└── ", "    ") if number == len(tree.children) else ("├── ", "│   ")
        first, *rest = _draw_tree(child, paint, now)
        yield corner + first
        yield from (bar + line for line in rest)


# --- todo and jobs ---


def add_todo_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    add_format(parser)
    add_place(parser)


def show_todos(args: argparse.Namespace) -> int:
    reader = make_reader(args)
    todos = reader.store.list_todos(reader.get_session(args.session).id)
    if args.format == "json":
        write_json(todos)
    else:
        paint = Paint(sys.stdout)
        for todo in todos:
            line = f"{TODO_MARKS.get(todo.status, '[ ]')} {sanitize(todo.content)}"
            print(paint.dim(line) if todo.status in ("completed", "cancelled") else line)
        if not todos:
            print("no todos", file=sys.stderr)
    report_damage(reader)
    return 0


def add_jobs_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    add_format(parser)
    add_place(parser)


def show_jobs(args: argparse.Namespace) -> int:
    """List the commands that run in the background for a session, whichever process started them."""
    from weft.host.paths import paths_from  # noqa: PLC0415  only this command needs it
    from weft.tool.shell.jobs import list_running  # noqa: PLC0415  it imports asyncio, and listing sessions must not

    session = make_reader(args).get_session(args.session)
    jobs = list_running(paths_from(os.environ).jobs, session.id)
    if args.format == "json":
        write_json(jobs)
    elif jobs:
        now = read_clock()
        rows = [
            (job.id, format_age(now - job.started), job.description, job.command, job.output) for job in jobs
        ]
        print("\n".join(to_table(("id", "started", "for", "command", "output"), rows, Paint(sys.stdout))))
    else:
        print("no jobs are running", file=sys.stderr)
    return 0

"""`weft session list|tree|todo|jobs`: read sessions from the files, without an event loop and without writing."""

import argparse
import gc
import os
import sys
from collections.abc import Iterable
from typing import Any

from weft.cli.arguments import WHICH_SESSION, add_format, add_place, add_session, parse_count
from weft.cli.output import Paint, format_age, format_time, sanitize, to_table, write_json
from weft.host.now import now as read_clock
from weft.local.reader import SessionReader
from weft.model.session import Session, SessionQuery, SessionTree, get_weft_data, is_archived
from weft.session.tree import build_tree, select_sessions

ID_WIDTH = 30
TITLE_WIDTH = 60
TODO_MARKS = {"completed": "[x]", "in_progress": "[>]", "cancelled": "[-]"}


def open_reading(chosen: argparse.Namespace) -> SessionReader:
    """Return a reader of the store that `--dir` and `--store` name."""
    return SessionReader(chosen.dir, os.environ, store=chosen.store)


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


def list_sessions(chosen: argparse.Namespace) -> int:
    """List matching sessions: pinned ones first, then the most recently updated."""
    gc.disable()  # a process that lives for a tenth of a second has nothing to collect, and looking costs a tenth of that
    reading = open_reading(chosen)
    query = SessionQuery(
        roots=not chosen.children,
        search=chosen.search,
        tag=chosen.tag,
        archived=chosen.archived,
        order="updated",
    )
    found = select_sessions(reading.list_sessions(everywhere=chosen.all), query)
    found.sort(key=lambda session: not get_weft_data(session).pinned)
    shown = found if chosen.max_count is None else found[: chosen.max_count]
    if chosen.format == "json":
        write_json([to_row(session) for session in shown])
    elif shown:
        print_sessions(shown, now=read_clock())
    report_damage(reading)
    if not found:
        report_newer_store(reading)
    return 0


def to_row(session: Session) -> dict[str, Any]:
    """Return a session as OpenCode's `session list --format json` prints it. Our own fields are left out if empty."""
    own = get_weft_data(session)
    return {
        "id": session.id,
        "title": session.title,
        "updated": session.time.updated,
        "created": session.time.created,
        "projectId": session.project_id,
        "directory": session.directory,
        **({"parentId": session.parent_id} if session.parent_id else {}),
        **({"pinned": True} if own.pinned else {}),
        **({"tags": own.tags} if own.tags else {}),
        **({"archived": session.time.archived} if is_archived(session) else {}),
    }


def print_sessions(sessions: Iterable[Session], *, now: int) -> None:
    paint = Paint(sys.stdout)
    rows = [paint.bold(f"{'Session ID':<{ID_WIDTH}}  {'Title':<{TITLE_WIDTH}}  Updated")]
    for session in sessions:
        own = get_weft_data(session)
        title = ("* " if own.pinned else "") + sanitize(session.title).replace("\n", " ")
        tags = f" · {', '.join(own.tags)}" if own.tags else ""
        cut = title if len(title) <= TITLE_WIDTH else title[: TITLE_WIDTH - 1] + "…"
        updated = paint.dim(format_time(session.time.updated, now=now) + sanitize(tags))
        rows.append(f"{session.id:<{ID_WIDTH}}  {cut:<{TITLE_WIDTH}}  {updated}")
    print("\n".join(rows))


def report_damage(reading: SessionReader) -> None:
    """Warn about each document that could not be read. It stays where it is, and the others are shown."""
    paint = Paint(sys.stderr)
    for damage in reading.problems():
        print(f"{paint.yellow('warning:')} {damage.where}: {damage.reason}; it is left out", file=sys.stderr)


def report_newer_store(reading: SessionReader) -> None:
    """If a later OpenCode keeps the sessions in a database, say so: that is why none are listed."""
    database = reading.store.find_newer_home()
    if database is not None:
        way = f"weft import --from opencode-sqlite {database} brings them here and leaves it as it is"
        said = f"OpenCode 1.2 or later keeps its sessions in {database}, which weft does not work in ({way})"
        print(f"{Paint(sys.stderr).yellow('note:')} {said}", file=sys.stderr)


# --- tree ---


def add_tree_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "session", nargs="?", metavar="ID", help=f"{WHICH_SESSION}; if left out, all sessions of the project"
    )
    add_format(parser)
    add_place(parser)


def show_tree(chosen: argparse.Namespace) -> int:
    """Draw a session with its child sessions, or all trees of the project, the most recently updated first."""
    reading = open_reading(chosen)
    if chosen.session is None:
        sessions = reading.list_sessions()
        roots = select_sessions(sessions, SessionQuery(roots=True, order="updated"))
    else:
        roots = [reading.get_session(chosen.session)]
        sessions = reading.store.list_sessions(roots[0].project_id)
    trees = [build_tree(sessions, root) for root in roots]
    if chosen.format == "json":
        shown: object = trees if chosen.session is None else trees[0]
        write_json(shown)
    else:
        paint, now = Paint(sys.stdout), read_clock()
        for tree in trees:
            for line in _draw(tree, paint, now):
                print(line)
    report_damage(reading)
    return 0


def _draw(tree: SessionTree, paint: Paint, now: int) -> Iterable[str]:
    session = tree.session
    title = sanitize(session.title).replace("\n", " ")
    yield f"{session.id}  {title}  {paint.dim(format_time(session.time.updated, now=now))}"
    for number, child in enumerate(tree.children, 1):
        corner, bar = ("└── ", "    ") if number == len(tree.children) else ("├── ", "│   ")
        first, *rest = _draw(child, paint, now)
        yield corner + first
        yield from (bar + line for line in rest)


# --- todo and jobs ---


def add_todo_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    add_format(parser)
    add_place(parser)


def show_todos(chosen: argparse.Namespace) -> int:
    reading = open_reading(chosen)
    todos = reading.store.list_todos(reading.get_session(chosen.session).id)
    if chosen.format == "json":
        write_json(todos)
    else:
        paint = Paint(sys.stdout)
        for todo in todos:
            line = f"{TODO_MARKS.get(todo.status, '[ ]')} {sanitize(todo.content)}"
            print(paint.dim(line) if todo.status in ("completed", "cancelled") else line)
        if not todos:
            print("no todos", file=sys.stderr)
    report_damage(reading)
    return 0


def add_jobs_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    add_format(parser)
    add_place(parser)


def show_jobs(chosen: argparse.Namespace) -> int:
    """List the commands that run in the background for a session, whichever process started them."""
    from weft.host.paths import paths_from  # noqa: PLC0415  only this command needs it
    from weft.tool.shell.jobs import list_running  # noqa: PLC0415  it imports asyncio, and listing sessions must not

    session = open_reading(chosen).get_session(chosen.session)
    found = list_running(paths_from(os.environ).jobs, session.id)
    if chosen.format == "json":
        write_json(found)
    elif found:
        now = read_clock()
        rows = [
            (job.id, format_age(now - job.started), job.description, job.command, job.output) for job in found
        ]
        print("\n".join(to_table(("id", "started", "for", "command", "output"), rows, Paint(sys.stdout))))
    else:
        print("no jobs are running", file=sys.stderr)
    return 0

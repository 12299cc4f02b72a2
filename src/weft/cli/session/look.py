"""`weft session tree` and `todo`: read from the files, without an event loop, writing nothing."""

import argparse
import sys
from collections.abc import Iterable

from weft.cli.paint import Paint, plain, write_json
from weft.cli.session.read import read
from weft.cli.sessions import told, warn_of_damage
from weft.host.now import now as read_clock
from weft.model.session import SessionQuery, SessionTree
from weft.session.tree import grow_tree, select

MARKS = {"completed": "[x]", "in_progress": "[>]", "cancelled": "[-]"}


def show_tree(chosen: argparse.Namespace) -> int:
    """A session and all below it, or the trees of the project, the one last worked on first."""
    reading = read(chosen.dir, chosen.store)
    if chosen.session is None:
        sessions = reading.list_sessions()
        roots = select(sessions, SessionQuery(roots=True, order="updated"))
    else:
        roots = [reading.get_session(chosen.session)]
        sessions = reading.tree.list_sessions(roots[0].project_id)
    trees = [grow_tree(sessions, root) for root in roots]
    if chosen.format == "json":
        shown: object = trees if chosen.session is None else trees[0]
        write_json(shown)
    else:
        paint, now = Paint(sys.stdout), read_clock()
        for tree in trees:
            for line in _drawn(tree, paint, now):
                print(line)
    warn_of_damage(reading)
    return 0


def _drawn(tree: SessionTree, paint: Paint, now: int) -> Iterable[str]:
    session = tree.session
    title = plain(session.title).replace("\n", " ")
    yield f"{session.id}  {title}  {paint.dim(told(session.time.updated, now=now))}"
    for number, child in enumerate(tree.children, 1):
        corner, bar = ("└── ", "    ") if number == len(tree.children) else ("├── ", "│   ")
        first, *rest = _drawn(child, paint, now)
        yield corner + first
        yield from (bar + line for line in rest)


def show_todos(chosen: argparse.Namespace) -> int:
    reading = read(chosen.dir, chosen.store)
    todos = reading.tree.list_todos(reading.get_session(chosen.session).id)
    if chosen.format == "json":
        write_json(todos)
    else:
        paint = Paint(sys.stdout)
        for todo in todos:
            line = f"{MARKS.get(todo.status, '[ ]')} {plain(todo.content)}"
            print(paint.dim(line) if todo.status in ("completed", "cancelled") else line)
        if not todos:
            print("no todos", file=sys.stderr)
    warn_of_damage(reading)
    return 0

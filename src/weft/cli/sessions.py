"""`weft session list` and `show`: read from the files, without an event loop, writing nothing."""

import argparse
import os
import sys
from collections.abc import Iterable
from time import localtime

from weft.app.reading import Reading
from weft.cli.paint import Paint, plain
from weft.host.now import now as read_clock
from weft.model.session import Session
from weft.model.wire import encode_pretty

ID_WIDTH = 30
TITLE_WIDTH = 60


def list_sessions(chosen: argparse.Namespace) -> int:
    """Root sessions, the one last worked on first."""
    reading = Reading(chosen.dir, os.environ, store=chosen.store)
    roots = [session for session in reading.list_sessions(everywhere=chosen.all) if session.parent_id is None]
    roots.sort(key=lambda session: session.time.updated, reverse=True)
    shown = roots if chosen.max_count is None else roots[: chosen.max_count]
    if chosen.format == "json":
        sys.stdout.write(encode_pretty([to_row(session) for session in shown]).decode() + "\n")
    elif shown:
        print_table(shown, now=read_clock())
    warn_of_damage(reading)
    return 0


def to_row(session: Session) -> dict[str, str | int]:
    """A session in a listing, under the names OpenCode's `session list --format json` uses."""
    return {
        "id": session.id,
        "title": session.title,
        "updated": session.time.updated,
        "created": session.time.created,
        "projectId": session.project_id,
        "directory": session.directory,
    }


def print_table(sessions: Iterable[Session], *, now: int) -> None:
    paint = Paint(sys.stdout)
    rows = [paint.bold(f"{'Session ID':<{ID_WIDTH}}  {'Title':<{TITLE_WIDTH}}  Updated")]
    for session in sessions:
        title = plain(session.title).replace("\n", " ")
        cut = title if len(title) <= TITLE_WIDTH else title[: TITLE_WIDTH - 1] + "…"
        rows.append(
            f"{session.id:<{ID_WIDTH}}  {cut:<{TITLE_WIDTH}}  {paint.dim(told(session.time.updated, now=now))}"
        )
    print("\n".join(rows))


def told(at: int, *, now: int) -> str:
    """A time as people say it: today's by the hour, the rest with the date. In their own time zone."""
    then, today = localtime(at / 1000), localtime(now / 1000)
    hour = f"{then.tm_hour:02}:{then.tm_min:02}"
    if then[:3] == today[:3]:
        return hour
    return f"{hour} · {then.tm_year}-{then.tm_mon:02}-{then.tm_mday:02}"


def warn_of_damage(reading: Reading) -> None:
    """Name what could not be read; it is left where it is, and hides nothing else."""
    paint = Paint(sys.stderr)
    for damage in reading.problems():
        print(f"{paint.yellow('warning:')} {damage.where}: {damage.reason}; it is left out", file=sys.stderr)

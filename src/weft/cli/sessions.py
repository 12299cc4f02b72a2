"""`weft session list` and `show`: read from the files, without an event loop, writing nothing."""

import argparse
import gc
import os
import sys
from collections.abc import Iterable
from time import localtime
from typing import Any

from weft.cli.paint import Paint, plain, write_json
from weft.host.now import now as read_clock
from weft.local.reader import Reading
from weft.model.session import Session, SessionQuery, is_archived, own_of
from weft.session.tree import select

ID_WIDTH = 30
TITLE_WIDTH = 60
DAY_MS = 86_400_000


def list_sessions(chosen: argparse.Namespace) -> int:
    """Those that fit, pinned ones first, then the one last worked on."""
    gc.disable()  # what lives for a tenth of a second has nothing to collect, and looking costs a tenth of that
    reading = Reading(chosen.dir, os.environ, store=chosen.store)
    query = SessionQuery(
        roots=not chosen.children,
        search=chosen.search,
        tag=chosen.tag,
        archived=chosen.archived,
        order="updated",
    )
    found = select(reading.list_sessions(everywhere=chosen.all), query)
    found.sort(key=lambda session: not own_of(session).pinned)
    shown = found if chosen.max_count is None else found[: chosen.max_count]
    if chosen.format == "json":
        write_json([to_row(session) for session in shown])
    elif shown:
        print_table(shown, now=read_clock())
    warn_of_damage(reading)
    if not found:
        tell_of_newer_home(reading)
    return 0


def to_row(session: Session) -> dict[str, Any]:
    """A session in a listing, under the names OpenCode's `session list --format json` uses; ours only if they say much."""
    own = own_of(session)
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


def print_table(sessions: Iterable[Session], *, now: int) -> None:
    paint = Paint(sys.stdout)
    rows = [paint.bold(f"{'Session ID':<{ID_WIDTH}}  {'Title':<{TITLE_WIDTH}}  Updated")]
    for session in sessions:
        own = own_of(session)
        title = ("* " if own.pinned else "") + plain(session.title).replace("\n", " ")
        tags = f" · {', '.join(own.tags)}" if own.tags else ""
        cut = title if len(title) <= TITLE_WIDTH else title[: TITLE_WIDTH - 1] + "…"
        rows.append(
            f"{session.id:<{ID_WIDTH}}  {cut:<{TITLE_WIDTH}}  {paint.dim(told(session.time.updated, now=now) + plain(tags))}"
        )
    print("\n".join(rows))


def told(at: int, *, now: int) -> str:
    """A time as people say it: today's by the hour, the rest with the date. In their own time zone."""
    then = localtime(at / 1000)
    hour = f"{then.tm_hour:02}:{then.tm_min:02}"
    if abs(now - at) < DAY_MS and then[:3] == localtime(now / 1000)[:3]:
        return hour
    return f"{hour} · {then.tm_year}-{then.tm_mon:02}-{then.tm_mday:02}"


def warn_of_damage(reading: Reading) -> None:
    """Name what could not be read; it is left where it is, and hides nothing else."""
    paint = Paint(sys.stderr)
    for damage in reading.problems():
        print(f"{paint.yellow('warning:')} {damage.where}: {damage.reason}; it is left out", file=sys.stderr)


def tell_of_newer_home(reading: Reading) -> None:
    """Say why nothing is shown to a person who has sessions: they are in a database of a later OpenCode."""
    database = reading.tree.find_newer_home()
    if database is not None:
        way = f"weft import --from opencode-sqlite {database} brings them here and leaves it as it is"
        said = f"OpenCode 1.2 or later keeps its sessions in {database}, which weft does not work in ({way})"
        print(f"{Paint(sys.stderr).yellow('note:')} {said}", file=sys.stderr)

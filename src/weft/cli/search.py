"""`weft session search`: words found in all sessions, best first."""

import argparse
import os
import sys

from weft.cli.paint import Paint, plain, write_json
from weft.cli.progress import Progress
from weft.cli.sessions import told, warn_of_damage
from weft.errors import IndexFailedError
from weft.host.now import now as read_clock
from weft.host.paths import paths_from
from weft.local.reader import Reading
from weft.model.search import Hit
from weft.search.database import doubt
from weft.search.library import Library

SHOWN = 20


def search_sessions(chosen: argparse.Namespace) -> int:
    reading = Reading(chosen.dir, os.environ, store=chosen.store)
    library = Library(reading.tree, paths_from(os.environ).cache, warn=warn_of_index)
    project = None if chosen.all else reading.project()
    limit = SHOWN if chosen.max_count is None else chosen.max_count
    with Progress("reading sessions for the index") as progress:
        hits = library.search(" ".join(chosen.words), limit=limit, project=project, progress=progress)
    if chosen.format == "json":
        write_json(hits)
    else:
        show(hits)
    warn_of_damage(reading)
    if said := doubt():
        print(f"{Paint(sys.stderr).yellow('warning:')} {said}", file=sys.stderr)
    return 0


def show(hits: list[Hit]) -> None:
    paint, now = Paint(sys.stdout), read_clock()
    for hit in hits:
        title = plain(hit.title).replace("\n", " ")
        archived = " · archived" if hit.archived else ""
        print(f"{paint.bold(hit.session_id)}  {title}  {paint.dim(told(hit.at, now=now) + archived)}")
        if hit.message_id is not None:
            print(f"    {highlighted(hit, paint)}")
    if not hits:
        print("nothing found", file=sys.stderr)


def highlighted(hit: Hit, paint: Paint) -> str:
    """The snippet on one line, with what was found in colour."""
    pieces, at = [], 0
    for start, end in hit.marks:
        pieces += [_on_one_line(hit.snippet[at:start]), paint.yellow(_on_one_line(hit.snippet[start:end]))]
        at = end
    return "".join((*pieces, _on_one_line(hit.snippet[at:]))).strip()


def _on_one_line(text: str) -> str:
    return plain(text.replace("\n", " ").replace("\t", " "))


def warn_of_index(error: IndexFailedError) -> None:
    paint = Paint(sys.stderr)
    print(f"{paint.yellow('warning:')} {error}; reading everything instead", file=sys.stderr)

"""`weft session search`: find words in sessions, best match first."""

import argparse
import sys

from weft.cli.arguments import add_format, add_place, parse_count
from weft.cli.output import Paint, ProgressLine, format_time, print_note, sanitize, write_json
from weft.cli.session import make_reader, report_damage
from weft.errors import InvalidInputError
from weft.host.now import now as read_clock
from weft.model.search import Hit

DEFAULT_COUNT = 20


def add_search_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "words",
        nargs="+",
        metavar="WORDS",
        help="""words that must all occur; '"several words"', in both kinds of quotes, match as a phrase""",
    )
    add("-n", "--max-count", type=parse_count, metavar="N", help="show at most N hits (default 20)")
    add("--all", action="store_true", help="search the sessions of every project")
    add_format(parser)
    add_place(parser)


def search_sessions(args: argparse.Namespace) -> int:
    if not " ".join(args.words).strip():
        raise InvalidInputError("WORDS", "they are empty", hint="weft session list lists all sessions")
    reader = make_reader(args)
    project = None if args.all else reader.project()
    limit = DEFAULT_COUNT if args.max_count is None else args.max_count
    with ProgressLine("reading sessions for the index") as progress:
        hits = reader.store.search(" ".join(args.words), limit=limit, project=project, progress=progress)
    if args.format == "json":
        write_json(hits)
    else:
        print_hits(hits)
        if not hits and limit:
            print_note("nothing found" if args.all else "nothing found; --all searches every project")
    report_damage(reader)
    return 0


def print_hits(hits: list[Hit]) -> None:
    paint, now = Paint(sys.stdout), read_clock()
    for hit in hits:
        title = sanitize(hit.title).replace("\n", " ")
        archived = " · archived" if hit.archived else ""
        print(f"{paint.bold(hit.session_id)}  {title}  {paint.dim(format_time(hit.at, now=now) + archived)}")
        if hit.message_id is not None:
            print(f"    {highlight(hit, paint)}")


def highlight(hit: Hit, paint: Paint) -> str:
    """Return the snippet on one line, with the matches in colour."""
    pieces, position = [], 0
    for start, end in hit.marks:
        pieces += [
            _to_one_line(hit.snippet[position:start]),
            paint.yellow(_to_one_line(hit.snippet[start:end])),
        ]
        position = end
    return "".join((*pieces, _to_one_line(hit.snippet[position:]))).strip()


def _to_one_line(text: str) -> str:
    return sanitize(text.replace("\n", " ").replace("\t", " "))

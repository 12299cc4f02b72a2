"""`weft compare`: show sessions side by side, also while they run."""

import argparse
import os
import sys
from collections.abc import Iterator

from weft.cli.arguments import add_place, parse_positive
from weft.cli.exit import ExitCode
from weft.cli.output import (
    Paint,
    format_cost,
    sanitize,
    shorten_line,
    to_table,
    warn,
    write_json,
)
from weft.cli.prompt import parse_model
from weft.cli.run import run_to_end
from weft.cli.session import make_reader
from weft.local.open import OpenOptions, open_directory
from weft.model.ids import SessionID
from weft.model.spending import Spent
from weft.model.trial import ComparedSession, CompareInput, Comparison
from weft.page.comparison import format_check, format_divergence, format_seconds, render_comparison

HEADER = (
    "",
    "session",
    "model",
    "outcome",
    "check",
    "files",
    "lines",
    "steps",
    "tokens",
    "cost",
    "time",
    "differs",
)
RIGHT = "files lines steps tokens cost time"
ID_LENGTH = 16
THOUSAND = 1000
SIDE_LENGTH = 300
OUTPUT_LINES = 5
IDS_HELP = "the sessions to compare; a single trial means all trials of its prompt (default: the last trials)"


def add_compare_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("sessions", nargs="*", metavar="ID", help=IDS_HELP)
    add_check(parser)
    add_judge(parser)
    add(
        "--format",
        choices=("table", "json", "html"),
        default="table",
        help="html: one page that needs nothing else",
    )
    add_place(parser)
    parser.epilog = (
        "It works while trials run. A check runs in the worktrees of trials that have ended, and its result is stored.\n"
        '  weft try -n 3 --check "make test" "fix the parser"   weft compare   weft compare --format html > page.html'
    )


def add_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--check",
        nargs="?",
        const="",
        metavar="COMMAND",
        help="run this command in each worktree; without a command, the one that was given to weft try",
    )
    add_check_seconds(parser, default="as passed to weft try, else 600")


def add_check_seconds(parser: argparse.ArgumentParser, *, default: str) -> None:
    parser.add_argument(
        "--check-seconds",
        type=parse_positive,
        metavar="N",
        help=f"end a check after N seconds (default: {default})",
    )


def add_judge(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--judge", metavar="PROVIDER/MODEL", help="let this model rank them, and show its reasons"
    )


def compare_command(args: argparse.Namespace) -> int:
    reader = make_reader(args)
    ids = tuple(SessionID(reader.get_session(each).id) for each in args.sessions)
    input = CompareInput(
        sessions=ids,
        run_check=args.check is not None,
        check=args.check or "",
        seconds=args.check_seconds,
        judge=parse_model(args.judge),
    )

    async def compare(_: object) -> int:
        async with open_directory(
            OpenOptions(directory=args.dir, env=os.environ, store=args.store, warn=warn)
        ) as api:
            comparison = await api.trials.compare(input)
        show_comparison(comparison, args.format)
        return ExitCode.DONE

    return run_to_end(compare, own_process=args.own_process)


def show_comparison(comparison: Comparison, format: str, *, remarks: bool = True) -> None:
    """Print a comparison as a table, as JSON or as a page. `remarks` come after the table."""
    if format == "json":
        write_json(comparison)
    elif format == "html":
        sys.stdout.write(render_comparison(comparison).decode())
    else:
        paint = Paint(sys.stdout)
        print("\n".join(to_table(HEADER, [*map(_to_row, *_number(comparison))], paint, right=RIGHT)))
        for line in _list_remarks(comparison, paint) if remarks else ():
            print(line)


def _number(comparison: Comparison) -> tuple[range, tuple[ComparedSession, ...]]:
    return range(1, len(comparison.sessions) + 1), comparison.sessions


def _to_row(number: int, row: ComparedSession) -> tuple[str, ...]:
    return (
        str(number),
        row.session[:ID_LENGTH],
        row.model,
        row.outcome,
        format_check(row.check),
        str(row.files),
        f"+{row.additions} -{row.deletions}",
        str(row.spent.steps),
        _format_count(count_tokens(row.spent)),
        format_cost(row.spent),
        format_seconds(row.ms),
        format_divergence(row.divergence),
    )


def count_tokens(spent: Spent) -> int:
    return spent.input + spent.output + spent.reasoning + spent.cache_read + spent.cache_write


def _format_count(count: int) -> str:
    return f"{count / THOUSAND:.1f}k" if count >= THOUSAND else str(count)


def _list_remarks(comparison: Comparison, paint: Paint) -> Iterator[str]:
    yield paint.dim(f"together {format_cost(comparison.spent)}")
    for number, row in enumerate(comparison.sessions, start=1):
        if row.detail and row.outcome != "empty":
            yield f"{number} {row.outcome}: {shorten_line(sanitize(row.detail), SIDE_LENGTH)}"
        if row.check is not None and row.check.dirtied:
            files = ", ".join(map(sanitize, row.check.dirtied[:OUTPUT_LINES]))
            yield paint.yellow(f"{number} the check changes files; they were put back: {files}")
        if row.check is not None and row.check.outcome != "passed":
            tail = sanitize(row.check.output).strip().splitlines()[-OUTPUT_LINES:]
            yield from (paint.dim(f"{number} │ {line}") for line in tail)
        if row.divergence is not None:
            yield f"{number} differs from 1 at step {row.divergence.step} ({row.divergence.what}):"
            yield paint.dim(f"  1 {shorten_line(row.divergence.one, SIDE_LENGTH)}")
            yield paint.dim(f"  {number} {shorten_line(row.divergence.other, SIDE_LENGTH)}")
    if comparison.judgement is not None:
        numbers = {row.session: number for number, row in enumerate(comparison.sessions, start=1)}
        judgement = comparison.judgement
        yield paint.bold(
            f"{judgement.model} ranks them ({format_cost(judgement.spent)}, session {judgement.session}):"
        )
        for ranking in judgement.rankings:
            yield f"{ranking.rank}. session {numbers[ranking.session]}: {sanitize(ranking.reasons)}"

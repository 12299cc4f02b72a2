"""`weft blame` and `weft log`: who wrote the lines of a file, and which sessions changed it."""

import argparse
import os
import sys
from collections.abc import Iterator
from typing import Any, Final

from weft.blame.history import BlameSource
from weft.blame.report import blame_file, locate_file, parse_target, read_file_log
from weft.blame.trace import to_trace_record
from weft.cli.arguments import add_format, add_place
from weft.cli.exit import ExitCode
from weft.cli.output import Paint, ProgressLine, format_time, sanitize, shorten_line, to_table, write_json
from weft.cli.session import make_reader, report_damage
from weft.dataset.changes import list_changed_paths
from weft.errors import GitError, InvalidInputError
from weft.host.git import Git
from weft.host.now import now as read_clock
from weft.local.data import StoredData
from weft.local.reader import SessionReader
from weft.model.data import Author, FileBlame, FileLog, FileStep
from weft.model.display import format_count
from weft.model.wire import encode

NOTES_REF: Final = "refs/notes/agent-trace"
PROMPT_WIDTH: Final = 40
SHORT_ID: Final = 14


def add_blame_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE[:LINE[-LINE]]",
        help="a file, or some of its lines; with --notes it may be left out, for all files that sessions changed",
    )
    add_format(parser, ("table", "json", "agent-trace"))
    parser.add_argument(
        "--notes",
        action="store_true",
        help=f"attach the authors as an Agent Trace record to the checked-out commit, as a git note in {NOTES_REF}",
    )
    add_place(parser)


def blame_command(args: argparse.Namespace) -> int:
    if not args.files and not args.notes:
        raise InvalidInputError("FILE", "none is named", hint="try: weft blame README.md")
    reader = make_reader(args)
    with ProgressLine("reading sessions") as progress:
        source = StoredData(reader).open_source(progress)
    if args.notes:
        _write_notes(args, source)
    else:
        blames = [_blame(source, args, target) for target in args.files]
        if args.format == "json":
            write_json(blames[0] if len(blames) == 1 else blames)
        elif args.format == "agent-trace":
            write_json(_to_record(source, blames))
        else:
            for blame in blames:
                _print_blame(blame, many=len(blames) > 1)
    report_damage(reader)
    return ExitCode.DONE


def _blame(source: BlameSource, args: argparse.Namespace, target: str) -> FileBlame:
    path, lines = parse_target(target)
    # A file may be called "a:1".
    if lines is not None and os.path.lexists(os.path.join(args.dir, target)):
        path, lines = target, None
    return blame_file(source, locate_file(source.root, args.dir, path), lines)


def _to_record(source: BlameSource, blames: list[FileBlame]) -> dict[str, Any]:
    """Return the trace record. It names the commit only if the files are as they were committed."""
    clean = bool(blames) and all(_is_committed(source, blame) for blame in blames)
    return to_trace_record(blames, revision=blames[0].revision if clean else None, now=read_clock())


def _is_committed(source: BlameSource, blame: FileBlame) -> bool:
    try:
        committed = Git(source.environ).find_committed(source.root, blame.path)
    except GitError:
        return False
    with open(os.path.join(source.root, blame.path), "rb") as file:
        return committed is not None and os.fsencode(committed) == file.read()


def _write_notes(args: argparse.Namespace, source: BlameSource) -> None:
    commit = Git(source.environ).find_commit(source.root)
    if commit is None:
        raise InvalidInputError(
            "--notes", "nothing is committed here that a note could be attached to", hint="commit first"
        )
    blames = list(_list_committed(args, source))
    if not blames:
        raise InvalidInputError(
            "--notes",
            "no file that a session changed is as it was committed",
            hint="commit the files first",
        )
    record = to_trace_record(blames, revision=commit, now=read_clock())
    Git(source.environ).write_note(source.root, commit, encode(record).decode() + "\n", ref=NOTES_REF)
    files = format_count(len(blames), "file")
    print(
        f"attached the authors of {files} to {commit[:12]}: git notes --ref={NOTES_REF} show", file=sys.stderr
    )


def _list_committed(args: argparse.Namespace, source: BlameSource) -> Iterator[FileBlame]:
    named = [locate_file(source.root, args.dir, parse_target(target)[0]) for target in args.files]
    for path in named or list_changed_paths(source.dataset, source.project):
        whole = os.path.join(source.root, path)
        if not named and not (os.path.isfile(whole) and not os.path.islink(whole)):
            continue
        try:
            blame = blame_file(source, path)
        except InvalidInputError:
            if named:
                raise
            continue  # a binary file has no lines
        if _is_committed(source, blame):
            yield blame
        else:
            print(f"{sanitize(path)} is left out: it differs from the commit", file=sys.stderr)


# --- printing ---


def _print_blame(blame: FileBlame, *, many: bool) -> None:
    paint, now = Paint(sys.stdout), read_clock()
    if many:
        print(paint.bold(sanitize(blame.path)))
    labels = [_describe(author, now) for author in blame.authors]
    width = max((len(label) for label in labels), default=0)
    digits = len(str(blame.lines[-1].number)) if blame.lines else 1
    last: int | None = None
    for line in blame.lines:
        label = labels[line.author] if line.author != last else ""
        last = line.author
        text = sanitize(line.text.replace("\t", "    "))
        print(f"{paint.dim(label.ljust(width))}  {line.number:>{digits}}  {text}".rstrip())
    if blame.note:
        print(blame.note, file=sys.stderr)


def _describe(author: Author, now: int) -> str:
    """Describe an author on one line: session, step, model, time, cost and prompt."""
    if author.kind == "person":
        return "a person"
    if author.kind == "unknown":
        return "unknown"
    model = f"{author.provider_id}/{author.model_id}" if author.model_id else "no model"
    time = "" if author.time is None else format_time(author.time, now=now)
    prompt = shorten_line(sanitize(author.prompt), PROMPT_WIDTH)
    session = (author.session_id or "")[:SHORT_ID]
    return f'{session} step {author.step}  {model}  {time}  {format_step_cost(author)}  "{prompt}"'


def format_step_cost(author: Author) -> str:
    known = "" if author.priced else " and more"
    return "" if author.cost is None else f"${author.cost:.4f}{known}"


# --- log ---


def add_log_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a file; it may have been removed")
    add_format(parser)
    add_place(parser)


def log_command(args: argparse.Namespace) -> int:
    reader: SessionReader = make_reader(args)
    with ProgressLine("reading sessions") as progress:
        source = StoredData(reader).open_source(progress)
    log = read_file_log(source, locate_file(source.root, args.dir, args.file))
    if args.format == "json":
        write_json(log)
    else:
        _print_log(log)
    report_damage(reader)
    return ExitCode.DONE


def _print_log(log: FileLog) -> None:
    now = read_clock()
    rows = [_to_log_row(step, now) for step in log.steps]
    header = ["When", "Session", "Step", "Tool", "Added", "Removed", "Model", "Cost", "Prompt"]
    if any(step.author.path != log.path for step in log.steps):  # it had another name
        header.append("File")
        rows = [(*row, step.author.path) for row, step in zip(rows, log.steps, strict=True)]
    if rows:
        print("\n".join(to_table(header, rows, Paint(sys.stdout), right="Step Added Removed Cost")))
    if log.note:
        print(log.note, file=sys.stderr)


def _to_log_row(step: FileStep, now: int) -> tuple[str, ...]:
    author = step.author
    return (
        "" if author.time is None else format_time(author.time, now=now),
        author.session_id or "",
        str(author.step),
        author.tool + (" (undone)" if step.undone else ""),
        "?" if step.additions is None else f"+{step.additions}",
        "?" if step.deletions is None else f"-{step.deletions}",
        f"{author.provider_id}/{author.model_id}",
        format_step_cost(author),
        shorten_line(author.prompt, PROMPT_WIDTH),
    )

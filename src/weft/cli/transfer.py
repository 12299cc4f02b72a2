"""`weft export` and `weft import`: move sessions between stores, machines and programs."""

import argparse
import asyncio
import os
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

from weft.cli.arguments import add_format, add_place
from weft.cli.exit import ExitCode
from weft.cli.output import (
    Paint,
    ProgressLine,
    ask,
    escape_json,
    print_note,
    sanitize,
    to_table,
    write_json,
)
from weft.cli.session import make_reader, report_damage
from weft.errors import DocumentError, InvalidInputError, StoreError
from weft.local.bulk_import import ImportReport, ImportRequest, open_importer
from weft.local.reader import SessionReader
from weft.model.display import format_count
from weft.model.session import SessionInfo
from weft.model.session_query import SessionQuery
from weft.model.transfer import ExportCounts, ImportResult, SessionExport
from weft.model.wire import encode_pretty
from weft.transfer.bundle import write_bundle
from weft.transfer.document import to_document
from weft.transfer.rebind import parse_rebind
from weft.transfer.redact import RedactedSecret, Redactor

# Where each program usually keeps its sessions.
IMPORT_PLACES = {
    "opencode": "~/.local/share/opencode/storage",
    "opencode-sqlite": "~/.local/share/opencode/opencode.db",
    "claude": "~/.claude/projects",
    "codex": "~/.codex/sessions",
}
OUTPUT_HINT = "name a file in a directory that exists and that you may write to"
MAX_CHOICES = 10
MAX_ROWS = 50
HASH_LENGTH = 12
MAX_TITLE_LENGTH = 40


def add_export_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "session",
        nargs="?",
        metavar="ID",
        help="the session; if left out, you choose one, or it is the last one",
    )
    add("--all", action="store_true", help="export every session of this project, as a bundle")
    add("-o", "--output", metavar="FILE", help="write to this file instead of to standard output")
    add("--bundle", metavar="FILE", help="write one file with child sessions, attachments, todos and diffs")
    add("--atif", action="store_true", help="export a trajectory in the format ATIF, with child sessions")
    add(
        "--csv",
        metavar="DIR",
        help="write the sessions of this project, or the one that is named, as tables, one CSV file each",
    )
    add("--parquet", metavar="DIR", help="the same as Parquet files; needs the extra weft[parquet]")
    add("--every-project", action="store_true", help="with --csv or --parquet: the sessions of every project")
    add("--redact", action="store_true", help="redact keys, tokens and passwords")
    add("--preview", action="store_true", help="with --redact: only show what would be redacted")
    add("--format", choices=("default", "json"), default="default", help="how to print the preview")
    add_place(parser)


def export_command(args: argparse.Namespace) -> int:
    if args.preview and not args.redact:
        raise InvalidInputError(
            "--preview", "it shows what --redact would redact", hint="pass --redact --preview"
        )
    if args.all and not (args.bundle or args.preview):
        raise InvalidInputError("--all", "more than one session needs a bundle", hint="pass --bundle FILE")
    _check_export_kinds(args)
    reader = make_reader(args)
    if args.csv or args.parquet:
        _export_tables(args, reader)
        report_damage(reader)
        return ExitCode.DONE
    sessions = _choose_sessions(args, reader)
    redactor = _scan_for_secrets(reader, sessions) if args.redact else None
    if redactor is not None and args.preview:
        _print_preview(redactor, reader, sessions, as_json=args.format == "json")
    elif args.atif:
        _write_trajectory(args.output, reader, sessions, redactor)
    elif args.bundle:
        _write_bundle(args.bundle, reader, sessions, redactor)
    else:
        _write_document(args.output, _read_redacted_export(reader, sessions[0], redactor))
    report_damage(reader)
    return ExitCode.DONE


def _choose_sessions(args: argparse.Namespace, reader: SessionReader) -> list[SessionInfo]:
    """Return the sessions to export, parents before children. Bundles and trajectories include child sessions."""
    if args.all:
        return sorted(reader.list_sessions(), key=lambda session: session.parent_id is not None)
    root = reader.get_session(args.session) if args.session else _pick_session(reader)
    return [root, *reader.list_descendants(root.id)] if args.bundle or args.atif else [root]


def _check_export_kinds(args: argparse.Namespace) -> None:
    kinds = ("bundle", "atif", "csv", "parquet")
    chosen = [f"--{kind}" for kind in kinds if getattr(args, kind)]
    if len(chosen) > 1:
        raise InvalidInputError(chosen[1], f"it cannot be combined with {chosen[0]}", hint="pass one of them")
    if (args.csv or args.parquet) and (args.redact or args.output or args.all):
        raise InvalidInputError(
            chosen[0],
            "it writes whole tables into a directory",
            hint="leave out --redact, --output and --all; an ID exports one session",
        )


def _export_tables(args: argparse.Namespace, reader: SessionReader) -> None:
    from weft.dataset.database import refresh_from_reader  # noqa: PLC0415  few exports are tables
    from weft.dataset.export import export_tables  # noqa: PLC0415  few exports are tables
    from weft.local.data import StoredData  # noqa: PLC0415  few exports are tables

    session = reader.get_session(args.session) if args.session else None
    project = None if args.every_project or session else reader.project()
    dataset = StoredData(reader).dataset
    with ProgressLine("reading sessions") as progress:
        refresh_from_reader(dataset, reader.store, project, progress)
    directory = args.csv or args.parquet
    counts = export_tables(
        dataset,
        directory,
        "csv" if args.csv else "parquet",
        project=project,
        session=session.id if session else None,
    )
    rows = ", ".join(f"{format_count(count, 'row')} of {name}" for name, count in counts.items() if count)
    print(f"{directory}: {rows or 'no rows'}", file=sys.stderr)


def _write_trajectory(
    output: str | None, reader: SessionReader, sessions: list[SessionInfo], redactor: Redactor | None
) -> None:
    from weft.session.revert_point import cut_at_revert  # noqa: PLC0415  few exports are trajectories
    from weft.transfer.atif import to_trajectory  # noqa: PLC0415  few exports are trajectories

    found = {
        each.id: (
            each,
            cut_at_revert(each.revert, _read_redacted_export(reader, each, redactor).messages).kept,
        )
        for each in sessions
    }
    root, history = found.pop(sessions[0].id)
    raw = encode_pretty(to_trajectory(root, history, found)) + b"\n"
    if output is None:
        sys.stdout.buffer.write(escape_json(raw.decode()).encode())
        sys.stdout.buffer.flush()
        return
    with _open_output(output) as file:
        file.write(raw)


def _pick_session(reader: SessionReader) -> SessionInfo:
    """Let the person choose a session; without a person, return the last one of this directory."""
    roots = reader.query_sessions(SessionQuery(roots=True, order="updated", limit=MAX_CHOICES))
    if not roots:
        raise InvalidInputError(
            "ID", "this project has no sessions", hint="name one of another project: weft session list --all"
        )
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        last = reader.get_last_session()
        print(f"exporting the session last worked on: {last.id}", file=sys.stderr)
        return last
    for number, session in enumerate(roots, 1):
        print(f"{number:>3}  {session.id}  {sanitize(session.title)}", file=sys.stderr)
    answer = ask("which one? [1] ").strip() or "1"
    with suppress(ValueError, IndexError):
        return roots[int(answer) - 1]
    raise InvalidInputError(
        "choice", f"{answer[:40]!r} is not one of the choices", hint=f"type a number from 1 to {len(roots)}"
    )


def _read_export(reader: SessionReader, session: SessionInfo) -> SessionExport:
    return SessionExport(
        info=session,
        messages=tuple(reader.store.list_messages(session.id)),
        todos=tuple(reader.store.list_todos(session.id)),
        diff=tuple(reader.store.list_diff(session.id)),
    )


def _read_redacted_export(
    reader: SessionReader, session: SessionInfo, redactor: Redactor | None
) -> SessionExport:
    if sys.stderr.isatty():
        print(f"Exporting session: {session.id}", file=sys.stderr)
    export = _read_export(reader, session)
    return export if redactor is None else redactor.redact(export)


def _scan_for_secrets(reader: SessionReader, sessions: list[SessionInfo]) -> Redactor:
    """Look for secrets in all sessions before anything is written: one message may reveal what another contains."""
    redactor = Redactor()
    for session in sessions:
        redactor.scan(_read_export(reader, session))
    return redactor


def _write_document(output: str | None, export: SessionExport) -> None:
    raw = to_document(export)
    if output is None:
        sys.stdout.buffer.write(escape_json(raw.decode()).encode())
        sys.stdout.buffer.flush()
        return
    with _open_output(output) as file:
        file.write(raw)


def _write_bundle(
    path: str, reader: SessionReader, sessions: list[SessionInfo], redactor: Redactor | None
) -> None:
    with _open_output(path) as file:
        exports = (_read_redacted_export(reader, session, redactor) for session in sessions)
        manifest = write_bundle(file, exports, redacted=redactor is not None)
    messages = sum(session.counts.messages for session in manifest.sessions)
    files = len(manifest.attachments)
    print(
        f"{path}: {format_count(len(manifest.sessions), 'session')}, {format_count(messages, 'message')}, {format_count(files, 'attachment')}",
        file=sys.stderr,
    )


@contextmanager
def _open_output(path: str) -> Generator[IO[bytes]]:
    """Open a file that appears only when it is complete, and that only its owner can read."""
    temp = f"{path}.{os.getpid()}.part"
    try:
        with open(os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            yield file
        os.replace(temp, path)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}", hint=OUTPUT_HINT) from error
    finally:
        with suppress(OSError):
            os.unlink(temp)


def _print_preview(
    redactor: Redactor, reader: SessionReader, sessions: list[SessionInfo], *, as_json: bool
) -> None:
    for session in sessions:
        redactor.redact(_read_export(reader, session))  # this counts how often each secret occurs
    secrets = redactor.findings()
    if as_json:
        write_json([_to_secret_row(secret) for secret in secrets])
        return
    rows = [(secret.placeholder, secret.glimpse, str(secret.times), secret.where) for secret in secrets]
    for line in to_table(
        ("Redacted as", "Secret", "Times", "First in"), rows, Paint(sys.stdout), right="Times"
    ):
        print(line)
    print(f"\n{format_count(len(secrets), 'secret')} would be redacted; nothing was written", file=sys.stderr)


def _to_secret_row(secret: RedactedSecret) -> dict[str, str | int]:
    return {
        "kind": secret.kind,
        "placeholder": secret.placeholder,
        "glimpse": secret.glimpse,
        "times": secret.times,
        "where": secret.where,
    }


def add_import_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "path",
        metavar="FILE",
        help="an exported session or bundle; with --from, the directory or file where that program keeps its data",
    )
    add(
        "--from",
        dest="kind",
        choices=tuple(IMPORT_PLACES),
        default="",
        help="import all sessions of this program",
    )
    add(
        "--rebind",
        action="append",
        default=[],
        metavar="OLD=NEW",
        help="replace the directory OLD with NEW in all paths (repeatable)",
    )
    add("--dry-run", action="store_true", help="only show what would happen to each session")
    add_format(parser)
    add_place(parser)


def import_command(args: argparse.Namespace) -> int:
    request = ImportRequest(
        path=args.path,
        kind=args.kind,
        rebinds=tuple(parse_rebind(text) for text in args.rebind),
        dry_run=args.dry_run,
    )
    try:
        report = asyncio.run(_import(args, request))
    except DocumentError as error:
        error.hint = error.hint or _explain_place(request)
        raise
    if args.format == "json":
        write_json(_to_import_report(report, request))
    else:
        _print_report(report, request, Paint(sys.stdout))
        _print_troubles(report, Paint(sys.stderr))
    return ExitCode.FAILED if report.troubles else ExitCode.DONE


def _explain_place(request: ImportRequest) -> str:
    place = IMPORT_PLACES.get(request.kind)
    return f"the sessions of {request.kind} are usually in {place}" if place else ""


async def _import(args: argparse.Namespace, request: ImportRequest) -> ImportReport:
    async with open_importer(args.dir, os.environ, store=args.store, dry_run=request.dry_run) as importer:
        with ProgressLine("importing") as progress:
            return await importer.run(request, progress)


def _print_report(report: ImportReport, request: ImportRequest, paint: Paint) -> None:
    verb = "Would import" if request.dry_run else "Imported"
    if len(report.received) == 1 and not request.kind:
        [result] = report.received
        print(f"{verb} session: {result.id}")  # OpenCode's own words, which programs parse
        print(paint.dim(_describe_import(result)))
        return
    if len(report.received) <= MAX_ROWS:
        if not report.received and not report.troubles:
            print_note(f"there are no sessions in {sanitize(request.path)}; {_explain_place(request)}")
            return
        for line in _format_sessions(report, paint):
            print(line)
        print()
    for line in _format_totals(report, paint):
        print(line)
    verdicts = Counter(result.verdict for result in report.received)
    summary = ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in sorted(verdicts)) or "nothing found"
    print(f"\n{verb}: {summary}")
    if len(report.received) > MAX_ROWS:
        print(paint.dim("each session with its hash: --format json"))


def _format_sessions(report: ImportReport, paint: Paint) -> Iterator[str]:
    rows = [
        (
            result.id,
            sanitize(result.title)[:MAX_TITLE_LENGTH],
            result.verdict,
            _format_change(result.before.messages, result.after.messages),
            _format_change(result.before.parts, result.after.parts),
            result.digest[:HASH_LENGTH],
        )
        for result in report.received
    ]
    return to_table(("Session", "Title", "", "Messages", "Parts", "Hash"), rows, paint)


def _format_totals(report: ImportReport, paint: Paint) -> Iterator[str]:
    before, after, count = report.before, report.after, len(report.received)
    rows = [("sessions", f"{count + report.refused:,}", f"{count:,}")]
    rows += [
        (name, f"{getattr(before, name):,}", f"{getattr(after, name):,}")
        for name in ("messages", "parts", "todos", "diffs")
    ]
    return to_table(("", "Before", "After"), rows, paint, right="Before After")


def _format_change(before: int, after: int) -> str:
    return f"{before:,}" if before == after else f"{before:,} -> {after:,}"


def _describe_import(result: ImportResult) -> str:
    """Describe in a sentence what was imported."""
    counts: ExportCounts = result.after
    size = f"{format_count(counts.messages, 'message')}, {format_count(counts.parts, 'part')}"
    match result.verdict:
        case "new":
            return f"new: {size}"
        case "same":
            return f"already stored, without any difference: {size}"
        case "older":
            return f"nothing to do: the stored session has all of it and more ({size})"
        case "updated":
            return f"the stored session was brought up to date: {size}"
        case "forked":
            return f"both were continued, so it is stored next to {result.origin}: {size}"


def _print_troubles(report: ImportReport, paint: Paint) -> None:
    for trouble in report.troubles:
        print(
            f"{paint.yellow('warning:')} {sanitize(trouble.where)}: {sanitize(trouble.reason)}; it is left out",
            file=sys.stderr,
        )


def _to_import_report(report: ImportReport, request: ImportRequest) -> dict[str, Any]:
    return {
        "dryRun": request.dry_run,
        "refused": report.refused,
        "sessions": list(report.received),
        "before": report.before,
        "after": report.after,
        "troubles": [{"where": each.where, "reason": each.reason} for each in report.troubles],
    }

"""`weft undo` and `weft redo`: undo prompts of a session and their changes to files, and redo them."""

import argparse
import asyncio
import os
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, TextIO

from msgspec import Struct

from weft.cli.arguments import SESSION_HELP, add_format, add_place, add_yes
from weft.cli.exit import ExitCode
from weft.cli.output import Paint, confirm, sanitize, write_json
from weft.cli.session import make_reader
from weft.errors import InvalidInputError, RestoreFailedError
from weft.host.processes import describe_process
from weft.host.tasks import run_to_completion
from weft.local.offline import OfflineSessions, open_offline_sessions
from weft.local.undo import open_undoer
from weft.model.diff import Fate, FileFate
from weft.model.display import format_count
from weft.model.ids import MessageID, SessionID
from weft.model.message import MessageWithParts
from weft.model.session import RevertResult, Session
from weft.model.wire import to_plain
from weft.session.revert_point import (
    RevertScope,
    choose_message,
    cut_at_revert,
    cut_history,
    find_last_turn,
    find_point,
    get_first_line,
)
from weft.session.settle import to_settling_events
from weft.undo.recovery import Undoer
from weft.undo.revert import revert, unrevert

FATE_TEXTS: dict[Fate, str] = {
    "restored": "restored",
    "removed": "removed",
    "unchanged": "as it was",
    "kept": "kept",
    "uncovered": "not covered",
    "missing": "missing",
}
FATE_WIDTH = max(len(word) for word in FATE_TEXTS.values())
MAX_TITLE_LENGTH = 60


class UndoOutcome(Struct, frozen=True, kw_only=True):
    """What an undo or redo did, or would do, and a sentence about the session afterwards."""

    result: RevertResult
    position: str


UndoAction = Callable[
    [Undoer, Session, Sequence[MessageWithParts], RevertScope], Coroutine[Any, Any, UndoOutcome]
]


def add_undo_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", nargs="?", default="last", metavar="SESSION", help=SESSION_HELP)
    parser.add_argument(
        "--to", metavar="MESSAGE", help="undo everything from this message on (default: the last prompt)"
    )
    _add_common_arguments(parser)


def undo(args: argparse.Namespace) -> int:
    """Undo the last prompt, or everything from a message on."""

    async def undo_from_target(
        undoer: Undoer, session: Session, history: Sequence[MessageWithParts], scope: RevertScope
    ) -> UndoOutcome:
        target = _find_target(args.to, session, history)
        undone = cut_history(history, find_point(history, target)).removed
        result = await revert(undoer, session, history, (target, None), scope)
        return UndoOutcome(result=result, position=_format_position(undone))

    return asyncio.run(_carry_out(args, undo_from_target, "Undo"))


def add_redo_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", nargs="?", default="last", metavar="SESSION", help=SESSION_HELP)
    _add_common_arguments(parser)


def redo(args: argparse.Namespace) -> int:
    """Redo everything that was undone."""

    async def redo_all(
        undoer: Undoer, session: Session, history: Sequence[MessageWithParts], scope: RevertScope
    ) -> UndoOutcome:
        if session.revert is None:
            raise InvalidInputError("session", f"{session.id} has nothing to redo: nothing was undone")
        result = await unrevert(undoer, session, history, scope)
        return UndoOutcome(result=result, position="is complete again")

    return asyncio.run(_carry_out(args, redo_all, "Redo"))


def _add_common_arguments(parser: argparse.ArgumentParser) -> None:
    files = parser.add_mutually_exclusive_group()
    files.add_argument(
        "--file",
        action="append",
        metavar="PATH",
        help="change only this file (repeatable; default: all files)",
    )
    files.add_argument("--no-files", action="store_true", help="change only the conversation and no file")
    parser.add_argument("--dry-run", action="store_true", help="only show what would happen to each file")
    add_yes(parser)
    add_format(parser)
    add_place(parser)


def _find_target(to: str | None, session: Session, history: Sequence[MessageWithParts]) -> MessageID:
    if to is not None:
        return choose_message(history, to)
    message = find_last_turn(cut_at_revert(session.revert, history).kept)
    if message is None:
        raise InvalidInputError("session", f"there is nothing to undo in {session.id}")
    return message


def _format_position(undone: Sequence[MessageWithParts]) -> str:
    title = sanitize(get_first_line(undone, undone[0].info.id))
    short = title if len(title) <= MAX_TITLE_LENGTH else title[: MAX_TITLE_LENGTH - 1] + "…"
    count = format_count(len(undone), "message", "messages")
    return f"is now before “{short}”; the next prompt removes {count}, weft redo restores {'it' if len(undone) == 1 else 'them'}"


async def _carry_out(args: argparse.Namespace, action: UndoAction, question: str) -> int:
    """Show what would happen, ask, do it and print it. Return the exit code."""
    session = make_reader(args).get_session(args.session).id
    as_json = args.format == "json"
    async with open_offline_sessions(args.dir, os.environ, store=args.store) as offline:
        outcome = await _run_under_lease(offline, session, action, _to_scope(args, dry_run=True))
        if args.file:
            _check_named_files(outcome.result)
        if args.dry_run or has_missing_files(outcome.result.files):
            _print_outcome(outcome, as_json=as_json, done=False)
            return ExitCode.FAILED if has_missing_files(outcome.result.files) else ExitCode.DONE
        if not args.yes:
            _print_files(outcome.result, sys.stderr if as_json else sys.stdout)
            if not confirm(f"{question}: {count_by_fate(outcome.result.files)}?", yes=False):
                return ExitCode.DONE
        try:
            outcome = await _run_under_lease(offline, session, action, _to_scope(args, dry_run=False))
        except RestoreFailedError as error:
            _print_failed(error)
            raise
    _print_outcome(outcome, as_json=as_json, done=True)
    return ExitCode.DONE


def _check_named_files(result: RevertResult) -> None:
    """Raise `InvalidInputError` if a named file was not changed by the session: it is probably mistyped."""
    for file in result.files:
        if file.fate == "uncovered":
            raise InvalidInputError(
                "--file",
                f"{format_path(file.file, os.getcwd())}: {sanitize(file.reason)}",
                hint="nothing was changed; --dry-run without --file lists the files",
            )


async def _run_under_lease(
    offline: OfflineSessions, id: SessionID, action: UndoAction, scope: RevertScope
) -> UndoOutcome:
    """Carry out an action while no other process can run the session. First settle what a run that died left open.

    The caller asks the person between two actions, so the lease is not held meanwhile: an answer may take an hour.
    """
    session = await offline.store.get_session(id)
    async with offline.store.lease(id, describe_process()), open_undoer(offline, session) as undoer:
        if events := to_settling_events(await offline.store.list_messages(id)):
            await offline.journal.commit(*events)
        session = await offline.store.get_session(id)
        history = await offline.store.list_messages(id)
        return await run_to_completion(action(undoer, session, history, scope))


def _to_scope(args: argparse.Namespace, *, dry_run: bool) -> RevertScope:
    files: tuple[str, ...] | None = () if args.no_files else None
    if args.file:
        files = tuple(_resolve_directory(args.dir, file) for file in args.file)
    return RevertScope(files=files, dry_run=dry_run)


def _resolve_directory(directory: str, file: str) -> str:
    """Resolve the links in the directory of a file, but not the file itself."""
    parent, name = os.path.split(os.path.join(directory, file))
    return os.path.join(os.path.realpath(parent), name)


def _print_outcome(outcome: UndoOutcome, *, as_json: bool, done: bool) -> None:
    if as_json:
        write_json(_to_report(outcome.result, done=done))
        return
    _print_files(outcome.result, sys.stdout)
    if done:
        print(f"{Paint(sys.stdout).bold(outcome.result.session.id)} {outcome.position}")
    elif has_missing_files(outcome.result.files):
        print("nothing can be undone: the content of some files is missing; undo single files with --file")


def _print_failed(error: RestoreFailedError) -> None:
    """Print the files that could not be restored, and those that could not be put back afterwards."""
    paint, directory = Paint(sys.stderr), os.getcwd()
    for file in error.files:
        print(f"{paint.red('not written')}  {format_path(file, directory)}", file=sys.stderr)
    for file in error.left:
        print(f"{paint.yellow('stays')}        {format_path(file, directory)}", file=sys.stderr)


def _print_files(result: RevertResult, stream: TextIO) -> None:
    for line in to_lines(result, Paint(stream), directory=os.getcwd()):
        print(line, file=stream)


def _to_report(result: RevertResult, *, done: bool) -> dict[str, Any]:
    revert = result.session.revert
    return {
        "session": result.session.id,
        "dryRun": not done,
        "revert": None if revert is None else to_plain(revert),
        "files": [to_plain(each) for each in result.files],
        "caution": result.caution,
    }


def to_lines(result: RevertResult, paint: Paint, *, directory: str) -> Iterator[str]:
    colours = {
        "restored": paint.green,
        "removed": paint.green,
        "unchanged": paint.dim,
        "kept": paint.yellow,
        "uncovered": paint.red,
        "missing": paint.red,
    }
    for file in result.files:
        word = colours[file.fate](FATE_TEXTS[file.fate].ljust(FATE_WIDTH))
        reason = paint.dim(f"  {sanitize(file.reason)}") if file.reason else ""
        yield f"{word}  {format_path(file.file, directory)}{reason}"
    if result.caution:
        yield paint.dim(f"note: {result.caution}")


def format_path(file: str, directory: str) -> str:
    """Return a path on one line, relative to `directory` if it is below it."""
    relative = os.path.relpath(file, directory)
    return sanitize(file if relative.startswith("..") else relative).replace("\n", "\\n").replace("\t", "\\t")


def count_by_fate(files: Sequence[FileFate]) -> str:
    if not files:
        return "no file is touched"
    counts = Counter(each.fate for each in files)
    return ", ".join(_format_fate(FATE_TEXTS[fate], counts[fate]) for fate in FATE_TEXTS if counts[fate])


def _format_fate(text: str, count: int) -> str:
    return f"{count} {'file' if count == 1 else 'files'} {text}"


def has_missing_files(files: Iterable[FileFate]) -> bool:
    return any(each.fate == "missing" for each in files)

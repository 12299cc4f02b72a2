"""`weft undo` and `weft redo`: take back a session with its files, and bring it forward again."""

import argparse
import asyncio
import os
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, TextIO

from msgspec import Struct

from weft.cli.arguments import WHICH_SESSION, add_format, add_place, add_yes
from weft.cli.exit import ExitCode
from weft.cli.output import Paint, confirm, sanitize, write_json
from weft.cli.session import open_reading
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

WORDS: dict[Fate, str] = {
    "restored": "restored",
    "removed": "removed",
    "unchanged": "as it was",
    "kept": "kept",
    "uncovered": "not covered",
    "missing": "missing",
}
WIDTH = max(len(word) for word in WORDS.values())
TITLE_WIDTH = 60


class UndoOutcome(Struct, frozen=True, kw_only=True):
    """What an undo or redo did, or would do, and a sentence on where the session stands afterwards."""

    reverted: RevertResult
    stands: str


UndoAction = Callable[
    [Undoer, Session, Sequence[MessageWithParts], RevertScope], Coroutine[Any, Any, UndoOutcome]
]


def add_undo_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", nargs="?", default="last", metavar="SESSION", help=WHICH_SESSION)
    parser.add_argument(
        "--to", metavar="MESSAGE", help="undo everything from this message on (default: the last prompt)"
    )
    _add_options(parser)


def undo(chosen: argparse.Namespace) -> int:
    """Undo the last prompt, or everything from a message on."""

    async def take_back(
        undoer: Undoer, session: Session, history: Sequence[MessageWithParts], options: RevertScope
    ) -> UndoOutcome:
        target = _find_target(chosen.to, session, history)
        gone = cut_history(history, find_point(history, target)).removed
        done = await revert(undoer, session, history, (target, None), options)
        return UndoOutcome(reverted=done, stands=_format_position(gone))

    return asyncio.run(_carry_out(chosen, take_back, "Take it back"))


def add_redo_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", nargs="?", default="last", metavar="SESSION", help=WHICH_SESSION)
    _add_options(parser)


def redo(chosen: argparse.Namespace) -> int:
    """Redo everything that was undone."""

    async def bring_back(
        undoer: Undoer, session: Session, history: Sequence[MessageWithParts], options: RevertScope
    ) -> UndoOutcome:
        if session.revert is None:
            raise InvalidInputError("session", f"{session.id} was not taken back: there is nothing to redo")
        done = await unrevert(undoer, session, history, options)
        return UndoOutcome(reverted=done, stands="is whole again")

    return asyncio.run(_carry_out(chosen, bring_back, "Bring it forward again"))


def _add_options(parser: argparse.ArgumentParser) -> None:
    some = parser.add_mutually_exclusive_group()
    some.add_argument(
        "--file",
        action="append",
        metavar="PATH",
        help="change only this file (repeatable; default: all files)",
    )
    some.add_argument("--no-files", action="store_true", help="change only the conversation and no file")
    parser.add_argument("--dry-run", action="store_true", help="only show what would happen to each file")
    add_yes(parser)
    add_format(parser)
    add_place(parser)


def _find_target(to: str | None, session: Session, history: Sequence[MessageWithParts]) -> MessageID:
    if to is not None:
        return choose_message(history, to)
    found = find_last_turn(cut_at_revert(session.revert, history).kept)
    if found is None:
        raise InvalidInputError("session", f"there is nothing in {session.id} to take back")
    return found


def _format_position(gone: Sequence[MessageWithParts]) -> str:
    words = sanitize(get_first_line(gone, gone[0].info.id))
    short = words if len(words) <= TITLE_WIDTH else words[: TITLE_WIDTH - 1] + "…"
    count = format_count(len(gone), "message", "messages")
    return f"is now before “{short}”; the next prompt removes {count}, weft redo restores {'it' if len(gone) == 1 else 'them'}"


async def _carry_out(chosen: argparse.Namespace, action: UndoAction, question: str) -> int:
    """Work out what would happen, show it, ask, and do it. Return the exit code."""
    session = open_reading(chosen).get_session(chosen.session).id
    as_json = chosen.format == "json"
    async with open_offline_sessions(chosen.dir, os.environ, store=chosen.store) as offline:
        found = await _under_lease(offline, session, action, _to_options(chosen, dry_run=True))
        if chosen.file:
            _check_named(found.reverted)
        if chosen.dry_run or is_refused(found.reverted.files):
            _print_outcome(found, as_json=as_json, done=False)
            return ExitCode.FAILED if is_refused(found.reverted.files) else ExitCode.DONE
        if not chosen.yes:
            _print_files(found.reverted, sys.stderr if as_json else sys.stdout)
            if not confirm(f"{question}: {count_by_fate(found.reverted.files)}?", yes=False):
                return ExitCode.DONE
        try:
            found = await _under_lease(offline, session, action, _to_options(chosen, dry_run=False))
        except RestoreFailedError as error:
            _print_failed(error)
            raise
    _print_outcome(found, as_json=as_json, done=True)
    return ExitCode.DONE


def _check_named(reverted: RevertResult) -> None:
    """Raise `InvalidInputError` if a named file was not changed by the session: it is probably mistyped."""
    for each in reverted.files:
        if each.fate == "uncovered":
            raise InvalidInputError(
                "--file",
                f"{format_path(each.file, os.getcwd())}: {sanitize(each.reason)}",
                hint="nothing was changed; --dry-run without --file lists the files",
            )


async def _under_lease(
    offline: OfflineSessions, id: SessionID, action: UndoAction, options: RevertScope
) -> UndoOutcome:
    """Carry out an action while nobody else runs the session. Settle first what a dead run left open.

    The lease is released while the person decides, which may take an hour.
    """
    session = await offline.store.get_session(id)
    async with offline.store.lease(id, describe_process()), open_undoer(offline, session) as undoer:
        if left_open := to_settling_events(await offline.store.list_messages(id)):
            await offline.journal.commit(*left_open)
        session = await offline.store.get_session(id)
        history = await offline.store.list_messages(id)
        return await run_to_completion(action(undoer, session, history, options))


def _to_options(chosen: argparse.Namespace, *, dry_run: bool) -> RevertScope:
    files: tuple[str, ...] | None = () if chosen.no_files else None
    if chosen.file:
        files = tuple(_absolute(chosen.dir, file) for file in chosen.file)
    return RevertScope(files=files, dry_run=dry_run)


def _absolute(directory: str, file: str) -> str:
    """Resolve the links in the directory of a file, but not the file itself."""
    within, name = os.path.split(os.path.join(directory, file))
    return os.path.join(os.path.realpath(within), name)


def _print_outcome(outcome: UndoOutcome, *, as_json: bool, done: bool) -> None:
    if as_json:
        write_json(_to_report(outcome.reverted, done=done))
        return
    _print_files(outcome.reverted, sys.stdout)
    if done:
        print(f"{Paint(sys.stdout).bold(outcome.reverted.session.id)} {outcome.stands}")
    elif is_refused(outcome.reverted.files):
        print("nothing can be undone: the content of some files is missing; undo single files with --file")


def _print_failed(error: RestoreFailedError) -> None:
    """Print the files that could not be restored, and those that could not be put back afterwards."""
    paint, here = Paint(sys.stderr), os.getcwd()
    for file in error.files:
        print(f"{paint.red('not written')}  {format_path(file, here)}", file=sys.stderr)
    for file in error.left:
        print(f"{paint.yellow('stays')}        {format_path(file, here)}", file=sys.stderr)


def _print_files(reverted: RevertResult, stream: TextIO) -> None:
    for line in to_lines(reverted, Paint(stream), here=os.getcwd()):
        print(line, file=stream)


def _to_report(reverted: RevertResult, *, done: bool) -> dict[str, Any]:
    revert = reverted.session.revert
    return {
        "session": reverted.session.id,
        "dryRun": not done,
        "revert": None if revert is None else to_plain(revert),
        "files": [to_plain(each) for each in reverted.files],
        "caution": reverted.caution,
    }


def to_lines(reverted: RevertResult, paint: Paint, *, here: str) -> Iterator[str]:
    colours = {
        "restored": paint.green,
        "removed": paint.green,
        "unchanged": paint.dim,
        "kept": paint.yellow,
        "uncovered": paint.red,
        "missing": paint.red,
    }
    for each in reverted.files:
        word = colours[each.fate](WORDS[each.fate].ljust(WIDTH))
        reason = paint.dim(f"  {sanitize(each.reason)}") if each.reason else ""
        yield f"{word}  {format_path(each.file, here)}{reason}"
    if reverted.caution:
        yield paint.dim(f"note: {reverted.caution}")


def format_path(file: str, here: str) -> str:
    """Return a path relative to `here` if it is below it, on one line."""
    near = os.path.relpath(file, here)
    return sanitize(file if near.startswith("..") else near).replace("\n", "\\n").replace("\t", "\\t")


def count_by_fate(files: Sequence[FileFate]) -> str:
    if not files:
        return "no file is touched"
    counted = Counter(each.fate for each in files)
    return ", ".join(_format_fate(WORDS[fate], counted[fate]) for fate in WORDS if counted[fate])


def _format_fate(word: str, count: int) -> str:
    return f"{count} {'file' if count == 1 else 'files'} {word}"


def is_refused(files: Iterable[FileFate]) -> bool:
    return any(each.fate == "missing" for each in files)

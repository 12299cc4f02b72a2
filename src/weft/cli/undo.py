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
from weft.cli.output import Paint, confirm, sanitize, warn, write_json
from weft.cli.session import make_reader
from weft.errors import InvalidInputError, RestoreFailedError
from weft.host.processes import describe_process
from weft.host.tasks import run_to_completion
from weft.local.offline import OfflineSessions, open_offline_sessions
from weft.local.undo import open_undo_context
from weft.model.diff import Fate, FileFate
from weft.model.display import format_count
from weft.model.ids import MessageID, SessionID
from weft.model.message import MessageWithParts, find_newest_human_prompt_id
from weft.model.session import RevertResult, SessionInfo
from weft.model.wire import to_plain
from weft.session.lifecycle import refuse_departed, refuse_workspace
from weft.session.revert_point import (
    RevertScope,
    choose_message,
    cut_at_revert,
    cut_history,
    find_first_line,
    get_point,
)
from weft.undo.context import UndoContext
from weft.undo.evidence import settle_calls
from weft.undo.revert import revert, unrevert

DONE_TEXTS: dict[Fate, str] = {
    "restored": "restored",
    "removed": "removed",
    "unchanged": "unchanged",
    "kept": "not touched",
    "uncovered": "not covered",
    "missing": "missing",
}
PLANNED_TEXTS: dict[Fate, str] = {
    **DONE_TEXTS,
    "restored": "would restore",
    "removed": "would remove",
    "kept": "would keep",
}
QUESTION_TEXTS: dict[Fate, str] = {
    "restored": "restore",
    "removed": "remove",
    "unchanged": "leave unchanged",
    "kept": "keep your changes in",
    "uncovered": "skip",
}
MAX_TITLE_LENGTH = 60


class UndoOutcome(Struct, frozen=True, kw_only=True):
    """What an undo or redo did, or would do, and a sentence about the session afterwards."""

    result: RevertResult
    position: str


UndoAction = Callable[
    [UndoContext, SessionInfo, Sequence[MessageWithParts], RevertScope], Coroutine[Any, Any, UndoOutcome]
]


def add_undo_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", nargs="?", default="last", metavar="SESSION", help=SESSION_HELP)
    parser.add_argument(
        "--to",
        metavar="MESSAGE",
        help="undo everything from this message on; for an answer, from its prompt on (default: the last prompt)",
    )
    _add_common_arguments(parser)


def undo(args: argparse.Namespace) -> int:
    """Undo the last prompt, or everything from a message on."""

    async def undo_from_target(
        undo_context: UndoContext,
        session: SessionInfo,
        history: Sequence[MessageWithParts],
        scope: RevertScope,
    ) -> UndoOutcome:
        target = _choose_target(args.to, session, history)
        undone = cut_history(history, get_point(history, target)).removed
        result = await revert(undo_context, session, history, (target, None), scope)
        return UndoOutcome(result=result, position=_format_position(undone))

    return asyncio.run(_carry_out(args, undo_from_target, "Undo"))


def add_redo_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", nargs="?", default="last", metavar="SESSION", help=SESSION_HELP)
    _add_common_arguments(parser)


def redo(args: argparse.Namespace) -> int:
    """Redo everything that was undone."""

    async def redo_all(
        undo_context: UndoContext,
        session: SessionInfo,
        history: Sequence[MessageWithParts],
        scope: RevertScope,
    ) -> UndoOutcome:
        if session.revert is None:
            raise InvalidInputError(
                "session",
                f"{session.id} has nothing to redo: nothing was undone",
                hint="name another session: weft session list",
            )
        result = await unrevert(undo_context, session, history, scope)
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


def _choose_target(to: str | None, session: SessionInfo, history: Sequence[MessageWithParts]) -> MessageID:
    if to is not None:
        return choose_message(history, to)
    message = find_newest_human_prompt_id(cut_at_revert(session.revert, history).kept)
    if message is None:
        raise InvalidInputError(
            "session",
            f"there is nothing to undo in {session.id}",
            hint="weft redo restores what was undone; weft session list shows other sessions",
        )
    return message


def _format_position(undone: Sequence[MessageWithParts]) -> str:
    title = sanitize(find_first_line(undone, undone[0].info.id))
    short = title if len(title) <= MAX_TITLE_LENGTH else title[: MAX_TITLE_LENGTH - 1] + "…"
    count = format_count(len(undone), "message", "messages")
    those, them = ("this message", "it") if len(undone) == 1 else (f"those {count}", "them")
    return f"was taken back to before “{short}”. Your next prompt deletes {those}; until then weft redo brings {them} back"


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
            _print_files(outcome.result, sys.stderr if as_json else sys.stdout, done=False)
            if not confirm(f"{question}: {to_question(outcome.result.files)}?", yes=False):
                return ExitCode.DONE
        try:
            outcome = await _run_under_lease(offline, session, action, _to_scope(args, dry_run=False))
        except RestoreFailedError as error:
            _print_failed(error)
            raise
    _print_outcome(outcome, as_json=as_json, done=True)
    return ExitCode.DONE


def _check_named_files(result: RevertResult) -> None:
    """Raise `InvalidInputError` if a named file cannot be undone: the session did not change it, or undo does not cover it."""
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
    refuse_workspace(session)
    async with (
        offline.journal.lease(id, describe_process()),
        open_undo_context(offline, session, warn=warn) as undo_context,
    ):
        _, events = await settle_calls(undo_context, id)
        if events:
            await offline.journal.commit(*events)
        session = await offline.store.get_session(id)
        refuse_departed(session)
        history = await offline.store.list_messages(id)
        return await run_to_completion(action(undo_context, session, history, scope))


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
    _print_files(outcome.result, sys.stdout, done=done)
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


def _print_files(result: RevertResult, stream: TextIO, *, done: bool) -> None:
    for line in to_lines(result, Paint(stream), directory=os.getcwd(), done=done):
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


def to_lines(result: RevertResult, paint: Paint, *, directory: str, done: bool) -> Iterator[str]:
    """Yield a line for each file: what was done to it or, unless `done`, what would be."""
    texts = DONE_TEXTS if done else PLANNED_TEXTS
    width = max(len(text) for text in texts.values())
    colours = {
        "restored": paint.green,
        "removed": paint.green,
        "unchanged": paint.dim,
        "kept": paint.yellow,
        "uncovered": paint.red,
        "missing": paint.red,
    }
    for file in result.files:
        text = colours[file.fate](texts[file.fate].ljust(width))
        reason = paint.dim(f"  {sanitize(file.reason)}") if file.reason else ""
        yield f"{text}  {format_path(file.file, directory)}{reason}"
    if not result.files:
        yield "no file was changed" if done else "no file would change"
    if result.caution:
        yield paint.dim(f"note: {result.caution}")


def format_path(file: str, directory: str) -> str:
    """Return a path on one line, relative to `directory` if it is below it."""
    relative = os.path.relpath(file, directory)
    return sanitize(file if relative.startswith("..") else relative).replace("\n", "\\n").replace("\t", "\\t")


def to_question(files: Sequence[FileFate]) -> str:
    """Return what would happen to how many files, as in "restore 2 files, remove 1 file"."""
    counts = Counter(each.fate for each in files)
    steps = [
        f"{text} {format_count(counts[fate], 'file')}"
        for fate, text in QUESTION_TEXTS.items()
        if counts[fate]
    ]
    return ", ".join(steps) or "change no file"


def has_missing_files(files: Iterable[FileFate]) -> bool:
    return any(each.fate == "missing" for each in files)

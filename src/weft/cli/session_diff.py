"""`weft session diff`: show what a session, or one of its messages, changed in files."""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from difflib import unified_diff

from weft.cli.arguments import add_place, add_session
from weft.cli.exit import ExitCode
from weft.cli.output import Paint, sanitize, to_table, warn, write_json
from weft.cli.session import make_reader, report_damage
from weft.errors import DirectoryError
from weft.local.offline import open_offline_sessions
from weft.local.reader import SessionReader
from weft.local.undo import open_undo_context
from weft.model.diff import TRUNCATED, FileDiff
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.session import SessionInfo
from weft.session.revert_point import choose_message, cut_at_revert
from weft.undo.context import list_message_diffs, make_diff_text


def add_diff_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    parser.add_argument(
        "--message",
        metavar="ID",
        help="only what this prompt led to, or this answer did (default: all changes)",
    )
    parser.add_argument(
        "--format", choices=("table", "json", "patch"), default="table", help="patch: a unified diff"
    )
    add_place(parser)


def show_diff(args: argparse.Namespace) -> int:
    """Print the changes. The totals of a session are stored with it; everything else needs its snapshots."""
    reader = make_reader(args)
    session = reader.get_session(args.session)
    if args.message is None and args.format != "patch":
        diffs, text = reader.store.list_diff(session.id), ""
    else:
        diffs, text = asyncio.run(_read_snapshots(args, reader, session))
    if args.format == "json":
        write_json(diffs)
    elif args.format == "patch":
        if not text and any(isinstance(diff.extra_, dict) and diff.extra_.get(TRUNCATED) for diff in diffs):
            print("the stored diff was cut short, and the snapshots are gone", file=sys.stderr)
        _print_patch(text or to_patch(diffs))
    else:
        _print_diffs(diffs, Paint(sys.stdout))
    report_damage(reader)
    return ExitCode.DONE


async def _read_snapshots(
    args: argparse.Namespace, reader: SessionReader, session: SessionInfo
) -> tuple[list[FileDiff], str]:
    """Return the changes by file and as a patch. The patch is empty if the snapshots are gone."""
    history = reader.store.list_messages(session.id)
    messages = list(cut_at_revert(session.revert, history).kept)
    diffs = reader.store.list_diff(session.id)
    async with open_offline_sessions(args.dir, os.environ, store=args.store) as offline:
        try:
            async with open_undo_context(offline, session, warn=warn) as undo_context:
                if args.message is not None:
                    id = choose_message(history, args.message)
                    diffs = await list_message_diffs(
                        undo_context, next(each for each in history if each.info.id == id)
                    )
                    messages = _list_with_answers(history, id)
                return diffs, await make_diff_text(undo_context, messages)
        except DirectoryError:  # the directory that it worked in is gone
            return diffs, ""


def _list_with_answers(history: Sequence[MessageWithParts], id: str) -> list[MessageWithParts]:
    """Return a message, and the answers to it if it is a prompt."""
    return [
        message
        for message in history
        if message.info.id == id
        or (isinstance(message.info, AssistantMessage) and message.info.parent_id == id)
    ]


def to_patch(diffs: Sequence[FileDiff]) -> str:
    """Make a patch from the stored texts, which may have been cut short."""
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for diff in diffs
        for line in unified_diff(
            diff.before.splitlines(keepends=True),
            diff.after.splitlines(keepends=True),
            f"a/{diff.file}" if diff.before or not diff.additions else os.devnull,
            f"b/{diff.file}" if diff.after or not diff.deletions else os.devnull,
        )
    )


def _print_patch(text: str) -> None:
    paint = Paint(sys.stdout)
    if not text:
        print("no file was changed", file=sys.stderr)
    elif paint.on:
        print(paint.diff(sanitize(text)))
    else:
        sys.stdout.buffer.write(text.encode(errors="surrogateescape"))


def _print_diffs(diffs: Sequence[FileDiff], paint: Paint) -> None:
    if not diffs:
        print("no file was changed", file=sys.stderr)
        return
    rows = [(f"+{diff.additions}", f"-{diff.deletions}", diff.file) for diff in diffs]
    print("\n".join(to_table(("added", "removed", "file"), rows, paint, right="added removed")))

"""`weft session diff`: what a session did to files, or one of its messages; in numbers, as JSON, as a patch."""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from difflib import unified_diff

from weft.cli.exit import Exit
from weft.cli.paint import Paint, plain, write_json
from weft.cli.session.read import read
from weft.cli.sessions import warn_of_damage
from weft.cli.table import to_table
from weft.errors import DirectoryError
from weft.local.reader import Reading, open_resting
from weft.local.undo import open_undoer
from weft.model.diff import MARK, FileDiff
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.session import Session
from weft.session.revert_point import choose_message, cut_at
from weft.store.files.messages import Messages
from weft.undo.cleanup import diff_of, diff_text_of


def show_diff(chosen: argparse.Namespace) -> int:
    """The numbers of a whole session are read from the files; for all else its snapshots are asked."""
    reading = read(chosen.dir, chosen.store)
    session = reading.get_session(chosen.session)
    if chosen.message is None and chosen.format != "patch":
        diffs, text = reading.tree.list_diff(session.id), ""
    else:
        diffs, text = asyncio.run(_ask(chosen, reading, session))
    if chosen.format == "json":
        write_json(diffs)
    elif chosen.format == "patch":
        if not text and any(isinstance(diff.extra_, dict) and diff.extra_.get(MARK) for diff in diffs):
            print("what is stored of it was cut short, and its snapshots are gone", file=sys.stderr)
        _print_patch(text or to_patch(diffs))
    else:
        _print_diffs(diffs, Paint(sys.stdout))
    warn_of_damage(reading)
    return Exit.DONE


async def _ask(chosen: argparse.Namespace, reading: Reading, session: Session) -> tuple[list[FileDiff], str]:
    """File by file, and as a patch; without a patch where the snapshots are not to be had."""
    history = Messages(reading.tree).list_messages(session.id)
    messages = list(cut_at(session.revert, history).kept)
    diffs = reading.tree.list_diff(session.id)
    async with open_resting(chosen.dir, os.environ, store=chosen.store) as resting:
        try:
            async with open_undoer(resting, session) as undoer:
                if chosen.message is not None:
                    id = choose_message(history, chosen.message)
                    diffs = await diff_of(undoer, next(each for each in history if each.info.id == id))
                    messages = _led_to(history, id)
                return diffs, await diff_text_of(undoer, messages)
        except DirectoryError:  # where it worked is gone
            return diffs, ""


def _led_to(history: Sequence[MessageWithParts], id: str) -> list[MessageWithParts]:
    """A message, and the answers to it if it is a prompt."""
    return [
        each
        for each in history
        if each.info.id == id or (isinstance(each.info, AssistantMessage) and each.info.parent_id == id)
    ]


def to_patch(diffs: Sequence[FileDiff]) -> str:
    """From the texts that are stored, which may have been cut short."""
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
        print(paint.diff(plain(text)))
    else:
        sys.stdout.buffer.write(text.encode(errors="surrogateescape"))


def _print_diffs(diffs: Sequence[FileDiff], paint: Paint) -> None:
    if not diffs:
        print("no file was changed", file=sys.stderr)
        return
    rows = [(f"+{diff.additions}", f"-{diff.deletions}", diff.file) for diff in diffs]
    print("\n".join(to_table(("added", "removed", "file"), rows, paint, right="added removed")))

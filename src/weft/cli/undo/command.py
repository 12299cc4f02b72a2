"""`weft undo` and `weft redo`: take a session back, its files too, and bring it forward again."""

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TextIO

from msgspec import Struct

from weft.cli.confirm import confirmed
from weft.cli.exit import Exit
from weft.cli.paint import Paint, plain, write_json
from weft.cli.session.read import read
from weft.cli.undo.telling import count_by_fate, is_refused, shown, to_lines
from weft.errors import InvalidInputError, RestoreFailedError
from weft.host.tasks import undivided
from weft.local.reader import Resting, open_resting, who_we_are
from weft.local.undo import open_undoer
from weft.model.ids import MessageID, SessionID
from weft.model.message import MessageWithParts
from weft.model.readable import plural
from weft.model.session import Reverted, Session
from weft.model.wire import to_plain
from weft.session.revert_point import choose_message, cut, cut_at, find_point, last_turn, words_of
from weft.undo.recovery import Undoer
from weft.undo.revert import Wish, revert, unrevert

TITLE_WIDTH = 60


class Outcome(Struct, frozen=True, kw_only=True):
    """What came, or would come, of it, and in a sentence where the session stands then."""

    reverted: Reverted
    stands: str


Deed = Callable[[Undoer, Session, Sequence[MessageWithParts], Wish], Coroutine[Any, Any, Outcome]]


def undo(chosen: argparse.Namespace) -> int:
    """Back by one prompt, or to a message."""

    async def take_back(
        undoer: Undoer, session: Session, history: Sequence[MessageWithParts], wish: Wish
    ) -> Outcome:
        target = _target(chosen.to, session, history)
        gone = cut(history, find_point(history, target)).gone
        done = await revert(undoer, session, history, (target, None), wish)
        return Outcome(reverted=done, stands=_before(gone))

    return asyncio.run(_do(chosen, take_back, "Take it back"))


def redo(chosen: argparse.Namespace) -> int:
    """Forward again, all of it."""

    async def bring_back(
        undoer: Undoer, session: Session, history: Sequence[MessageWithParts], wish: Wish
    ) -> Outcome:
        if session.revert is None:
            raise InvalidInputError("session", f"{session.id} was not taken back: there is nothing to redo")
        done = await unrevert(undoer, session, history, wish)
        return Outcome(reverted=done, stands="is whole again")

    return asyncio.run(_do(chosen, bring_back, "Bring it forward again"))


def _target(to: str | None, session: Session, history: Sequence[MessageWithParts]) -> MessageID:
    if to is not None:
        return choose_message(history, to)
    found = last_turn(cut_at(session.revert, history).kept)
    if found is None:
        raise InvalidInputError("session", f"there is nothing in {session.id} to take back")
    return found


def _before(gone: Sequence[MessageWithParts]) -> str:
    words = plain(words_of(gone, gone[0].info.id))
    short = words if len(words) <= TITLE_WIDTH else words[: TITLE_WIDTH - 1] + "…"
    return f"stands before “{short}”; {plural(len(gone), 'message goes', 'messages go')} when it goes on, weft redo brings {'it' if len(gone) == 1 else 'them'} back"


async def _do(chosen: argparse.Namespace, deed: Deed, question: str) -> int:
    session = read(chosen.dir, chosen.store).get_session(chosen.session).id
    as_json = chosen.format == "json"
    async with open_resting(chosen.dir, os.environ, store=chosen.store) as resting:
        found = await _under_lease(resting, session, deed, _wish(chosen, dry_run=True))
        if chosen.file:
            _check_named(found.reverted)
        if chosen.dry_run or is_refused(found.reverted.files):
            _tell(found, as_json=as_json, done=False)
            return Exit.FAILED if is_refused(found.reverted.files) else Exit.DONE
        if not chosen.yes:
            _print_files(found.reverted, sys.stderr if as_json else sys.stdout)
            if not confirmed(f"{question}: {count_by_fate(found.reverted.files)}?", yes=False):
                return Exit.DONE
        try:
            found = await _under_lease(resting, session, deed, _wish(chosen, dry_run=False))
        except RestoreFailedError as error:
            _print_failed(error)
            raise
    _tell(found, as_json=as_json, done=True)
    return Exit.DONE


def _check_named(reverted: Reverted) -> None:
    """Who names a file that is not there to be brought back has mistyped, and does not want the rest of it."""
    for each in reverted.files:
        if each.fate == "uncovered":
            raise InvalidInputError(
                "--file",
                f"{shown(each.file, os.getcwd())}: {plain(each.reason)}",
                hint="nothing was changed; --dry-run without --file lists what there is",
            )


async def _under_lease(resting: Resting, id: SessionID, deed: Deed, wish: Wish) -> Outcome:
    """Nobody runs it meanwhile. Between looking and doing it is let go: a person may think for an hour."""
    session = await resting.store.get_session(id)
    async with resting.store.lease(id, who_we_are()), open_undoer(resting, session) as undoer:
        session = await resting.store.get_session(id)
        history = await resting.store.list_messages(id)
        return await undivided(deed(undoer, session, history, wish))


def _wish(chosen: argparse.Namespace, *, dry_run: bool) -> Wish:
    files: tuple[str, ...] | None = () if chosen.no_files else None
    if chosen.file:
        files = tuple(_absolute(chosen.dir, file) for file in chosen.file)
    return Wish(files=files, dry_run=dry_run)


def _absolute(directory: str, file: str) -> str:
    """Its place by real directories; what it is itself, a link perhaps, does not matter."""
    within, name = os.path.split(os.path.join(directory, file))
    return os.path.join(os.path.realpath(within), name)


def _tell(outcome: Outcome, *, as_json: bool, done: bool) -> None:
    if as_json:
        write_json(_to_report(outcome.reverted, done=done))
        return
    _print_files(outcome.reverted, sys.stdout)
    if done:
        print(f"{Paint(sys.stdout).bold(outcome.reverted.session.id)} {outcome.stands}")
    elif is_refused(outcome.reverted.files):
        print("nothing can be taken back: what files were like is missing; --file takes back single ones")


def _print_failed(error: RestoreFailedError) -> None:
    """Which files could not be brought back, and which could not be put as they were again."""
    paint, here = Paint(sys.stderr), os.getcwd()
    for file in error.files:
        print(f"{paint.red('not written')}  {shown(file, here)}", file=sys.stderr)
    for file in error.left:
        print(f"{paint.yellow('stays')}        {shown(file, here)}", file=sys.stderr)


def _print_files(reverted: Reverted, stream: TextIO) -> None:
    for line in to_lines(reverted, Paint(stream), here=os.getcwd()):
        print(line, file=stream)


def _to_report(reverted: Reverted, *, done: bool) -> dict[str, Any]:
    revert = reverted.session.revert
    return {
        "session": reverted.session.id,
        "dryRun": not done,
        "revert": None if revert is None else to_plain(revert),
        "files": [to_plain(each) for each in reverted.files],
        "caution": reverted.caution,
    }

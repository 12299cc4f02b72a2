"""`weft session rename|tag|note|pin|archive|fork|rm|restore|trash`: change, copy, remove and restore sessions."""

import argparse
import asyncio
import os
import sys
from contextlib import AsyncExitStack, suppress

from msgspec.structs import replace

from weft.cli.arguments import add_format, add_place, add_session, add_yes
from weft.cli.exit import ExitCode
from weft.cli.output import Paint, confirm, format_time, sanitize, to_table, write_json
from weft.cli.session import open_reading
from weft.errors import DirectoryError, NotFoundError
from weft.host.now import now as read_clock
from weft.local.offline import open_offline_sessions
from weft.local.place import list_sessions_here
from weft.local.reader import SessionReader
from weft.local.undo import open_undoer
from weft.model.display import format_count
from weft.model.ids import MessageID, check_id
from weft.model.session import Session, SessionChange, get_weft_data
from weft.session.fork import PinTrees, fork, pin_nothing
from weft.session.lifecycle import apply_change, edit
from weft.session.remove import remove, restore
from weft.session.tree import LAST, choose_session, list_descendants

SEE_TRASH = "list the trash: weft session trash"


# --- title, tags, notes, pin, archive ---


def add_rename_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    parser.add_argument("title", nargs="+", help="the new title; no generated title replaces it")
    add_format(parser)
    add_place(parser)


def rename_session(chosen: argparse.Namespace) -> int:
    session = _change(chosen, SessionChange(title=" ".join(chosen.title)))
    return _print_change(chosen, session, f"is now called {session.title}")


def add_tag_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    parser.add_argument("tag", nargs="+", help="a tag to add")
    parser.add_argument("--remove", action="store_true", help="remove these tags instead")
    add_format(parser)
    add_place(parser)


def tag_session(chosen: argparse.Namespace) -> int:
    tags = tuple(chosen.tag)
    session = _change(chosen, SessionChange(untag=tags) if chosen.remove else SessionChange(tag=tags))
    return _print_change(
        chosen, session, f"has the tags {', '.join(get_weft_data(session).tags) or '(none)'}"
    )


def add_note_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    parser.add_argument(
        "text", nargs="*", help="a note that the model always sees; if left out, list the notes"
    )
    parser.add_argument("--remove", type=int, action="append", default=[], metavar="N", help="remove note N")
    add_format(parser)
    add_place(parser)


def note_session(chosen: argparse.Namespace) -> int:
    gone = tuple(chosen.remove)
    session = _change(
        chosen, SessionChange(note=(" ".join(chosen.text),) if chosen.text else (), unnote=gone)
    )
    notes = "".join(f"\n  {number}. {each}" for number, each in enumerate(get_weft_data(session).notes, 1))
    return _print_change(chosen, session, f"keeps in mind:{notes}" if notes else "has no notes")


def add_pin_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    parser.add_argument("--off", action="store_true", help="unpin it")
    add_format(parser)
    add_place(parser)


def pin_session(chosen: argparse.Namespace) -> int:
    session = _change(chosen, SessionChange(pinned=not chosen.off))
    return _print_change(chosen, session, "is no longer pinned" if chosen.off else "is pinned")


def add_archive_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    parser.add_argument("--off", action="store_true", help="bring it back from the archive")
    add_format(parser)
    add_place(parser)


def archive_session(chosen: argparse.Namespace) -> int:
    session = _change(chosen, SessionChange(archived=not chosen.off))
    return _print_change(chosen, session, "is back from the archive" if chosen.off else "is archived")


def _change(chosen: argparse.Namespace, change: SessionChange) -> Session:
    session = open_reading(chosen).get_session(chosen.session)
    return asyncio.run(_edit(chosen, session, change))


async def _edit(chosen: argparse.Namespace, session: Session, change: SessionChange) -> Session:
    async with open_offline_sessions(chosen.dir, os.environ, store=chosen.store) as offline:
        now = offline.clock.now()
        return await edit(offline.journal, session.id, lambda it: apply_change(it, change, now))


def _print_change(chosen: argparse.Namespace, session: Session, what: str) -> int:
    if chosen.format == "json":
        write_json(session)
    else:
        print(f"{Paint(sys.stdout).bold(session.id)} {sanitize(what)}")
    return ExitCode.DONE


# --- fork ---


def add_fork_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    parser.add_argument(
        "--at", metavar="MESSAGE", help="copy only the messages before this one (default: copy all of them)"
    )
    add_format(parser)
    add_place(parser)


def fork_session(chosen: argparse.Namespace) -> int:
    source = open_reading(chosen).get_session(chosen.session)
    session = asyncio.run(_fork(chosen, source))
    return _print_change(chosen, session, f"begins as a fork of {source.id}: {session.title}")


async def _fork(chosen: argparse.Namespace, source: Session) -> Session:
    at = None if chosen.at is None else MessageID(check_id("message", chosen.at))
    home = open_reading(chosen).find_home(source)
    async with (
        open_offline_sessions(chosen.dir, os.environ, store=chosen.store) as offline,
        AsyncExitStack() as held,
    ):
        pin: PinTrees = pin_nothing
        # If the directory that it worked in is gone, nothing in it can be undone, so no snapshots are kept.
        with suppress(DirectoryError):
            pin = (await held.enter_async_context(open_undoer(offline, source))).snapshots.pin
        maker = await replace(offline, directory=home).maker()
        return await fork(maker, offline.store, source, at=at, pin=pin)


# --- remove, restore, trash ---


def add_rm_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    add_yes(parser)
    parser.add_argument("--no-trash", action="store_true", help="delete it for good; it cannot be restored")
    add_format(parser)
    add_place(parser)


def remove_session(chosen: argparse.Namespace) -> int:
    reading = open_reading(chosen)
    session = reading.get_session(chosen.session)
    if not confirm(_ask_to_remove(reading, session, trash=not chosen.no_trash), yes=chosen.yes):
        return ExitCode.DONE
    gone = asyncio.run(_remove(chosen, session))
    if chosen.format == "json":
        write_json(gone)
    else:
        for each in gone:
            print(f"{Paint(sys.stdout).bold(each.id)} is gone: {sanitize(each.title)}")
        if not chosen.no_trash:
            print(f"weft session restore {session.id} brings it back", file=sys.stderr)
    return ExitCode.DONE


def _ask_to_remove(reading: SessionReader, session: Session, *, trash: bool) -> str:
    """Return the question that is asked before a session is removed."""
    children = list_descendants(reading.store.list_sessions(session.project_id), session.id)
    messages = sum(len(reading.store.list_message_ids(each.id)) for each in (session, *children))
    pinned = "pinned " if get_weft_data(session).pinned else ""
    also = f", {len(children)} below it" if children else ""
    how = "into the trash" if trash else "for good"
    title = sanitize(session.title).replace("\n", " ")
    return f"Remove the {pinned}session “{title}”{also}, {format_count(messages, 'message')}, {how}?"


async def _remove(chosen: argparse.Namespace, session: Session) -> list[Session]:
    async with open_offline_sessions(chosen.dir, os.environ, store=chosen.store) as offline:
        return await remove(offline.remover(), session.id, trash=not chosen.no_trash)


def add_restore_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "session", metavar="ID", help="a session in the trash: its id, the start of its id, or `last`"
    )
    add_format(parser)
    add_place(parser)


def restore_session(chosen: argparse.Namespace) -> int:
    session = _find_in_trash(chosen.session, open_reading(chosen))
    back = asyncio.run(_restore(chosen, session))
    if chosen.format == "json":
        write_json(back)
    else:
        for each in back:
            print(f"{Paint(sys.stdout).bold(each.id)} is back: {sanitize(each.title)}")
    return ExitCode.DONE


def _find_in_trash(given: str, reading: SessionReader) -> Session:
    """Return the trashed session with this id, or the root session of the bundle with this id.

    `last` is the last session of this place that was moved to the trash. Raise `NotFoundError` if there is none.
    """
    trashed = reading.store.list_trash()
    if given == LAST:
        place = reading.place()
        roots = [bundle.sessions[0] for bundle in trashed]
        here = list_sessions_here([each for each in roots if each.project_id == place.project.id], place)
        if not here:
            raise NotFoundError("session", LAST, hint=SEE_TRASH)
        return here[-1]
    for bundle in reversed(trashed):
        if given == bundle.id:
            return bundle.sessions[0]
    sessions = {session.id: session for bundle in trashed for session in bundle.sessions}
    return choose_session(given, (), list(sessions.values()), hint=SEE_TRASH)


async def _restore(chosen: argparse.Namespace, session: Session) -> list[Session]:
    async with open_offline_sessions(chosen.dir, os.environ, store=chosen.store) as offline:
        return await restore(offline.journal, offline.store, session.id)


def add_trash_arguments(parser: argparse.ArgumentParser) -> None:
    add_format(parser)
    add_place(parser)


def list_trash(chosen: argparse.Namespace) -> int:
    trashed = open_reading(chosen).store.list_trash()[::-1]
    if chosen.format == "json":
        write_json(trashed)
    elif trashed:
        now = read_clock()
        rows = [
            (
                each.sessions[0].id,
                format_time(each.time, now=now),
                str(len(each.sessions)),
                each.sessions[0].title,
            )
            for each in trashed
        ]
        head = ("session", "thrown away", "sessions", "title")
        print("\n".join(to_table(head, rows, Paint(sys.stdout), right="sessions")))
    return ExitCode.DONE

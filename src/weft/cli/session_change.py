"""`weft session rename|tag|note|pin|archive|fork|rm|restore|trash`: change, copy, remove and restore sessions."""

import argparse
import asyncio
import os
import sys
from contextlib import AsyncExitStack, suppress

from msgspec.structs import replace

from weft.cli.arguments import add_format, add_place, add_session, add_yes
from weft.cli.exit import ExitCode
from weft.cli.output import Paint, confirm, format_time, print_note, sanitize, to_table, warn, write_json
from weft.cli.session import make_reader
from weft.errors import DirectoryError, NotFoundError
from weft.host.now import now as read_clock
from weft.local.offline import open_offline_sessions
from weft.local.place import is_here
from weft.local.reader import SessionReader
from weft.local.undo import open_undo_context
from weft.model.display import format_count
from weft.model.session import SessionChange, SessionInfo, get_weft_data
from weft.session.fork import PinTrees, fork, pin_nothing
from weft.session.lifecycle import apply_change, edit
from weft.session.remove import remove, restore
from weft.session.revert_point import choose_message
from weft.session.selection import LAST, choose_session

TRASH_HINT = "list the trash: weft session trash"


# --- title, tags, notes, pin, archive ---


def add_rename_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    parser.add_argument("title", nargs="+", help="the new title; no generated title replaces it")
    add_format(parser)
    add_place(parser)


def rename_session(args: argparse.Namespace) -> int:
    session = _change(args, SessionChange(title=" ".join(args.title)))
    return _print_change(args, session, f"is now called {session.title}")


def add_tag_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    parser.add_argument("tag", nargs="+", help="a tag to add")
    parser.add_argument("--remove", action="store_true", help="remove these tags instead")
    add_format(parser)
    add_place(parser)


def tag_session(args: argparse.Namespace) -> int:
    tags = tuple(args.tag)
    session = _change(args, SessionChange(untag=tags) if args.remove else SessionChange(tag=tags))
    return _print_change(args, session, f"has the tags {', '.join(get_weft_data(session).tags) or '(none)'}")


def add_note_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    parser.add_argument(
        "text", nargs="*", help="a note that the model always sees; if left out, list the notes"
    )
    parser.add_argument("--remove", type=int, action="append", default=[], metavar="N", help="remove note N")
    add_format(parser)
    add_place(parser)


def note_session(args: argparse.Namespace) -> int:
    numbers = tuple(args.remove)
    session = _change(args, SessionChange(note=(" ".join(args.text),) if args.text else (), unnote=numbers))
    notes = "".join(f"\n  {number}. {note}" for number, note in enumerate(get_weft_data(session).notes, 1))
    return _print_change(args, session, f"has these notes:{notes}" if notes else "has no notes")


def add_pin_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    parser.add_argument("--off", action="store_true", help="unpin it")
    add_format(parser)
    add_place(parser)


def pin_session(args: argparse.Namespace) -> int:
    session = _change(args, SessionChange(pinned=not args.off))
    return _print_change(args, session, "is no longer pinned" if args.off else "is pinned")


def add_archive_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    parser.add_argument("--off", action="store_true", help="bring it back from the archive")
    add_format(parser)
    add_place(parser)


def archive_session(args: argparse.Namespace) -> int:
    session = _change(args, SessionChange(archived=not args.off))
    return _print_change(args, session, "is back from the archive" if args.off else "is archived")


def _change(args: argparse.Namespace, change: SessionChange) -> SessionInfo:
    session = make_reader(args).get_session(args.session)
    return asyncio.run(_edit(args, session, change))


async def _edit(args: argparse.Namespace, session: SessionInfo, change: SessionChange) -> SessionInfo:
    async with open_offline_sessions(args.dir, os.environ, store=args.store) as offline:
        now = offline.clock.now()
        return await edit(offline.journal, session.id, lambda it: apply_change(it, change, now))


def _print_change(args: argparse.Namespace, session: SessionInfo, what: str) -> int:
    if args.format == "json":
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


def fork_session(args: argparse.Namespace) -> int:
    source = make_reader(args).get_session(args.session)
    session = asyncio.run(_fork(args, source))
    return _print_change(args, session, f"begins as a fork of {source.id}: {session.title}")


async def _fork(args: argparse.Namespace, source: SessionInfo) -> SessionInfo:
    reader = make_reader(args)
    message = None if args.at is None else choose_message(reader.store.list_messages(source.id), args.at)
    directory = reader.choose_directory(source)
    async with (
        open_offline_sessions(args.dir, os.environ, store=args.store) as offline,
        AsyncExitStack() as stack,
    ):
        pin: PinTrees = pin_nothing
        # If the directory that it worked in is gone, nothing in it can be undone, so no snapshots are kept.
        with suppress(DirectoryError):
            undo_context = await stack.enter_async_context(open_undo_context(offline, source, warn=warn))
            pin = undo_context.snapshots.pin
        maker = await replace(offline, directory=directory).maker()
        return await fork(maker, offline.store, source, at=message, pin=pin)


# --- remove, restore, trash ---


def add_rm_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    add_yes(parser)
    parser.add_argument("--no-trash", action="store_true", help="delete it for good; it cannot be restored")
    add_format(parser)
    add_place(parser)


def remove_session(args: argparse.Namespace) -> int:
    reader = make_reader(args)
    session = reader.get_session(args.session)
    if not confirm(_format_question(reader, session, trash=not args.no_trash), yes=args.yes):
        return ExitCode.DONE
    removed = asyncio.run(_remove(args, session))
    if args.format == "json":
        write_json(removed)
    else:
        for each in removed:
            print(f"{Paint(sys.stdout).bold(each.id)} is gone: {sanitize(each.title)}")
        if not args.no_trash:
            print(f"weft session restore {session.id} brings it back", file=sys.stderr)
    return ExitCode.DONE


def _format_question(reader: SessionReader, session: SessionInfo, *, trash: bool) -> str:
    """Return the question that is asked before a session is removed."""
    children = reader.list_descendants(session.id)
    messages = sum(len(reader.store.list_message_ids(each.id)) for each in (session, *children))
    pinned = "pinned " if get_weft_data(session).pinned else ""
    descendants = f", {format_count(len(children), 'child session')}" if children else ""
    how = "into the trash" if trash else "for good"
    title = sanitize(session.title).replace("\n", " ")
    return f"Remove the {pinned}session “{title}”{descendants}, {format_count(messages, 'message')}, {how}?"


async def _remove(args: argparse.Namespace, session: SessionInfo) -> list[SessionInfo]:
    async with open_offline_sessions(args.dir, os.environ, store=args.store) as offline:
        return await remove(offline.remover(), session.id, trash=not args.no_trash)


def add_restore_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "session", metavar="ID", help="a session in the trash: its id, the start of its id, or `last`"
    )
    add_format(parser)
    add_place(parser)


def restore_session(args: argparse.Namespace) -> int:
    session = _get_from_trash(args.session, make_reader(args))
    restored = asyncio.run(_restore(args, session))
    if args.format == "json":
        write_json(restored)
    else:
        for session in restored:
            print(f"{Paint(sys.stdout).bold(session.id)} is back: {sanitize(session.title)}")
    return ExitCode.DONE


def _get_from_trash(id: str, reader: SessionReader) -> SessionInfo:
    """Return the trashed session with this id, or the root session of the trash bundle with this id.

    `last` is the session of this checkout or directory that was removed last. Raise `NotFoundError` if there is none.
    """
    trashed = reader.store.list_trash()
    if id == LAST:
        place = reader.place()
        roots = [bundle.sessions[0] for bundle in trashed]
        local_roots = [each for each in roots if each.project_id == place.project.id and is_here(each, place)]
        if not local_roots:
            raise NotFoundError("session", LAST, hint=TRASH_HINT)
        return local_roots[-1]
    for bundle in reversed(trashed):
        if id == bundle.id:
            return bundle.sessions[0]
    sessions = {session.id: session for bundle in trashed for session in bundle.sessions}
    return choose_session(id, (), list(sessions.values()), hint=TRASH_HINT)


async def _restore(args: argparse.Namespace, session: SessionInfo) -> list[SessionInfo]:
    async with open_offline_sessions(args.dir, os.environ, store=args.store) as offline:
        return await restore(offline.journal, offline.store, session.id)


def add_trash_arguments(parser: argparse.ArgumentParser) -> None:
    add_format(parser)
    add_place(parser)


def list_trash(args: argparse.Namespace) -> int:
    trashed = make_reader(args).store.list_trash()[::-1]
    if args.format == "json":
        write_json(trashed)
    elif trashed:
        now = read_clock()
        rows = [
            (
                bundle.sessions[0].id,
                format_time(bundle.time, now=now),
                str(len(bundle.sessions)),
                bundle.sessions[0].title,
            )
            for bundle in trashed
        ]
        head = ("session", "removed", "sessions", "title")
        print("\n".join(to_table(head, rows, Paint(sys.stdout), right="sessions")))
    else:
        print_note("the trash is empty: weft session rm ID moves a session there")
    return ExitCode.DONE

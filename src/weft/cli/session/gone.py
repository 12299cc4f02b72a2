"""`weft session rm`, `restore` and `trash`: take sessions out of sight, and bring them back."""

import argparse
import asyncio
import os
import sys

from weft.cli.confirm import confirmed
from weft.cli.exit import Exit
from weft.cli.paint import Paint, plain, write_json
from weft.cli.session.read import read
from weft.cli.sessions import told
from weft.cli.table import to_table
from weft.errors import NotFoundError
from weft.host.now import now as read_clock
from weft.local.place import list_here
from weft.local.reader import Reading, open_resting
from weft.model.readable import plural
from weft.model.session import Session, own_of
from weft.session.remove import remove, restore
from weft.session.tree import LAST, below, choose
from weft.store.files.messages import Messages
from weft.store.files.trash import Trash

SEE_TRASH = "see what is there: weft session trash"


def remove_session(chosen: argparse.Namespace) -> int:
    reading = read(chosen.dir, chosen.store)
    session = reading.get_session(chosen.session)
    if not confirmed(_question(reading, session, trash=not chosen.no_trash), yes=chosen.yes):
        return Exit.DONE
    gone = asyncio.run(_remove(chosen, session))
    if chosen.format == "json":
        write_json(gone)
    else:
        for each in gone:
            print(f"{Paint(sys.stdout).bold(each.id)} is gone: {plain(each.title)}")
        if not chosen.no_trash:
            print(f"weft session restore {session.id} brings it back", file=sys.stderr)
    return Exit.DONE


def _question(reading: Reading, session: Session, *, trash: bool) -> str:
    kin = below(reading.tree.list_sessions(session.project_id), session.id)
    messages = sum(len(Messages(reading.tree).list_ids(each.id)) for each in (session, *kin))
    pinned = "pinned " if own_of(session).pinned else ""
    also = f", {len(kin)} below it" if kin else ""
    how = "into the trash" if trash else "for good"
    title = plain(session.title).replace("\n", " ")
    return f"Remove the {pinned}session “{title}”{also}, {plural(messages, 'message')}, {how}?"


async def _remove(chosen: argparse.Namespace, session: Session) -> list[Session]:
    async with open_resting(chosen.dir, os.environ, store=chosen.store) as resting:
        return await remove(resting.remover(), session.id, trash=not chosen.no_trash)


def restore_session(chosen: argparse.Namespace) -> int:
    reading = read(chosen.dir, chosen.store)
    back = asyncio.run(_restore(chosen, _in_trash(chosen.session, reading)))
    if chosen.format == "json":
        write_json(back)
    else:
        for each in back:
            print(f"{Paint(sys.stdout).bold(each.id)} is back: {plain(each.title)}")
    return Exit.DONE


def _in_trash(given: str, reading: Reading) -> Session:
    """The session that is meant, or the one that a bundle of this name is named for. `last` is the last one of this
    place that was thrown away."""
    trashed = Trash(reading.tree).list_bundles()
    if given == LAST:
        place = reading.place()
        roots = [bundle.sessions[0] for bundle in trashed]
        here = list_here([each for each in roots if each.project_id == place.project.id], place)
        if not here:
            raise NotFoundError("session", LAST, hint=SEE_TRASH)
        return here[-1]
    for bundle in reversed(trashed):
        if given == bundle.id:
            return bundle.sessions[0]
    sessions = {session.id: session for bundle in trashed for session in bundle.sessions}
    return choose(given, (), list(sessions.values()), hint=SEE_TRASH)


async def _restore(chosen: argparse.Namespace, session: Session) -> list[Session]:
    async with open_resting(chosen.dir, os.environ, store=chosen.store) as resting:
        return await restore(resting.journal, resting.store, session.id)


def list_trash(chosen: argparse.Namespace) -> int:
    trashed = Trash(read(chosen.dir, chosen.store).tree).list_bundles()[::-1]
    if chosen.format == "json":
        write_json(trashed)
    elif trashed:
        now = read_clock()
        rows = [
            (each.sessions[0].id, told(each.time, now=now), str(len(each.sessions)), each.sessions[0].title)
            for each in trashed
        ]
        head = ("session", "thrown away", "sessions", "title")
        print("\n".join(to_table(head, rows, Paint(sys.stdout), right="sessions")))
    return Exit.DONE

"""`weft session rename`, `tag`, `note`, `pin`, `archive` and `fork`: change a session, or begin another from it."""

import argparse
import asyncio
import os
import sys
from contextlib import AsyncExitStack, suppress

from msgspec.structs import replace

from weft.cli.paint import Paint, plain, write_json
from weft.cli.session.read import read
from weft.errors import DirectoryError
from weft.local.reader import open_resting
from weft.local.undo import open_undoer
from weft.model.ids import MessageID, checked
from weft.model.session import Session, SessionChange, own_of
from weft.session.fork import Pin, fork, nothing_kept
from weft.session.lifecycle import changed, edit


def rename(chosen: argparse.Namespace) -> int:
    session = _change(chosen, SessionChange(title=" ".join(chosen.title)))
    return _say(chosen, session, f"is now called {session.title}")


def tag(chosen: argparse.Namespace) -> int:
    tags = tuple(chosen.tag)
    session = _change(chosen, SessionChange(untag=tags) if chosen.remove else SessionChange(tag=tags))
    return _say(chosen, session, f"has the tags {', '.join(own_of(session).tags) or '(none)'}")


def note(chosen: argparse.Namespace) -> int:
    gone = tuple(chosen.remove)
    session = _change(
        chosen, SessionChange(note=(" ".join(chosen.text),) if chosen.text else (), unnote=gone)
    )
    told = "".join(f"\n  {number}. {each}" for number, each in enumerate(own_of(session).notes, 1))
    return _say(chosen, session, f"keeps in mind:{told}" if told else "has no notes")


def pin(chosen: argparse.Namespace) -> int:
    session = _change(chosen, SessionChange(pinned=not chosen.off))
    return _say(chosen, session, "is no longer pinned" if chosen.off else "is pinned")


def archive(chosen: argparse.Namespace) -> int:
    session = _change(chosen, SessionChange(archived=not chosen.off))
    return _say(chosen, session, "is back from the archive" if chosen.off else "is archived")


def fork_session(chosen: argparse.Namespace) -> int:
    source = read(chosen.dir, chosen.store).get_session(chosen.session)
    session = asyncio.run(_fork(chosen, source))
    return _say(chosen, session, f"begins as a fork of {source.id}: {session.title}")


async def _fork(chosen: argparse.Namespace, source: Session) -> Session:
    at = None if chosen.at is None else MessageID(checked("message", chosen.at))
    home = read(chosen.dir, chosen.store).find_home(source)
    async with open_resting(chosen.dir, os.environ, store=chosen.store) as resting, AsyncExitStack() as held:
        pin: Pin = nothing_kept
        # Where it worked may be gone: then nothing of it can be taken back anyhow.
        with suppress(DirectoryError):
            pin = (await held.enter_async_context(open_undoer(resting, source))).snapshots.pin
        maker = await replace(resting, directory=home).maker()
        return await fork(maker, resting.store, source, at=at, pin=pin)


def _change(chosen: argparse.Namespace, change: SessionChange) -> Session:
    session = read(chosen.dir, chosen.store).get_session(chosen.session)
    return asyncio.run(_edit(chosen, session, change))


async def _edit(chosen: argparse.Namespace, session: Session, change: SessionChange) -> Session:
    async with open_resting(chosen.dir, os.environ, store=chosen.store) as resting:
        now = resting.clock.now()
        return await edit(resting.journal, session.id, lambda it: changed(it, change, now))


def _say(chosen: argparse.Namespace, session: Session, what: str) -> int:
    if chosen.format == "json":
        write_json(session)
    else:
        print(f"{Paint(sys.stdout).bold(session.id)} {plain(what)}")
    return 0

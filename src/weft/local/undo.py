"""Undo in a directory: where its snapshots are stored and what they may contain."""

import os
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from weft.config.schema import Config, Experimental, Own
from weft.config.store_address import find_own_setting, store_url
from weft.host.paths import Paths, paths_from
from weft.local.reader import Resting
from weft.model.ids import GLOBAL_PROJECT
from weft.model.project import Place, root_of
from weft.model.session import Session
from weft.session.lifecycle import Maker
from weft.snapshot.contract import Limits, Snapshots
from weft.snapshot.git import open_snapshots
from weft.snapshot.off import NoSnapshots
from weft.snapshot.place import KEY, base_for, to_limits
from weft.snapshot.works import Site
from weft.store.contract import Store
from weft.undo.changes import Tally
from weft.undo.recovery import Undoer, recover


class Undoing(Struct, frozen=True, kw_only=True):
    """How snapshots are kept. Without a `base` they are not; one that is `passing` goes when it is closed.

    `theirs` is where OpenCode keeps its own. `avoid` is never looked at: our own data. `home` is the person's: a directory that holds it is not looked through.
    """

    base: str = ""
    passing: bool = False
    avoid: tuple[str, ...] = ()
    home: str = ""
    environ: Mapping[str, str] = {}
    limits: Limits = Limits()
    off: bool = False
    theirs: str = ""


def to_undoing(config: Config, vouched: Config, paths: Paths, env: Mapping[str, str], url: str) -> Undoing:
    """As configured. Any project may switch snapshots off; how much is kept is for the person to say."""
    own = (vouched.experimental or Experimental()).weft or Own()
    given = None if own.snapshots is None else msgspec.to_builtins(own.snapshots)
    return undoing_at(paths, env, url, limits=to_limits(given), off=config.snapshot is False)


def undoing_at(
    paths: Paths, env: Mapping[str, str], url: str, *, limits: Limits | None = None, off: bool = False
) -> Undoing:
    return Undoing(
        base=base_for(paths, url),
        passing=_is_passing(url),
        avoid=(paths.data,),
        home=paths.os_home,
        environ=env,
        limits=limits or Limits(),
        off=off,
        theirs=os.path.join(os.path.dirname(url.removeprefix("file:")), "snapshot"),
    )


def _is_passing(url: str) -> bool:
    return url.startswith("memory:")


@asynccontextmanager
async def open_undoing(undoing: Undoing, place: Place) -> AsyncIterator[Snapshots]:
    if not undoing.base:
        yield NoSnapshots()
    elif undoing.passing:
        with tempfile.TemporaryDirectory(prefix="weft-undo-", ignore_cleanup_errors=True) as base:
            async with _open(undoing, place, base) as snapshots:
                yield snapshots
    else:
        async with _open(undoing, place, undoing.base) as snapshots:
            yield snapshots


@asynccontextmanager
async def _open(undoing: Undoing, place: Place, base: str) -> AsyncIterator[Snapshots]:
    # By directory alone: a project may get another id (`git init`, adoption), and its sessions come along.
    site = Site(
        root=root_of(place), project=GLOBAL_PROJECT, base=base, avoid=undoing.avoid, home=undoing.home
    )
    async with open_snapshots(site, undoing.environ, undoing.limits, off=undoing.off) as snapshots:
        yield snapshots


def to_undoer(maker: Maker, store: Store, snapshots: Snapshots, *, theirs: str = "") -> Undoer:
    return Undoer(
        store=store,
        journal=maker.journal,
        clock=maker.clock,
        mint=maker.mint,
        snapshots=snapshots,
        tally=Tally(snapshots, root_of(maker.place)),
        theirs=theirs,
    )


@asynccontextmanager
async def open_undoer(resting: Resting, session: Session) -> AsyncIterator[Undoer]:
    """To undo what a session at rest did, where it did it. What a dead process left of that is settled first.

    A session whose directory is gone, a worktree that was discarded, has gone on where we are.

    Whoever wants to undo must not be held up by a configuration that cannot be understood.
    """
    env, paths = resting.env, paths_from(resting.env)
    maker = await replace(resting, directory=_where_it_is(session, resting)).maker()
    limits = to_limits(find_own_setting(paths, KEY))
    undoing = undoing_at(paths, env, store_url(env, paths, resting.url), limits=limits)
    async with open_undoing(undoing, maker.place) as snapshots:
        undoer = to_undoer(maker, resting.store, snapshots, theirs=undoing.theirs)
        await recover(undoer)
        yield undoer


def _where_it_is(session: Session, resting: Resting) -> str:
    return session.directory if os.path.isdir(session.directory) else resting.directory

"""Undo in a directory: where its snapshots are stored and what they may contain."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from weft.config.schema import Config
from weft.config.store_address import find_own_setting, resolve_store_url
from weft.errors import WeftError
from weft.host.paths import Paths, paths_from
from weft.model.ids import GLOBAL_PROJECT
from weft.model.project import Place, get_root
from weft.model.session import SessionInfo
from weft.session.lifecycle import SessionMaker
from weft.snapshot.contract import SnapshotLimits, Snapshots
from weft.snapshot.git import open_snapshots
from weft.snapshot.location import LIMITS_KEY, SnapshotSite, choose_base, find_opencode_snapshots, to_limits
from weft.store.contract import Store
from weft.store.url import is_persistent
from weft.undo.changes import ChangeTotals
from weft.undo.context import UndoContext
from weft.undo.recovery import recover_file_changes

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.local.offline import OfflineSessions


class UndoSettings(Struct, frozen=True, kw_only=True):
    """How snapshots are stored.

    Without a `base` directory there are no snapshots. If they are `temporary`, a new directory takes its place until closing. `avoid` are paths that are
    never tracked: weft's own data. A directory that contains `user_home` is not tracked. `opencode_snapshots` is where OpenCode
    keeps its snapshots.
    """

    base: str = ""
    temporary: bool = False
    avoid: tuple[str, ...] = ()
    user_home: str = ""
    environ: Mapping[str, str] = {}
    limits: SnapshotLimits = SnapshotLimits()
    off: bool = False
    opencode_snapshots: str = ""


def to_undo_settings(
    config: Config, trusted_config: Config, paths: Paths, env: Mapping[str, str], url: str
) -> UndoSettings:
    """Read the settings. Any project may switch snapshots off; only the person sets their limits."""
    own = trusted_config.weft_settings
    configured = None if own.snapshots is None else msgspec.to_builtins(own.snapshots)
    return make_undo_settings(paths, env, url, limits=to_limits(configured), off=config.snapshot is False)


def make_undo_settings(
    paths: Paths, env: Mapping[str, str], url: str, *, limits: SnapshotLimits | None = None, off: bool = False
) -> UndoSettings:
    return UndoSettings(
        base=choose_base(paths, url),
        temporary=not is_persistent(url),
        avoid=(paths.data,),
        user_home=paths.os_home,
        environ=env,
        limits=limits or SnapshotLimits(),
        off=off,
        opencode_snapshots=find_opencode_snapshots(paths, url),
    )


@asynccontextmanager
async def open_undo_snapshots(settings: UndoSettings, place: Place) -> AsyncIterator[Snapshots]:
    if not settings.base:
        from weft.snapshot.noop import NoSnapshots  # noqa: PLC0415  only a program that embeds weft has no directory for them

        yield NoSnapshots()
    elif settings.temporary:
        from tempfile import TemporaryDirectory  # noqa: PLC0415  only a program that embeds weft asks for this

        with TemporaryDirectory(prefix="weft-undo-", ignore_cleanup_errors=True) as base:
            async with _open_snapshots_at(settings, place, base) as snapshots:
                yield snapshots
    else:
        async with _open_snapshots_at(settings, place, settings.base) as snapshots:
            yield snapshots


@asynccontextmanager
async def _open_snapshots_at(settings: UndoSettings, place: Place, base: str) -> AsyncIterator[Snapshots]:
    # Snapshots are stored by directory, because the id of a project may change (`git init`, adoption).
    site = SnapshotSite(
        root=get_root(place),
        project=GLOBAL_PROJECT,
        base=base,
        avoid=settings.avoid,
        user_home=settings.user_home,
    )
    async with open_snapshots(site, settings.environ, settings.limits, off=settings.off) as snapshots:
        yield snapshots


def make_undo_context(
    maker: SessionMaker, store: Store, snapshots: Snapshots, settings: UndoSettings
) -> UndoContext:
    return UndoContext(
        store=store,
        journal=maker.journal,
        clock=maker.clock,
        mint=maker.mint,
        snapshots=snapshots,
        totals=ChangeTotals(snapshots, get_root(maker.place)),
        opencode_snapshots=settings.opencode_snapshots,
    )


@asynccontextmanager
async def open_undo_context(
    offline: OfflineSessions, session: SessionInfo, *, warn: Callable[[WeftError], None]
) -> AsyncIterator[UndoContext]:
    """Open what an undo of a stored session needs, in the directory where the session worked. First settle what a dead process
    left there; `warn` gets what could not be settled.

    If that directory is gone, for example a removed worktree, use the current one. The configuration is not loaded: an
    invalid file must not prevent an undo.
    """
    env, paths = offline.env, paths_from(offline.env)
    maker = await replace(offline, directory=_choose_directory(session, offline)).maker()
    limits = to_limits(find_own_setting(paths, LIMITS_KEY))
    settings = make_undo_settings(paths, env, resolve_store_url(env, paths, offline.url), limits=limits)
    async with open_undo_snapshots(settings, maker.place) as snapshots:
        undo_context = make_undo_context(maker, offline.store, snapshots, settings)
        for error in await recover_file_changes(undo_context):
            warn(error)
        yield undo_context


def _choose_directory(session: SessionInfo, offline: OfflineSessions) -> str:
    return session.directory if os.path.isdir(session.directory) else offline.directory

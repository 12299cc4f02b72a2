"""Find the project that a directory belongs to, and store what changed about it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from weft.errors import DirectoryError
from weft.host.clock import Clock
from weft.host.git import Git
from weft.journal import Journal
from weft.model.event import ProjectUpdated, SessionUpdated
from weft.model.ids import GLOBAL_PROJECT, ProjectID
from weft.model.project import Place, is_at, is_within
from weft.model.session import SessionInfo
from weft.model.wire import to_plain
from weft.project.checkout import find_checkout, write_id
from weft.project.facts import KnownProjects, Resolution, last_seen_key, parse_last_seen
from weft.project.resolve import adopt_sessions, resolve
from weft.store.contract import Store

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.transfer.session_import import ProjectLookup


async def find_place(store: Store, directory: str, env: Mapping[str, str], now: int) -> Resolution:
    """Find the project of a directory. Write nothing."""
    at = await asyncio.to_thread(find_checkout, directory, fake_vcs=env.get("OPENCODE_FAKE_VCS", ""))
    projects = {project.id: project for project in await store.list_projects()}
    found = {id: parse_last_seen(await store.find_value(last_seen_key(id))) for id in projects}
    last_seen = {id: seen for id, seen in found.items() if seen is not None}
    known = KnownProjects(projects=projects, last_seen=last_seen)
    return await asyncio.to_thread(resolve, at, known, git=Git(env), now=now)


def is_here(session: SessionInfo, place: Place) -> bool:
    """Return True if a session worked at a place: in the same checkout, or in the same directory where there is none."""
    return is_at(place, os.path.realpath(session.directory))


async def record_place(store: Store, journal: Journal, found: Resolution) -> None:
    """Store what `find_place` found. The id file comes last, because it must not name a project that is not stored."""
    if found.project is not None:
        await journal.commit(ProjectUpdated(info=found.project))
    if found.last_seen is not None:
        await store.put_value(last_seen_key(found.place.project.id), to_plain(found.last_seen))
    if found.adoption is not None:
        for source in found.adoption.sources:
            sessions = await store.list_sessions(source)
            for session in await asyncio.to_thread(adopt_sessions, found.adoption, sessions):
                await journal.commit(SessionUpdated(info=session))
    if found.id_file is not None and os.access(found.id_file.common_dir, os.W_OK):
        await asyncio.to_thread(write_id, found.id_file)


def _is_local_directory(directory: str) -> bool:
    return os.path.isabs(directory) and os.path.isdir(directory)


def make_git_lookup(
    store: Store, journal: Journal, env: Mapping[str, str], *, clock: Clock, dry_run: bool
) -> ProjectLookup:
    """Return a function that finds the project of a directory with git. Each directory is looked up once."""
    known: dict[str, ProjectID | None] = {}

    async def find(directory: str) -> ProjectID | None:
        try:
            found = await find_place(store, directory, env, clock.now())
        except DirectoryError:
            return None
        if found.project is not None and not dry_run:
            await journal.commit(ProjectUpdated(info=found.project))
        return found.place.project.id

    async def look_up(directory: str) -> ProjectID | None:
        if directory not in known:
            known[directory] = (
                await find(directory) if await asyncio.to_thread(_is_local_directory, directory) else None
            )
        return known[directory]

    return look_up


def make_stored_lookup(store: Store, place: Place) -> ProjectLookup:
    """Return a function that finds the project of a directory among the stored projects, without git."""

    async def look_up(directory: str) -> ProjectID | None:
        if not await asyncio.to_thread(_is_local_directory, directory):
            return None
        tops = {place.worktree: place.project.id}
        for project in await store.list_projects():
            tops |= dict.fromkeys((project.worktree, *project.sandboxes), project.id)
        above = [top for top in tops if top != "/" and is_within(directory, top)]
        return tops[max(above, key=len)] if above else GLOBAL_PROJECT

    return look_up

"""Find the project that a directory belongs to, and store what changed about it."""

import asyncio
import os
from collections.abc import Iterable, Mapping

from weft.errors import DirectoryError
from weft.host.clock import Clock
from weft.host.git import Git
from weft.journal import Journal
from weft.model.event import ProjectUpdated, SessionUpdated
from weft.model.ids import GLOBAL_PROJECT, ProjectID
from weft.model.project import Place, is_at
from weft.model.session import Session
from weft.project.facts import Known, Resolution, alias_from_plain, alias_key, alias_to_plain
from weft.project.look import look, write_id
from weft.project.resolve import adopted, resolve
from weft.store.contract import Store
from weft.transfer.intake import Home


async def find_place(store: Store, directory: str, env: Mapping[str, str], now: int) -> Resolution:
    """Which project a directory belongs to. Nothing is written yet."""
    at = await asyncio.to_thread(look, directory, fake_vcs=env.get("OPENCODE_FAKE_VCS", ""))
    projects = {project.id: project for project in await store.list_projects()}
    kept = {id: alias_from_plain(await store.kept(alias_key(id))) for id in projects}
    aliases = {id: alias for id, alias in kept.items() if alias is not None}
    known = Known(projects=projects, aliases=aliases)
    return await asyncio.to_thread(resolve, at, known, git=Git(env), now=now)


def list_here(sessions: Iterable[Session], place: Place) -> list[Session]:
    """Return the sessions that worked at a place: in the same checkout, or in the same directory where there is none."""
    return [each for each in sessions if is_at(place, os.path.realpath(each.directory))]


async def settle_place(store: Store, journal: Journal, found: Resolution) -> None:
    """Store what was found out. The id file comes last: it must not name a project that nobody has recorded."""
    if found.project is not None:
        await journal.commit(ProjectUpdated(info=found.project))
    if found.alias is not None:
        await store.keep(alias_key(found.place.project.id), alias_to_plain(found.alias))
    if found.adoption is not None:
        for source in found.adoption.sources:
            sessions = await store.list_sessions(source)
            for session in await asyncio.to_thread(adopted, found.adoption, sessions):
                await journal.commit(SessionUpdated(info=session))
    if found.id_file is not None and os.access(found.id_file.common_dir, os.W_OK):
        await asyncio.to_thread(write_id, found.id_file)


def _is_here(directory: str) -> bool:
    return os.path.isabs(directory) and os.path.isdir(directory)


def git_home(store: Store, journal: Journal, env: Mapping[str, str], *, clock: Clock, dry_run: bool) -> Home:
    """Which project a directory belongs to, as git has it; each directory is asked about once."""
    known: dict[str, ProjectID | None] = {}

    async def find(directory: str) -> ProjectID | None:
        try:
            found = await find_place(store, directory, env, clock.now())
        except DirectoryError:
            return None
        if found.project is not None and not dry_run:
            await journal.commit(ProjectUpdated(info=found.project))
        return found.place.project.id

    async def home(directory: str) -> ProjectID | None:
        if directory not in known:
            known[directory] = await find(directory) if await asyncio.to_thread(_is_here, directory) else None
        return known[directory]

    return home


def recorded_home(store: Store, place: Place) -> Home:
    """The same for a process that serves one directory: what is recorded, without asking git."""

    async def home(directory: str) -> ProjectID | None:
        if not await asyncio.to_thread(_is_here, directory):
            return None
        tops = {place.worktree: place.project.id}
        for project in await store.list_projects():
            tops |= dict.fromkeys((project.worktree, *project.sandboxes), project.id)
        above = [top for top in tops if top != "/" and (directory + "/").startswith(top.rstrip("/") + "/")]
        return tops[max(above, key=len)] if above else GLOBAL_PROJECT

    return home

"""Which project a directory of this machine belongs to; none, if it is not on this machine."""

import asyncio
import os
from collections.abc import Mapping

from weft.app.place import find_place
from weft.errors import DirectoryError
from weft.host.clock import Clock
from weft.journal import Journal
from weft.model.event import ProjectUpdated
from weft.model.ids import GLOBAL_PROJECT, ProjectID
from weft.model.project import Place
from weft.session.transfer.intake import Home
from weft.store.contract import Store


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

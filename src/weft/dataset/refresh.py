"""Bring a dataset up to date with a store: blocking for commands, async for an `Api`."""

import asyncio
from collections.abc import Callable
from typing import Final

from weft.dataset.database import Dataset
from weft.model.ids import GLOBAL_PROJECT, ProjectID
from weft.permission.storage import RECORDS, log_key
from weft.store.contract import Store
from weft.store.reader import StoreReader

# Called with how many sessions were read, and how many there are to read.
Progress = Callable[[int, int], None]
# A step may take this long without a change of its session.
RECENT_MS: Final = 10 * 60 * 1000
_NOT_LOGS: Final = frozenset({"requests", "grants", "end"})


def refresh_from_reader(
    dataset: Dataset,
    reader: StoreReader,
    project: ProjectID | None,
    progress: Progress = lambda _done, _total: None,
) -> None:
    """Read what changed since the last time, of one project or of all."""
    sessions = reader.list_sessions(project)
    dataset.keep_only([session.id for session in sessions], project)
    stale = dataset.find_stale(sessions, reader.list_running())
    for number, session in enumerate(stale):
        progress(number, len(stale))
        dataset.put_session(session, reader.list_messages(session.id))
    for log in reader.list_logs((RECORDS,)):
        if (found := _find_project(log)) is not None and _is_selected(found, project):
            dataset.put_permissions(found, reader.read_log(log_key(found)))


async def refresh_from_store(dataset: Dataset, store: Store, project: ProjectID | None, *, now: int) -> None:
    """Read what changed since the last time, of one project or of all. A session that changed a moment ago may be running."""
    sessions = await store.list_sessions(project)
    await asyncio.to_thread(dataset.keep_only, [session.id for session in sessions], project)
    recent = {session.id for session in sessions if session.time.updated > now - RECENT_MS}
    for session in await asyncio.to_thread(dataset.find_stale, sessions, recent):
        history = await store.list_messages(session.id)
        await asyncio.to_thread(dataset.put_session, session, history)
    for log in await store.list_logs((RECORDS,)):
        if (found := _find_project(log)) is not None and _is_selected(found, project):
            lines = await store.read_log(log_key(found))
            await asyncio.to_thread(dataset.put_permissions, found, lines)


def _find_project(log: tuple[str, ...]) -> ProjectID | None:
    """Return the project whose audit log this is, None if it is another record."""
    match log:
        case (_, name) if name not in _NOT_LOGS:
            return ProjectID(name)
        case _:
            return None


def _is_selected(found: ProjectID, project: ProjectID | None) -> bool:
    """Return True for the log of a project. Directories without a project have a log each, and share the project `global`."""
    return project in (None, found) or (project == GLOBAL_PROJECT and found.startswith(f"{GLOBAL_PROJECT}-"))

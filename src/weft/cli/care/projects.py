"""`weft project list|merge` and `weft session adopt`: sessions brought back to the project they belong to."""

import argparse
import asyncio
import os
import sys
from typing import Any

from weft.bus import Bus
from weft.cli.confirm import confirmed
from weft.cli.exit import Exit
from weft.cli.paint import Paint, write_json
from weft.cli.sessions import told
from weft.cli.table import to_table
from weft.config.store_address import storage_root, store_url
from weft.errors import InvalidInputError
from weft.host.clock import SystemClock
from weft.host.now import now as read_clock
from weft.host.paths import paths_from
from weft.journal import open_journal
from weft.local.place import find_place, settle_place
from weft.maintenance.doctor import look_around_tree
from weft.maintenance.stray_sessions import (
    Stray,
    adopt,
    find_strays,
    list_family,
    look_around,
    merge,
    to_strays,
)
from weft.model.ids import ProjectID, SessionID, checked
from weft.model.readable import plural
from weft.store.contract import Store
from weft.store.files.reader import Tree
from weft.store.url import open_store


def list_projects(chosen: argparse.Namespace) -> int:
    around = look_around_tree(Tree(storage_root(os.environ, paths_from(os.environ), chosen.store)))
    rows: list[dict[str, Any]] = []
    known = {project.id: project for project in around.projects}
    for id in (*known, *around.recordless()):
        sessions = [session for session in around.sessions if session.project_id == id]
        worktree = known[id].worktree if id in known else ""
        state = "no record" if id not in known else "here" if os.path.isdir(worktree) else "gone"
        updated = max((session.time.updated for session in sessions), default=0)
        rows.append(
            {"id": id, "worktree": worktree, "state": state, "sessions": len(sessions), "updated": updated}
        )
    if chosen.format == "json":
        write_json(rows)
        return Exit.DONE
    now = read_clock()
    shown = [
        (
            row["id"],
            str(row["sessions"]),
            told(row["updated"], now=now) if row["updated"] else "-",
            row["state"],
            row["worktree"],
        )
        for row in rows
    ]
    if shown:
        head = ("project", "sessions", "last used", "state", "worktree")
        print("\n".join(to_table(head, shown, Paint(sys.stdout), right="sessions")))
    return Exit.DONE


def merge_projects(chosen: argparse.Namespace) -> int:
    return asyncio.run(_merge(chosen))


async def _merge(chosen: argparse.Namespace) -> int:
    source, target = ProjectID(chosen.source), ProjectID(chosen.target)
    if source == target:
        raise InvalidInputError("INTO", "that is the same project")
    async with open_store(store_url(os.environ, paths_from(os.environ), chosen.store)) as store:
        sessions = await store.list_sessions(source)
        if sessions and not confirmed(
            f"Move {plural(len(sessions), 'session')} to {target}?", yes=chosen.yes
        ):
            return Exit.DONE
        moved = await merge(store, source, target)
    print(f"{plural(len(moved), 'session belongs', 'sessions belong')} to {target} now")
    return Exit.DONE


def adopt_sessions(chosen: argparse.Namespace) -> int:
    if bool(chosen.session) == chosen.all:
        raise InvalidInputError("adopt", "nothing says which sessions", hint="name their ids, or pass --all")
    return asyncio.run(_adopt(chosen))


async def _adopt(chosen: argparse.Namespace) -> int:
    async with open_store(store_url(os.environ, paths_from(os.environ), chosen.store)) as store:
        strays = find_strays(await look_around(store)) if chosen.all else await _named(store, chosen)
        if not chosen.dry_run:
            await adopt(store, strays)
    if chosen.format == "json":
        write_json([_to_row(stray) for stray in strays])
    else:
        for stray in strays:
            print(f"{stray.session.id} → {stray.project}  {stray.session.title}")
        now = ("session belongs", "sessions belong")
        said = plural(
            len(strays), *(("session would belong", "sessions would belong") if chosen.dry_run else now)
        )
        print(f"{said} to their project now" if strays else "nothing to adopt")
    return Exit.DONE


async def _named(store: Store, chosen: argparse.Namespace) -> list[Stray]:
    ids = [SessionID(checked("session", id)) for id in chosen.session]
    found = await find_place(store, chosen.dir, os.environ, read_clock())
    family = await list_family(store, ids)
    if not chosen.dry_run:
        async with open_journal(store, Bus(), SystemClock(), directory=found.place.directory) as journal:
            await settle_place(store, journal, found)
    return to_strays(family, found.place)


def _to_row(stray: Stray) -> dict[str, str]:
    return {
        "id": stray.session.id,
        "title": stray.session.title,
        "project": stray.project,
        "directory": stray.directory or stray.session.directory,
    }

"""`weft project list|merge` and `weft session adopt`: give sessions to the project they belong to."""

import argparse
import asyncio
import os
import sys
from typing import Any

from weft.bus import Bus
from weft.cli.arguments import add_format, add_place, add_store, add_yes
from weft.cli.exit import ExitCode
from weft.cli.output import Paint, confirm, format_time, print_note, to_table, write_json
from weft.cli.session import make_reader
from weft.errors import InvalidInputError
from weft.host.clock import SystemClock
from weft.host.now import now as read_clock
from weft.journal import open_journal
from weft.local.place import find_place, record_place
from weft.local.reader import resolve_existing_store, upgrade_existing_store
from weft.maintenance.project_repair import (
    MisfiledSession,
    find_misfiled,
    list_family,
    make_misfiled,
    merge_project,
    move_sessions,
    read_overview,
    read_overview_now,
)
from weft.model.display import format_count
from weft.model.ids import ProjectID
from weft.store.contract import Store
from weft.store.maintenance import open_maintenance
from weft.store.url import open_store


def add_list_arguments(parser: argparse.ArgumentParser) -> None:
    add_format(parser)
    add_store(parser)


def list_projects(args: argparse.Namespace) -> int:
    overview = read_overview_now(open_maintenance(resolve_existing_store(os.environ, args.store)).reader)
    rows: list[dict[str, Any]] = []
    known = {project.id: project for project in overview.projects}
    for id in (*known, *overview.list_unrecorded()):
        sessions = [session for session in overview.sessions if session.project_id == id]
        worktree = known[id].worktree if id in known else ""
        state = "no record" if id not in known else "here" if os.path.isdir(worktree) else "gone"
        updated = max((session.time.updated for session in sessions), default=0)
        rows.append(
            {"id": id, "worktree": worktree, "state": state, "sessions": len(sessions), "updated": updated}
        )
    if args.format == "json":
        write_json(rows)
        return ExitCode.DONE
    now = read_clock()
    shown = [
        (
            row["id"],
            str(row["sessions"]),
            format_time(row["updated"], now=now) if row["updated"] else "-",
            row["state"],
            row["worktree"],
        )
        for row in rows
    ]
    if shown:
        head = ("project", "sessions", "last used", "state", "worktree")
        print("\n".join(to_table(head, shown, Paint(sys.stdout), right="sessions")))
    else:
        print_note('there are no projects yet: the first session in a directory makes one (weft run "…")')
    return ExitCode.DONE


def add_merge_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("source", metavar="ID", help="the project whose sessions are moved")
    add("target", metavar="INTO", help="the project that gets them")
    add_yes(parser)
    add_store(parser)


def merge_projects(args: argparse.Namespace) -> int:
    return asyncio.run(_merge(args))


async def _merge(args: argparse.Namespace) -> int:
    source, target = ProjectID(args.source), ProjectID(args.target)
    if source == target:
        raise InvalidInputError(
            "INTO", "that is the same project", hint="weft project list shows the ids of all projects"
        )
    async with open_store(upgrade_existing_store(os.environ, args.store)) as store:
        sessions = await store.list_sessions(source)
        if sessions and not confirm(
            f"Move {format_count(len(sessions), 'session')} to {target}?", yes=args.yes
        ):
            return ExitCode.DONE
        moved = await merge_project(store, source, target)
    print(f"{format_count(len(moved), 'session belongs', 'sessions belong')} to {target} now")
    return ExitCode.DONE


def add_adopt_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("session", nargs="*", metavar="ID", help="sessions to move to the project of this directory")
    add("--all", action="store_true", help="every session that was started in a checkout of some project")
    add("--dry-run", action="store_true", help="only show which session would be moved where")
    add_format(parser)
    add_place(parser)


def adopt_sessions(args: argparse.Namespace) -> int:
    if bool(args.session) == args.all:
        reason = "--all includes every session" if args.all else "no session was named"
        raise InvalidInputError("adopt", reason, hint="pass either ids or --all")
    args.session = [make_reader(args).get_session(each).id for each in args.session]
    return asyncio.run(_adopt(args))


async def _adopt(args: argparse.Namespace) -> int:
    async with open_store(upgrade_existing_store(os.environ, args.store)) as store:
        if args.all:
            misfiled = find_misfiled(await read_overview(store))
        else:
            misfiled = await _find_named(store, args)
        if not args.dry_run:
            await move_sessions(store, misfiled)
    if args.format == "json":
        write_json([_to_row(each) for each in misfiled])
        return ExitCode.DONE
    for each in misfiled:
        print(f"{each.session.id} → {each.project}  {each.session.title}")
    one, many = (
        ("session would belong", "sessions would belong")
        if args.dry_run
        else ("session belongs", "sessions belong")
    )
    count = format_count(len(misfiled), one, many)
    print(f"{count} to their project now" if misfiled else "nothing to adopt")
    return ExitCode.DONE


async def _find_named(store: Store, args: argparse.Namespace) -> list[MisfiledSession]:
    """Return the named sessions with their new project. Record that project, unless this is a dry run."""
    found = await find_place(store, args.dir, os.environ, read_clock())
    family = await list_family(store, args.session)
    if not args.dry_run:
        async with open_journal(store, Bus(), SystemClock(), directory=found.place.directory) as journal:
            await record_place(store, journal, found)
    return make_misfiled(family, found.place)


def _to_row(misfiled: MisfiledSession) -> dict[str, str]:
    return {
        "id": misfiled.session.id,
        "title": misfiled.session.title,
        "project": misfiled.project,
        "directory": misfiled.directory or misfiled.session.directory,
    }

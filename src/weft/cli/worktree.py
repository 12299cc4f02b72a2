"""`weft worktree` and `weft run --worktree`: checkouts that sessions have to themselves."""

import argparse
import asyncio
import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from weft.cli.arguments import add_format, add_place, add_yes
from weft.cli.exit import ExitCode
from weft.cli.output import Paint, confirm, sanitize, to_table, write_json
from weft.cli.session import open_reading
from weft.config.store_address import resolve_store_url
from weft.errors import ConflictError, InvalidInputError, NotFoundError, WeftError
from weft.host.paths import paths_from
from weft.local.place import list_sessions_here
from weft.local.reader import SessionReader
from weft.local.worktrees import (
    EnteredWorktree,
    delete_worktree,
    discard_unused,
    enter_worktree,
    find_session_worktree,
    is_trusted_in,
    list_sessions_in,
    open_repository,
    run_start_command,
)
from weft.model.session import Session
from weft.session.tree import find_last_session
from weft.worktree.merge import MergeResult, merge_worktree
from weft.worktree.repository import Worktree, WorktreeRepository, get_worktree, list_worktrees, lock_worktree
from weft.worktree.state import WorktreeState, list_hints, read_state

WHICH_WORKTREE = "the worktree; may be left out if there is only one"
HASH_LENGTH = 12


def add_list_arguments(parser: argparse.ArgumentParser) -> None:
    add_format(parser)
    add_place(parser)


def list_worktrees_command(chosen: argparse.Namespace) -> int:
    repository = _open_repository(chosen)
    sessions = _list_sessions(chosen)
    found = [
        (each, read_state(repository, each), list_sessions_in(each, sessions))
        for each in list_worktrees(repository)
    ]
    if chosen.format == "json":
        rows = [_to_row(worktree, state, held) for worktree, state, held in found]
        write_json(rows)
    elif found:
        table = [
            (worktree.name, format_state(state), held[-1].title if held else "-", worktree.directory)
            for worktree, state, held in found
        ]
        print(
            "\n".join(to_table(("worktree", "state", "last session", "directory"), table, Paint(sys.stdout)))
        )
    return ExitCode.DONE


def _to_row(worktree: Worktree, state: WorktreeState, sessions: list[Session]) -> dict[str, Any]:
    return {
        "name": worktree.name,
        "branch": worktree.branch,
        "directory": worktree.directory,
        "changed": list(state.changed),
        "ahead": state.ahead,
        "merged": state.merged,
        "missing": state.missing,
        "sessions": [session.id for session in sessions],
    }


def format_state(state: WorktreeState) -> str:
    """Return the state of a worktree in a few words."""
    if state.missing:
        return "its files are gone"
    changed = f"{len(state.changed)} changed" if state.changed else ""
    ahead = f"{state.ahead} committed" if state.ahead else ""
    work = ", ".join(part for part in (changed, ahead) if part)
    if not work:
        return "nothing done"
    return f"{work}, merged" if state.merged else work


def add_merge_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("name", nargs="?", metavar="NAME", help=WHICH_WORKTREE)
    add(
        "--commit",
        nargs="?",
        const="",
        metavar="MESSAGE",
        help="commit only what was merged; without a message, use the title of the session",
    )
    add("--again", action="store_true", help="merge all of the work, including what was merged before")
    add("--discard", action="store_true", help="discard the worktree afterwards")
    add_format(parser)
    add_place(parser)


def merge_worktree_command(chosen: argparse.Namespace) -> int:
    repository = _open_repository(chosen)
    worktree = get_worktree(repository, chosen.name)
    message = None
    if chosen.commit is not None:
        sessions = list_sessions_in(worktree, _list_sessions(chosen))
        message = chosen.commit or (sessions[-1].title if sessions else f"Merge worktree {worktree.name}")
    with lock_worktree(repository, worktree):
        outcome = merge_worktree(repository, worktree, message=message, again=chosen.again)
        if chosen.discard and not outcome.left_out:
            delete_worktree(repository, worktree)
    if chosen.format == "json":
        write_json(outcome)
    else:
        _print_merge(outcome, repository)
    return ExitCode.DONE


def _print_merge(outcome: MergeResult, repository: WorktreeRepository) -> None:
    paint = Paint(sys.stdout)
    marks = {"added": paint.green("A"), "changed": paint.yellow("M"), "deleted": paint.red("D")}
    for each in outcome.brought:
        print(f"{marks[each.how]} {sanitize(each.path)}")
    for path in outcome.left_out:
        print(f"{paint.yellow('left out:')} {sanitize(path)} is a submodule: it has commits of its own")
    if not outcome.brought:
        print("nothing to merge")
    elif outcome.commit:
        print(f"committed as {outcome.commit[:HASH_LENGTH]}")
    else:
        print(paint.dim(f"merged into {sanitize(repository.top)}, not committed"))


def add_discard_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("name", nargs="?", metavar="NAME", help=WHICH_WORKTREE)
    add("--force", action="store_true", help="discard it even if it contains work that is nowhere else")
    add_yes(parser)
    add_place(parser)


def discard_worktree_command(chosen: argparse.Namespace) -> int:
    repository = _open_repository(chosen)
    worktree = get_worktree(repository, chosen.name)
    with lock_worktree(repository, worktree):
        state = read_state(repository, worktree)
        if not state.is_safe and not chosen.force:
            raise ConflictError(
                "worktree",
                worktree.name,
                f"has work that is nowhere else: {format_state(state)}",
                hint=f"weft worktree merge {worktree.name}, or discard it with --force",
            )
        if not confirm(f"Discard {worktree.name} ({format_state(state)})?", yes=chosen.yes):
            return ExitCode.FAILED
        kept = delete_worktree(repository, worktree)
    print(f"discarded {worktree.name}")
    if kept and not state.merged:
        print(
            f"what stood in it is commit {kept[:HASH_LENGTH]} for as long as git keeps it: git branch NAME {kept[:HASH_LENGTH]}"
        )
    return ExitCode.DONE


def _open_repository(chosen: argparse.Namespace) -> WorktreeRepository:
    return open_repository(chosen.dir, os.environ, chosen.store)


def _list_sessions(chosen: argparse.Namespace) -> list[Session]:
    return open_reading(chosen).list_sessions()


class RunDirectory(Struct, frozen=True, kw_only=True):
    """Where a run works: in a worktree, or if there is none, in a plain directory."""

    repository: WorktreeRepository | None = None
    entered: EnteredWorktree | None = None

    def leave(self, code: int) -> None:
        """Print the state of the worktree. Remove a new one if the run could not even start."""
        if self.repository is None or self.entered is None:
            return
        if code == ExitCode.USAGE:
            discard_unused(self.repository, self.entered)
            return
        worktree = self.entered.worktree
        state = read_state(self.repository, worktree)
        if state.has_work and not state.merged:
            _print_note(
                f"{format_state(state)}: weft worktree merge {worktree.name} (or discard)", worktree.name
            )


@contextmanager
def open_run_directory(chosen: argparse.Namespace, env: Mapping[str, str]) -> Generator[RunDirectory]:
    """Set `chosen.dir` to the directory in which to run, and lock its worktree for the time of the run."""
    if chosen.worktree is None:
        with _open_session_directory(chosen, env) as found:
            yield found
        return
    if chosen.session:
        raise InvalidInputError(
            "--worktree", "a session continues in its own directory", hint="leave out --session or --worktree"
        )
    repository = open_repository(chosen.dir, env, chosen.store)
    entered = enter_worktree(repository, chosen.worktree or None)
    try:
        with lock_worktree(repository, entered.worktree):
            _announce(repository, entered, chosen, env)
            chosen.dir = entered.directory
            if chosen.go_on:
                chosen.session, chosen.go_on = _get_last_session(chosen, env, entered).id, False
            yield RunDirectory(repository=repository, entered=entered)
    except WeftError:
        discard_unused(repository, entered)
        raise


@contextmanager
def _open_session_directory(chosen: argparse.Namespace, env: Mapping[str, str]) -> Generator[RunDirectory]:
    """Let a session that continues run in its own directory or worktree."""
    session = _find_session(chosen, env) if chosen.session or chosen.go_on else None
    if session is None:
        yield RunDirectory()
        return
    chosen.session, chosen.go_on = session.id, False
    there = find_session_worktree(session, env)
    if there is None or not os.path.isdir(there):
        _change_to_home(chosen, env, session)
        if there is not None:
            _print_note(f"the worktree of session {session.id} is gone: it goes on here", "")
        yield RunDirectory()
        return
    repository = open_repository(there, env, chosen.store)
    chosen.dir = there
    mine = [each for each in list_worktrees(repository) if list_sessions_in(each, [session])]
    if not mine:
        yield RunDirectory()
        return
    entered = EnteredWorktree(worktree=mine[0], directory=there)
    with lock_worktree(repository, entered.worktree):
        _print_note(f"the session goes on in {sanitize(there)}", entered.worktree.name)
        yield RunDirectory(repository=repository, entered=entered)


def _change_to_home(chosen: argparse.Namespace, env: Mapping[str, str], session: Session) -> None:
    """Set `chosen.dir` to the directory of the session, and print it if it is not the current one."""
    home = SessionReader(chosen.dir, env, store=chosen.store).find_home(session)
    if os.path.realpath(home) != os.path.realpath(chosen.dir):
        print(
            f"{Paint(sys.stderr).dim('directory:')} the session goes on in {sanitize(home)}", file=sys.stderr
        )
        chosen.dir = home


def _find_session(chosen: argparse.Namespace, env: Mapping[str, str]) -> Session | None:
    """Return the session that continues, if there is one.

    Return None for a store that is not made of files: its sessions have no worktrees.
    """
    if not resolve_store_url(env, paths_from(env), chosen.store).startswith("file:"):
        return None
    reading = SessionReader(chosen.dir, env, store=chosen.store)
    if chosen.session:
        return reading.get_session(chosen.session)
    return find_last_session(list_sessions_here(reading.list_sessions(), reading.place()))


def _get_last_session(
    chosen: argparse.Namespace, env: Mapping[str, str], entered: EnteredWorktree
) -> Session:
    sessions = SessionReader(chosen.dir, env, store=chosen.store).list_sessions()
    found = find_last_session(list_sessions_in(entered.worktree, sessions))
    if found is None:
        raise NotFoundError("session", f"in worktree {entered.worktree.name}", hint="leave out --continue")
    return found


def _announce(
    repository: WorktreeRepository,
    entered: EnteredWorktree,
    chosen: argparse.Namespace,
    env: Mapping[str, str],
) -> None:
    """Print where the run works and what is missing there. If the worktree is new, prepare it."""
    worktree = entered.worktree
    if not entered.made:
        _print_note(f"working in {sanitize(worktree.directory)}", worktree.name)
        return
    commit = repository.checkouts.find_commit() or ""
    _print_note(
        f"{sanitize(worktree.directory)}, on branch {worktree.branch}, from {commit[:12]}", worktree.name
    )
    left = repository.checkouts.list_changed()
    if left:
        _print_note(
            f"your {len(left)} uncommitted change(s) stay in {sanitize(repository.top)}, and are not in it",
            worktree.name,
        )
    for hint in list_hints(worktree):
        _print_note(hint, worktree.name)
    _run_start_command(repository, entered, chosen, env)


def _run_start_command(
    repository: WorktreeRepository,
    entered: EnteredWorktree,
    chosen: argparse.Namespace,
    env: Mapping[str, str],
) -> None:
    commands = SessionReader(chosen.dir, env, store=chosen.store).place().project.commands
    if commands is None or not commands.start:
        return
    if not is_trusted_in(repository, entered.worktree):
        _print_note(
            "its start command is not run, as the project is not trusted: weft trust", entered.worktree.name
        )
        return

    async def print_output(piece: bytes) -> None:
        sys.stderr.write(piece.decode(errors="replace"))

    _print_note(f"starting: {sanitize(commands.start)}", entered.worktree.name)
    asyncio.run(run_start_command(entered, commands.start, env, print_output))


def _print_note(words: str, name: str) -> None:
    paint = Paint(sys.stderr)
    print(f"{paint.dim(f'worktree {name}:' if name else 'worktree:')} {words}", file=sys.stderr)

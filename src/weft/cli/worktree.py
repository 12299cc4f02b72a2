"""`weft worktree` and `weft run --worktree`: separate checkouts for sessions."""

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
from weft.cli.output import Paint, confirm, print_note, sanitize, to_table, write_json
from weft.cli.session import make_reader
from weft.config.store_address import resolve_store_url
from weft.errors import ConflictError, InvalidInputError, NotFoundError
from weft.host.paths import paths_from
from weft.local.reader import SessionReader
from weft.local.worktrees import (
    EnteredWorktree,
    delete_worktree,
    discard_unused,
    find_session_worktree,
    is_trusted_in,
    open_worktree,
    read_repository,
    run_start_command,
    works_in,
)
from weft.model.ids import SessionID
from weft.model.session import SessionInfo
from weft.model.session_query import SessionQuery
from weft.session.selection import LAST_USED
from weft.store.url import is_persistent
from weft.worktree.merge import MergeResult, merge_worktree
from weft.worktree.repository import (
    Worktree,
    WorktreeRepository,
    WorktreeState,
    get_worktree,
    list_hints,
    list_worktrees,
    lock_worktree,
    read_state,
)

WORKTREE_HELP = "the worktree; may be left out if there is only one"
HASH_LENGTH = 12
PAGE = 50


def add_list_arguments(parser: argparse.ArgumentParser) -> None:
    add_format(parser)
    add_place(parser)


def list_worktrees_command(args: argparse.Namespace) -> int:
    repository = _read_repository(args)
    sessions = make_reader(args).list_sessions()
    worktrees = [
        (worktree, read_state(repository, worktree), [each for each in sessions if works_in(each, worktree)])
        for worktree in list_worktrees(repository)
    ]
    if args.format == "json":
        rows = [_to_row(worktree, state, own_sessions) for worktree, state, own_sessions in worktrees]
        write_json(rows)
    elif worktrees:
        table = [
            (
                worktree.name,
                format_state(state),
                own_sessions[-1].title if own_sessions else "-",
                worktree.directory,
            )
            for worktree, state, own_sessions in worktrees
        ]
        print(
            "\n".join(to_table(("worktree", "state", "last session", "directory"), table, Paint(sys.stdout)))
        )
    else:
        print_note('there are no worktrees: weft run --worktree "…" makes one')
    return ExitCode.DONE


def _to_row(worktree: Worktree, state: WorktreeState, sessions: list[SessionInfo]) -> dict[str, Any]:
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
    add("name", nargs="?", metavar="NAME", help=WORKTREE_HELP)
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


def merge_worktree_command(args: argparse.Namespace) -> int:
    repository = _read_repository(args)
    worktree = get_worktree(repository, args.name)
    message = None
    if args.commit is not None:
        newest = make_reader(args).iterate_sessions(SessionQuery(limit=PAGE))
        titles = (session.title for session in newest if works_in(session, worktree))
        message = args.commit or next(titles, f"Merge worktree {worktree.name}")
    with lock_worktree(repository, worktree):
        before = read_state(repository, worktree)
        outcome = merge_worktree(repository, worktree, message=message, again=args.again)
        # A submodule that was left out is in the worktree only.
        is_kept = bool(outcome.left_out)
        if args.discard and not is_kept:
            delete_worktree(repository, worktree)
    if args.format == "json":
        write_json(outcome)
    else:
        _print_merge(outcome, repository, before)
    if args.discard and is_kept:
        _print_worktree_note(
            f"not discarded, because of what was left out: weft worktree discard {worktree.name} --force",
            worktree.name,
        )
    return ExitCode.DONE


def _print_merge(outcome: MergeResult, repository: WorktreeRepository, before: WorktreeState) -> None:
    paint = Paint(sys.stdout)
    marks = {"added": paint.green("A"), "changed": paint.yellow("M"), "deleted": paint.red("D")}
    for file in outcome.brought:
        print(f"{marks[file.how]} {sanitize(file.path)}")
    for path in outcome.left_out:
        print(f"{paint.yellow('left out:')} {sanitize(path)} is a submodule: it has commits of its own")
    if not outcome.brought:
        print(f"nothing to merge: {explain_empty_merge(before)}")
    elif outcome.commit:
        print(f"committed as {outcome.commit[:HASH_LENGTH]}")
    else:
        print(paint.dim(f"merged into {sanitize(repository.top)}, not committed"))


def explain_empty_merge(before: WorktreeState) -> str:
    """Return why a merge brought nothing, from the state of the worktree before it."""
    if before.merged:
        return "all of it was merged before; --again merges it once more"
    return "your checkout already has its changes" if before.has_work else "nothing was done in it"


def add_discard_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("name", nargs="?", metavar="NAME", help=WORKTREE_HELP)
    add("--force", action="store_true", help="discard it even if it contains work that is nowhere else")
    add_yes(parser)
    add_place(parser)


def discard_worktree_command(args: argparse.Namespace) -> int:
    repository = _read_repository(args)
    worktree = get_worktree(repository, args.name)
    with lock_worktree(repository, worktree):
        state = read_state(repository, worktree)
        if not state.is_safe and not args.force:
            raise ConflictError(
                "worktree",
                worktree.name,
                f"has work that is nowhere else: {format_state(state)}",
                hint=f"weft worktree merge {worktree.name}, or discard it with --force",
            )
        if not confirm(f"Discard {worktree.name} ({format_state(state)})?", yes=args.yes):
            return ExitCode.FAILED
        commit = delete_worktree(repository, worktree)
    print(f"discarded {worktree.name}")
    if commit and not state.merged:
        print(
            f"its last state is commit {commit[:HASH_LENGTH]} until git removes it; git branch NAME {commit[:HASH_LENGTH]} keeps it"
        )
    return ExitCode.DONE


def _read_repository(args: argparse.Namespace) -> WorktreeRepository:
    return read_repository(args.dir, os.environ, args.store)


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
            _print_worktree_note(
                f"{format_state(state)}: weft worktree merge {worktree.name} (or discard)", worktree.name
            )


@contextmanager
def open_run_directory(args: argparse.Namespace, env: Mapping[str, str]) -> Generator[RunDirectory]:
    """Set `args.dir` to the directory in which to run, and lock its worktree for the time of the run."""
    if args.worktree is None:
        with _open_session_directory(args, env) as directory:
            yield directory
        return
    if args.session:
        raise InvalidInputError(
            "--worktree", "a session continues in its own directory", hint="leave out --session or --worktree"
        )
    repository = read_repository(args.dir, env, args.store)

    def find_session(worktree: Worktree) -> SessionID | None:
        """Return the session that continues in the worktree, and name it in `args`."""
        if args.continue_last:
            args.session, args.continue_last = _get_last_session(args, env, worktree).id, False
        return None if args.session is None else SessionID(args.session)

    with open_worktree(repository, args.worktree or None, find_session=find_session) as entered:
        _announce(repository, entered, args, env)
        args.dir = entered.directory
        yield RunDirectory(repository=repository, entered=entered)


@contextmanager
def _open_session_directory(args: argparse.Namespace, env: Mapping[str, str]) -> Generator[RunDirectory]:
    """Let a session that continues run in its own directory or worktree."""
    session = _find_session(args, env) if args.session or args.continue_last else None
    if session is None:
        yield RunDirectory()
        return
    args.session, args.continue_last = session.id, False
    directory = find_session_worktree(session, env)
    if directory is None or not os.path.isdir(directory):
        _change_to_session_directory(args, env, session)
        if directory is not None:
            _print_worktree_note(f"the worktree of session {session.id} is gone: it continues here", "")
        yield RunDirectory()
        return
    repository = read_repository(directory, env, args.store)
    args.dir = directory
    worktrees = [each for each in list_worktrees(repository) if works_in(session, each)]
    if not worktrees:
        yield RunDirectory()
        return
    entered = EnteredWorktree(worktree=worktrees[0], directory=directory)
    with lock_worktree(repository, entered.worktree, session=session.id):
        _print_worktree_note(f"the session continues in {sanitize(directory)}", entered.worktree.name)
        yield RunDirectory(repository=repository, entered=entered)


def _change_to_session_directory(
    args: argparse.Namespace, env: Mapping[str, str], session: SessionInfo
) -> None:
    """Set `args.dir` to the directory of the session, and print it if it is not the current one."""
    directory = SessionReader(args.dir, env, store=args.store).choose_directory(session)
    if os.path.realpath(directory) != os.path.realpath(args.dir):
        print(
            f"{Paint(sys.stderr).dim('directory:')} the session continues in {sanitize(directory)}",
            file=sys.stderr,
        )
        args.dir = directory


def _find_session(args: argparse.Namespace, env: Mapping[str, str]) -> SessionInfo | None:
    """Return the session that continues, if there is one. A store in memory is empty when the command begins."""
    if not is_persistent(resolve_store_url(env, paths_from(env), args.store)):
        return None
    reader = SessionReader(args.dir, env, store=args.store)
    return reader.get_session(args.session) if args.session else reader.find_last_session()


def _get_last_session(args: argparse.Namespace, env: Mapping[str, str], worktree: Worktree) -> SessionInfo:
    last_used = SessionReader(args.dir, env, store=args.store).iterate_sessions(LAST_USED)
    session = next((each for each in last_used if works_in(each, worktree)), None)
    if session is None:
        raise NotFoundError("session", f"in worktree {worktree.name}", hint="leave out --continue")
    return session


def _announce(
    repository: WorktreeRepository,
    entered: EnteredWorktree,
    args: argparse.Namespace,
    env: Mapping[str, str],
) -> None:
    """Print where the run works and what is missing there. If the worktree is new, prepare it."""
    worktree = entered.worktree
    if not entered.made:
        _print_worktree_note(f"working in {sanitize(worktree.directory)}", worktree.name)
        return
    commit = repository.checkouts.find_commit() or ""
    _print_worktree_note(
        f"{sanitize(worktree.directory)}, on branch {worktree.branch}, from {commit[:HASH_LENGTH]}",
        worktree.name,
    )
    changes = repository.checkouts.list_changed()
    if changes:
        _print_worktree_note(
            f"your {len(changes)} uncommitted change(s) stay in {sanitize(repository.top)} and are not in the worktree",
            worktree.name,
        )
    for hint in list_hints(worktree):
        _print_worktree_note(hint, worktree.name)
    _run_start_command(repository, entered, args, env)


def _run_start_command(
    repository: WorktreeRepository,
    entered: EnteredWorktree,
    args: argparse.Namespace,
    env: Mapping[str, str],
) -> None:
    commands = SessionReader(args.dir, env, store=args.store).place().project.commands
    if commands is None or not commands.start:
        return
    if not is_trusted_in(repository, entered.worktree):
        _print_worktree_note(
            "its start command is not run, as the project is not trusted: weft trust", entered.worktree.name
        )
        return

    async def print_output(piece: bytes) -> None:
        sys.stderr.write(piece.decode(errors="replace"))

    _print_worktree_note(f"starting: {sanitize(commands.start)}", entered.worktree.name)
    asyncio.run(run_start_command(entered, commands.start, env, print_output))


def _print_worktree_note(text: str, name: str) -> None:
    paint = Paint(sys.stderr)
    print(f"{paint.dim(f'worktree {name}:' if name else 'worktree:')} {text}", file=sys.stderr)

"""Where `weft run` works: here, in a worktree of its own, or where the session that goes on has always worked."""

import argparse
import asyncio
import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager

from msgspec import Struct

from weft.cli.exit import Exit
from weft.cli.paint import Paint, plain
from weft.cli.worktree.command import to_words
from weft.config.store_address import store_url
from weft.errors import InvalidInputError, NotFoundError, WeftError
from weft.host.paths import paths_from
from weft.local.place import list_here
from weft.local.reader import Reading
from weft.local.worktrees import (
    Entered,
    enter,
    find_session_worktree,
    give_up,
    is_trusted_in,
    list_sessions_in,
    open_repository,
    start,
)
from weft.model.session import Session
from weft.session.tree import find_last
from weft.worktree.place import Repository, list_worktrees, occupied
from weft.worktree.state import list_hints, look_into


class Workplace(Struct, frozen=True, kw_only=True):
    """A worktree that is worked in, if one is."""

    repository: Repository | None = None
    entered: Entered | None = None

    def leave(self, code: int) -> None:
        """Say what is in it now. One that was made for what could not even begin goes again."""
        if self.repository is None or self.entered is None:
            return
        if code == Exit.USAGE:
            give_up(self.repository, self.entered)
            return
        worktree = self.entered.worktree
        state = look_into(self.repository, worktree)
        if state.has_work and not state.merged:
            _say(f"{to_words(state)}: weft worktree merge {worktree.name} (or discard)", worktree.name)


def take_words_back(chosen: argparse.Namespace) -> None:
    """`--worktree "fix the test"`: words in the place of a name are the prompt."""
    if chosen.worktree and not chosen.message and " " in chosen.worktree.strip():
        chosen.message, chosen.worktree = [chosen.worktree], ""


@contextmanager
def workplace(chosen: argparse.Namespace, env: Mapping[str, str]) -> Generator[Workplace]:
    """Set `chosen.dir` to where the run is to work, and hold that for as long as it does."""
    if chosen.worktree is None:
        with _where_it_was(chosen, env) as found:
            yield found
        return
    if chosen.session:
        raise InvalidInputError(
            "--worktree", "a session goes on where it was", hint="leave out --session, or --worktree"
        )
    repository = open_repository(chosen.dir, env, chosen.store)
    entered = enter(repository, chosen.worktree or None)
    try:
        with occupied(repository, entered.worktree):
            _begin(repository, entered, chosen, env)
            chosen.dir = entered.directory
            if chosen.go_on:
                chosen.session, chosen.go_on = _last_in(chosen, env, entered).id, False
            yield Workplace(repository=repository, entered=entered)
    except WeftError:
        give_up(repository, entered)
        raise


@contextmanager
def _where_it_was(chosen: argparse.Namespace, env: Mapping[str, str]) -> Generator[Workplace]:
    """A session goes on in its own directory, unless another one was named."""
    session = _find_session(chosen, env) if chosen.session or chosen.go_on else None
    if session is None:
        yield Workplace()
        return
    chosen.session, chosen.go_on = session.id, False
    there = find_session_worktree(session, env)
    if there is None or not os.path.isdir(there):
        _go_there(chosen, env, session)
        if there is not None:
            _say(f"the worktree of session {session.id} is gone: it goes on here", "")
        yield Workplace()
        return
    repository = open_repository(there, env, chosen.store)
    chosen.dir = there
    mine = [each for each in list_worktrees(repository) if list_sessions_in(each, [session])]
    if not mine:
        yield Workplace()
        return
    entered = Entered(worktree=mine[0], directory=there)
    with occupied(repository, entered.worktree):
        _say(f"the session goes on in {plain(there)}", entered.worktree.name)
        yield Workplace(repository=repository, entered=entered)


def _go_there(chosen: argparse.Namespace, env: Mapping[str, str], session: Session) -> None:
    """Set `chosen.dir` to where the session goes on, and say so if that is not where we are."""
    home = Reading(chosen.dir, env, store=chosen.store).find_home(session)
    if os.path.realpath(home) != os.path.realpath(chosen.dir):
        print(f"{Paint(sys.stderr).dim('directory:')} the session goes on in {plain(home)}", file=sys.stderr)
        chosen.dir = home


def _find_session(chosen: argparse.Namespace, env: Mapping[str, str]) -> Session | None:
    """The one that goes on, if there is one; None in a store that is not of files, whose sessions have no worktrees."""
    if not store_url(env, paths_from(env), chosen.store).startswith("file:"):
        return None
    reading = Reading(chosen.dir, env, store=chosen.store)
    if chosen.session:
        return reading.get_session(chosen.session)
    return find_last(list_here(reading.list_sessions(), reading.place()))


def _last_in(chosen: argparse.Namespace, env: Mapping[str, str], entered: Entered) -> Session:
    sessions = Reading(chosen.dir, env, store=chosen.store).list_sessions()
    found = find_last(list_sessions_in(entered.worktree, sessions))
    if found is None:
        raise NotFoundError("session", f"in worktree {entered.worktree.name}", hint="leave out --continue")
    return found


def _begin(
    repository: Repository, entered: Entered, chosen: argparse.Namespace, env: Mapping[str, str]
) -> None:
    """Say where the work is done, what is not there, and make it ready if it is new."""
    worktree = entered.worktree
    if not entered.made:
        _say(f"working in {plain(worktree.directory)}", worktree.name)
        return
    commit = repository.checkouts.find_commit() or ""
    _say(f"{plain(worktree.directory)}, on branch {worktree.branch}, from {commit[:12]}", worktree.name)
    left = repository.checkouts.list_changed()
    if left:
        _say(
            f"your {len(left)} uncommitted change(s) stay in {plain(repository.top)}, and are not in it",
            worktree.name,
        )
    for hint in list_hints(worktree):
        _say(hint, worktree.name)
    _make_ready(repository, entered, chosen, env)


def _make_ready(
    repository: Repository, entered: Entered, chosen: argparse.Namespace, env: Mapping[str, str]
) -> None:
    commands = Reading(chosen.dir, env, store=chosen.store).place().project.commands
    if commands is None or not commands.start:
        return
    if not is_trusted_in(repository, entered.worktree):
        _say("its start command is not run, as the project is not trusted: weft trust", entered.worktree.name)
        return

    async def hear(piece: bytes) -> None:
        sys.stderr.write(piece.decode(errors="replace"))

    _say(f"starting: {plain(commands.start)}", entered.worktree.name)
    asyncio.run(start(entered, commands.start, env, hear))


def _say(words: str, name: str) -> None:
    paint = Paint(sys.stderr)
    print(f"{paint.dim(f'worktree {name}:' if name else 'worktree:')} {words}", file=sys.stderr)

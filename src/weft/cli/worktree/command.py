"""`weft worktree list|merge|discard`: the checkouts that sessions had for their own."""

import argparse
import os
import sys
from typing import Any

from weft.cli.confirm import confirmed
from weft.cli.exit import Exit
from weft.cli.paint import Paint, plain, write_json
from weft.cli.table import to_table
from weft.errors import ConflictError
from weft.local.reader import Reading
from weft.local.worktrees import drop, list_sessions_in, open_repository
from weft.model.session import Session
from weft.worktree.merge import Outcome, merge_worktree
from weft.worktree.place import Repository, Worktree, get_worktree, list_worktrees, occupied
from weft.worktree.state import State, look_into

SHORT = 12


def list_command(chosen: argparse.Namespace) -> int:
    repository = _repository(chosen)
    sessions = _sessions(chosen)
    found = [
        (each, look_into(repository, each), list_sessions_in(each, sessions))
        for each in list_worktrees(repository)
    ]
    if chosen.format == "json":
        rows = [_to_row(worktree, state, held) for worktree, state, held in found]
        write_json(rows)
    elif found:
        table = [
            (worktree.name, to_words(state), held[-1].title if held else "-", worktree.directory)
            for worktree, state, held in found
        ]
        print(
            "\n".join(to_table(("worktree", "state", "last session", "directory"), table, Paint(sys.stdout)))
        )
    return Exit.DONE


def _to_row(worktree: Worktree, state: State, sessions: list[Session]) -> dict[str, Any]:
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


def to_words(state: State) -> str:
    """How a worktree stands, in a few words."""
    if state.missing:
        return "its files are gone"
    changed = f"{len(state.changed)} changed" if state.changed else ""
    ahead = f"{state.ahead} committed" if state.ahead else ""
    work = ", ".join(part for part in (changed, ahead) if part)
    if not work:
        return "nothing done"
    return f"{work}, merged" if state.merged else work


def merge_command(chosen: argparse.Namespace) -> int:
    repository = _repository(chosen)
    worktree = get_worktree(repository, chosen.name)
    message = None
    if chosen.commit is not None:
        sessions = list_sessions_in(worktree, _sessions(chosen))
        message = chosen.commit or (sessions[-1].title if sessions else f"Merge worktree {worktree.name}")
    with occupied(repository, worktree):
        outcome = merge_worktree(repository, worktree, message=message, again=chosen.again)
        if chosen.discard and not outcome.left_out:
            drop(repository, worktree)
    if chosen.format == "json":
        write_json(outcome)
    else:
        _tell(outcome, repository)
    return Exit.DONE


def _tell(outcome: Outcome, repository: Repository) -> None:
    paint = Paint(sys.stdout)
    marks = {"added": paint.green("A"), "changed": paint.yellow("M"), "deleted": paint.red("D")}
    for each in outcome.brought:
        print(f"{marks[each.how]} {plain(each.path)}")
    for path in outcome.left_out:
        print(f"{paint.yellow('left out:')} {plain(path)} is a submodule: it has commits of its own")
    if not outcome.brought:
        print("nothing to merge")
    elif outcome.commit:
        print(f"committed as {outcome.commit[:SHORT]}")
    else:
        print(paint.dim(f"merged into {plain(repository.top)}, not committed"))


def discard_command(chosen: argparse.Namespace) -> int:
    repository = _repository(chosen)
    worktree = get_worktree(repository, chosen.name)
    with occupied(repository, worktree):
        state = look_into(repository, worktree)
        if not state.is_safe and not chosen.force:
            raise ConflictError(
                "worktree",
                worktree.name,
                f"has work that is nowhere else: {to_words(state)}",
                hint=f"weft worktree merge {worktree.name}, or discard it with --force",
            )
        if not confirmed(f"Discard {worktree.name} ({to_words(state)})?", yes=chosen.yes):
            return Exit.FAILED
        kept = drop(repository, worktree)
    print(f"discarded {worktree.name}")
    if kept and not state.merged:
        print(
            f"what stood in it is commit {kept[:SHORT]} for as long as git keeps it: git branch NAME {kept[:SHORT]}"
        )
    return Exit.DONE


def _repository(chosen: argparse.Namespace) -> Repository:
    return open_repository(chosen.dir, os.environ, chosen.store)


def _sessions(chosen: argparse.Namespace) -> list[Session]:
    return Reading(chosen.dir, os.environ, store=chosen.store).list_sessions()

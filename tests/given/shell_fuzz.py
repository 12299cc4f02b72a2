"""Compare the judgement of shell commands with what a real shell does with them."""

import tempfile
from itertools import islice
from pathlib import Path

from msgspec import Struct

from given.shell import ShellTree
from given.shell_commands import CommandGenerator
from given.shell_trial import Effects, Trial, make_trial_tree, open_trial
from weft.local.permissions import judge_parts
from weft.tool.shell.judgement import judge_command

RULES = ("default", "plan", "no-rm", "listed")
# Reading commands may change these: git updates its index, and the plan agent may write plans.
_CHANGED_BY_LOOKING = ("project/.git/index", "project/.opencode/plans")
# What programs keep for themselves.
_KEPT = ("home/.lesshst", "home/.npm", "home/.terraform.d")
_GUARDED = ("outside", "home", "project/.git/hooks", "project/opencode.json", "project/.opencode/agent")


class Hole(Struct, frozen=True, kw_only=True):
    """A command that some rules allow although they forbid its effects."""

    command: str
    rules: str
    deeds: Effects


class FuzzResult(Struct, frozen=True, kw_only=True):
    tried: int
    run: int
    holes: tuple[Hole, ...]


def fuzz(seed: int, count: int) -> FuzzResult:
    """Try `count` commands."""
    with tempfile.TemporaryDirectory() as bare:
        tree = make_trial_tree(Path(bare).resolve())
        with open_trial(tree) as trial:
            commands = list(dict.fromkeys(islice(CommandGenerator(seed).commands(), count)))
            tried = [_try(command, tree, trial) for command in commands]
    holes = tuple(hole for each in tried if each is not None for hole in each)
    return FuzzResult(tried=len(commands), run=sum(each is not None for each in tried), holes=holes)


def _try(command: str, tree: ShellTree, trial: Trial) -> list[Hole] | None:
    """Return the holes of a command; None if no rules allow it, so that it is not run."""
    parts = judge_command(command, tree.locate()).in_order
    allowing = [rules for rules in RULES if judge_parts(parts, tree.limits(rules)).verdict == "allow"]
    # If an unknown program is allowed, no promise is made about its effects.
    if any(part.may_write for part in parts):
        allowing = [rules for rules in allowing if rules == "plan"]
    if not allowing:
        return None
    deeds = trial.run(command)
    forbidding = find_holes(deeds)
    return [Hole(command=command, rules=rules, deeds=deeds) for rules in allowing if rules in forbidding]


def find_holes(deeds: Effects) -> tuple[str, ...]:
    """Return the names of the rules that forbid some of the effects."""
    changed = [path for path in deeds.changed if not _is_below(path, _KEPT)]
    if deeds.read or deeds.reached or any(_is_below(path, _GUARDED) for path in changed):
        return RULES
    wrote = any(not _is_below(path, _CHANGED_BY_LOOKING) for path in changed)
    return tuple(
        rules
        for rules, forbidden in (("plan", wrote), ("no-rm", "rm" in deeds.ran), ("listed", bool(deeds.ran)))
        if forbidden
    )


def _is_below(path: str, places: tuple[str, ...]) -> bool:
    return any(path == place or path.startswith(f"{place}/") for place in places)

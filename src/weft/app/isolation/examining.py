"""What the doctor says of the sandbox: whether one is asked for, whether one can be had, and what it cannot hold off."""

from collections.abc import Iterator

from msgspec.structs import replace

from weft.app.isolation.walls import KEY, Asked, read_asked, stand
from weft.app.trust import is_trusted
from weft.config.load import load_config
from weft.config.sources import Situation
from weft.errors import WeftError
from weft.project.look import look
from weft.session.care.environment import Case
from weft.session.care.finding import Finding, Item

AREA = "sandbox"


def examine_sandbox(case: Case) -> list[Finding]:
    """Blocks: a command that does nothing is run behind the wall, if one can be put up."""
    try:
        at = look(case.directory)
        situation = Situation(
            directory=at.directory, worktree=at.top or "/", paths=case.paths, env=case.env, trusted=False
        )
        trusted = is_trusted(case.paths, case.env, situation.worktree, at.directory)
        asked = read_asked(load_config(replace(situation, trusted=trusted)))
    except (WeftError, OSError):
        return []  # whatever that is, it has been found elsewhere
    return list(_findings(asked, situation))


def _findings(asked: Asked, situation: Situation) -> Iterator[Finding]:
    tried = replace(asked, mode="auto") if asked.mode == "off" else asked
    found = stand(tried, situation)
    if found.why:
        refused = asked.mode == "required"
        yield Finding(
            severity="problem" if refused else "warning" if asked.mode == "auto" else "note",
            area=AREA,
            what=f"there is no sandbox here: {found.why}",
            means="no command is run" if refused else "commands of the agent reach whatever you can reach",
            repair="" if asked.mode == "off" else "install bubblewrap (bwrap)",
        )
        return
    off = (
        f"off, and could be had by {found.sandbox.kind}"
        if asked.mode == "off"
        else f"by {found.sandbox.kind}"
    )
    yield Finding(
        severity="note",
        area=AREA,
        what=f"commands of the agent in a sandbox: {off}",
        repair=f'set {KEY} to "auto"' if asked.mode == "off" else "",
        items=tuple(Item(where=each, reason="not held off") for each in found.sandbox.lacks),
    )

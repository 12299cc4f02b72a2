"""Run a check command in a checkout: with a time limit, and without leaving traces in its files."""

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from typing import Final

from weft.errors import InvalidInputError
from weft.host.processes import ProcessCommand, run_command, tool_environment
from weft.host.tasks import run_to_completion
from weft.model.session import CheckOutcome, CheckResult
from weft.worktree.git import WorktreeGit

MAX_OUTPUT_BYTES: Final = 20_000
# What a shell returns for a program that it cannot run.
CANNOT_RUN_CODES: Final = frozenset({126, 127})


async def run_check(
    git: WorktreeGit, command: str, env: Mapping[str, str], *, directory: str, seconds: float
) -> CheckResult:
    """Run a command in a directory of the checkout `git.top`. What it changes is put back, except for ignored files.

    Raise `InvalidInputError` if the shell cannot run it.
    """
    before = await asyncio.to_thread(git.capture, untracked=True)
    tail = bytearray()

    async def keep_tail(piece: bytes) -> None:
        tail.extend(piece)
        del tail[:-MAX_OUTPUT_BYTES]

    started = time.monotonic()
    try:
        ended = await run_command(
            ProcessCommand(
                argv=("bash", "-c", command),
                directory=directory,
                environment=tool_environment(env),
                timeout=seconds,
            ),
            keep_tail,
        )
    finally:
        elapsed = int((time.monotonic() - started) * 1000)
        dirtied = await run_to_completion(asyncio.to_thread(put_back, git, before))
    output = tail.decode(errors="replace")
    if ended.code in CANNOT_RUN_CODES and not ended.timed_out:
        reason = output.strip().splitlines()[-1] if output.strip() else f"exit code {ended.code}"
        raise InvalidInputError(
            "check", f"the command cannot be run: {reason}", hint=f"it runs in bash, in {directory}"
        )
    return CheckResult(
        command=command,
        outcome=_to_outcome(ended.code, timed_out=ended.timed_out),
        code=None if ended.timed_out else ended.code,
        ms=elapsed,
        output=output,
        dirtied=tuple(dirtied),
        tree=before,
    )


def _to_outcome(code: int | None, *, timed_out: bool) -> CheckOutcome:
    if timed_out:
        return "hung"
    return "passed" if code == 0 else "failed"


def put_back(git: WorktreeGit, tree: str) -> Sequence[str]:
    """Set all files of a checkout to a captured tree, and return the paths of those that differed. Ignored files stay."""
    differences = git.list_differences(git.capture(untracked=True), tree)
    for change in differences:
        if not change.id and not change.is_submodule:
            path = os.path.join(git.top, change.path)
            if os.path.lexists(path):
                os.unlink(path)
    written = [change.path for change in differences if change.id and not change.is_submodule]
    if written:
        git.export(tree, written, git.top)
    return [change.path for change in differences]

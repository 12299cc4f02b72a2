"""The few questions we ask git itself; whatever plain files can tell is not asked here."""

import os
import subprocess
from collections.abc import Mapping

from weft.errors import GitError

NOT_THERE = 127
TOO_SLOW = 124
SECONDS = 10.0
# Finding the roots walks the whole history: a million commits take ten seconds on a slow disk.
HISTORY_SECONDS = 120.0

# A hook or `git -c` hands down variables that turn a command to another repository; these alone are a person's own.
KEPT = frozenset({"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH"})
QUIET = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    # A repository may name a program as its transport; nothing asked here has a reason to fetch.
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "LC_ALL": "C",
}
# Neither belongs to what we ask, but a repository's own configuration may make a program of it.
HARMLESS = ("--no-pager", "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")


class Git:
    """Git as installed. Every call raises `GitError` when git refuses, takes too long, or is not there."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        inherited = {name: value for name, value in environ.items() if name in KEPT or name[:4] != "GIT_"}
        self._environ = inherited | QUIET

    def is_there(self) -> bool:
        try:
            self._run(["--version"])
        except GitError:
            return False
        return True

    def root_commits(self, worktree: str) -> list[str]:
        """The commits without parents, on any branch, sorted; none in a repository without commits."""
        args = ["-C", worktree, "rev-list", "--max-parents=0", "--all"]
        return sorted(set(self._run(args, seconds=HISTORY_SECONDS).split()))

    def top_level(self, directory: str) -> str:
        return self._line(["-C", directory, "rev-parse", "--show-toplevel"])

    def common_dir(self, directory: str) -> str:
        """Where the repository keeps what all its checkouts share, as an absolute path."""
        said = self._line(["-C", directory, "rev-parse", "--git-common-dir"])
        return os.path.realpath(os.path.join(directory, said))

    def find_branch(self, worktree: str) -> str | None:
        """The branch checked out, also before its first commit; None when none is."""
        try:
            return self._line(["-C", worktree, "symbolic-ref", "--quiet", "--short", "HEAD"])
        except GitError as error:
            if error.code == 1:
                return None
            raise

    def start(self, directory: str, *, message: str) -> None:
        """Make a repository of a directory, with all that is in it as its first commit."""
        named = ["-c", "user.name=weft", "-c", "user.email=weft@localhost", "-c", "commit.gpgSign=false"]
        self._run(["-C", directory, "init", "--quiet", "--initial-branch=main"])
        self._run(["-C", directory, "add", "--all"])
        self._run(["-C", directory, *named, "commit", "--quiet", f"--message={message}"])

    def _line(self, args: list[str]) -> str:
        return self._run(args).removesuffix("\n")

    def _run(self, args: list[str], *, seconds: float = SECONDS) -> str:
        try:
            ended = subprocess.run(
                ["git", *HARMLESS, *args],
                env=self._environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise GitError(args, TOO_SLOW, f"no answer within {seconds:g} s") from error
        except OSError as error:
            reason = f"cannot be started ({error.strerror})"
            raise GitError(args, NOT_THERE, reason, hint="install git, or put it on PATH") from error
        if ended.returncode != 0:
            raise GitError(args, ended.returncode, os.fsdecode(ended.stderr))
        return os.fsdecode(ended.stdout)

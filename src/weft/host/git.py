"""Run git, without any program that a repository's configuration names."""

import os
import subprocess
import threading
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager

from weft.errors import GitError

CODE_NOT_STARTED = 127
CODE_TIMEOUT = 124
CODE_FATAL = 128
DEFAULT_SECONDS = 10.0
# Finding root commits walks the whole history: ten seconds for a million commits on a slow disk.
HISTORY_SECONDS = 120.0

# A git hook or `git -c` sets variables that redirect commands to another repository; only these are the user's own.
KEPT_VARIABLES = frozenset({"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH"})
QUIET_VARIABLES = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    # A repository may name a program as its transport, and nothing here needs to fetch.
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_SSH_COMMAND": "false",
    "GIT_ASKPASS": "",
    "SSH_ASKPASS": "",
    "GIT_EDITOR": ":",
    "GIT_SEQUENCE_EDITOR": ":",
    "LC_ALL": "C",
}
# A repository's own configuration may name a program for each of these, or include another repository that does.
SAFE_SETTINGS = (
    "core.fsmonitor=false",
    f"core.hooksPath={os.devnull}",
    "credential.helper=",
    "diff.ignoreSubmodules=dirty",
    "gc.auto=0",
    "maintenance.auto=false",
    "safe.bareRepository=explicit",
    "submodule.recurse=false",
)
SAFE_OPTIONS = ("--no-pager", *(word for setting in SAFE_SETTINGS for word in ("-c", setting)))
# These commands deal with names and objects only. All others may convert files (by writing an index), merge or sign, and
# run with `to_guard_variables`.
SAFE_COMMANDS = frozenset(
    {
        "--version",
        "cat-file",
        "check-ignore",
        "commit-tree",
        "config",
        "diff-tree",
        "for-each-ref",
        "init",
        "ls-files",
        "merge-base",
        "rev-list",
        "rev-parse",
        "symbolic-ref",
        "update-ref",
        "var",
    }
)
# Replacements for programs that a repository's settings name: nothing, or git's own behaviour.
PROGRAM_REPLACEMENTS = {
    ("core", "alternaterefscommand"): "",
    ("core", "gitproxy"): "",
    ("credential", "helper"): "",
    ("filter", "clean"): "",
    ("filter", "process"): "",
    ("filter", "required"): "false",
    ("filter", "smudge"): "",
    ("gc", "recentobjectshook"): "",
    ("gpg", "defaultkeycommand"): "",
    ("gpg", "program"): "gpg",
    ("lfs", "args"): "",
    ("lfs", "clean"): "",
    ("lfs", "path"): "",
    ("lfs", "smudge"): "",
    ("lfs", "standalonetransferagent"): "",
    ("merge", "driver"): "git merge-file --quiet --marker-size=%L %A %O %B",
    ("remote", "receivepack"): "git-receive-pack",
    ("remote", "uploadpack"): "git-upload-pack",
    ("submodule", "update"): "none",
    ("trailer", "cmd"): "",
    ("trailer", "command"): "",
}
SIGNER_REPLACEMENTS = {"gpg.x509.program": "gpgsm", "gpg.ssh.program": "ssh-keygen"}
REPOSITORY_SCOPES = frozenset({"local", "worktree"})

# Our own repositories use no configuration but their own file, no programs, and no patterns in names.
ISOLATED_VARIABLES = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_LITERAL_PATHSPECS": "1",
}
# The code of a `GitError` whose command was stopped by `Plumbing.stop`: that of a program that SIGINT ended.
CODE_STOPPED = 130
# For notes of a person who has not told git their name.
NOTE_IDENTITY = ("user.name=weft", "user.email=weft@localhost")


def find_replacement(key: str) -> str | None:
    """Return the replacement for a setting that names a program, None for any other setting."""
    section, name = key.partition(".")[0], key.rpartition(".")[2]
    return SIGNER_REPLACEMENTS.get(key, PROGRAM_REPLACEMENTS.get((section, name)))


def to_guard_variables(environ: Mapping[str, str], directory: str) -> dict[str, str]:
    """Return variables with which git runs none of the programs that a repository's configuration names.

    The user's own settings (`--global`, `--system`) apply instead. A repository chooses the names of its filters and
    drivers, so its settings are read first. Each gets a variable, because `-c` would split some names.
    """
    words = call_git(directory, ["config", "--list", "--includes", "--show-scope", "-z"], environ).split("\0")
    user_settings: dict[str, str] = {}
    replaced: dict[str, str] = {}
    for scope, entry in zip(words[::2], words[1::2], strict=False):
        key, _, value = entry.partition("\n")
        replacement = find_replacement(key)
        if scope not in REPOSITORY_SCOPES:
            user_settings[key] = value
        elif replacement is not None:
            replaced[key] = replacement
    settings = {key: user_settings.get(key, replacement) for key, replacement in replaced.items()}
    variables = {"GIT_CONFIG_COUNT": str(len(settings))} if settings else {}
    for number, (key, value) in enumerate(settings.items()):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


def call_git(
    directory: str,
    args: Sequence[str],
    environ: Mapping[str, str],
    *,
    input: str = "",
    settings: Sequence[str] = (),
    seconds: float = DEFAULT_SECONDS,
) -> str:
    """Run git in a directory and return its output. `settings` apply to this call only. Raise `GitError`.

    No program that the repository's configuration names is run.
    """
    if args[0] not in SAFE_COMMANDS:
        environ = {**environ, **to_guard_variables(environ, directory)}
    options = [word for setting in settings for word in ("-c", setting)]
    try:
        process = subprocess.run(
            ["git", *SAFE_OPTIONS, *options, "-C", directory, *args],
            env=environ,
            input=os.fsencode(input),
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise GitError(args, CODE_TIMEOUT, f"no answer within {seconds:g} s") from error
    except OSError as error:
        reason = f"cannot be started ({error.strerror})"
        raise GitError(args, CODE_NOT_STARTED, reason, hint="install git, or put it on PATH") from error
    output = os.fsdecode(process.stdout)
    if process.returncode != 0:
        raise GitError(args[:8], process.returncode, os.fsdecode(process.stderr), stdout=output)
    return output


class Git:
    """The installed git. Every method raises `GitError` if git fails, times out or is not installed."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        inherited = {
            name: value for name, value in environ.items() if name in KEPT_VARIABLES or name[:4] != "GIT_"
        }
        self._environ = inherited | QUIET_VARIABLES

    def is_there(self) -> bool:
        try:
            self._run("", ["--version"])
        except GitError:
            return False
        return True

    def root_commits(self, worktree: str) -> list[str]:
        """Return the commits without parents on any branch, sorted."""
        args = ["rev-list", "--max-parents=0", "--all"]
        return sorted(set(self._run(worktree, args, seconds=HISTORY_SECONDS).split()))

    def top_level(self, directory: str) -> str:
        return self._run_for_line(directory, ["rev-parse", "--show-toplevel"])

    def common_dir(self, directory: str) -> str:
        """Return the absolute path of the directory that all checkouts of the repository share."""
        output = self._run_for_line(directory, ["rev-parse", "--git-common-dir"])
        return os.path.realpath(os.path.join(directory, output))

    def find_branch(self, worktree: str) -> str | None:
        """Return the branch that is checked out, also before its first commit; None if there is none."""
        try:
            return self._run_for_line(worktree, ["symbolic-ref", "--quiet", "--short", "HEAD"])
        except GitError as error:
            if error.code == 1:
                return None
            raise

    def find_setting(self, worktree: str, key: str) -> str | None:
        """Return a path from the user's or the repository's configuration, with `~` expanded; None if it is not set."""
        try:
            return self._run_for_line(worktree, ["config", "--type=path", "--get", key])
        except GitError as error:
            if error.code in (1, CODE_FATAL):
                return None
            raise

    def list_ignored(self, directory: str, names: Sequence[str]) -> set[str]:
        """Return those of the names in a directory that the repository ignores."""
        # With `./`, a name that begins with a colon is no pattern. Only `-z` leaves every name as it is.
        paths = "".join(f"./{name}\0" for name in names)
        try:
            output = call_git(directory, ["check-ignore", "--stdin", "-z"], self._environ, input=paths)
        except GitError as error:
            if error.code == 1:
                return set()
            raise
        return {path.removeprefix("./") for path in output.split("\0") if path}

    def list_changes(self, worktree: str) -> list[tuple[str, int, int]]:
        """Return the files that differ from the last commit: path, added lines, removed lines (zero for binary
        files)."""
        options = ["--no-ext-diff", "--no-textconv", "--no-renames", "--numstat", "-z"]
        output = self._run(worktree, ["diff", *options, "--ignore-submodules=dirty", "HEAD"], is_top=True)
        entries = (entry.split("\t", 2) for entry in output.split("\0") if entry)
        return [(path, _parse_count(added), _parse_count(removed)) for added, removed, path in entries]

    def list_untracked(self, worktree: str) -> list[str]:
        """Return the files that are neither tracked nor ignored."""
        args = ["ls-files", "-z", "--others", "--exclude-standard"]
        return [name for name in self._run(worktree, args, is_top=True).split("\0") if name]

    def find_committed(self, worktree: str, path: str) -> str | None:
        """Return a file as it was last committed, None if it was not."""
        try:
            return self._run(worktree, ["cat-file", "blob", f"HEAD:{path}"])
        except GitError as error:
            if error.code == CODE_FATAL:
                return None
            raise

    def find_commit(self, worktree: str, name: str = "HEAD") -> str | None:
        """Return the commit that a name means, None if there is none."""
        try:
            return self._run_for_line(
                worktree, ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"]
            )
        except GitError as error:
            if error.code in (1, CODE_FATAL):
                return None
            raise

    def write_note(self, worktree: str, commit: str, text: str, *, ref: str) -> None:
        """Attach a note to a commit, in place of an earlier one below the same `ref`."""
        environ = {**self._environ, "GIT_NOTES_REF": ref}
        settings = () if self.find_setting(worktree, "user.email") else NOTE_IDENTITY
        args = ["notes", "add", "--force", "--file=-", commit]
        call_git(worktree, args, environ, input=text, settings=settings)

    def list_notes(self, worktree: str, *, ref: str) -> dict[str, str]:
        """Return the notes below a `ref`, by their commits."""
        environ = {**self._environ, "GIT_NOTES_REF": ref}
        pairs = [line.split() for line in call_git(worktree, ["notes", "list"], environ).splitlines()]
        return {commit: self._run(worktree, ["cat-file", "blob", blob]) for blob, commit in pairs}

    def object_format(self, worktree: str) -> str:
        """Return the hash of object names: `sha1` or `sha256`."""
        return self._run_for_line(worktree, ["rev-parse", "--show-object-format"])

    def start(self, directory: str, *, message: str) -> None:
        """Make a repository of a directory, with its whole content as the first commit."""
        identity = ("user.name=weft", "user.email=weft@localhost", "commit.gpgSign=false")
        self._run(directory, ["init", "--quiet", "--initial-branch=main"])
        self._run(directory, ["add", "--all"])
        self._run(directory, ["commit", "--quiet", f"--message={message}"], settings=identity)

    def _run_for_line(self, directory: str, args: list[str]) -> str:
        return self._run(directory, args).removesuffix("\n")

    def _run(
        self,
        directory: str,
        args: list[str],
        *,
        settings: Sequence[str] = (),
        is_top: bool = False,
        seconds: float = DEFAULT_SECONDS,
    ) -> str:
        """Run git. With `is_top` the directory is the checkout, even if `core.worktree` names another one."""
        environ = {**self._environ, "GIT_WORK_TREE": directory} if is_top else self._environ
        return call_git(directory, args, environ, settings=settings, seconds=seconds)


def _parse_count(lines: str) -> int:
    """Return a number of lines; git counts none for a binary file."""
    return int(lines) if lines.isdigit() else 0


class Plumbing:
    """Runs git's low-level commands on a repository of our own, over files that are not ours. Every method blocks.

    `alternate` is a directory of objects that are read in addition, and never written. Safe for several threads; `stop`
    ends running commands and refuses new ones.
    """

    def __init__(self, environ: Mapping[str, str], git_dir: str, worktree: str) -> None:
        inherited = {name: value for name, value in environ.items() if name[:4] != "GIT_"}
        self._environ = (
            inherited | QUIET_VARIABLES | ISOLATED_VARIABLES | {"GIT_DIR": git_dir, "GIT_WORK_TREE": worktree}
        )
        self._worktree = worktree
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def run(
        self, args: Sequence[str], *, input: bytes = b"", index: str = "", alternate: str = "", seconds: float
    ) -> bytes:
        """Run a command and return its output."""
        with self._start(args, index, alternate) as child:
            try:
                output, errors = child.communicate(input, timeout=seconds)
            except subprocess.TimeoutExpired as error:
                raise GitError(args, CODE_TIMEOUT, f"no answer within {seconds:g} s") from error
        self._check(args, child.returncode, errors)
        return output

    def feed(self, args: Sequence[str], pieces: Iterable[bytes], *, seconds: float) -> None:
        """Run a command and write its input piece by piece, for data that would not fit into memory.

        `seconds` limits how long it may take after the last piece.
        """
        with self._start(args, "", "") as child:
            if child.stdin is None:
                return
            try:
                for piece in pieces:
                    child.stdin.write(piece)
                _, errors = child.communicate(timeout=seconds)
            except subprocess.TimeoutExpired as error:
                raise GitError(args, CODE_TIMEOUT, f"no answer within {seconds:g} s") from error
            except BrokenPipeError:
                _, errors = child.communicate()
        self._check(args, child.returncode, errors)

    def to_command(
        self, args: Sequence[str], *, index: str = "", alternate: str = ""
    ) -> tuple[list[str], dict[str, str]]:
        """Return a command with its environment. It is to run in the worktree."""
        environ = dict(self._environ)
        if index:
            environ["GIT_INDEX_FILE"] = index
        if alternate:
            environ["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = quote_alternate(alternate)
        return ["git", *SAFE_OPTIONS, *args], environ

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for child in self._running:
                child.kill()

    @property
    def stopped(self) -> bool:
        return self._stopped

    @contextmanager
    def _start(self, args: Sequence[str], index: str, alternate: str) -> Generator[subprocess.Popen[bytes]]:
        """Yield a child process that has ended when the block is left."""
        command, environ = self.to_command(args, index=index, alternate=alternate)
        pipe = subprocess.PIPE
        with self._lock:
            if self._stopped:
                raise GitError(args, CODE_STOPPED, "stopped")
            try:
                child = subprocess.Popen(
                    command, cwd=self._worktree, env=environ, stdin=pipe, stdout=pipe, stderr=pipe
                )
            except OSError as error:
                reason = f"cannot be started ({error.strerror})"
                raise GitError(
                    args, CODE_NOT_STARTED, reason, hint="install git, or put it on PATH"
                ) from error
            self._running.add(child)
        try:
            with child:
                try:
                    yield child
                except BaseException:
                    child.kill()
                    raise
        finally:
            with self._lock:
                self._running.discard(child)

    def _check(self, args: Sequence[str], code: int, errors: bytes) -> None:
        if self._stopped:
            raise GitError(args, CODE_STOPPED, "stopped")
        if code != 0:
            raise GitError(args, code, os.fsdecode(errors))


def quote_alternate(path: str) -> str:
    """Quote a path for a list of paths that are separated by colons."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'

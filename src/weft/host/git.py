"""The few questions we ask git itself; whatever plain files can tell is not asked here."""

import os
import subprocess
import threading
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager

from weft.errors import GitError

NOT_THERE = 127
TOO_SLOW = 124
NO_SUCH_THING = 128
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
    "GIT_SSH_COMMAND": "false",
    "GIT_ASKPASS": "",
    "SSH_ASKPASS": "",
    "GIT_EDITOR": ":",
    "GIT_SEQUENCE_EDITOR": ":",
    "LC_ALL": "C",
}
# A repository's own configuration may name a program for each of these, or lead to another repository that does.
SETTINGS = (
    "core.fsmonitor=false",
    f"core.hooksPath={os.devnull}",
    "credential.helper=",
    "diff.ignoreSubmodules=dirty",
    "gc.auto=0",
    "maintenance.auto=false",
    "safe.bareRepository=explicit",
    "submodule.recurse=false",
)
HARMLESS = ("--no-pager", *(word for setting in SETTINGS for word in ("-c", setting)))
# Commands that read names and objects alone. All others may convert files (whoever writes an index does), merge or
# sign, and are run with `guard`.
UNCONVERTED = frozenset(
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
# What stands in for the program that a setting of a repository names: nothing, or what git does by itself.
STAND_INS = {
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
SIGNERS = {"gpg.x509.program": "gpgsm", "gpg.ssh.program": "ssh-keygen"}
OF_A_REPOSITORY = frozenset({"local", "worktree"})

# A repository of our own hears nobody: no configuration but its own file, no program, no pattern in a name.
ALONE = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_LITERAL_PATHSPECS": "1",
}
STOPPED = 130


def find_stand_in(key: str) -> str | None:
    """Return what stands in for a program that this setting names; None for a setting that names no program."""
    section, name = key.partition(".")[0], key.rpartition(".")[2]
    return SIGNERS.get(key, STAND_INS.get((section, name)))


def guard(environ: Mapping[str, str], directory: str) -> dict[str, str]:
    """Return variables with which git runs none of the programs that the configuration of a repository names.

    What the person set up for themselves (`--global`, `--system`) holds instead. The names of filters and drivers are
    the repository's own, so they are read first; a variable each, since a name may hold what `-c` takes apart.
    """
    words = call_git(directory, ["config", "--list", "--includes", "--show-scope", "-z"], environ).split("\0")
    own: dict[str, str] = {}
    named: dict[str, str] = {}
    for scope, entry in zip(words[::2], words[1::2], strict=False):
        key, _, value = entry.partition("\n")
        stand_in = find_stand_in(key)
        if scope not in OF_A_REPOSITORY:
            own[key] = value
        elif stand_in is not None:
            named[key] = stand_in
    settings = {key: own.get(key, stand_in) for key, stand_in in named.items()}
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
    seconds: float = SECONDS,
) -> str:
    """Run git in a directory and return what it printed. `settings` are set for this call. Raise `GitError`.

    No program that the repository's configuration names is run.
    """
    if args[0] not in UNCONVERTED:
        environ = {**environ, **guard(environ, directory)}
    also = [word for setting in settings for word in ("-c", setting)]
    try:
        ended = subprocess.run(
            ["git", *HARMLESS, *also, "-C", directory, *args],
            env=environ,
            input=os.fsencode(input),
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise GitError(args, TOO_SLOW, f"no answer within {seconds:g} s") from error
    except OSError as error:
        reason = f"cannot be started ({error.strerror})"
        raise GitError(args, NOT_THERE, reason, hint="install git, or put it on PATH") from error
    said = os.fsdecode(ended.stdout)
    if ended.returncode != 0:
        raise GitError(args[:8], ended.returncode, os.fsdecode(ended.stderr), stdout=said)
    return said


class Git:
    """Git as installed. Every call raises `GitError` when git refuses, takes too long, or is not there."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        inherited = {name: value for name, value in environ.items() if name in KEPT or name[:4] != "GIT_"}
        self._environ = inherited | QUIET

    def is_there(self) -> bool:
        try:
            self._run("", ["--version"])
        except GitError:
            return False
        return True

    def root_commits(self, worktree: str) -> list[str]:
        """The commits without parents, on any branch, sorted; none in a repository without commits."""
        args = ["rev-list", "--max-parents=0", "--all"]
        return sorted(set(self._run(worktree, args, seconds=HISTORY_SECONDS).split()))

    def top_level(self, directory: str) -> str:
        return self._line(directory, ["rev-parse", "--show-toplevel"])

    def common_dir(self, directory: str) -> str:
        """Where the repository keeps what all its checkouts share, as an absolute path."""
        said = self._line(directory, ["rev-parse", "--git-common-dir"])
        return os.path.realpath(os.path.join(directory, said))

    def find_branch(self, worktree: str) -> str | None:
        """The branch checked out, also before its first commit; None when none is."""
        try:
            return self._line(worktree, ["symbolic-ref", "--quiet", "--short", "HEAD"])
        except GitError as error:
            if error.code == 1:
                return None
            raise

    def find_setting(self, worktree: str, key: str) -> str | None:
        """What the person's or the repository's configuration says, a leading `~` made out; None if nothing."""
        try:
            return self._line(worktree, ["config", "--type=path", "--get", key])
        except GitError as error:
            if error.code in (1, 128):
                return None
            raise

    def list_ignored(self, directory: str, names: Sequence[str]) -> set[str]:
        """Those of the names in a directory that the rules of the repository pass over; none with a line break in it."""
        try:
            said = self._run(directory, ["check-ignore", "--", *names], settings=("core.quotePath=false",))
        except GitError as error:
            if error.code == 1:
                return set()
            raise
        return set(said.splitlines())

    def list_changes(self, worktree: str) -> list[tuple[str, int, int]]:
        """Files that are not as committed: path, lines that came, lines that went (none of a binary one)."""
        plainly = ["--no-ext-diff", "--no-textconv", "--no-renames", "--numstat", "-z"]
        said = self._run(worktree, ["diff", *plainly, "--ignore-submodules=dirty", "HEAD"], is_top=True)
        found = (entry.split("\t", 2) for entry in said.split("\0") if entry)
        return [(path, _count(came), _count(went)) for came, went, path in found]

    def list_untracked(self, worktree: str) -> list[str]:
        """Files that are not in the repository, and that its rules do not pass over."""
        args = ["ls-files", "-z", "--others", "--exclude-standard"]
        return [name for name in self._run(worktree, args, is_top=True).split("\0") if name]

    def find_committed(self, worktree: str, path: str) -> str | None:
        """A file as it was last committed; None if it was not."""
        try:
            return self._run(worktree, ["cat-file", "blob", f"HEAD:{path}"])
        except GitError as error:
            if error.code == NO_SUCH_THING:
                return None
            raise

    def object_format(self, worktree: str) -> str:
        """How its objects are named: `sha1` or `sha256`."""
        return self._line(worktree, ["rev-parse", "--show-object-format"])

    def start(self, directory: str, *, message: str) -> None:
        """Make a repository of a directory, with all that is in it as its first commit."""
        named = ("user.name=weft", "user.email=weft@localhost", "commit.gpgSign=false")
        self._run(directory, ["init", "--quiet", "--initial-branch=main"])
        self._run(directory, ["add", "--all"])
        self._run(directory, ["commit", "--quiet", f"--message={message}"], settings=named)

    def _line(self, directory: str, args: list[str]) -> str:
        return self._run(directory, args).removesuffix("\n")

    def _run(
        self,
        directory: str,
        args: list[str],
        *,
        settings: Sequence[str] = (),
        is_top: bool = False,
        seconds: float = SECONDS,
    ) -> str:
        """Run git. `is_top` says that the checkout is this directory, whatever `core.worktree` names."""
        environ = {**self._environ, "GIT_WORK_TREE": directory} if is_top else self._environ
        return call_git(directory, args, environ, settings=settings, seconds=seconds)


def _count(lines: str) -> int:
    """Of a binary file no lines are counted."""
    return int(lines) if lines.isdigit() else 0


class Plumbing:
    """Git's inner commands on a repository of our own, over files that are not ours. Calls block.

    `borrow` is a directory of objects that may be read besides our own, and is never written to. May be used by
    several threads; `stop` ends what runs and refuses what comes.
    """

    def __init__(self, environ: Mapping[str, str], git_dir: str, worktree: str) -> None:
        inherited = {name: value for name, value in environ.items() if name[:4] != "GIT_"}
        self._environ = inherited | QUIET | ALONE | {"GIT_DIR": git_dir, "GIT_WORK_TREE": worktree}
        self._worktree = worktree
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def run(
        self, args: Sequence[str], *, input: bytes = b"", index: str = "", borrow: str = "", seconds: float
    ) -> bytes:
        """What it says."""
        with self._start(args, index, borrow) as child:
            try:
                said, complaint = child.communicate(input, timeout=seconds)
            except subprocess.TimeoutExpired as error:
                raise GitError(args, TOO_SLOW, f"no answer within {seconds:g} s") from error
        self._check(args, child.returncode, complaint)
        return said

    def feed(self, args: Sequence[str], pieces: Iterable[bytes], *, seconds: float) -> None:
        """Have it read piece by piece what would not fit into memory, for as long as it takes to write the last."""
        with self._start(args, "", "") as child:
            if child.stdin is None:
                return
            try:
                for piece in pieces:
                    child.stdin.write(piece)
                _, complaint = child.communicate(timeout=seconds)
            except subprocess.TimeoutExpired as error:
                raise GitError(args, TOO_SLOW, f"no answer within {seconds:g} s") from error
            except BrokenPipeError:
                _, complaint = child.communicate()
        self._check(args, child.returncode, complaint)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for child in self._running:
                child.kill()

    @property
    def stopped(self) -> bool:
        return self._stopped

    @contextmanager
    def _start(self, args: Sequence[str], index: str, borrow: str) -> Generator[subprocess.Popen[bytes]]:
        """A child that has ended, one way or the other, when this is left."""
        environ = dict(self._environ)
        if index:
            environ["GIT_INDEX_FILE"] = index
        if borrow:
            environ["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = _quoted(borrow)
        pipe = subprocess.PIPE
        with self._lock:
            if self._stopped:
                raise GitError(args, STOPPED, "stopped")
            try:
                command = ["git", *HARMLESS, *args]
                child = subprocess.Popen(
                    command, cwd=self._worktree, env=environ, stdin=pipe, stdout=pipe, stderr=pipe
                )
            except OSError as error:
                reason = f"cannot be started ({error.strerror})"
                raise GitError(args, NOT_THERE, reason, hint="install git, or put it on PATH") from error
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

    def _check(self, args: Sequence[str], code: int, complaint: bytes) -> None:
        if self._stopped:
            raise GitError(args, STOPPED, "stopped")
        if code != 0:
            raise GitError(args, code, os.fsdecode(complaint))


def _quoted(path: str) -> str:
    """A path in a list of paths, which a colon would part."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'

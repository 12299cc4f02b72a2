"""The clone of a repository on one node, and a checkout of it for each session. Calls block."""

import os
import re
import secrets
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import msgspec
from msgspec import Struct

from weft.errors import ConflictError, GitError, InvalidInputError
from weft.host.files import Disk, hold_lock, make_directory, read_bytes, write_atomic
from weft.host.git import CODE_NOT_STARTED, QUIET_VARIABLES, call_git
from weft.model.ids import SessionID
from weft.worktree.git import WorktreeGit

NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
SESSION_NAME: Final = re.compile(r"ses_[0-9A-Za-z]{1,64}")
URL: Final = re.compile(r"(?:https?|ssh|git|file)://[^\s]+|[A-Za-z0-9._-]+@[A-Za-z0-9._-]+:[^\s:][^\s]*")
BASE_REF: Final = "refs/weft/base/HEAD"
REFSPECS: Final = (f"+HEAD:{BASE_REF}", "+refs/heads/*:refs/weft/base/heads/*")
ASIDE_REFS: Final = "refs/weft/aside"
# The directory in that of a workspace with the clones of principals. No session has such a name.
PRINCIPALS: Final = "principal"
# The same bytes on every node, whatever its user configured.
SETTINGS: Final = (
    ("core.repositoryFormatVersion", "0"),
    ("core.bare", "false"),
    ("core.fileMode", "true"),
    ("core.symlinks", "true"),
    ("core.autocrlf", "false"),
    ("core.logAllRefUpdates", "true"),
)
MAX_MARK_BYTES: Final = 1 << 16


class CheckoutMark(Struct, frozen=True, kw_only=True):
    """What the checkout of a session was like when its files were last stored or taken over here.

    `state` names what was stored. `head` is the commit, and `tree` are all files as git sees them.
    """

    state: str
    head: str
    tree: str


def check_repository(text: str) -> tuple[str, str]:
    """Return name and address from `NAME=REPOSITORY`. Raise `InvalidInputError` if either is not valid.

    An address is an absolute path, or a URL whose transport runs no program but git and ssh.
    """
    name, equals, url = text.partition("=")
    if not equals or not NAME.fullmatch(name):
        raise InvalidInputError(
            "--workspace",
            f"{text[:80]!r} does not begin with NAME=",
            hint="NAME has lower-case letters, digits, dots and dashes: --workspace loom=/srv/git/loom.git",
        )
    if not os.path.isabs(url) and (not URL.fullmatch(url) or "::" in url):
        raise InvalidInputError(
            "--workspace",
            f"{url[:80]!r} is not a repository that can be fetched",
            hint="name an absolute path, or an address with https, ssh, git or file",
        )
    return name, url


def _list_names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        return []


def find_setting(config: str, key: str, environ: Mapping[str, str]) -> str:
    """Return a setting of one file of git's configuration, "" if it is not there."""
    try:
        return call_git(os.path.dirname(config), ["config", "--file", config, "--get", key], environ).strip()
    except GitError:
        return ""


class WorkspaceClone:
    """The repository of a workspace on this node: a clone in `home/base`, and the checkouts of sessions next to it."""

    def __init__(self, name: str, url: str, home: str, environ: Mapping[str, str]) -> None:
        self.name = name
        self.home = home
        self._url = url
        self._environ = environ
        self._base = os.path.join(home, "base")

    def for_principal(self, principal: str) -> "WorkspaceClone":
        """Return the clone of a principal: what sessions do to a repository must not reach the sessions of others."""
        return WorkspaceClone(
            self.name, self._url, os.path.join(self.home, PRINCIPALS, principal), self._environ
        )

    def list_principals(self) -> list[str]:
        """Return the principals that have a clone of their own here, sorted."""
        return _list_names(os.path.join(self.home, PRINCIPALS))

    def get_directory(self, session: SessionID) -> str:
        return os.path.join(self.home, session)

    def open(self, session: SessionID) -> WorktreeGit:
        """Return git for the checkout of a session."""
        return WorktreeGit(self._environ, self.get_directory(session))

    def has_checkout(self, session: SessionID) -> bool:
        return os.path.exists(os.path.join(self.get_directory(session), ".git"))

    def list_sessions(self) -> list[SessionID]:
        """Return the sessions that have a checkout here, sorted."""
        return [SessionID(name) for name in _list_names(self.home) if SESSION_NAME.fullmatch(name)]

    # --- commits ---

    def fetch_base(self) -> str:
        """Fetch the repository, and return the commit that it has checked out."""
        with self._lock():
            self._fetch(*REFSPECS)
            commit = self._git.find_commit(BASE_REF)
        if commit is None:
            raise self._fail("has no commit yet", hint="push one")
        return commit

    def make_checkout(self, session: SessionID, commit: str) -> None:
        """Make the checkout of a session at a commit, unless there is one. Fetch the commit if it is not here."""
        if self.has_checkout(session):
            return
        with self._lock():
            if self.has_checkout(session):
                return
            self._ensure_commit(commit)
            directory = self.get_directory(session)
            if os.path.lexists(directory):  # somebody removed the `.git` in it
                os.rename(directory, f"{self.home}/aside-{session}-{secrets.token_hex(4)}")
            self._git.remove(directory)
            try:
                self._git.add_detached(directory, commit)
                self.mark(
                    session, CheckoutMark(state="", head=commit, tree=self.open(session).get_tree(commit))
                )
            except BaseException:
                self._git.remove(directory)
                raise

    def _ensure_commit(self, commit: str) -> None:
        if os.path.isdir(self._base) and self._git.find_commit(commit) is not None:
            return
        self._fetch(*REFSPECS)
        if self._git.find_commit(commit) is None:
            # No branch has it any more. Many servers still hand it out to those who know its name.
            with suppress(ConflictError):
                self._fetch(f"+{commit}:refs/weft/base/commit/{commit}")
        if self._git.find_commit(commit) is None:
            raise self._fail(
                f"no longer has the commit {commit[:12]}, from which a session started",
                hint=f"push it to some branch again: git push … {commit[:12]}:refs/heads/NAME",
            )

    @property
    def _git(self) -> WorktreeGit:
        return WorktreeGit(self._environ, self._base)

    @contextmanager
    def _lock(self) -> Generator[None]:
        """Hold the clone: other nodes may use it on the same machine."""
        make_directory(self.home)
        with hold_lock(os.path.join(self.home, "lock")):
            yield

    def _fetch(self, *refspecs: str) -> None:
        try:
            self._make_base()
            self._git.fetch(self._url, *refspecs)
        except GitError as error:
            if error.code == CODE_NOT_STARTED:
                raise self._fail("needs git, which cannot be started", hint=error.hint) from error
            said = " ".join(error.stderr.replace(self._url, "its repository").split())
            raise self._fail(
                f"cannot be fetched: {said[:300]}",
                hint="check --workspace of this node, and that its user can reach the repository: git ls-remote",
            ) from error

    def _make_base(self) -> None:
        """Make the clone, or reset its configuration: sessions can change it, and must not redirect what is fetched."""
        git_dir = os.path.join(self._base, ".git")
        kept = {name: value for name, value in self._environ.items() if name[:4] != "GIT_"} | QUIET_VARIABLES
        if not os.path.isdir(git_dir):
            make_directory(self._base)
            call_git(self._base, ["init", "--quiet", "--template=", "--initial-branch=none"], kept)
        config, temp = os.path.join(git_dir, "config"), os.path.join(git_dir, "config~")
        identity = [(key, find_setting(config, key, kept)) for key in ("user.name", "user.email")]
        Disk().remove(temp)
        for key, value in (*SETTINGS, *identity):
            if value:
                call_git(self._base, ["config", "--file", temp, key, value], kept)
        os.replace(temp, config)

    def _fail(self, reason: str, *, hint: str) -> ConflictError:
        return ConflictError("workspace", self.name, reason, hint=hint)

    # --- what is not stored anywhere else ---

    def set_aside(self, session: SessionID, ignored: Sequence[str] = ()) -> str:
        """Keep all files of a checkout in a commit that a ref names, and return the ref.

        `ignored` are files to keep although git ignores them.
        """
        git = self.open(session)
        head, tree = git.find_commit(), git.capture(untracked=True, ignored=ignored)
        commit = git.commit_tree(tree, *([head] if head else []), message=f"set aside from {session}")
        ref = f"{ASIDE_REFS}/{session}/{secrets.token_hex(4)}"
        git.put_ref(ref, commit)
        return ref

    def is_as_marked(self, session: SessionID) -> bool:
        """Return True if a checkout is still as it was when its files were last stored or taken over here."""
        mark, git = self.find_mark(session), self.open(session)
        head = git.find_commit()
        return mark is not None and mark.head == head and mark.tree == git.examine(head)[0]

    def remove_checkout(self, session: SessionID) -> str:
        """Remove the checkout of a session. Return the ref of work in it that is stored nowhere else; "" if there was nothing."""
        with self._lock():
            ref = ""
            if self.has_checkout(session) and not self.is_as_marked(session):
                ref = self.set_aside(session)
            if os.path.isdir(self._base):  # else nothing was fetched here yet
                self._git.remove(self.get_directory(session))
            Disk().remove(self._get_mark_path(session))
            return ref

    # --- marks ---

    def find_mark(self, session: SessionID) -> CheckoutMark | None:
        try:
            raw = read_bytes(self._get_mark_path(session), limit=MAX_MARK_BYTES)
            return msgspec.json.decode(raw, type=CheckoutMark)
        except (OSError, msgspec.MsgspecError):
            return None

    def mark(self, session: SessionID, mark: CheckoutMark) -> None:
        path = self._get_mark_path(session)
        make_directory(os.path.dirname(path))
        write_atomic(path, msgspec.json.encode(mark), temp=f"{path}~")

    def find_mark_time(self, session: SessionID) -> int:
        """Return when a checkout was last stored or taken over, in milliseconds; 0 if it never was."""
        try:
            return os.stat(self._get_mark_path(session)).st_mtime_ns // 1_000_000
        except OSError:
            return 0

    def _get_mark_path(self, session: SessionID) -> str:
        return os.path.join(self.home, "state", f"{session}.json")

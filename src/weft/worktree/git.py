"""Run git for worktrees: create, inspect, merge and remove checkouts. Every function blocks."""

import os
import shutil
import tempfile
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager

from msgspec import Struct

from weft.errors import GitError
from weft.host.git import KEPT_VARIABLES, QUIET_VARIABLES, call_git, quote_alternate

GIT_TIMEOUT_SECONDS = 600.0
# How git may reach a repository that the operator named. Anything else could run a program (`ext::`).
FETCH_PROTOCOLS = "file:git:http:https:ssh"
SSH_COMMAND = "ssh -oBatchMode=yes"
CONFLICT_EXIT_CODE = 1
USAGE_ERROR_EXIT_CODE = 129
SUBMODULE_MODE = "160000"
LINK_MODE = "120000"
EXECUTABLE_MODE = "100755"
PATHS_FROM_STDIN = ("--pathspec-from-file=-", "--pathspec-file-nul")
# Commits that only weft uses do not carry the user's name.
ANONYMOUS_IDENTITY = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "weft"), ("EMAIL", "weft@localhost"))
}


class GitCheckout(Struct, frozen=True, kw_only=True):
    """A checkout: its directory, commit and branch ("" for none)."""

    directory: str
    commit: str = ""
    branch: str = ""


class TreeDifference(Struct, frozen=True, kw_only=True):
    """A path in which two trees differ: its mode and id in the second tree, and its old ones in the first; "" if absent."""

    path: str
    mode: str = ""
    id: str = ""
    old_id: str = ""
    old_mode: str = ""

    @property
    def is_submodule(self) -> bool:
        return SUBMODULE_MODE in (self.mode, self.old_mode)


class TreeMerge(Struct, frozen=True, kw_only=True):
    """The merged tree, or the paths with conflicts."""

    tree: str = ""
    conflicts: tuple[str, ...] = ()


class WorktreeGit:
    """Runs git for the repository of the checkout `top`. Every call raises `GitError` if git fails."""

    def __init__(self, environ: Mapping[str, str], top: str) -> None:
        inherited = {
            name: value
            for name, value in environ.items()
            if name in KEPT_VARIABLES or name in ANONYMOUS_IDENTITY or name[:4] != "GIT_"
        }
        # The repository's own `core.worktree` must not redirect us to another directory.
        self._environ = inherited | QUIET_VARIABLES | {"GIT_WORK_TREE": top}
        self._original_environ = environ
        self.top = top

    # --- checkouts ---

    def list_all(self) -> list[GitCheckout]:
        """Return all checkouts of the repository."""
        checkouts: list[GitCheckout] = []
        for block in self._run(["worktree", "list", "--porcelain", "-z"]).split("\0\0"):
            fields = dict(line.partition(" ")[::2] for line in block.split("\0") if line)
            if "worktree" in fields:
                branch = fields.get("branch", "").removeprefix("refs/heads/")
                checkouts.append(
                    GitCheckout(directory=fields["worktree"], commit=fields.get("HEAD", ""), branch=branch)
                )
        return checkouts

    def add(self, directory: str, branch: str, commit: str) -> None:
        """Create a checkout on a new branch."""
        self._run(["worktree", "add", "--quiet", "--no-checkout", "-b", branch, "--", directory, commit])
        # Run this in the new checkout, because its configuration may differ.
        new_checkout = WorktreeGit(self._original_environ, directory)
        try:
            new_checkout.reset("HEAD")
        except GitError:
            self.remove(directory)
            self.delete_ref(f"refs/heads/{branch}")
            raise

    def add_detached(self, directory: str, commit: str) -> None:
        """Create a checkout that is on no branch."""
        self._run(["worktree", "add", "--quiet", "--no-checkout", "--detach", "--", directory, commit])
        WorktreeGit(self._original_environ, directory).reset("HEAD")

    def remove(self, directory: str) -> None:
        """Remove a checkout with everything in it, even if parts of it are already gone."""
        if os.path.exists(os.path.join(directory, ".git")):
            self._run(["worktree", "remove", "--force", "--force", "--", directory])
        else:
            shutil.rmtree(directory, ignore_errors=True)
            self._run(["worktree", "prune"])

    # --- commits and refs ---

    def find_commit(self, name: str = "HEAD") -> str | None:
        """Return the id of a commit, or None if the name does not lead to one."""
        try:
            return self._run_line(["rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"])
        except GitError:
            return None

    def find_commit_at(self, seconds: int) -> str | None:
        """Return the commit that was checked out at a time, by the log of the checkout, else by the dates of commits."""
        return self.find_commit(f"HEAD@{{{seconds} +0000}}") or self._find_older_commit(seconds)

    def _find_older_commit(self, seconds: int) -> str | None:
        try:
            return self._run_line(["rev-list", "-1", f"--before={seconds}", "HEAD"]) or None
        except GitError:
            return None

    def get_tree(self, commit: str) -> str:
        return self._run_line(["rev-parse", "--verify", f"{commit}^{{tree}}"])

    def get_message(self, commit: str) -> str:
        return self._run(["log", "-1", "--format=%B", commit]).strip()

    def put_ref(self, ref: str, commit: str) -> None:
        self._run(["update-ref", "--no-deref", ref, commit])

    def delete_ref(self, ref: str) -> None:
        self._run(["update-ref", "--no-deref", "-d", ref])

    def get_merge_base(self, one: str, other: str) -> str:
        """Return the best common ancestor of two commits."""
        return self._run_line(["merge-base", one, other])

    def list_branches_containing(self, commit: str) -> list[str]:
        """Return the local and remote branches that contain a commit."""
        args = ["for-each-ref", "--contains", commit, "--format=%(refname)", "refs/heads", "refs/remotes"]
        return self._run(args).split()

    def count_ahead(self, commit: str, base: str) -> int:
        """Return how many commits `commit` has that `base` does not."""
        return int(self._run_line(["rev-list", "--count", f"{base}..{commit}"]))

    # --- contents of a checkout ---

    def list_changed(self, *, untracked: bool = True) -> list[str]:
        """Return the paths that differ from the commit."""
        mode = "all" if untracked else "no"
        options = ["--no-renames", "--ignore-submodules=dirty"]
        output = self._run(["status", "--porcelain", "-z", f"--untracked-files={mode}", *options])
        changed = [entry[3:] for entry in output.split("\0") if entry]
        return changed + [
            path
            for path in self._list_submodules()
            if path not in changed and self._is_changed_within(path, untracked=untracked)
        ]

    def _is_changed_within(self, submodule: str, *, untracked: bool) -> bool:
        """Return True if a submodule has uncommitted changes. It has its own settings, so git runs in it separately."""
        top = os.path.join(self.top, submodule)
        if not os.path.lexists(os.path.join(top, ".git")):
            return False
        return bool(WorktreeGit(self._original_environ, top).list_changed(untracked=untracked))

    def _list_submodules(self, *, index: str = "") -> list[str]:
        entries = self._run(["ls-files", "--stage", "-z"], index=index).split("\0")
        return [entry.partition("\t")[2] for entry in entries if entry.startswith(SUBMODULE_MODE)]

    def list_tracked(self) -> set[str]:
        """Return the paths in the index."""
        return {path for path in self._run(["ls-files", "-z"]).split("\0") if path}

    def capture(self, *, untracked: bool, ignored: Sequence[str] = ()) -> str:
        """Write everything in the checkout as a tree, which no ref names. `ignored` are files to add although git ignores them."""
        with self._copied_index() as index:
            submodules = self._list_submodules(index=index)
            # Git would examine the files of submodules with their own settings. We only need their commits.
            paths = [".", *(f":(exclude,literal,top){path}" for path in submodules)]
            selection = "--all" if untracked else "--update"
            self._run(["add", selection, *PATHS_FROM_STDIN], index=index, input=_encode_paths(paths))
            if submodules:
                self._run(
                    ["update-index", "--remove", "-z", "--stdin"],
                    index=index,
                    input=_encode_paths(submodules),
                )
            if ignored:
                forced = ["add", "--force", *PATHS_FROM_STDIN]
                self._run(forced, index=index, input=_encode_paths(ignored), literal=True)
            return self._run_line(["write-tree"], index=index)

    def examine(self, commit: str) -> tuple[str, list[TreeDifference]]:
        """Return the name of the tree of everything in the checkout, and how it differs from a commit. Nothing is kept of it."""
        objects = os.path.join(self.top, self._run_line(["rev-parse", "--git-path", "objects"]))
        with tempfile.TemporaryDirectory(prefix="weft-objects-") as scratch:
            examiner = WorktreeGit(self._original_environ, self.top)
            examiner._environ |= {
                "GIT_OBJECT_DIRECTORY": scratch,
                "GIT_ALTERNATE_OBJECT_DIRECTORIES": quote_alternate(objects),
            }
            tree = examiner.capture(untracked=True)
            return tree, examiner.list_differences(examiner.get_tree(commit), tree)

    def commit_tree(self, tree: str, *parents: str, message: str) -> str:
        parent_options = [word for parent in dict.fromkeys(parents) for word in ("-p", parent)]
        return self._run_line(
            ["commit-tree", tree, *parent_options, "-m", message], extra_environ=ANONYMOUS_IDENTITY
        )

    def list_differences(self, before: str, after: str) -> list[TreeDifference]:
        args = ["diff-tree", "-r", "-z", "--raw", "--no-renames", "--full-index", before, after]
        words = self._run(args).split("\0")
        return [
            _to_difference(head, path) for head, path in zip(words[::2], words[1::2], strict=False) if head
        ]

    def merge(self, ours: str, theirs: str) -> TreeMerge:
        """Merge two commits without touching any checkout."""
        args = ["merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", ours, theirs]
        try:
            return TreeMerge(tree=self._run(args).rstrip("\0"))
        except GitError as error:
            if error.code == USAGE_ERROR_EXIT_CODE:  # before git 2.38
                return self.merge_by_file(ours, theirs)
            if error.code != CONFLICT_EXIT_CODE:
                raise
            return TreeMerge(conflicts=tuple(dict.fromkeys(error.stdout.rstrip("\0").split("\0")[1:])))

    def merge_by_file(self, ours: str, theirs: str) -> TreeMerge:
        """Merge with an older git. A file that both sides changed differently is a conflict."""
        base = self.get_merge_base(ours, theirs)
        our_changes = {change.path: change for change in self.list_differences(base, ours)}
        their_changes = self.list_differences(base, theirs)
        conflicts = [
            change.path
            for change in their_changes
            if change.path in our_changes and _get_result(our_changes[change.path]) != _get_result(change)
        ]
        if conflicts:
            return TreeMerge(conflicts=tuple(conflicts))
        return TreeMerge(tree=self.write_changed(ours, their_changes))

    def export(self, tree: str, paths: Sequence[str], into: str) -> None:
        """Write files of a tree below a directory, as in a checkout."""
        with self._copied_index() as index:
            self._run(["read-tree", tree], index=index)
            args = ["checkout-index", "-z", "--stdin", "--force", f"--prefix={into.rstrip('/')}/"]
            self._run(args, index=index, input=_encode_paths(paths))

    def count_lines(self, before: str, after: str) -> list[tuple[str, int, int]]:
        """Return the paths in which two trees differ, with added and removed lines (zero for binary files)."""
        args = ["diff-tree", "-r", "-z", "--numstat", "--no-renames", before, after]
        entries = (entry.split("\t", 2) for entry in self._run(args).split("\0") if entry)
        return [(path, _parse_count(added), _parse_count(removed)) for added, removed, path in entries]

    def make_patch(self, before: str, after: str) -> str:
        """Return the difference of two trees as a unified diff."""
        return self._run(
            ["diff-tree", "-r", "-p", "--no-renames", "--no-ext-diff", "--no-textconv", before, after]
        )

    def list_ignored(self) -> list[str]:
        """Return the ignored files. A directory that holds nothing else is named instead of its files."""
        output = self._run(["ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z"])
        return [path.rstrip("/") for path in output.split("\0") if path]

    def write_changed(self, tree: str, changes: Iterable[TreeDifference]) -> str:
        """Write a tree: the given one with these changes applied."""
        with self._copied_index() as index:
            self._run(["read-tree", tree], index=index)
            lines = (
                f"{change.mode or 0} {change.id or change.old_id}\t{change.path}\0" for change in changes
            )
            self._run(["update-index", "-z", "--index-info"], index=index, input="".join(lines))
            return self._run_line(["write-tree"], index=index)

    def get_identity(self) -> str:
        """Return the configured committer. Raise `GitError` if there is none."""
        return self._run_line(["var", "GIT_COMMITTER_IDENT"])

    def commit(self, paths: Sequence[str], message: str) -> str:
        """Commit these paths only, as the configured committer. Return the commit."""
        self._run(["add", *PATHS_FROM_STDIN], input=_encode_paths(paths), literal=True)
        args = ["commit", "--quiet", "--only", f"--message={message}"]
        self._run([*args, *PATHS_FROM_STDIN], input=_encode_paths(paths), literal=True)
        return self._run_line(["rev-parse", "HEAD"])

    def restore(self, commit: str) -> None:
        """Reset tracked files to a commit and remove untracked ones. Ignored files stay."""
        self.reset(commit)
        self._run(["clean", "--quiet", "-ffd"])

    def restore_work(self, commit: str) -> None:
        """Do as `restore`, but leave repositories inside of the checkout as they are."""
        self.reset(commit)
        self._run(["clean", "--quiet", "-fd"])

    def reset(self, commit: str) -> None:
        """Reset tracked files to a commit."""
        self._run(["reset", "--quiet", "--hard", commit])

    def get_git_directory(self) -> str:
        return self._run_line(["rev-parse", "--absolute-git-dir"])

    # --- commits of other repositories ---

    def fetch(self, url: str, *refspecs: str) -> None:
        """Fetch from a repository that the operator named, with protocols that run no program but ssh.

        Credentials come from ssh and curl themselves: keys, an agent, `.netrc`.
        """
        ways = {
            "GIT_ALLOW_PROTOCOL": FETCH_PROTOCOLS,
            "GIT_SSH_COMMAND": self._original_environ.get("GIT_SSH_COMMAND") or SSH_COMMAND,
        }
        options = ["--quiet", "--force", "--prune", "--no-tags", "--no-recurse-submodules"]
        self._run(["fetch", *options, "--no-write-fetch-head", "--", url, *refspecs], extra_environ=ways)

    def pack_commits(self, commit: str, base: str) -> bytes:
        """Return the commits that `commit` has and `base` does not, with their files, in git's own format."""
        args = ["pack-objects", "--quiet", "--revs", "--thin", "--stdout"]
        return os.fsencode(self._run(args, input=f"{commit}\n^{base}\n"))

    def add_commits(self, pack: bytes) -> None:
        """Add what `pack_commits` returned elsewhere."""
        self._run(["index-pack", "--stdin", "--fix-thin"], input=os.fsdecode(pack))

    # --- running git ---

    @contextmanager
    def _copied_index(self) -> Generator[str]:
        """Copy the index, which tells git which files are unchanged without reading them."""
        original = os.path.join(self.top, self._run_line(["rev-parse", "--git-path", "index"]))
        with tempfile.TemporaryDirectory(prefix="weft-index-") as directory:
            index = os.path.join(directory, "index")
            if os.path.exists(original):
                # Keep its time: git needs it to recognise files that changed in the same second as the index.
                shutil.copy2(original, index)
            yield index

    def _run_line(
        self, args: list[str], *, index: str = "", extra_environ: Mapping[str, str] | None = None
    ) -> str:
        return self._run(args, index=index, extra_environ=extra_environ).removesuffix("\n")

    def _run(
        self,
        args: list[str],
        *,
        index: str = "",
        input: str = "",
        extra_environ: Mapping[str, str] | None = None,
        literal: bool = False,
    ) -> str:
        environ = self._environ | dict(extra_environ or {}) | ({"GIT_INDEX_FILE": index} if index else {})
        if literal:
            environ["GIT_LITERAL_PATHSPECS"] = "1"
        return call_git(self.top, args, environ, input=input, seconds=GIT_TIMEOUT_SECONDS)


def _to_difference(head: str, path: str) -> TreeDifference:
    old_mode, mode, old_id, id, _ = head.removeprefix(":").split(" ")
    return TreeDifference(
        path=path,
        mode=mode if mode.strip("0") else "",
        id=id if id.strip("0") else "",
        old_id=old_id if old_id.strip("0") else "",
        old_mode=old_mode if old_mode.strip("0") else "",
    )


def _parse_count(lines: str) -> int:
    """Return a number of lines; git counts none for a binary file."""
    return int(lines) if lines.isdigit() else 0


def _get_result(change: TreeDifference) -> tuple[str, str]:
    return change.mode, change.id


def _encode_paths(paths: Iterable[str]) -> str:
    return "".join(f"{path}\0" for path in paths)

"""Repositories whose git configuration names programs: each that runs leaves a mark."""

import os
import subprocess
from pathlib import Path
from typing import Final

from msgspec import Struct

PERSON: Final = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
}
ODD: Final = "a=b.c"  # a name that git's command line would split


class Vector(Struct, frozen=True, kw_only=True):
    """Settings that name a program (`MARK` is one that leaves a mark), and a git command that would run it."""

    settings: tuple[tuple[str, str], ...]
    trigger: tuple[str, ...]
    attributes: str = ""
    where: str = "config"
    files: tuple[tuple[str, str], ...] = ()


STATUS: Final = ("status", "--porcelain")
CHECKOUT: Final = ("checkout", "--force", "HEAD", "--", "b.txt")
FILTER: Final = "*.txt filter=evil"
FETCH: Final = (
    ("core.repositoryFormatVersion", "1"),
    ("extensions.partialClone", "origin"),
    ("remote.origin.promisor", "true"),
    ("protocol.ext.allow", "always"),
    ("protocol.file.allow", "always"),
)

VECTORS: Final = {
    "clean": Vector(settings=(("filter.evil.clean", "MARK; cat"),), attributes=FILTER, trigger=STATUS),
    "smudge": Vector(settings=(("filter.evil.smudge", "MARK; cat"),), attributes=FILTER, trigger=CHECKOUT),
    "process": Vector(settings=(("filter.evil.process", "MARK"),), attributes=FILTER, trigger=STATUS),
    "required": Vector(
        settings=(("filter.evil.clean", "MARK; cat"), ("filter.evil.required", "true")),
        attributes=FILTER,
        trigger=STATUS,
    ),
    "odd name": Vector(
        settings=((f"filter.{ODD}.clean", "MARK; cat"),),
        attributes=f"*.txt filter={ODD}",
        trigger=("-c", f"filter.{ODD}.clean=", *STATUS),
    ),
    "info/attributes": Vector(
        settings=(("filter.evil.clean", "MARK; cat"),),
        files=(("info/attributes", "* filter=evil\n"),),
        trigger=STATUS,
    ),
    "include.path": Vector(
        settings=(("include.path", "more"),),
        files=(("more", '[filter "evil"]\n\tclean = "MARK; cat"\n'),),
        attributes=FILTER,
        trigger=STATUS,
    ),
    "includeIf of worktrees": Vector(
        settings=(("includeIf.gitdir:**/worktrees/**.path", "{git}/more"),),
        files=(("more", '[filter "evil"]\n\tsmudge = "MARK; cat"\n'),),
        attributes=FILTER,
        trigger=("worktree", "add", "--quiet", "{aside}"),
    ),
    "includeIf of branches": Vector(
        settings=(("includeIf.onbranch:*.path", "{git}/more"),),
        files=(("more", '[filter "evil"]\n\tclean = "MARK; cat"\n'),),
        attributes=FILTER,
        trigger=STATUS,
    ),
    "config.worktree": Vector(
        settings=(("core.repositoryFormatVersion", "1"), ("extensions.worktreeConfig", "true")),
        files=(("config.worktree", '[filter "evil"]\n\tclean = "MARK; cat"\n'),),
        attributes=FILTER,
        trigger=STATUS,
    ),
    "textconv": Vector(
        settings=(("diff.evil.textconv", "MARK; cat"),),
        attributes="*.txt diff=evil",
        trigger=("diff", "HEAD"),
    ),
    "diff driver": Vector(
        settings=(("diff.evil.command", "MARK; true"),),
        attributes="*.txt diff=evil",
        trigger=("diff", "HEAD"),
    ),
    "diff.external": Vector(settings=(("diff.external", "MARK; true"),), trigger=("diff", "HEAD")),
    "merge driver": Vector(
        settings=(("merge.evil.driver", "MARK; true"),),
        attributes="*.txt merge=evil",
        trigger=("merge-tree", "--write-tree", "ours", "theirs"),
    ),
    "merge.default": Vector(
        settings=(("merge.evil.driver", "MARK; true"), ("merge.default", "evil")),
        trigger=("merge-tree", "--write-tree", "ours", "theirs"),
    ),
    "fsmonitor": Vector(settings=(("core.fsmonitor", "MARK; true"),), trigger=STATUS),
    "hooksPath": Vector(settings=(("core.hooksPath", "{hooks}"),), trigger=("checkout", "--quiet", "ours")),
    "hooks": Vector(
        settings=(),
        files=tuple(
            (f"hooks/{name}", "#!/bin/sh\nMARK\n")
            for name in ("post-checkout", "post-index-change", "pre-commit", "reference-transaction")
        ),
        trigger=("checkout", "--quiet", "ours"),
    ),
    "editor": Vector(settings=(("core.editor", "MARK; false"),), trigger=("commit", "--allow-empty")),
    "gpg.program": Vector(
        settings=(("commit.gpgSign", "true"), ("gpg.program", "{program}")),
        trigger=("commit", "--allow-empty", "--message=x"),
    ),
    "gpg.ssh.defaultKeyCommand": Vector(
        settings=(
            ("commit.gpgSign", "true"),
            ("gpg.format", "ssh"),
            ("gpg.ssh.defaultKeyCommand", "{program}"),
        ),
        trigger=("commit", "--allow-empty", "--message=x"),
    ),
    "ext:: of a promisor": Vector(
        settings=(*FETCH, ("remote.origin.url", "ext::{program} %S x")), trigger=("cat-file", "-p", "{lost}")
    ),
    "uploadpack of a promisor": Vector(
        settings=(*FETCH, ("remote.origin.url", "{git}"), ("remote.origin.uploadpack", "{program}")),
        trigger=("cat-file", "-p", "{lost}"),
    ),
    "sshCommand of a promisor": Vector(
        settings=(*FETCH, ("remote.origin.url", "ssh://nowhere/x"), ("core.sshCommand", "{program}")),
        trigger=("cat-file", "-p", "{lost}"),
    ),
    "credential helper": Vector(
        settings=(("credential.helper", "!MARK; true"),), trigger=("credential", "fill")
    ),
    "askPass": Vector(settings=(("core.askPass", "{program}"),), trigger=("credential", "fill")),
    "a submodule's filter": Vector(
        settings=(("filter.evil.clean", "MARK; cat"),), where="submodule", trigger=STATUS
    ),
    "a submodule's fsmonitor": Vector(
        settings=(("core.fsmonitor", "MARK; true"),), where="submodule", trigger=STATUS
    ),
}


class HostileGit:
    """A repository with changed files, two conflicting branches, a submodule, and one of the vectors."""

    def __init__(self, base: Path, vector: Vector) -> None:
        self.root, self.marks = base / "repository", base / "marks"
        self.marks.mkdir(parents=True)
        self._aside = base / "aside"
        self._vector = vector
        self._program = self._write(base / "program", "#!/bin/sh\nMARK\n", mode=0o755)
        self._make(base)
        self._arm()

    def ran(self) -> bool:
        return any(self.marks.iterdir())

    def rewrite_files(self) -> None:
        """Rewrite the files, so that git has to read them to see whether they changed."""
        for path in (self.root / "a.txt", self.root / "inner" / "a.txt"):
            text = path.read_text()
            path.unlink()
            path.write_text(text)

    def run_unguarded(self) -> None:
        """Run the git command that triggers the vector, without our protection."""
        self.rewrite_files()
        words = [self._fill_in(word) for word in self._vector.trigger]
        given = "protocol=https\nhost=example.org\n\n"
        subprocess.run(
            ["git", "-C", str(self.root), *words],
            input=given,
            text=True,
            env={**_environ(), "GIT_TERMINAL_PROMPT": "0"},
            capture_output=True,
            check=False,
            timeout=60,
        )

    def git(self, *words: str, at: Path | None = None) -> str:
        return subprocess.run(
            ["git", "-c", "core.fsmonitor=false", "-C", str(at or self.root), *words],
            env=_environ(),
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout.strip()

    def _make(self, base: Path) -> None:
        inner = base / "origin"
        for root in (inner, self.root):
            subprocess.run(["git", "init", "--quiet", "--initial-branch=main", str(root)], check=True)
        self._write(inner / "a.txt", "inner\n")
        self._write(inner / ".gitattributes", f"{FILTER}\n")
        self._commit(inner)
        self._write(self.root / "a.txt", "one\ntwo\nthree\n")
        self._write(self.root / "b.txt", "one\n")
        self._write(self.root / "lost.bin", "lost\n")
        self._write(self.root / ".gitattributes", f"{self._vector.attributes}\n")
        self.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "inner")
        self._commit(self.root)
        self.lost = self.git("rev-parse", "HEAD:lost.bin")
        for branch in ("ours", "theirs"):
            self.git("checkout", "--quiet", "-b", branch, "main")
            self._write(self.root / "a.txt", f"one\n{branch}\nthree\n")
            self._commit(self.root)
        self.git("checkout", "--quiet", "main")
        self._write(self.root / "b.txt", "two\n")
        self._write(self.root / "new.txt", "new\n")

    def _commit(self, root: Path) -> None:
        self.git("add", "--all", at=root)
        self.git("commit", "--quiet", "--message=x", at=root)

    def _arm(self) -> None:
        git_dir = self.root / ".git"
        at = self.root / "inner" if self._vector.where == "submodule" else self.root
        for name in ("post-checkout", "post-index-change", "pre-commit", "reference-transaction"):
            self._write(self._aside.parent / "hooks" / name, "#!/bin/sh\nMARK\n", mode=0o755)
        for name, text in self._vector.files:
            self._write(git_dir / name, text, mode=0o755)
        for key, value in self._vector.settings:
            self.git("config", key, self._fill_in(value), at=at)
        if ("extensions.partialClone", "origin") in self._vector.settings:
            (git_dir / "objects" / self.lost[:2] / self.lost[2:]).unlink()

    def _fill_in(self, text: str) -> str:
        return (
            text.replace("MARK", f"touch {self.marks}/mark")
            .replace("{git}", str(self.root / ".git"))
            .replace("{hooks}", str(self._aside.parent / "hooks"))
            .replace("{aside}", str(self._aside))
            .replace("{program}", str(self._aside.parent / "program"))
            .replace("{lost}", getattr(self, "lost", ""))
        )

    def _write(self, path: Path, text: str, *, mode: int = 0o644) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._fill_in(text))
        path.chmod(mode)
        return path


def _environ() -> dict[str, str]:
    return {**os.environ, **PERSON}

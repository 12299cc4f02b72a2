"""A home with a secret, a project in it and a directory outside, to test the sandbox with; and bash inside the sandbox."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from weft.config.sources import ConfigScope
from weft.host.paths import paths_from
from weft.local.sandbox import SandboxSettings, SandboxState, build_sandbox
from weft.testing.tool_contract import ToolHarness
from weft.tool.registry import BASH

SECRET = "the person's own"


class SandboxTree(Struct, frozen=True, kw_only=True):
    root: Path

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def project(self) -> Path:
        return self.home / "project"

    @property
    def outside(self) -> Path:
        return self.root / "outside"

    @property
    def temporary(self) -> Path:
        return self.root / "tmp"

    @property
    def env(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self.home), "TMPDIR": str(self.temporary)}

    def build_state(self, asked: SandboxSettings, env: Mapping[str, str] | None = None) -> SandboxState:
        env = self.env if env is None else env
        here = str(self.project)
        return build_sandbox(
            asked, ConfigScope(directory=here, worktree=here, paths=paths_from(env), env=env)
        )

    def link(self) -> Path:
        """Add another worktree of the project, and return its path."""
        linked = self.home / "linked"
        for words in (
            ("add", "-A"),
            ("commit", "-q", "-m", "A beginning"),
            ("worktree", "add", "-q", str(linked)),
        ):
            subprocess.run(["git", *words], cwd=self.project, check=True)
        return linked

    def harness(self, state: SandboxState) -> ToolHarness:
        harness = ToolHarness(self.project, outside=self.root / "bench", environment=self.env)
        harness.resources = replace(harness.resources, sandbox=state.sandbox)
        return harness


async def run(harness: ToolHarness, command: str) -> tuple[int, str]:
    """Return the exit code and the output of a command."""
    result = await harness.call(BASH, command=command, description="Try")
    return result.metadata["exit"], result.metadata["output"]


def make_sandbox_tree(root: Path) -> SandboxTree:
    tree = SandboxTree(root=root)
    for path in (tree.project, tree.outside, tree.temporary, tree.home / ".ssh"):
        path.mkdir(parents=True)
    (tree.home / ".ssh" / "id_test").write_text(SECRET)
    (tree.home / ".gitconfig").write_text("[user]\n\tname = Ada Loom\n\temail = ada@example.test\n")
    (tree.outside / "file").write_text("outside")
    (tree.project / "file").write_text("inside")
    subprocess.run(["git", "init", "-q"], cwd=tree.project, check=True)
    return tree

"""A repository with nested instruction files."""

from functools import partial
from pathlib import Path

from msgspec.structs import replace

from given.engine import PLACE
from weft.config.instructions import InstructionSources, read_instructions
from weft.config.sources import ConfigScope
from weft.host.paths import paths_from
from weft.model.project import Place


class Repository:
    """A repository with one instruction file at the top, and one in the working directory."""

    def __init__(self, root: Path) -> None:
        self.top, self.near = root / "repository", root / "repository" / "pkg"
        self.near.mkdir(parents=True)
        (self.top / "AGENTS.md").write_text("Far.")
        (self.near / "AGENTS.md").write_text("Near.")
        project = replace(PLACE.project, worktree=str(self.top), vcs="git")
        self.place = Place(project=project, directory=str(self.near), worktree=str(self.top))
        self.paths = paths_from({"HOME": str(root)})

    def read(self) -> partial[object]:
        scope = ConfigScope(
            directory=str(self.near), worktree=str(self.top), paths=self.paths, env={"HOME": "/nowhere"}
        )
        return partial(read_instructions, InstructionSources(scope=scope))

"""A home directory with a project, to write configuration into and load it from."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from weft.config.load import LoadedConfig, load_config
from weft.config.remote import Fetch
from weft.config.sources import ConfigScope
from weft.host.paths import Paths, paths_from


class Home:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.project = root / "work" / "project"
        self.project.mkdir(parents=True)
        self.env: dict[str, str] = {"HOME": str(root), "USER": "ada"}

    @property
    def paths(self) -> Paths:
        return paths_from(self.env)

    @property
    def config(self) -> Path:
        return self.root / ".config" / "opencode"

    def write(self, path: Path, text: str | bytes) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def scope(self, directory: Path | None = None, *, trusted: bool = True) -> ConfigScope:
        return ConfigScope(
            directory=str(directory or self.project),
            worktree=str(self.project),
            paths=self.paths,
            env=self.env,
            trusted=trusted,
        )

    def load(
        self, directory: Path | None = None, *, fetch: Fetch | None = None, strict: bool = False
    ) -> LoadedConfig:
        return load_config(self.scope(directory), fetch=fetch, strict=strict)

    def with_env(self, env: Mapping[str, str]) -> "Home":
        self.env = {**self.env, **env}
        return self


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)

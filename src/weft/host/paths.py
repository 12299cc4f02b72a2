"""Where things lie on this machine: data, configuration, cache, state, home."""

import os
from collections.abc import Mapping

from msgspec import Struct

from weft.errors import DirectoryError


class Paths(Struct, frozen=True, kw_only=True):
    """The directories shared with OpenCode. Naming them creates none of them.

    `home` may be moved for tests; `os_home` is where a person's `~/` points.
    """

    data: str
    config: str
    cache: str
    state: str
    home: str
    os_home: str

    @property
    def storage(self) -> str:
        return os.path.join(self.data, "storage")

    @property
    def snapshots(self) -> str:
        return os.path.join(self.data, "snapshot")

    @property
    def tool_output(self) -> str:
        return os.path.join(self.data, "tool-output")

    @property
    def plans(self) -> str:
        return os.path.join(self.data, "plans")

    @property
    def worktrees(self) -> str:
        return os.path.join(self.data, "worktree")

    @property
    def auth_file(self) -> str:
        return os.path.join(self.data, "auth.json")

    @property
    def mcp_auth_file(self) -> str:
        return os.path.join(self.data, "mcp-auth.json")

    @property
    def models_file(self) -> str:
        return os.path.join(self.cache, "models.json")

    @property
    def jobs(self) -> str:
        return os.path.join(self.state, "jobs")

    @property
    def log(self) -> str:
        return os.path.join(self.data, "log")

    @property
    def bin(self) -> str:
        return os.path.join(self.data, "bin")


def paths_from(env: Mapping[str, str]) -> Paths:
    """The paths that an environment names, by the XDG rules on every system."""
    os_home = env.get("HOME") or env.get("USERPROFILE")
    if not os_home:
        raise DirectoryError("HOME", "is not set", hint="set HOME to your home directory")

    def place(variable: str, *otherwise: str) -> str:
        # The XDG rules say that a relative value is to be ignored.
        named = env.get(variable, "")
        root = named if os.path.isabs(named) else os.path.join(os_home, *otherwise)
        return os.path.join(root, "opencode")

    return Paths(
        data=place("XDG_DATA_HOME", ".local", "share"),
        config=place("XDG_CONFIG_HOME", ".config"),
        cache=place("XDG_CACHE_HOME", ".cache"),
        state=place("XDG_STATE_HOME", ".local", "state"),
        home=env.get("OPENCODE_TEST_HOME") or os_home,
        os_home=os_home,
    )


def user_name(env: Mapping[str, str]) -> str | None:
    """Who is at the keyboard, as the environment has it."""
    names = (env.get(variable) for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"))
    return next((name for name in names if name), None)

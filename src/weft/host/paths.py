"""The directories that weft uses on this machine: data, configuration, cache, state, home; and the path of a store."""

import os
from collections.abc import Mapping

from msgspec import Struct

from weft.errors import DirectoryError, InvalidInputError


class Paths(Struct, frozen=True, kw_only=True):
    """The directories shared with OpenCode. None of them is created here.

    `home` may be moved for tests; `os_home` is the user's `~`. `outputs` is where tools leave files of one principal; without it
    they are left in the shared directories.
    """

    data: str
    config: str
    cache: str
    state: str
    home: str
    os_home: str
    outputs: str = ""

    @property
    def storage(self) -> str:
        return os.path.join(self.data, "storage")

    @property
    def snapshots(self) -> str:
        return os.path.join(self.data, "snapshot")

    @property
    def tool_output(self) -> str:
        return os.path.join(self.outputs or self.data, "tool-output")

    @property
    def plans(self) -> str:
        return os.path.join(self.outputs or self.data, "plans")

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
    def password_file(self) -> str:
        """The file with the password that `weft serve` generates. Clients on this machine read it."""
        return os.path.join(self.state, "weft", "server-password")

    @property
    def jobs(self) -> str:
        return os.path.join(self.outputs or self.state, "jobs")

    @property
    def log(self) -> str:
        return os.path.join(self.data, "log")

    @property
    def bin(self) -> str:
        return os.path.join(self.data, "bin")


def paths_from(env: Mapping[str, str]) -> Paths:
    """Return the paths that an environment names, by the XDG rules on every system. Raise `DirectoryError` without a
    home."""
    os_home = env.get("HOME") or env.get("USERPROFILE")
    if not os_home:
        raise DirectoryError("HOME", "is not set", hint="set HOME to your home directory")

    def find(variable: str, *default: str) -> str:
        # By the XDG rules a relative value is ignored.
        named = env.get(variable, "")
        root = named if os.path.isabs(named) else os.path.join(os_home, *default)
        return os.path.join(root, "opencode")

    return Paths(
        data=find("XDG_DATA_HOME", ".local", "share"),
        config=find("XDG_CONFIG_HOME", ".config"),
        cache=find("XDG_CACHE_HOME", ".cache"),
        state=find("XDG_STATE_HOME", ".local", "state"),
        home=env.get("OPENCODE_TEST_HOME") or os_home,
        os_home=os_home,
    )


def find_user_name(env: Mapping[str, str]) -> str | None:
    """Return the user name of an environment, None if it has none."""
    names = (env.get(variable) for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"))
    return next((name for name in names if name), None)


def parse_store_path(url: str) -> str:
    """Return the path in `file:/a/b`, `file:///a/b` (percent-encoded, as in a URL) or `file:~/a`; so, too, for `sqlite:`.

    Raise `InvalidInputError` if there is none, or no file can have it.
    """
    scheme, _, path = url.partition(":")
    if path.startswith("//"):
        from urllib.parse import unquote  # noqa: PLC0415  rarely needed, and slow to import

        path = unquote(path.removeprefix("//"))
    if not path or "\0" in path:
        raise InvalidInputError("store", f"'{scheme}:' needs a path", hint=f"use {scheme}:<path>")
    return os.path.expanduser(path)

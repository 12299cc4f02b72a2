"""The address of a server and the password for it: from a URL, the environment, or the file that `weft serve` writes."""

import os
import stat
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from weft.errors import ConfigError, InvalidInputError
from weft.model.url import is_loopback_host

PASSWORD: Final = "OPENCODE_SERVER_PASSWORD"
TOKEN: Final = "WEFT_TOKEN"
TOKEN_BEGIN: Final = "weft_"
USERNAME: Final = "OPENCODE_SERVER_USERNAME"
DEFAULT_USERNAME: Final = "opencode"
PORT: Final = 4096
MAX_PASSWORD_BYTES: Final = 1024
EXAMPLE: Final = f"write it as http://127.0.0.1:{PORT}"


class Address(Struct, frozen=True, kw_only=True):
    """A server and its password, if it has one. `url` contains no password, because it is shown to people."""

    url: str
    username: str = DEFAULT_USERNAME
    password: str | None = None

    @property
    def is_token(self) -> bool:
        """True if the password is a token, which is sent in its own way."""
        return self.password is not None and self.password.startswith(TOKEN_BEGIN)


def resolve_address(url: str, env: Mapping[str, str], *, password: str | None = None) -> Address:
    """Parse an address. Raise `InvalidInputError` if it is not valid.

    The password is the one that is given, else the one in the URL, in the environment, or in the file of `weft serve`. The
    password from that file is sent only to servers on this machine. Instead of a password there may be a token.
    """
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidInputError(
            "url", f"{_hide_password(url)!r} is not valid: {error}", hint=EXAMPLE
        ) from None
    if parts.scheme not in {"http", "https"} or not host:
        raise InvalidInputError(
            "url", f"{_hide_password(url)!r} is not the address of a server", hint=EXAMPLE
        )
    name = f"[{host}]" if ":" in host else host
    found = password or unquote(parts.password or "") or env.get(TOKEN) or env.get(PASSWORD)
    if not found and is_loopback_host(host):
        found = find_password(get_password_file(env))
    return Address(
        url=f"{parts.scheme}://{name}{f':{port}' if port else ''}{parts.path.rstrip('/')}",
        username=unquote(parts.username or "") or env.get(USERNAME) or DEFAULT_USERNAME,
        password=found or None,
    )


def get_password_file(env: Mapping[str, str]) -> str:
    """Return the path of the file where `weft serve` stores its generated password: that of `Paths.password_file`.

    A client imports nothing of `weft.host`, so it finds and reads the file itself.
    """
    named = env.get("XDG_STATE_HOME", "")
    state = named if os.path.isabs(named) else os.path.join(env.get("HOME", ""), ".local", "state")
    return os.path.join(state, "opencode", "weft", "server-password")


def find_password(path: str) -> str | None:
    """Read the password file. Return None if it does not exist. Raise `ConfigError` if other users could read or write it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(path, f"cannot be read: {error.strerror}") from error
    try:
        found = os.fstat(fd)
        if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO) or found.st_uid != os.geteuid():
            raise ConfigError(path, "others could read it: remove it, and start the server again")
        return os.read(fd, MAX_PASSWORD_BYTES).decode(errors="replace").strip() or None
    finally:
        os.close(fd)


def _hide_password(url: str) -> str:
    """Return the URL without user name and password, to show it in a message."""
    return url.rpartition("@")[2][:80]

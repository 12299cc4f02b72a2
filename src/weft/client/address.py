"""Where a server is and who one is there: from an address, the environment, or the file `weft serve` keeps."""

import os
import stat
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from weft.errors import ConfigError, InvalidInputError

PASSWORD: Final = "OPENCODE_SERVER_PASSWORD"
USERNAME: Final = "OPENCODE_SERVER_USERNAME"
USUAL_NAME: Final = "opencode"
PORT: Final = 4096
LONGEST: Final = 1024
EXAMPLE: Final = f"write it as http://127.0.0.1:{PORT}"


class Address(Struct, frozen=True, kw_only=True):
    """A server and, if it asks for one, the password. `url` never holds a password: it is shown to people."""

    url: str
    username: str = USUAL_NAME
    password: str | None = None


def to_address(url: str, env: Mapping[str, str], *, password: str | None = None) -> Address:
    """The password that was given counts, else the one in the address, in the environment, in our own file.

    The file is the secret of this machine's person: it is shown to no server but this machine's.
    """
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidInputError("url", f"{_shown(url)!r} is none: {error}", hint=EXAMPLE) from None
    if parts.scheme not in {"http", "https"} or not host:
        raise InvalidInputError("url", f"{_shown(url)!r} is not the address of a server", hint=EXAMPLE)
    name = f"[{host}]" if ":" in host else host
    found = password or unquote(parts.password or "") or env.get(PASSWORD)
    if not found and is_loopback(host):
        found = find_password(password_file(env))
    return Address(
        url=f"{parts.scheme}://{name}{f':{port}' if port else ''}{parts.path.rstrip('/')}",
        username=unquote(parts.username or "") or env.get(USERNAME) or USUAL_NAME,
        password=found or None,
    )


def is_loopback(host: str) -> bool:
    """Whether nobody from outside of this machine answers there."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def password_file(env: Mapping[str, str]) -> str:
    """Where `weft serve` keeps the password that it made for the person."""
    named = env.get("XDG_STATE_HOME", "")
    state = named if os.path.isabs(named) else os.path.join(env.get("HOME", ""), ".local", "state")
    return os.path.join(state, "opencode", "weft", "server-password")


def find_password(path: str) -> str | None:
    """What is kept there; None if nothing is. A file that others could have written is not believed."""
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
        return os.read(fd, LONGEST).decode(errors="replace").strip() or None
    finally:
        os.close(fd)


def _shown(url: str) -> str:
    """An address as it may be shown: a password may stand before the last @."""
    return url.rpartition("@")[2][:80]

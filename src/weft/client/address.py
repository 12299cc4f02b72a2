"""The address of a server and the password for it: from a URL, the environment, or the file that `weft serve` writes."""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from weft.errors import DirectoryError, InvalidInputError
from weft.host.paths import paths_from
from weft.host.private_files import find_secret

PASSWORD: Final = "OPENCODE_SERVER_PASSWORD"
TOKEN: Final = "WEFT_TOKEN"
TOKEN_BEGIN: Final = "weft_"
USERNAME: Final = "OPENCODE_SERVER_USERNAME"
DEFAULT_USERNAME: Final = "opencode"
PORT: Final = 4096
EXAMPLE: Final = f"write it as http://127.0.0.1:{PORT}"


class Address(Struct, frozen=True, kw_only=True):
    """A server and its password, if it has one. `url` contains no password, because it is shown to people."""

    url: str
    username: str = DEFAULT_USERNAME
    password: str | None = None

    @property
    def is_token(self) -> bool:
        """Whether the password is a token, which is sent as one."""
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
    if not found and is_loopback(host):
        found = _find_generated_password(env)
    return Address(
        url=f"{parts.scheme}://{name}{f':{port}' if port else ''}{parts.path.rstrip('/')}",
        username=unquote(parts.username or "") or env.get(USERNAME) or DEFAULT_USERNAME,
        password=found or None,
    )


def is_loopback(host: str) -> bool:
    """Return True if the host is this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _find_generated_password(env: Mapping[str, str]) -> str | None:
    """Return the password that `weft serve` generated on this machine, None if there is none."""
    try:
        path = paths_from(env).password_file
    except DirectoryError:  # without a home there is no such file
        return None
    return find_secret(path, remedy="start the server again")


def _hide_password(url: str) -> str:
    """Return the URL without user name and password, to show it in a message."""
    return url.rpartition("@")[2][:80]

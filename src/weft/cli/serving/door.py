"""Who may come in to a server that is about to start: the password, and the names it answers to."""

import argparse
import os
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final

from msgspec import Struct

from weft.errors import ConfigError, InvalidInputError
from weft.host.paths import Paths
from weft.host.private_files import get_secret
from weft.server.access import Door

PASSWORD: Final = "OPENCODE_SERVER_PASSWORD"
USERNAME: Final = "OPENCODE_SERVER_USERNAME"
AUTH: Final = "WEFT_SERVE_AUTH"


class Entrance(Struct, frozen=True, kw_only=True):
    """The door, and how clients come by the password: from a file of ours, from the environment, or not at all."""

    door: Door
    file: str | None = None


def password_file(paths: Paths) -> str:
    """Where the password is kept that was made for the person; our own clients read it there."""
    return os.path.join(paths.state, "weft", "server-password")


def is_loopback(hostname: str) -> bool:
    """Whether nobody from outside of this machine gets there."""
    if hostname == "localhost":
        return True
    try:
        return ip_address(hostname.strip("[]")).is_loopback
    except ValueError:
        return False


def to_entrance(chosen: argparse.Namespace, hostname: str, paths: Paths, env: Mapping[str, str]) -> Entrance:
    given, local = env.get(PASSWORD, ""), is_loopback(hostname)
    hosts = frozenset(host.lower() for host in (*chosen.allow_host, *_names(hostname)))
    origins = frozenset(chosen.cors)
    if auth_of(chosen.auth, env) == "none":
        if not local:
            raise InvalidInputError(
                "--auth none",
                "without a password the server is for this machine alone",
                hint=f"set {PASSWORD}",
            )
        return Entrance(door=Door(password=None, hosts=hosts, origins=origins))
    if not given and not local:
        raise InvalidInputError(
            "--hostname",
            f"to be reached from elsewhere, the server needs a password that you chose: set {PASSWORD}",
        )
    file = None if given else password_file(paths)
    password = given if file is None else _get_password(file)
    door = Door(password=password, username=env.get(USERNAME) or "opencode", hosts=hosts, origins=origins)
    return Entrance(door=door, file=file)


def _get_password(file: str) -> str:
    try:
        return get_secret(file)
    except ConfigError as error:
        raise InvalidInputError("--auth", str(error), hint=f"set {PASSWORD} to one of your own") from error


def auth_of(given: str | None, env: Mapping[str, str]) -> str:
    """Return how the door is guarded: as the flag says, else as the environment does, for servers that a program starts
    by OpenCode's flags alone. Raises `InvalidInputError`."""
    said = given or env.get(AUTH) or "password"
    if said not in {"password", "none"}:
        raise InvalidInputError(
            AUTH, f"{said!r} is no way to guard a server", hint="set it to password or none"
        )
    return said


def _names(hostname: str) -> tuple[str, ...]:
    """What a request may call the machine. An address that means every address is no name."""
    try:
        address = ip_address(hostname.strip("[]"))
    except ValueError:
        return (hostname,)
    if address.is_unspecified:
        return (os.uname().nodename,)
    return (f"[{address}]" if address.version == 6 else str(address),)  # noqa: PLR2004

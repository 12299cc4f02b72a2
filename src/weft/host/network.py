"""Resolve host names, tell public from private addresses, and find the proxy of the environment."""

import asyncio
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from weft.errors import ToolError

# Addresses that a NAT64 gateway translates to IPv4.
_NAT64: Final = ip_network("64:ff9b::/96")

Resolve = Callable[[str, int], Awaitable[tuple[str, ...]]]


async def resolve(host: str, port: int) -> tuple[str, ...]:
    """Return the addresses of a host name. Raise `ToolError` if there are none."""
    try:
        results = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ToolError(f"There is no address for {host}: {error}") from error
    return tuple(dict.fromkeys(str(address[0]) for *_, address in results))


def is_public(address: str) -> bool:
    """Return True for a public address, and False for a private or invalid one."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return _unwrap_ipv4(parsed).is_global and not parsed.is_multicast


def _unwrap_ipv4(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address that an IPv6 address leads to, or the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


class NetworkAccess(Struct, frozen=True, kw_only=True):
    """How names are resolved, and which addresses are public. Tests replace both."""

    resolve: Resolve = resolve
    is_public: Callable[[str], bool] = is_public


SYSTEMS_WITH_PROXIES: Final = frozenset({"darwin", "win32"})


def read_proxies() -> Mapping[str, str]:
    """Return the environment with the proxies that it names. On macOS and Windows the system may name some, too."""
    if sys.platform in SYSTEMS_WITH_PROXIES:
        from urllib.request import getproxies  # noqa: PLC0415  slow to import, and only these systems need it

        return {f"{name}_proxy": url for name, url in getproxies().items()}
    return os.environ


def find_proxy(url: str, environment: Mapping[str, str]) -> str | None:
    """Return the proxy that the environment configures for a URL, or None."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if any(
        _is_exempt(host, pattern.strip()) for pattern in _get_either_case(environment, "no_proxy").split(",")
    ):
        return None
    return (
        _get_either_case(environment, f"{parts.scheme}_proxy")
        or _get_either_case(environment, "all_proxy")
        or None
    )


def _is_exempt(host: str, pattern: str) -> bool:
    domain = pattern.partition(":")[0].lstrip(".")
    return pattern == "*" or (bool(domain) and (host == domain or host.endswith(f".{domain}")))


def _get_either_case(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name) or environment.get(name.upper()) or ""

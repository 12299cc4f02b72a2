"""Which network addresses a tool may reach without asking: public ones only."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from weft.errors import ToolError

# Addresses that stand for IPv4 ones behind a translator.
_NAT64: Final = ip_network("64:ff9b::/96")

Resolve = Callable[[str, int], Awaitable[tuple[str, ...]]]


async def resolve(host: str, port: int) -> tuple[str, ...]:
    """The addresses of a name."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ToolError(f"There is no address for {host}: {error}") from error
    return tuple(dict.fromkeys(str(address[0]) for *_, address in found))


def is_public(address: str) -> bool:
    """Whether an address is anybody's to reach. What cannot be told is not."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return _seen_through(found).is_global and not found.is_multicast


def _seen_through(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address within an IPv6 one, if that is where it leads."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


class Reach(Struct, frozen=True, kw_only=True):
    """How names are looked up, and which addresses are public. Tests have a small world of their own."""

    resolve: Resolve = resolve
    is_public: Callable[[str], bool] = is_public


def proxy_for(url: str, environment: Mapping[str, str]) -> str | None:
    """The proxy that the environment names for a URL."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if any(_is_exempt(host, each.strip()) for each in _either(environment, "no_proxy").split(",")):
        return None
    return _either(environment, f"{parts.scheme}_proxy") or _either(environment, "all_proxy") or None


def _is_exempt(host: str, pattern: str) -> bool:
    bare = pattern.partition(":")[0].lstrip(".")
    return pattern == "*" or (bool(bare) and (host == bare or host.endswith(f".{bare}")))


def _either(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name) or environment.get(name.upper()) or ""

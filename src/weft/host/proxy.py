"""Find the proxy that the environment names for a URL."""

import os
import sys
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

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

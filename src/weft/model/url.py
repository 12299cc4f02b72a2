"""Remove secrets from URLs, tell stores apart by their URLs, and recognise this machine as a host (pure)."""

import re


def is_loopback_host(host: str) -> bool:
    """Return True if a host, which may be an IPv6 address in brackets, is this machine."""
    if host == "localhost":
        return True
    from ipaddress import ip_address  # noqa: PLC0415  few commands need it

    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def redact_url(url: str) -> str:
    """Return a URL without user, password and query. A plain path stays as it is.

    Everything before the last @ counts as the password: people forget to encode a slash or a question mark in it.
    """
    scheme, colon, rest = url.partition(":")
    if not colon or scheme == "file":
        return url
    slashes = "//" if rest.startswith("//") else ""
    place = re.split("[?#]", rest.removeprefix("//").rpartition("@")[2], maxsplit=1)[0]
    return f"{scheme}:{slashes}{place}"


def to_store_identity(url: str) -> str:
    """Return the URL of a store without user, password and settings, which may change while the store stays the same.

    A schema is no setting: it is a store of its own.
    """
    schema = re.search(r"[?&]schema=([^&#]*)", url)
    return redact_url(url) + (f"?schema={schema[1]}" if schema and "://" in url else "")

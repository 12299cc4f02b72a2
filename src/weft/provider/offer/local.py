"""Servers of models on one's own machine: where they are, and what they say they serve."""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from weft.errors import ProviderError
from weft.provider.offer.access import without_secret
from weft.provider.offer.catalogue import Fetch
from weft.provider.offer.packages import LOCAL

OLLAMA_PORT: Final = 11434


class _Named(Struct, frozen=True):
    id: str


class _Listing(Struct, frozen=True):
    data: tuple[_Named, ...] | None = None


_listing = msgspec.json.Decoder(_Listing)


def local_url(provider: str, env: Mapping[str, str]) -> str:
    """Where the server of this name listens, by its custom; empty if it is no such server."""
    host = env.get("OLLAMA_HOST", "").strip() if provider == "ollama" else ""
    return _ollama_url(host) if host else LOCAL.get(provider, "")


def _ollama_url(host: str) -> str:
    """Ollama's own variable: `host`, `host:port`, `:port` or a whole address."""
    if "://" in host:
        return f"{host.rstrip('/')}/v1"
    name, colon, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
    name, port = (name, port) if colon else (host, "")
    # Where a server listens on every address, we reach it on the nearest.
    name = "127.0.0.1" if name in ("", "0.0.0.0", "[::]") else name
    return f"http://{name}:{port or OLLAMA_PORT}/v1"


def list_served(url: str, fetch: Fetch) -> list[str]:
    """The models a compatible server says it has, in its own order."""
    where = f"{url.rstrip('/')}/models"
    raw = fetch(where)
    try:
        found = _listing.decode(raw).data
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProviderError(f"{without_secret(where)} did not answer with a list of models") from error
    return [each.id for each in found or ()]

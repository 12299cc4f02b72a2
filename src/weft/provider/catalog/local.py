"""Model servers on the user's own machine: where they listen, what they serve, and whether one is running."""

from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from weft.errors import ProviderError
from weft.provider.catalog.access import LOCAL, is_loopback, without_secret
from weft.provider.catalog.models import Fetch
from weft.provider.faults import fault

OLLAMA_PORT: Final = 11434
# Only ports that hardly anything else uses: 8080 and 8000 say nothing about the server behind them.
BY_PORT: Final = {OLLAMA_PORT: "ollama", 1234: "lmstudio"}
HINTS: Final = {
    "ollama": "is Ollama running? `ollama serve` starts it",
    "lmstudio": "is the server of LM Studio running?",
    "llamacpp": "is the server of llama.cpp running?",
    "vllm": "is vLLM running?",
}
ANY_SERVER: Final = "is the server running?"


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


def to_refusal(url: str, error: BaseException, provider: str = "") -> ProviderError | None:
    """Return the failure for a refused connection to this machine. Return None for any other address or error.

    It is not worth another try: a remote server may come back by itself, a local one has to be started.
    """
    if not is_loopback(url) or not any(isinstance(each, ConnectionRefusedError) for each in _causes(error)):
        return None
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    refusal = fault("network", f"nothing listens at {place}: the connection was refused")
    refusal.retryable = False
    known = provider if provider in HINTS else BY_PORT.get(parts.port or 0, "")
    refusal.hint = HINTS.get(known, ANY_SERVER)
    return refusal


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and everything that led to it. A host name with several addresses fails with a group of errors."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions

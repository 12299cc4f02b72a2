"""Model servers on the user's own machine: where they listen, which models they serve, and whether they run."""

from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from weft.errors import ProviderError
from weft.model.url import redact_url
from weft.provider.catalog.access import LOCAL_SERVERS, is_loopback
from weft.provider.catalog.models import INVALID_JSON, Fetch
from weft.provider.faults import make_error

OLLAMA_PORT: Final = 11434
# Only ports that are rarely used otherwise: 8080 and 8000 may be anything.
SERVER_BY_PORT: Final = {OLLAMA_PORT: "ollama", 1234: "lmstudio"}
HINTS: Final = {
    "ollama": "is Ollama running? `ollama serve` starts it",
    "lmstudio": "is the LM Studio server running?",
    "llamacpp": "is the llama.cpp server running?",
    "vllm": "is vLLM running?",
}
DEFAULT_HINT: Final = "is the server running?"


class _ListedModel(Struct, frozen=True):
    id: str


class _ModelList(Struct, frozen=True):
    data: tuple[_ListedModel, ...] | None = None


_model_list = msgspec.json.Decoder(_ModelList)


def get_local_url(provider: str, env: Mapping[str, str]) -> str:
    """Return where a local server listens by default, or "" if the provider is not one."""
    host = env.get("OLLAMA_HOST", "").strip() if provider == "ollama" else ""
    return _parse_ollama_host(host) if host else LOCAL_SERVERS.get(provider, "")


def _parse_ollama_host(host: str) -> str:
    """Parse Ollama's variable: `host`, `host:port`, `:port` or a whole address."""
    if "://" in host:
        return f"{host.rstrip('/')}/v1"
    name, colon, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
    name, port = (name, port) if colon else (host, "")
    # A server that listens on every address is reached at the loopback address.
    name = "127.0.0.1" if name in ("", "0.0.0.0", "[::]") else name
    return f"http://{name}:{port or OLLAMA_PORT}/v1"


def list_served_models(url: str, fetch: Fetch) -> list[str]:
    """Return the models that a compatible server lists, in its own order. Raise `ProviderError` if there is no list."""
    models_url = f"{url.rstrip('/')}/models"
    raw = fetch(models_url)
    try:
        models = _model_list.decode(raw).data
    except INVALID_JSON as error:
        raise ProviderError(f"{redact_url(models_url)} did not answer with a list of models") from error
    return [each.id for each in models or ()]


def find_refused_connection(url: str, error: BaseException, provider: str = "") -> ProviderError | None:
    """Return an error that says what to do if a connection to this machine was refused. Return None for other failures.

    It is not retryable: a remote server may come back by itself, but a local one must be started.
    """
    if not is_loopback(url) or not any(
        isinstance(cause, ConnectionRefusedError) for cause in _iterate_causes(error)
    ):
        return None
    parts = urlsplit(url)
    address = parts.netloc.rpartition("@")[2]
    refusal = make_error("network", f"nothing listens at {address}: the connection was refused")
    refusal.retryable = False
    server = provider if provider in HINTS else SERVER_BY_PORT.get(parts.port or 0, "")
    refusal.hint = HINTS.get(server, DEFAULT_HINT)
    return refusal


def _iterate_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and everything that led to it. A host name with several addresses fails with a group of errors."""
    seen: set[int] = set()
    queue = [error]
    while queue:
        current = queue.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        queue += [current.__cause__, current.__context__]
        if isinstance(current, BaseExceptionGroup):
            queue += current.exceptions

"""Import and create the adapter of a model when it is first used."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from importlib import import_module
from typing import Any, Final

from msgspec.structs import replace

from weft.errors import InvalidInputError
from weft.model.catalog import Model
from weft.provider.catalog.access import PACKAGES, Access, is_loopback
from weft.provider.catalog.models import Plain
from weft.provider.catalog.offers import LoadLogin, ProviderOffer
from weft.provider.chunk import AnyChunk
from weft.provider.contract import ModelRequest, Provider
from weft.provider.endpoint import ModelEndpoint, StreamDeadlines

CACHE_KEY: Final = "promptCacheKey"
LITELLM_PROXY: Final = "litellmProxy"
# Servers on this machine are not reached through a proxy, and may read a long prompt for minutes before they answer.
LOOPBACK_PATTERNS: Final = ("all://127.0.0.1", "all://localhost", "all://[::1]")
ONE_DAY: Final = 86_400.0
LOCAL_FIRST_BYTE: Final = 300.0

Connect = Callable[[Access], Provider]


class LazyProvider:
    """A model whose adapter is created for its first request. Missing settings are reported then, and not before."""

    def __init__(self, offer: ProviderOffer, model: Model, connect: Connect) -> None:
        self._offer = offer
        self._model = model
        self._connect = connect
        self._adapter: Provider | None = None
        self._loaded: Plain | None = None

    def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        if (load := self._offer.load) is not None:
            return self._stream_loaded(request, load)
        if self._adapter is None:
            self._adapter = self._connect(self._offer.access(self._model))
        return self._adapter.stream(self._add_options(request))

    async def _stream_loaded(self, request: ModelRequest, load: LoadLogin) -> AsyncGenerator[AnyChunk]:
        """Stream with the options that a login provides, which may change with every request."""
        loaded = await load()
        if self._adapter is None or loaded != self._loaded:
            self._adapter, self._loaded = self._connect(self._offer.access(self._model, loaded)), loaded
        async with aclosing(self._adapter.stream(self._add_options(request))) as chunks:
            async for chunk in chunks:
                yield chunk

    def _add_options(self, request: ModelRequest) -> ModelRequest:
        """Add the options that the provider's settings imply for every request. Options of the request win."""
        options = self._offer.options
        extra: dict[str, Any] = {CACHE_KEY: request.session} if options.get("setCacheKey") is True else {}
        if options.get(LITELLM_PROXY) is True:
            extra[LITELLM_PROXY] = True
        if not extra:
            return request
        parameters = request.parameters
        return replace(request, parameters=replace(parameters, options=extra | parameters.options))


class Adapters:
    """Creates adapters and shares one HTTP client among them. Nothing that needs HTTP is imported before the first one."""

    def __init__(self, deadlines: StreamDeadlines | None = None) -> None:
        self._deadlines = deadlines or StreamDeadlines()
        self._client: Any = None  # an httpx2.AsyncClient, once there is one
        self._closable: list[Any] = []  # adapters with connections of their own

    def connect(self, access: Access) -> Provider:
        """Create the adapter of a package. Raise `InvalidInputError` if there is none."""
        package = PACKAGES.get(access.npm)
        if package is None:
            raise InvalidInputError(
                f"provider.{access.provider_id}.npm",
                f"weft has no adapter for {access.npm!r}",
                hint=f'if its server is compatible with OpenAI\'s, write "npm": "@ai-sdk/openai-compatible"; available: {_list_packages()}',
            )
        module, name = package.adapter.split(":")
        endpoint = ModelEndpoint(
            base_url=access.url,
            api_key=access.key.secret if access.key is not None else "",
            key_from=access.key_from,
            headers=access.headers,
            provider_id=access.provider_id,
            deadlines=_apply_timeout(access.options.get("timeout"), self._get_deadlines(access.url)),
            options=access.options,
            aws=access.aws,
        )
        made: Provider = getattr(import_module(f"weft.provider.{module}"), name)(self._open(), endpoint)
        if hasattr(made, "aclose"):
            self._closable.append(made)
        return made

    def _get_deadlines(self, url: str) -> StreamDeadlines:
        options, usual = self._deadlines, StreamDeadlines()
        unsaid = options.first_byte == usual.first_byte
        return replace(options, first_byte=LOCAL_FIRST_BYTE) if unsaid and is_loopback(url) else options

    def _open(self) -> Any:
        if self._client is None:
            httpx2 = import_module("httpx2")
            self._client = httpx2.AsyncClient(timeout=None, mounts=dict.fromkeys(LOOPBACK_PATTERNS))
        return self._client

    async def aclose(self) -> None:
        while self._closable:
            await self._closable.pop().aclose()
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


def _apply_timeout(timeout: object, usual: StreamDeadlines) -> StreamDeadlines:
    """Apply the option `timeout`: ms to wait for the first byte and between two pieces, or false to wait for a day."""
    if timeout is False:
        return replace(usual, first_byte=ONE_DAY, between=ONE_DAY)
    if isinstance(timeout, int) and timeout is not True and timeout > 0:
        return replace(usual, first_byte=timeout / 1000, between=timeout / 1000)
    return usual


def _list_packages() -> str:
    return ", ".join(sorted(PACKAGES))

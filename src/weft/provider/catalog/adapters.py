"""Import and create the adapter of a model when it is first used."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from weft.errors import InvalidInputError
from weft.model.catalog import Model
from weft.provider.catalog.access import PACKAGES, Access, is_loopback
from weft.provider.catalog.models import Plain
from weft.provider.catalog.offers import LoadLogin, ProviderOffer
from weft.provider.chunk import AnyChunk
from weft.provider.contract import ModelRequest, Provider
from weft.provider.endpoint import LOCAL_DEADLINES, ModelEndpoint, StreamDeadlines

if TYPE_CHECKING:  # for types alone: starting up is faster without it
    from weft.provider.http_client import HttpClient

CACHE_KEY_OPTION: Final = "promptCacheKey"
LITELLM_OPTION: Final = "litellmProxy"
ONE_DAY_SECONDS: Final = 86_400.0

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
        if (load := self._offer.load_login) is not None:
            return self._stream_loaded(request, load)
        if self._adapter is None:
            self._adapter = self._connect(self._offer.get_access(self._model))
        return self._adapter.stream(self._add_options(request))

    async def _stream_loaded(self, request: ModelRequest, load: LoadLogin) -> AsyncGenerator[AnyChunk]:
        """Stream with the options that a login provides, which may change with every request."""
        loaded = await load()
        if self._adapter is None or loaded != self._loaded:
            self._adapter, self._loaded = self._connect(self._offer.get_access(self._model, loaded)), loaded
        async with aclosing(self._adapter.stream(self._add_options(request))) as chunks:
            async for chunk in chunks:
                yield chunk

    def _add_options(self, request: ModelRequest) -> ModelRequest:
        """Add the options that the provider's settings imply for every request. Options of the request win."""
        options = self._offer.options
        extra: dict[str, Any] = (
            {CACHE_KEY_OPTION: request.session} if options.get("setCacheKey") is True else {}
        )
        if options.get(LITELLM_OPTION) is True:
            extra[LITELLM_OPTION] = True
        if not extra:
            return request
        parameters = request.parameters
        return replace(request, parameters=replace(parameters, options=extra | parameters.options))


class Adapters:
    """Creates adapters, which share an HTTP client. The client is imported and made for the first of them.

    `local` are the deadlines for a server on this machine.
    """

    def __init__(
        self, deadlines: StreamDeadlines | None = None, local: StreamDeadlines = LOCAL_DEADLINES
    ) -> None:
        self._deadlines = deadlines or StreamDeadlines()
        self._local_deadlines = local
        self._client: HttpClient | None = None
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
            key_hint=access.key_hint,
            headers=access.headers,
            provider_id=access.provider_id,
            deadlines=_apply_timeout(access.options.get("timeout"), self._get_deadlines(access.url)),
            options=access.options,
            aws=access.aws,
        )
        adapter: Provider = getattr(import_module(f"weft.provider.{module}"), name)(
            self._get_client(), endpoint
        )
        if hasattr(adapter, "aclose"):
            self._closable.append(adapter)
        return adapter

    def _get_deadlines(self, url: str) -> StreamDeadlines:
        return self._local_deadlines if is_loopback(url) else self._deadlines

    def _get_client(self) -> HttpClient:
        if self._client is None:
            from weft.host.network import read_proxies  # noqa: PLC0415  a server starts faster without it
            from weft.provider.http_client import HttpClient  # noqa: PLC0415  as above

            self._client = HttpClient(read_proxies())
        return self._client

    async def aclose(self) -> None:
        while self._closable:
            await self._closable.pop().aclose()
        if self._client is not None:
            await self._client.aclose()


def _apply_timeout(timeout: object, deadlines: StreamDeadlines) -> StreamDeadlines:
    """Apply the option `timeout`: ms to wait for the first byte and between two pieces, or false to wait for a day."""
    if timeout is False:
        return replace(deadlines, first_byte=ONE_DAY_SECONDS, between=ONE_DAY_SECONDS)
    if isinstance(timeout, int) and timeout is not True and timeout > 0:
        return replace(deadlines, first_byte=timeout / 1000, between=timeout / 1000)
    return deadlines


def _list_packages() -> str:
    return ", ".join(sorted(PACKAGES))

"""Reach a model: import and create its adapter for the first request."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from importlib import import_module
from typing import Any, Final

from msgspec.structs import replace

from weft.errors import InvalidInputError
from weft.model.catalog import Model
from weft.provider.catalog.access import PACKAGES, Access, is_loopback
from weft.provider.catalog.models import Plain
from weft.provider.catalog.offers import Load, Offer
from weft.provider.chunk import AnyChunk
from weft.provider.contract import ModelRequest, Provider
from weft.provider.endpoint import Deadlines, Endpoint

CACHE_KEY: Final = "promptCacheKey"
PROXY: Final = "litellmProxy"
# What runs on this machine is not asked for by way of a proxy.
NEAR: Final = ("all://127.0.0.1", "all://localhost", "all://[::1]")
A_DAY: Final = 86_400.0
# … and reads a long prompt for minutes before it says a word.
FIRST_BYTE_NEAR: Final = 300.0

Connect = Callable[[Access], Provider]


class Reached:
    """A model as it is reached. What is missing for it is told when it is asked, and only then."""

    def __init__(self, offer: Offer, model: Model, connect: Connect) -> None:
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
        return self._adapter.stream(self._set_up(request))

    async def _stream_loaded(self, request: ModelRequest, load: Load) -> AsyncGenerator[AnyChunk]:
        """The same with what a login brings, which may be something else for every request."""
        loaded = await load()
        if self._adapter is None or loaded != self._loaded:
            self._adapter, self._loaded = self._connect(self._offer.access(self._model, loaded)), loaded
        async with aclosing(self._adapter.stream(self._set_up(request))) as chunks:
            async for chunk in chunks:
                yield chunk

    def _set_up(self, request: ModelRequest) -> ModelRequest:
        """With what the provider's own options say of every request; what is said of this one wins."""
        said = self._offer.options
        more: dict[str, Any] = {CACHE_KEY: request.session} if said.get("setCacheKey") is True else {}
        if said.get(PROXY) is True:
            more[PROXY] = True
        if not more:
            return request
        asked = request.parameters
        return replace(request, parameters=replace(asked, options=more | asked.options))


class Adapters:
    """Makes adapters. Nothing that speaks HTTP is imported before the first one."""

    def __init__(self, deadlines: Deadlines | None = None) -> None:
        self._deadlines = deadlines or Deadlines()
        self._client: Any = None  # an httpx2.AsyncClient, once there is one
        self._holding: list[Any] = []  # adapters with connections of their own

    def connect(self, access: Access) -> Provider:
        package = PACKAGES.get(access.npm)
        if package is None:
            raise InvalidInputError(
                f"provider.{access.provider_id}.npm",
                f"weft has no adapter for {access.npm!r}",
                hint=f'if its server speaks like OpenAI\'s, write "npm": "@ai-sdk/openai-compatible"; there are {_known()}',
            )
        module, name = package.adapter.split(":")
        endpoint = Endpoint(
            base_url=access.url,
            api_key=access.key.secret if access.key is not None else "",
            key_from=access.key_from,
            headers=access.headers,
            provider_id=access.provider_id,
            deadlines=_deadlines(access.options.get("timeout"), self._waits(access.url)),
            options=access.options,
            aws=access.aws,
        )
        made: Provider = getattr(import_module(f"weft.provider.{module}"), name)(self._open(), endpoint)
        if hasattr(made, "aclose"):
            self._holding.append(made)
        return made

    def _waits(self, url: str) -> Deadlines:
        said, usual = self._deadlines, Deadlines()
        unsaid = said.first_byte == usual.first_byte
        return replace(said, first_byte=FIRST_BYTE_NEAR) if unsaid and is_loopback(url) else said

    def _open(self) -> Any:
        if self._client is None:
            httpx2 = import_module("httpx2")
            self._client = httpx2.AsyncClient(timeout=None, mounts=dict.fromkeys(NEAR))
        return self._client

    async def aclose(self) -> None:
        while self._holding:
            await self._holding.pop().aclose()
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()


def _deadlines(timeout: object, usual: Deadlines) -> Deadlines:
    """The option `timeout`: milliseconds to wait for the answer to begin and to go on, or false to wait and wait."""
    if timeout is False:
        return replace(usual, first_byte=A_DAY, between=A_DAY)
    if isinstance(timeout, int) and timeout is not True and timeout > 0:
        return replace(usual, first_byte=timeout / 1000, between=timeout / 1000)
    return usual


def _known() -> str:
    return ", ".join(sorted(PACKAGES))

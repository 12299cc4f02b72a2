"""The long tail: providers we have no wire for, by way of pydantic-ai (`"npm": "pydantic-ai"`)."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any

import httpx2

from weft.errors import ProviderError
from weft.provider.chunk import AnyChunk
from weft.provider.contract import ModelRequest
from weft.provider.endpoint import Endpoint
from weft.provider.http import to_address
from weft.provider.pydantic_ai.request import Library, to_messages, to_parameters, to_settings
from weft.provider.pydantic_ai.stream import TailFold, to_failure


class LongTail:
    """Whatever pydantic-ai can speak to. The model is the option `model`, else `<provider>:<model>` by our own names.

    Its connections are its own: `aclose` closes them.
    """

    def __init__(self, _: httpx2.AsyncClient, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._ai = Library(endpoint.provider_id)
        self._models: dict[str, Any] = {}
        self._held = AsyncExitStack()

    async def aclose(self) -> None:
        await self._held.aclose()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        model, fold, waits = await self._get_model(request), TailFold(), self._endpoint.deadlines
        try:
            async with AsyncExitStack() as stack:
                # Whoever speaks underneath does not say when it has connected: both waits are one.
                async with asyncio.timeout(waits.connect + waits.first_byte):
                    answer = await stack.enter_async_context(self._open(model, request))
                events, wait = aiter(answer), waits.first_byte
                while (event := await _next(events, wait)) is not None:
                    wait = waits.between
                    for chunk in fold.feed(event):
                        yield chunk
                for chunk in fold.end(answer):
                    yield chunk
        # Whatever the package underneath raises: there are as many kinds as there are providers.
        except Exception as error:  # noqa: BLE001 - and it is raised again
            told = to_failure(error, self._ai, self._endpoint)
            if isinstance(told, ProviderError):
                told.url = to_address(self._endpoint.base_url or "")
            raise told from (error if told is not error else error.__cause__)

    def _open(self, model: Any, request: ModelRequest) -> Any:
        return self._ai.direct.model_request_stream(
            model,
            to_messages(request, self._ai),
            model_settings=to_settings(request),
            model_request_parameters=to_parameters(request, self._ai),
            instrument=False,
        )

    async def _get_model(self, request: ModelRequest) -> Any:
        name = _name(request, self._endpoint)
        if name not in self._models:
            self._models[name] = model = self._ai.get_model(name, self._endpoint)
            await self._held.enter_async_context(model)
        return self._models[name]


async def _next(events: Any, wait: float) -> Any:
    async with asyncio.timeout(wait):
        return await anext(events, None)


def _name(request: ModelRequest, endpoint: Endpoint) -> str:
    told = request.parameters.options.get("model") or endpoint.options.get("model")
    id = request.model.api.id
    return told if isinstance(told, str) else id if ":" in id else f"{endpoint.provider_id}:{id}"

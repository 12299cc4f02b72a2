"""Other providers, through the pydantic-ai library (`"npm": "pydantic-ai"`)."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any

from weft.errors import ProviderError
from weft.provider.chunk import AnyChunk
from weft.provider.contract import ModelRequest
from weft.provider.endpoint import ModelEndpoint
from weft.provider.http import strip_url
from weft.provider.http_client import HttpClient
from weft.provider.pydantic_ai.request import PydanticAiLibrary, to_messages, to_parameters, to_settings
from weft.provider.pydantic_ai.stream import PydanticAiFold, to_provider_error


class PydanticAiProvider:
    """Any provider that pydantic-ai supports. The model is the option `model`, or `<provider>:<model>` by our names.

    It has connections of its own; `aclose` closes them.
    """

    def __init__(self, _: HttpClient, endpoint: ModelEndpoint) -> None:
        self._endpoint = endpoint
        self._ai = PydanticAiLibrary(endpoint.provider_id)
        self._models: dict[str, Any] = {}
        self._stack = AsyncExitStack()

    async def aclose(self) -> None:
        await self._stack.aclose()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        model, fold, deadlines = await self._get_model(request), PydanticAiFold(), self._endpoint.deadlines
        try:
            async with AsyncExitStack() as stack:
                # The library does not report when it has connected, so both deadlines are added.
                async with asyncio.timeout(deadlines.connect + deadlines.first_byte):
                    answer = await stack.enter_async_context(self._open(model, request))
                events, wait = aiter(answer), deadlines.first_byte
                while (event := await _get_next(events, wait)) is not None:
                    wait = deadlines.between
                    for chunk in fold.feed(event):
                        yield chunk
                for chunk in fold.end(answer):
                    yield chunk
        # The libraries below raise many kinds of errors.
        except Exception as error:  # noqa: BLE001 - and it is raised again
            failure = to_provider_error(error, self._ai, self._endpoint)
            if isinstance(failure, ProviderError):
                failure.url = strip_url(self._endpoint.base_url or "")
            raise failure from (error if failure is not error else error.__cause__)

    def _open(self, model: Any, request: ModelRequest) -> Any:
        return self._ai.direct.model_request_stream(
            model,
            to_messages(request, self._ai),
            model_settings=to_settings(request),
            model_request_parameters=to_parameters(request, self._ai),
            instrument=False,
        )

    async def _get_model(self, request: ModelRequest) -> Any:
        name = _get_model_name(request, self._endpoint)
        if name not in self._models:
            self._models[name] = model = self._ai.get_model(name, self._endpoint)
            await self._stack.enter_async_context(model)
        return self._models[name]


async def _get_next(events: Any, wait: float) -> Any:
    async with asyncio.timeout(wait):
        return await anext(events, None)


def _get_model_name(request: ModelRequest, endpoint: ModelEndpoint) -> str:
    name = request.parameters.options.get("model") or endpoint.options.get("model")
    id = request.model.api.id
    return name if isinstance(name, str) else id if ":" in id else f"{endpoint.provider_id}:{id}"

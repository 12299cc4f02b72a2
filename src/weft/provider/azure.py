"""Azure's OpenAI service: OpenAI's APIs at an address of one's own, under deployments of one's own."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

import httpx2
from msgspec.structs import replace

from weft.provider.chunk import AnyChunk
from weft.provider.contract import ModelRequest, Provider
from weft.provider.endpoint import Endpoint
from weft.provider.openai_chat.adapter import OpenAIChat
from weft.provider.openai_responses.adapter import OpenAIResponses

# The last version under which an address names a deployment; the later ones are `v1`, and need not say so.
WITH_DEPLOYMENTS: Final = "2024-10-21"


class AzureOpenAI:
    """The key goes into `api-key`. With `useCompletionUrls` it is the older API, with `useDeploymentBasedUrls` the
    older addresses, too; `apiVersion` says which version."""

    def __init__(self, client: httpx2.AsyncClient, endpoint: Endpoint) -> None:
        self._client = client
        self._endpoint = endpoint
        self._made: dict[str, Provider] = {}

    def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        deployment, options = request.model.api.id, self._endpoint.options
        if deployment not in self._made:
            is_old = options.get("useCompletionUrls") or options.get("useDeploymentBasedUrls")
            adapter = OpenAIChat if is_old else OpenAIResponses
            self._made[deployment] = adapter(self._client, placed(self._endpoint, deployment))
        return self._made[deployment].stream(request)


def placed(endpoint: Endpoint, deployment: str) -> Endpoint:
    """Where a deployment is asked."""
    base = endpoint.base_url.rstrip("/").removesuffix("/v1")
    by_name = bool(endpoint.options.get("useDeploymentBasedUrls"))
    key = {"api-key": endpoint.api_key} if endpoint.api_key else {}
    return replace(
        endpoint,
        base_url=f"{base}/deployments/{quote(deployment, safe='')}" if by_name else f"{base}/v1",
        query=urlencode({"api-version": version} if (version := _version(endpoint.options)) else {}),
        headers={**key, **endpoint.headers},
        api_key="",
    )


def _version(options: Mapping[str, Any]) -> str:
    told = options.get("apiVersion")
    if isinstance(told, str) and told:
        return told
    return WITH_DEPLOYMENTS if options.get("useDeploymentBasedUrls") else ""

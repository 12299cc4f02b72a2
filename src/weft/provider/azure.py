"""Azure's OpenAI service: OpenAI's APIs at the customer's own address, with its own deployments."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from msgspec.structs import replace

from weft.provider.chunk import AnyChunk
from weft.provider.contract import ModelRequest, Provider
from weft.provider.endpoint import ModelEndpoint
from weft.provider.http_client import HttpClient
from weft.provider.openai_chat.adapter import OpenAIChat
from weft.provider.openai_responses.adapter import OpenAIResponses

# The last API version whose addresses contain the deployment. Later versions are `v1` and need no version parameter.
LAST_DEPLOYMENT_VERSION: Final = "2024-10-21"


class AzureOpenAI:
    """Provider for Azure. The key is sent as `api-key`.

    The option `useCompletionUrls` selects Chat Completions, `useDeploymentBasedUrls` selects it with the older
    addresses, and `apiVersion` selects the version.
    """

    def __init__(self, client: HttpClient, endpoint: ModelEndpoint) -> None:
        self._client = client
        self._endpoint = endpoint
        self._adapters: dict[str, Provider] = {}

    def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        deployment, options = request.model.api.id, self._endpoint.options
        if deployment not in self._adapters:
            uses_chat = options.get("useCompletionUrls") or options.get("useDeploymentBasedUrls")
            adapter = OpenAIChat if uses_chat else OpenAIResponses
            self._adapters[deployment] = adapter(
                self._client, make_deployment_endpoint(self._endpoint, deployment)
            )
        return self._adapters[deployment].stream(request)


def make_deployment_endpoint(endpoint: ModelEndpoint, deployment: str) -> ModelEndpoint:
    """Return the endpoint of one deployment, with the key as the header `api-key`."""
    base = endpoint.base_url.rstrip("/").removesuffix("/v1")
    has_deployment_url = bool(endpoint.options.get("useDeploymentBasedUrls"))
    key = {"api-key": endpoint.api_key} if endpoint.api_key else {}
    return replace(
        endpoint,
        base_url=f"{base}/deployments/{quote(deployment, safe='')}" if has_deployment_url else f"{base}/v1",
        query=urlencode({"api-version": version} if (version := _get_api_version(endpoint.options)) else {}),
        headers={**key, **endpoint.headers},
        api_key="",
    )


def _get_api_version(options: Mapping[str, Any]) -> str:
    version = options.get("apiVersion")
    if isinstance(version, str) and version:
        return version
    return LAST_DEPLOYMENT_VERSION if options.get("useDeploymentBasedUrls") else ""

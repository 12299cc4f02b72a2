"""The URL and headers of an Azure deployment."""

from typing import Any

import pytest

from fake.openai import OpenAIChatDialect
from fake.responses import ResponsesDialect
from given.model_requests import GPT_5, request
from weft.provider.azure import AzureOpenAI, make_deployment_endpoint
from weft.provider.endpoint import ModelEndpoint
from weft.provider.scripted import Say
from weft.testing.fake_model_api import Dialect, ReceivedRequest
from weft.testing.provider_harness import collect_answer, open_provider_harness

BASE = "https://mine.openai.azure.com/openai"


@pytest.mark.parametrize(
    ("base", "options", "url", "query"),
    [
        (BASE, {}, f"{BASE}/v1", ""),
        (f"{BASE}/v1/", {}, f"{BASE}/v1", ""),
        (BASE, {"apiVersion": "preview"}, f"{BASE}/v1", "api-version=preview"),
        (
            f"{BASE}/v1",
            {"useDeploymentBasedUrls": True},
            f"{BASE}/deployments/my%20gpt",
            "api-version=2024-10-21",
        ),
        (
            BASE,
            {"useDeploymentBasedUrls": True, "apiVersion": "2025-01-01-preview"},
            f"{BASE}/deployments/my%20gpt",
            "api-version=2025-01-01-preview",
        ),
    ],
)
def test_the_address_of_a_deployment_is_built(
    base: str, options: dict[str, Any], url: str, query: str
) -> None:
    found = make_deployment_endpoint(
        ModelEndpoint(base_url=base, api_key="k", headers={"X-A": "1"}, options=options), "my gpt"
    )
    assert (found.base_url, found.query, found.api_key) == (url, query, "")
    assert found.headers == {"api-key": "k", "X-A": "1"}


class OnAzure:
    """A dialect at Azure's URLs, which requires Azure's key."""

    def __init__(self, inner: Dialect, path: str) -> None:
        self._inner = inner
        self._path = path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def problem(self, asked: ReceivedRequest) -> str | None:
        if asked.path != self._path or "api-key" not in asked.headers or "authorization" in asked.headers:
            return f"not found: {asked.path}"
        usual = "/v1/" + asked.path.partition("?")[0].removeprefix("/v1/").removeprefix("/deployments/gpt-5/")
        headers = {**asked.headers, "authorization": "Bearer k"}
        return self._inner.problem(ReceivedRequest(path=usual, headers=headers, raw=asked.raw))


@pytest.mark.parametrize(
    ("dialect", "options", "path"),
    [
        (ResponsesDialect(), {}, "/v1/responses"),
        (ResponsesDialect(), {"apiVersion": "preview"}, "/v1/responses?api-version=preview"),
        (OpenAIChatDialect(), {"useCompletionUrls": True}, "/v1/chat/completions"),
        (
            OpenAIChatDialect(),
            {"useDeploymentBasedUrls": True},
            "/deployments/gpt-5/chat/completions?api-version=2024-10-21",
        ),
    ],
)
async def test_azure_is_asked_through_the_configured_api(
    dialect: Dialect, options: dict[str, Any], path: str
) -> None:
    def make(client: Any, endpoint: ModelEndpoint) -> AzureOpenAI:
        return AzureOpenAI(client, ModelEndpoint(base_url=endpoint.base_url, api_key="k", options=options))

    async with open_provider_harness(OnAzure(dialect, path), make, GPT_5) as harness:
        harness.play([Say(text="fine")])
        answer = await collect_answer(harness.provider, request(GPT_5))
    assert (answer.error, answer.text()) == (None, "fine")

"""The registry: models by name, the default, the small model, similar names, and adapters made on demand."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from weft.errors import InvalidInputError, ModelNotFoundError, NoModelError, ProviderAuthError
from weft.model.part import ModelRef
from weft.provider.catalog.access import Access
from weft.provider.catalog.credentials import StoredLogin
from weft.provider.catalog.models import Catalogue
from weft.provider.catalog.offers import OfferSources, ProviderOffers, make_scripted_model
from weft.provider.chunk import AnyChunk, Finished, Started, Usage
from weft.provider.contract import ModelRequest, Parameters
from weft.provider.registry import Registry, ServedModel

CHAT = "@ai-sdk/openai-compatible"
KNOWN: dict[str, Any] = {
    "copilot": {"env": ["GITHUB_TOKEN"], "npm": CHAT, "api": "https://c.test", "models": {"gpt-5": {}}},
    "anthropic": {
        "env": ["ANTHROPIC_API_KEY"],
        "npm": "@ai-sdk/anthropic",
        "models": {
            "claude-haiku-4-5": {},
            "claude-opus-4-1": {},
            "claude-sonnet-4-5": {},
            "claude-sonnet-4-0": {},
        },
    },
    "amazon-bedrock": {
        "env": ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_BEARER_TOKEN_BEDROCK"],
        "npm": "@ai-sdk/amazon-bedrock",
        "models": {"anthropic.claude-sonnet-4": {}},
    },
    "sap": {"env": ["SAP_KEY"], "npm": "@jerome-benoit/sap-ai-provider-v2", "models": {"gpt": {}}},
    "openai": {
        "env": ["OPENAI_API_KEY"],
        "npm": "@ai-sdk/openai",
        "models": {
            "gpt-4o": {},
            "gpt-5": {},
            "gpt-5-nano": {},
            "gpt-5-draws": {"modalities": {"input": ["text"], "output": ["image"]}},
            "gpt-5-zero": {"tool_call": False},
        },
    },
    "opencode": {
        "env": ["OPENCODE_API_KEY"],
        "npm": CHAT,
        "models": {"free": {"cost": {"input": 0, "output": 0}}},
    },
}


class Adapter:
    """An adapter that records its arguments and requests."""

    def __init__(self) -> None:
        self.made: list[Access] = []
        self.asked: list[ModelRequest] = []

    def connect(self, access: Access) -> "Adapter":
        self.made.append(access)
        return self

    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        self.asked.append(request)
        yield Started()
        yield Finished(reason="stop", usage=Usage())


def registry(
    configured: Mapping[str, Any] | None = None,
    *,
    env: Mapping[str, str] | None = None,
    logins: Mapping[str, StoredLogin] | None = None,
    adapter: Adapter | None = None,
    **more: Any,
) -> Registry:
    known = {id: Raw(msgspec.json.encode(entry)) for id, entry in KNOWN.items()}
    sources = OfferSources(
        catalogue=Catalogue(lambda: known),
        warn=pytest.fail,
        configured=configured or {},
        logins=logins or {},
        env=env or {},
    )
    return Registry(offers=ProviderOffers(sources), connect=adapter.connect if adapter else None, **more)


def ref(name: str) -> ModelRef:
    provider, _, model = name.partition("/")
    return ModelRef(provider_id=provider, model_id=model)


async def ask(models: Registry, name: str, **asked: Any) -> list[AnyChunk]:
    served = models.get(ref(name))
    request = ModelRequest(
        model=served.model, system=(), messages=(), session="ses_1", parameters=Parameters(**asked)
    )
    return [chunk async for chunk in served.provider.stream(request)]


# --- by name ---


def test_a_model_exists_by_name_with_or_without_a_key() -> None:
    assert registry().get(ref("anthropic/claude-sonnet-4-5")).model.id == "claude-sonnet-4-5"


def test_a_model_is_always_the_same_object() -> None:
    models = registry()
    assert models.get(ref("openai/gpt-5")) is models.get(ref("openai/gpt-5"))


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("anthropic/claude-sonet-4-5", "anthropic/claude-sonnet-4-5"),
        ("antropic/claude-opus-4-1", "anthropic/claude-opus-4-1"),
        ("openai/gpt5", "openai/gpt-5"),
    ],
)
def test_an_unknown_model_is_an_error_with_similar_names(name: str, near: str) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        registry().get(ref(name))
    assert near in caught.value.near


def test_served_models_have_precedence_over_offers() -> None:
    own = ServedModel(make_scripted_model("m"), Adapter())
    models = registry()
    assert Registry([own]).get(ref("scripted/m")) is own
    with pytest.raises(ModelNotFoundError):
        models.get(ref("scripted/m"))


# --- asking ---


async def test_an_adapter_is_created_for_the_first_request_and_reused() -> None:
    adapter = Adapter()
    models = registry(env={"OPENAI_API_KEY": "k"}, adapter=adapter)
    models.get(ref("openai/gpt-5"))
    assert adapter.made == []
    await ask(models, "openai/gpt-5")
    await ask(models, "openai/gpt-5")
    assert [(access.npm, access.url) for access in adapter.made] == [
        ("@ai-sdk/openai", "https://api.openai.com/v1")
    ]
    assert len(adapter.asked) == 2


async def test_a_request_without_a_key_raises_an_error_that_names_the_variable() -> None:
    with pytest.raises(ProviderAuthError, match="ANTHROPIC_API_KEY") as caught:
        await ask(registry(adapter=Adapter()), "anthropic/claude-opus-4-1")
    assert caught.value.provider_id == "anthropic"


async def test_a_package_without_an_adapter_is_reported_when_its_model_is_used() -> None:
    models = registry({"sap": {"options": {"baseURL": "https://b.test"}}}, env={"SAP_KEY": "k"})
    models.get(ref("sap/gpt"))
    with pytest.raises(InvalidInputError, match="@jerome-benoit/sap-ai-provider-v2"):
        await ask(models, "sap/gpt")


async def test_a_provider_may_get_the_session_as_a_cache_key() -> None:
    adapter = Adapter()
    said = {"npm": CHAT, "options": {"baseURL": "http://x.test", "setCacheKey": True, "litellmProxy": True}}
    models = registry({"mine": said | {"models": {"m": {}}}}, adapter=adapter)
    await ask(models, "mine/m", options={"a": 1})
    await ask(models, "mine/m", options={"promptCacheKey": "own"})
    assert [request.parameters.options for request in adapter.asked] == [
        {"promptCacheKey": "ses_1", "litellmProxy": True, "a": 1},
        {"promptCacheKey": "own", "litellmProxy": True},
    ]


async def test_an_unused_registry_can_be_closed() -> None:
    models = registry()
    await models.aclose()
    await models.aclose()


# --- choosing ---

ANTHROPIC, OPENAI = {"ANTHROPIC_API_KEY": "k"}, {"OPENAI_API_KEY": "k"}


def stored_logins(provider: str) -> dict[str, StoredLogin]:
    return {provider: StoredLogin(provider=provider, type="api", secret="k")}


def test_the_configured_default_model_is_returned_even_if_it_does_not_exist() -> None:
    assert registry(env=OPENAI, default=ref("loom/x")).get_default() == ref("loom/x")


@pytest.mark.parametrize(
    ("configured", "env", "logins", "name"),
    [
        ({}, ANTHROPIC, {}, "anthropic/claude-sonnet-4-5"),
        ({}, OPENAI, {}, "openai/gpt-5-nano"),
        ({}, ANTHROPIC | OPENAI, {}, "anthropic/claude-sonnet-4-5"),
        ({}, ANTHROPIC, stored_logins("openai"), "openai/gpt-5-nano"),
        ({"openai": {}}, ANTHROPIC, {}, "openai/gpt-5-nano"),
        ({}, OPENAI | {"GITHUB_TOKEN": "t"}, {}, "openai/gpt-5-nano"),
    ],
)
def test_without_a_configured_default_the_best_model_of_the_preferred_provider_is_used(
    configured: dict[str, Any], env: dict[str, str], logins: dict[str, StoredLogin], name: str
) -> None:
    assert registry(configured, env=env, logins=logins).get_default() == ref(name)


@pytest.mark.parametrize(
    ("configured", "env"),
    [({}, {}), ({}, {"GITHUB_TOKEN": "t"}), ({}, {"AWS_ACCESS_KEY_ID": "k"}), ({"mine": {}}, ANTHROPIC)],
)
def test_without_a_configured_provider_there_is_no_default_model(
    configured: dict[str, Any], env: dict[str, str]
) -> None:
    with pytest.raises(NoModelError):
        registry(configured, env=env).get_default()


def test_the_small_model_comes_from_the_configuration_or_the_provider() -> None:
    beside = ref("anthropic/claude-opus-4-1")
    assert registry(env=ANTHROPIC).find_small(beside) == ref("anthropic/claude-haiku-4-5")
    assert registry(env=OPENAI).find_small(ref("openai/gpt-5")) == ref("openai/gpt-5-nano")
    assert registry(env=ANTHROPIC, small=ref("openai/gpt-4o")).find_small(beside) == ref("openai/gpt-4o")
    assert registry().find_small(ref("copilot/gpt-5")) is None
    assert registry().find_small(ref("nobody/nothing")) is None


def test_available_models_are_listed() -> None:
    models = registry(env=ANTHROPIC)
    models.get(ref("openai/gpt-5"))
    assert [f"{model.provider_id}/{model.id}" for model in models.list_models()] == [
        "anthropic/claude-haiku-4-5",
        "anthropic/claude-opus-4-1",
        "anthropic/claude-sonnet-4-0",
        "anthropic/claude-sonnet-4-5",
        "opencode/free",
    ]

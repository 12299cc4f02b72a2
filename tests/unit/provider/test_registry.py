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


def named(name: str) -> ModelRef:
    provider, _, model = name.partition("/")
    return ModelRef(provider_id=provider, model_id=model)


async def ask(models: Registry, name: str, **asked: Any) -> list[AnyChunk]:
    served = models.get(named(name))
    request = ModelRequest(
        model=served.model, system=(), messages=(), session="ses_1", parameters=Parameters(**asked)
    )
    return [chunk async for chunk in served.provider.stream(request)]


# --- by name ---


def test_a_model_is_there_by_name_whether_or_not_there_is_a_key() -> None:
    assert registry().get(named("anthropic/claude-sonnet-4-5")).model.id == "claude-sonnet-4-5"


def test_a_model_is_the_same_object_every_time() -> None:
    models = registry()
    assert models.get(named("openai/gpt-5")) is models.get(named("openai/gpt-5"))


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
        registry().get(named(name))
    assert near in caught.value.near


def test_what_is_served_comes_before_what_is_on_offer() -> None:
    own = ServedModel(make_scripted_model("m"), Adapter())
    models = registry()
    assert Registry([own]).get(named("scripted/m")) is own
    with pytest.raises(ModelNotFoundError):
        models.get(named("scripted/m"))


# --- asking ---


async def test_an_adapter_is_made_for_the_first_request_and_kept() -> None:
    adapter = Adapter()
    models = registry(env={"OPENAI_API_KEY": "k"}, adapter=adapter)
    models.get(named("openai/gpt-5"))
    assert adapter.made == []
    await ask(models, "openai/gpt-5")
    await ask(models, "openai/gpt-5")
    assert [(access.npm, access.url) for access in adapter.made] == [
        ("@ai-sdk/openai", "https://api.openai.com/v1")
    ]
    assert len(adapter.asked) == 2


async def test_without_a_key_asking_says_which_variable_to_set() -> None:
    with pytest.raises(ProviderAuthError, match="ANTHROPIC_API_KEY") as caught:
        await ask(registry(adapter=Adapter()), "anthropic/claude-opus-4-1")
    assert caught.value.provider_id == "anthropic"


async def test_a_package_we_have_no_adapter_for_is_named_when_its_model_is_used() -> None:
    models = registry({"sap": {"options": {"baseURL": "https://b.test"}}}, env={"SAP_KEY": "k"})
    models.get(named("sap/gpt"))
    with pytest.raises(InvalidInputError, match="@jerome-benoit/sap-ai-provider-v2"):
        await ask(models, "sap/gpt")


async def test_a_provider_may_be_told_which_requests_belong_together() -> None:
    adapter = Adapter()
    said = {"npm": CHAT, "options": {"baseURL": "http://x.test", "setCacheKey": True, "litellmProxy": True}}
    models = registry({"mine": said | {"models": {"m": {}}}}, adapter=adapter)
    await ask(models, "mine/m", options={"a": 1})
    await ask(models, "mine/m", options={"promptCacheKey": "own"})
    assert [request.parameters.options for request in adapter.asked] == [
        {"promptCacheKey": "ses_1", "litellmProxy": True, "a": 1},
        {"promptCacheKey": "own", "litellmProxy": True},
    ]


async def test_closing_what_was_never_opened_is_fine() -> None:
    models = registry()
    await models.aclose()
    await models.aclose()


# --- choosing ---

ANTHROPIC, OPENAI = {"ANTHROPIC_API_KEY": "k"}, {"OPENAI_API_KEY": "k"}


def stored(provider: str) -> dict[str, StoredLogin]:
    return {provider: StoredLogin(provider=provider, type="api", secret="k")}


def test_the_named_model_is_the_default_even_if_it_is_not_there() -> None:
    assert registry(env=OPENAI, default=named("loom/x")).get_default() == named("loom/x")


@pytest.mark.parametrize(
    ("configured", "env", "logins", "name"),
    [
        ({}, ANTHROPIC, {}, "anthropic/claude-sonnet-4-5"),
        ({}, OPENAI, {}, "openai/gpt-5-nano"),
        ({}, ANTHROPIC | OPENAI, {}, "anthropic/claude-sonnet-4-5"),
        ({}, ANTHROPIC, stored("openai"), "openai/gpt-5-nano"),
        ({"openai": {}}, ANTHROPIC, {}, "openai/gpt-5-nano"),
        ({}, OPENAI | {"GITHUB_TOKEN": "t"}, {}, "openai/gpt-5-nano"),
    ],
)
def test_else_it_is_the_best_of_the_provider_that_is_meant(
    configured: dict[str, Any], env: dict[str, str], logins: dict[str, StoredLogin], name: str
) -> None:
    assert registry(configured, env=env, logins=logins).get_default() == named(name)


@pytest.mark.parametrize(
    ("configured", "env"),
    [({}, {}), ({}, {"GITHUB_TOKEN": "t"}), ({}, {"AWS_ACCESS_KEY_ID": "k"}), ({"mine": {}}, ANTHROPIC)],
)
def test_nothing_is_sent_where_nobody_pointed(configured: dict[str, Any], env: dict[str, str]) -> None:
    with pytest.raises(NoModelError):
        registry(configured, env=env).get_default()


def test_the_small_model_is_the_named_one_else_the_providers() -> None:
    beside = named("anthropic/claude-opus-4-1")
    assert registry(env=ANTHROPIC).find_small(beside) == named("anthropic/claude-haiku-4-5")
    assert registry(env=OPENAI).find_small(named("openai/gpt-5")) == named("openai/gpt-5-nano")
    assert registry(env=ANTHROPIC, small=named("openai/gpt-4o")).find_small(beside) == named("openai/gpt-4o")
    assert registry().find_small(named("copilot/gpt-5")) is None
    assert registry().find_small(named("nobody/nothing")) is None


def test_the_list_holds_those_that_can_be_used() -> None:
    models = registry(env=ANTHROPIC)
    models.get(named("openai/gpt-5"))
    assert [f"{model.provider_id}/{model.id}" for model in models.list_models()] == [
        "anthropic/claude-haiku-4-5",
        "anthropic/claude-opus-4-1",
        "anthropic/claude-sonnet-4-0",
        "anthropic/claude-sonnet-4-5",
        "opencode/free",
    ]

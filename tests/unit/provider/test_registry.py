"""The registry: models by name, the default, the small model, similar names, adapters made on demand; and the order after failures."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from weft.errors import (
    FaultKind,
    InvalidInputError,
    ModelNotFoundError,
    NoModelError,
    ProviderAuthError,
    ProviderError,
)
from weft.model.part import ModelRef
from weft.provider.catalog.access import Access
from weft.provider.catalog.credentials import StoredLogin
from weft.provider.catalog.models import Catalogue
from weft.provider.catalog.offers import OfferSources, ProviderOffers, make_scripted_model
from weft.provider.chunk import AnyChunk, Finished, Started, Usage
from weft.provider.contract import ModelRequest, Parameters
from weft.provider.registry import (
    COOL_DOWN_MS,
    LONG_COOL_DOWN_MS,
    MAX_COOL_DOWN_MS,
    ModelHealth,
    Registry,
    ServedModel,
    compute_cool_down,
)

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


def test_a_mistyped_provider_is_corrected_before_another_one_that_can_be_used_is_proposed() -> None:
    copies = {
        "npm": CHAT,
        "options": {"baseURL": "http://127.0.0.1:1"},
        "models": {"claude-opus-4-1": {}},
    }
    with pytest.raises(ModelNotFoundError) as caught:
        registry({"copies": copies}).get(ref("antropic/claude-opus-4-1"))
    assert caught.value.near[0] == "anthropic/claude-opus-4-1"


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


# --- models that failed recently ---

NOW = 1_790_000_000_000
A, B, C = (ModelRef(provider_id="mill", model_id=name) for name in "abc")


def fault(kind: FaultKind = "overload", *, wait_ms: int | None = None) -> ProviderError:
    error = ProviderError("no")
    error.kind, error.wait_ms = kind, wait_ms
    return error


def test_a_chain_keeps_its_order_while_all_models_are_healthy() -> None:
    assert ModelHealth().order((A, B, C), NOW) == (A, B, C)


def test_a_failed_model_is_asked_last_until_its_cooldown_ends() -> None:
    health = ModelHealth()
    health.fail(A, fault(), NOW)

    assert health.order((A, B, C), NOW + COOL_DOWN_MS - 1) == (B, C, A)
    assert health.order((A, B, C), NOW + COOL_DOWN_MS) == (A, B, C)


def test_if_all_models_cool_down_the_first_to_recover_is_asked_first() -> None:
    health = ModelHealth()
    health.fail(A, fault("auth"), NOW)
    health.fail(B, fault(), NOW)

    assert health.order((A, B), NOW) == (B, A)


def test_a_success_clears_earlier_failures() -> None:
    health = ModelHealth()
    health.fail(A, fault(), NOW)
    health.succeed(A)
    health.fail(A, fault(), NOW)

    assert health.order((A, B), NOW + COOL_DOWN_MS) == (A, B)


def test_each_further_failure_doubles_the_cooldown() -> None:
    assert [compute_cool_down(fault(), times) for times in (1, 2, 3)] == [
        COOL_DOWN_MS,
        2 * COOL_DOWN_MS,
        4 * COOL_DOWN_MS,
    ]


def test_a_failure_that_needs_a_person_has_a_longer_cooldown() -> None:
    assert compute_cool_down(fault("auth"), 1) == compute_cool_down(fault("quota"), 1) == LONG_COOL_DOWN_MS


def test_the_wait_that_a_provider_requests_is_respected_however_long() -> None:
    assert compute_cool_down(fault("rate-limit", wait_ms=5 * MAX_COOL_DOWN_MS), 1) == 5 * MAX_COOL_DOWN_MS
    assert compute_cool_down(fault("rate-limit", wait_ms=1), 1) == COOL_DOWN_MS


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans(), st.integers(0, 10**8)), max_size=40))
def test_an_order_contains_every_model_once_and_the_healthy_ones_first(
    outcomes: list[tuple[str, bool, int]],
) -> None:
    chain = [ModelRef(provider_id="mill", model_id=name) for name in "abcda"]
    health, now, until = ModelHealth(), NOW, dict.fromkeys("abcd", 0)
    for name, works, passed in outcomes:
        now += passed
        model = ModelRef(provider_id="mill", model_id=name)
        if works:
            health.succeed(model)
            until[name] = 0
        else:
            health.fail(model, fault(), now)
            until[name] = now + COOL_DOWN_MS

    order = [model.model_id for model in health.order(chain, now)]
    assert sorted(order) == ["a", "b", "c", "d"]
    well = [name for name in "abcd" if until[name] == 0]
    assert [name for name in order if name in well] == well
    assert order[: len(well)] == well or any(until[name] <= now for name in order[: len(well)])


@given(st.integers(1, 10_000), st.none() | st.integers(0, 10**10))
def test_a_cooldown_ends_and_never_becomes_shorter(failures: int, wait_ms: int | None) -> None:
    wait = compute_cool_down(fault(wait_ms=wait_ms), failures)

    assert COOL_DOWN_MS <= wait <= max(MAX_COOL_DOWN_MS, wait_ms or 0)
    assert compute_cool_down(fault(wait_ms=wait_ms), failures + 1) >= wait

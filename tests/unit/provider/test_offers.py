"""Offers: the catalogue with the configuration applied, which providers have a key, and how each is reached."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from weft.config.schema import ProviderConfig
from weft.errors import ConfigError, InvalidInputError, ModelNotFoundError, ProviderAuthError
from weft.model.catalog import (
    CachePrice,
    Capabilities,
    Cost,
    Interleaved,
    Limit,
    Modalities,
    Model,
    ModelApi,
    Price,
)
from weft.model.part import ModelRef
from weft.provider.catalog.adapters import Adapters
from weft.provider.catalog.credentials import ProviderKey, StoredLogin
from weft.provider.catalog.models import Catalogue
from weft.provider.catalog.offers import OfferSources, ProviderOffer, ProviderOffers, to_plain_entries
from weft.provider.registry import Registry

ONE = {
    "name": "One",
    "release_date": "2025-01-01",
    "attachment": True,
    "reasoning": True,
    "temperature": True,
    "tool_call": True,
    "interleaved": {"field": "reasoning_content"},
    "cost": {
        "input": 1.25,
        "output": 10,
        "cache_read": 0.125,
        "context_over_200k": {"input": 2.5, "output": 15, "cache_write": 3},
    },
    "limit": {"context": 400_000, "input": 272_000, "output": 128_000},
    "modalities": {"input": ["text", "image"], "output": ["text"]},
}
LOOM = {
    "name": "Loom",
    "env": ["LOOM_API_KEY"],
    "npm": "@ai-sdk/openai-compatible",
    "api": "https://loom.test/v1",
    "models": {
        "one": ONE,
        "old": {**ONE, "status": "deprecated"},
        "raw": {**ONE, "status": "alpha"},
        "new": {**ONE, "status": "beta"},
    },
}
OTHERS = {
    "anthropic": {"env": ["ANTHROPIC_API_KEY"], "npm": "@ai-sdk/anthropic", "models": {"claude": {}}},
    "azure": {"env": ["AZURE_RESOURCE_NAME", "AZURE_API_KEY"], "npm": "@ai-sdk/azure", "models": {"gpt": {}}},
    "github-copilot": {
        "env": ["GITHUB_TOKEN"],
        "npm": "@ai-sdk/openai-compatible",
        "api": "https://copilot.test",
        "models": {"gpt-5": {}},
    },
    "sap": {"env": ["SAP_KEY"], "npm": "@jerome-benoit/sap-ai-provider-v2", "models": {"gpt": {}}},
    "opencode": {
        "env": ["OPENCODE_API_KEY"],
        "npm": "@ai-sdk/openai-compatible",
        "api": "https://zen.test/v1",
        "models": {
            "free": {"cost": {"input": 0, "output": 0}},
            "paid": {"cost": {"input": 1, "output": 2}},
            "unpriced": {},
        },
    },
    "zen": {
        "env": ["ZEN_API_KEY"],
        "npm": "@ai-sdk/openai-compatible",
        "api": "https://zen.test/v1",
        "models": {"claude": {"provider": {"npm": "@ai-sdk/anthropic", "api": "https://zen.test/claude/v1"}}},
    },
}


def make_offers(
    configured: Mapping[str, Any] | None = None, *, env: Mapping[str, str] | None = None, **more: Any
) -> ProviderOffers:
    known = {id: Raw(msgspec.json.encode(entry)) for id, entry in {"loom": LOOM, **OTHERS}.items()}
    read = {id: msgspec.convert(entry, ProviderConfig) for id, entry in (configured or {}).items()}
    return ProviderOffers(
        OfferSources(
            catalogue=Catalogue(lambda: known),
            configured=to_plain_entries(read),
            env=env or {},
            **{"warn": pytest.fail, **more},
        )
    )


def offer(id: str, said: Mapping[str, Any] | None = None, **more: Any) -> ProviderOffer:
    found = make_offers({id: said} if said is not None else {}, **more).find(id)
    assert found is not None
    return found


def model(id: str, said: Mapping[str, Any] | None = None, **more: Any) -> Model:
    """Return a model of the provider `loom` with this configuration."""
    found = offer("loom", said, **more).find(id)
    assert found is not None
    return found


# --- models ---


def test_a_model_of_the_catalogue_is_offered() -> None:
    assert model("one") == Model(
        id="one",
        provider_id="loom",
        name="One",
        api=ModelApi(id="one", url="https://loom.test/v1", npm="@ai-sdk/openai-compatible"),
        capabilities=Capabilities(
            temperature=True,
            reasoning=True,
            attachment=True,
            toolcall=True,
            input=Modalities(image=True),
            output=Modalities(),
            interleaved=Interleaved(field="reasoning_content"),
        ),
        cost=Cost(
            input=Decimal("1.25"),
            output=Decimal(10),
            cache=CachePrice(read=Decimal("0.125"), write=Decimal("1.25")),
            experimental_over200_k=Price(
                input=Decimal("2.5"),
                output=Decimal(15),
                cache=CachePrice(read=Decimal("2.5"), write=Decimal(3)),
            ),
        ),
        limit=Limit(context=400_000, input=272_000, output=128_000),
        release_date="2025-01-01",
        variants={effort: {"reasoningEffort": effort} for effort in ("low", "medium", "high")},
    )


def test_configured_fields_override_the_catalogue_and_others_stay() -> None:
    said = {
        "limit": {"context": 100, "output": 50},
        "cost": {"input": 2, "output": 3},
        "reasoning": False,
        "options": {"seed": 7},
        "headers": {"x-a": "b"},
    }
    found = model("one", {"models": {"one": said}})
    assert found.limit == Limit(context=100, input=272_000, output=50)
    assert found.cost == Cost(
        input=Decimal(2),
        output=Decimal(3),
        cache=CachePrice(read=Decimal("0.125"), write=Decimal(2)),
        experimental_over200_k=Price(
            input=Decimal("2.5"), output=Decimal(15), cache=CachePrice(read=Decimal("2.5"), write=Decimal(3))
        ),
    )
    assert (found.options, found.headers, found.name) == ({"seed": 7}, {"x-a": "b"}, "One")
    assert (found.capabilities.reasoning, found.capabilities.temperature, found.variants) == (
        False,
        True,
        None,
    )


def test_an_unknown_model_has_the_configured_fields() -> None:
    said = {"npm": "@ai-sdk/anthropic", "api": "https://mine.test", "models": {"m": {"name": "Mine"}}}
    found = offer("mine", said).find("m")
    assert found == Model(
        id="m",
        provider_id="mine",
        name="Mine",
        api=ModelApi(id="m", url="https://mine.test", npm="@ai-sdk/anthropic"),
        limit=Limit(context=0, output=0),
    )


def test_a_missing_price_is_unknown() -> None:
    assert model("m", {"models": {"m": {}}}).cost is None


def test_an_alias_of_a_model_inherits_its_fields() -> None:
    found = model("fast", {"models": {"fast": {"id": "one", "options": {"a": 1}}}})
    assert (found.id, found.api.id, found.name, found.limit.input) == ("fast", "one", "fast", 272_000)


def test_configured_variants_extend_those_of_the_model() -> None:
    said = {"low": {"disabled": True}, "mine": {"reasoningEffort": "high"}}
    found = model("one", {"models": {"one": {"variants": said}}})
    assert list(found.variants or {}) == ["medium", "high", "mine"]


def test_a_model_may_use_another_adapter_than_its_provider() -> None:
    found = offer("zen").find("claude")
    assert found is not None
    assert found.api == ModelApi(id="claude", url="https://zen.test/claude/v1", npm="@ai-sdk/anthropic")


def test_configuration_of_the_provider_beats_the_catalogue_entry_of_the_model() -> None:
    found = offer("zen", {"npm": "@ai-sdk/openai-compatible"}).find("claude")
    assert found is not None
    assert found.api.npm == "@ai-sdk/openai-compatible"


# --- available providers ---


def ids(offer: ProviderOffer) -> list[str]:
    return [model.id for model in offer.list_models()]


def test_deprecated_and_alpha_models_are_dropped() -> None:
    assert ids(offer("loom")) == ["new", "one"]
    assert ids(offer("loom", experimental=True)) == ["new", "one", "raw"]
    assert offer("loom").find("old") is None


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ({"whitelist": ["one"]}, ["one"]),
        ({"blacklist": ["one"]}, ["new"]),
        ({"whitelist": ["one", "new"], "blacklist": ["new"]}, ["one"]),
        ({"models": {"own": {}}}, ["new", "one", "own"]),
        ({"models": {"old": {"status": "active"}}}, ["new", "old", "one"]),
    ],
)
def test_the_configuration_filters_the_models(said: dict[str, Any], left: list[str]) -> None:
    assert ids(offer("loom", said)) == left


def test_an_invalid_model_is_dropped_with_a_warning() -> None:
    heard: list[ConfigError] = []
    known = {"loom": Raw(b'{"models": {"bad": {"limit": {"context": "much"}}, "good": {}}}')}
    found = ProviderOffers(OfferSources(catalogue=Catalogue(lambda: known), warn=heard.append)).find("loom")
    assert found is not None
    assert ids(found) == ["good"]
    assert [error.key for error in heard] == ["loom/bad"]


def available(made: ProviderOffers) -> list[str]:
    return [offer.id for offer in made.list_available()]


def test_a_provider_is_available_if_it_has_a_key_or_is_configured() -> None:
    stored = {"anthropic": StoredLogin(provider="anthropic", type="api", secret="sk")}
    browser = {"anthropic": StoredLogin(provider="anthropic", type="oauth")}
    assert available(make_offers()) == ["opencode"]
    assert available(make_offers(env={"LOOM_API_KEY": "k"})) == ["loom", "opencode"]
    assert available(make_offers(env={"LOOM_API_KEY": " "})) == ["opencode"]
    assert available(make_offers(logins=stored)) == ["anthropic", "opencode"]
    assert available(make_offers(logins=browser)) == ["opencode"]
    assert available(make_offers({"zen": {}})) == ["zen", "opencode"]
    assert available(make_offers({"mine": {"models": {"m": {}}}})) == ["mine", "opencode"]


def test_a_provider_with_an_address_but_no_key_is_not_available() -> None:
    assert available(make_offers(env={"AZURE_RESOURCE_NAME": "us"})) == ["opencode"]
    assert available(make_offers(env={"AZURE_RESOURCE_NAME": "us", "AZURE_API_KEY": "k"})) == [
        "azure",
        "opencode",
    ]


def test_a_provider_without_an_adapter_is_not_available() -> None:
    assert available(make_offers(env={"SAP_KEY": "k"})) == ["opencode"]


def test_enabled_and_disabled_providers_are_respected() -> None:
    env = {"LOOM_API_KEY": "k", "ZEN_API_KEY": "k"}
    assert available(
        make_offers(env=env, enabled=frozenset({"loom", "zen"}), disabled=frozenset({"zen"}))
    ) == ["loom"]
    assert make_offers(disabled=frozenset({"loom"})).find("loom") is None


def test_the_error_for_a_model_of_a_disabled_provider_says_why_it_is_missing() -> None:
    def hint_of_missing(**more: Any) -> str:
        with pytest.raises(ModelNotFoundError) as caught:
            Registry(offers=make_offers(**more)).get(ModelRef(provider_id="loom", model_id="one"))
        return caught.value.hint

    assert "loom is listed in disabled_providers." in hint_of_missing(disabled=frozenset({"loom"}))
    assert "loom is not listed in enabled_providers." in hint_of_missing(enabled=frozenset({"zen"}))


def test_without_a_key_only_free_models_of_opencode_are_listed() -> None:
    assert ids(offer("opencode")) == ["free"]
    assert ids(offer("opencode", env={"OPENCODE_API_KEY": "k"})) == ["free", "paid", "unpriced"]


# --- how it is reached ---


def test_a_configured_key_beats_a_stored_one_and_that_beats_the_environment() -> None:
    env = {"LOOM_API_KEY": "from-env"}
    stored = {"loom": StoredLogin(provider="loom", type="api", secret="from-file")}
    said = {"options": {"apiKey": "from-config"}}
    assert offer("loom", said, env=env, logins=stored).key == ProviderKey(
        secret="from-config", source="config"
    )
    assert offer("loom", env=env, logins=stored).key == ProviderKey(secret="from-file", source="stored")
    assert offer("loom", env=env).key == ProviderKey(
        secret="from-env", source="environment", variable="LOOM_API_KEY"
    )
    assert offer("loom").key is None


def test_access_contains_address_key_headers_and_other_options() -> None:
    said = {
        "options": {
            "apiKey": "sk-secret-1234",
            "baseURL": "https://proxy.test/v1/",
            "headers": {"x-team": "secret-team"},
            "timeout": 5000,
        },
        "models": {"m": {}},
    }
    found = offer("mine", said)
    made = found.find("m")
    assert made is not None
    access = found.get_access(made)
    assert (access.provider_id, access.npm, access.url) == (
        "mine",
        "@ai-sdk/openai-compatible",
        "https://proxy.test/v1",
    )
    assert access.key == ProviderKey(secret="sk-secret-1234", source="config")
    assert (access.headers, access.options) == ({"x-team": "secret-team"}, {"timeout": 5000})
    assert "secret" not in repr(access)


def reach(id: str, model: str, said: Mapping[str, Any] | None = None, **more: Any) -> str:
    found = offer(id, said, **more)
    made = found.find(model)
    assert made is not None
    return found.get_access(made).url


def test_the_address_comes_from_the_configuration_the_model_or_the_package() -> None:
    env = {"LOOM_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "AZURE_API_KEY": "k", "AZURE_RESOURCE_NAME": "mine"}
    assert reach("loom", "one", {"options": {"baseURL": "http://x.test"}}, env=env) == "http://x.test"
    assert reach("loom", "one", env=env) == "https://loom.test/v1"
    assert reach("anthropic", "claude", env=env) == "https://api.anthropic.com/v1"
    assert reach("azure", "gpt", env=env) == "https://mine.openai.azure.com/openai"
    named = {"options": {"resourceName": "other"}}
    assert reach("azure", "gpt", named, env=env) == "https://other.openai.azure.com/openai"


def test_the_error_for_a_missing_key_names_the_variable_to_set() -> None:
    with pytest.raises(ProviderAuthError, match=r"set LOOM_API_KEY, or run: weft auth login loom"):
        reach("loom", "one")
    with pytest.raises(ProviderAuthError, match="OPENCODE_API_KEY"):
        reach("opencode", "paid")
    with pytest.raises(ProviderAuthError, match=r"'oauth'.*set LOOM_API_KEY"):
        reach("loom", "one", logins={"loom": StoredLogin(provider="loom", type="oauth")})
    with pytest.raises(ProviderAuthError, match="AZURE_RESOURCE_NAME"):
        reach("azure", "gpt", env={"AZURE_API_KEY": "k"})


def test_an_empty_configured_key_is_reported_with_its_position() -> None:
    said = {"options": {"baseURL": "https://mine.test/v1", "apiKey": ""}, "models": {"m": {}}}
    missing = r"set provider\.mine\.options\.apiKey \(it is empty\), or run: weft auth login mine"

    with pytest.raises(ProviderAuthError, match=missing):
        reach("mine", "m", said)
    near = {"options": {"baseURL": "http://127.0.0.1:1/v1", "apiKey": ""}, "models": {"m": {}}}
    assert reach("mine", "m", near) == "http://127.0.0.1:1/v1"


@pytest.mark.parametrize(
    ("said", "env", "logins", "words"),
    [
        ({"options": {"apiKey": "k"}}, {}, {}, "provider.loom.options in the configuration"),
        ({}, {"LOOM_API_KEY": "k"}, {}, "the key comes from the environment variable LOOM_API_KEY"),
        ({}, {}, {"loom": StoredLogin(provider="loom", type="api", secret="k")}, "weft auth login loom"),
        ({"options": {"baseURL": "http://127.0.0.1:1/v1"}}, {}, {}, "no key was sent"),
    ],
)
def test_the_source_of_a_key_is_reported(
    said: dict[str, Any], env: dict[str, str], logins: dict[str, StoredLogin], words: str
) -> None:
    found = offer("loom", said, env=env, logins=logins)
    one = found.find("one")

    assert one is not None
    assert words in found.get_access(one).key_hint


def test_a_package_without_an_adapter_is_reported_before_missing_keys() -> None:
    found = offer("mine", {"npm": "unheard-of", "models": {"m": {}}})
    one = found.find("m")

    assert one is not None
    with pytest.raises(InvalidInputError, match=r"provider\.mine\.npm: weft has no adapter for 'unheard-of'"):
        Adapters().connect(found.get_access(one))


@pytest.mark.parametrize(
    "options",
    [
        {"baseURL": "http://127.0.0.1:1234/v1"},
        {"baseURL": "http://localhost:1234/v1"},
        {"baseURL": "http://[::1]:1234/v1"},
        {"headers": {"Authorization": "Bearer x"}},
        {"headers": {"X-Api-Key": "x"}},
    ],
)
def test_a_local_server_or_one_with_its_own_header_needs_no_key(options: dict[str, Any]) -> None:
    assert reach("loom", "one", {"options": options})


@pytest.mark.parametrize("url", ["", "ftp://x.test", "not an address", "http://"])
def test_an_invalid_address_is_refused_when_it_is_used(url: str) -> None:
    with pytest.raises(InvalidInputError, match=r"provider\.mine\.options\.baseURL"):
        reach("mine", "m", {"options": {"baseURL": url}, "models": {"m": {}}})


def test_a_resource_name_in_an_address_must_be_a_plain_name() -> None:
    with pytest.raises(InvalidInputError, match=r"options\.resourceName"):
        reach("azure", "gpt", {"options": {"resourceName": "evil.test/"}}, env={"AZURE_API_KEY": "k"})


def test_copilot_uses_the_login_of_opencode_and_a_company_server() -> None:
    login = StoredLogin(
        provider="github-copilot", type="oauth", secret="gho", url="https://copilot-api.corp.test"
    )
    found = offer("github-copilot", logins={"github-copilot": login})
    model = found.find("gpt-5")
    assert model is not None
    access = found.get_access(model)
    assert (access.npm, access.url) == ("@ai-sdk/github-copilot", "https://copilot-api.corp.test")
    assert access.key == ProviderKey(secret="gho", source="stored")
    assert reach("github-copilot", "gpt-5", env={"GITHUB_TOKEN": "t"}) == "https://copilot.test"


# --- servers of one's own ---


def test_ollama_is_available_by_name_and_accepts_any_model() -> None:
    found = offer("ollama").find("llama3:8b")
    assert found is not None
    assert found.api == ModelApi(
        id="llama3:8b", url="http://127.0.0.1:11434/v1", npm="@ai-sdk/openai-compatible"
    )
    assert found.cost == Cost(input=Decimal(0), output=Decimal(0))
    assert reach("ollama", "llama3:8b") == "http://127.0.0.1:11434/v1"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0:9999", "http://127.0.0.1:9999/v1"),
        (":9999", "http://127.0.0.1:9999/v1"),
        ("gpu.local", "http://gpu.local:11434/v1"),
        ("[::1]:9999", "http://[::1]:9999/v1"),
        ("[::]", "http://127.0.0.1:11434/v1"),
        ("https://gpu.test/", "https://gpu.test/v1"),
    ],
)
def test_the_variable_of_ollama_sets_its_address(host: str, url: str) -> None:
    assert reach("ollama", "m", env={"OLLAMA_HOST": host}) == url


def test_with_configured_models_no_other_model_exists() -> None:
    found = offer("ollama", {"models": {"llama3": {}}})
    assert found.find("llama3") is not None
    assert found.find("other") is None


def test_an_unconfigured_provider_is_not_listed() -> None:
    assert "ollama" not in available(make_offers())
    assert "ollama" in available(make_offers({"ollama": {}}))

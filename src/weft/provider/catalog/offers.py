"""Offers: every provider with its models, and what is needed to reach it."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from decimal import Decimal
from functools import cached_property
from typing import Any, Final

import msgspec
from msgspec import Struct

from weft.errors import ConfigError, find_similar
from weft.model.catalog import CachePrice, Cost, Limit, Model, ModelApi
from weft.model.wire import to_plain
from weft.provider.catalog.access import (
    COMPATIBLE,
    CONSUMED_OPTIONS,
    LOCAL_SERVERS,
    PACKAGES,
    SPECIAL_URLS,
    Access,
    add_region,
    check_url,
    fill_variables,
    find_cloud_key,
    find_signer,
    get_npm_override,
    is_loopback,
    list_key_names,
    make_missing_key_error,
    needs_address,
    needs_key,
    resolve_variables,
)
from weft.provider.catalog.choice import list_variants, merge_variants
from weft.provider.catalog.credentials import ProviderKey, StoredLogin
from weft.provider.catalog.local import get_local_url
from weft.provider.catalog.models import Catalogue, CatalogueEntry, Plain, Warn, merge_deep, to_model

# A provider that serves some models to everyone, with this key.
OPENCODE: Final = "opencode"
PUBLIC_KEY: Final = ProviderKey(secret="public", source="public")
FREE_COST_ENTRY: Final[Plain] = {"input": Decimal(0), "output": Decimal(0)}
TITLE_HEADER_PROVIDERS: Final = ("openrouter", "vercel", "zenmux")


# Returns the options that a login currently provides.
LoadLogin = Callable[[], Awaitable[Plain]]


class OfferSources(Struct, frozen=True, kw_only=True):
    """The inputs from which offers are made. `configured` are the plain entries under `provider`, by id.

    `enabled` lists the allowed providers; None allows all. `experimental` includes alpha models. `find_loader` returns a
    function that loads a provider's login, if a plugin has one.
    """

    catalogue: Catalogue
    warn: Warn
    configured: Mapping[str, Plain] = {}
    logins: Mapping[str, StoredLogin] = {}
    env: Mapping[str, str] = {}
    enabled: frozenset[str] | None = None
    disabled: frozenset[str] = frozenset()
    experimental: bool = False
    find_loader: Callable[[str], LoadLogin | None] = lambda _: None


class ProviderOffer:
    """One provider: its models, and what is needed to reach it."""

    def __init__(self, id: str, entry: CatalogueEntry, settings: Plain | None, sources: OfferSources) -> None:
        self.id = id
        self.configured = settings is not None
        self._entry = entry
        self._settings = settings or {}
        self._sources = sources
        self.options: Plain = self._settings.get("options") or {}
        self.name: str = self._settings.get("name") or entry.name or id
        self.npm: str = self._settings.get("npm") or get_npm_override(id) or entry.npm or COMPATIBLE
        login = sources.logins.get(id)
        own = (login.url if login is not None else "") or SPECIAL_URLS.get(id, "")
        self.url: str = self._settings.get("api") or own or entry.api or get_local_url(id, sources.env)
        self.variables: tuple[str, ...] = tuple(self._settings.get("env") or entry.env)
        self._models: Mapping[str, Plain] = self._settings.get("models") or {}

    @property
    def base_url(self) -> str:
        """Return the server's address as far as it is known without a model. Variables in it are not filled in."""
        package = PACKAGES.get(self.npm)
        return self.options.get("baseURL") or self.url or (package.url if package is not None else "")

    @cached_property
    def key(self) -> ProviderKey | None:
        """Return the key: the configured one, else the stored one, else the environment's."""
        configured = self.options.get("apiKey")
        if isinstance(configured, str) and configured:
            return ProviderKey(secret=configured, source="config")
        login = self._sources.logins.get(self.id)
        if login is not None and login.secret:
            return ProviderKey(secret=login.secret, source="stored")
        found = find_cloud_key(
            self.npm, self.variables, self.options, self._sources.env, files=self.configured
        )
        return found or (PUBLIC_KEY if self.id == OPENCODE else None)

    @property
    def key_names(self) -> list[str]:
        """Return the names of what may hold the key: variables, or the configured option if it is empty."""
        # An unset variable in `{env:NAME}` leaves the option empty.
        is_empty = not self.options.get("apiKey", "-")
        option = [f"provider.{self.id}.options.apiKey (it is empty)"] if is_empty else []
        return list_key_names(self.npm, self.variables) or option

    @property
    def login_type(self) -> str:
        """Return the type of the stored credential, or "" if there is none."""
        login = self._sources.logins.get(self.id)
        return login.type if login is not None else ""

    @property
    def has_adapter(self) -> bool:
        """Return True if weft has an adapter for its npm package."""
        return self.npm in PACKAGES

    @property
    def available(self) -> bool:
        return self.has_adapter and (self.configured or self.key is not None or self.load_login is not None)

    @property
    def load_login(self) -> LoadLogin | None:
        """Return a function that loads the options of the stored login; None without a login or a plugin for it."""
        return self._sources.find_loader(self.id) if self.login_type else None

    @property
    def accepts_any_model(self) -> bool:
        """Return True if only its server knows its models: any name may be one."""
        is_local = get_local_url(self.id, self._sources.env) and not self._models
        return bool(is_local or not (self._models or self._entry.models))

    # --- models ---

    def list_ids(self) -> list[str]:
        return sorted({*self._entry.models, *self._models})

    def list_models(self, *, everything: bool = False) -> list[Model]:
        """Return the models that can be used now. With `everything`, include those that need a key we do not have."""
        models = (self.find(id) for id in self.list_ids())
        return [
            model for model in models if model is not None and (everything or not self._needs_own_key(model))
        ]

    def find(self, id: str) -> Model | None:
        """Return a model by its id, or None."""
        settings = self._models.get(id)
        description = self._entry.find((settings or {}).get("id") or id)
        if not self._is_admitted(id) or (
            settings is None and description is None and not self.accepts_any_model
        ):
            return None
        plain = self._describe(id, description or {}, settings or {})
        try:
            model = to_model(self.id, id, plain, provider_api=ModelApi(id=id, url=self.url, npm=self.npm))
        except msgspec.ValidationError as error:
            self._sources.warn(
                ConfigError("models", f"{error}; this model is ignored", key=f"{self.id}/{id}")
            )
            return None
        if model.status == "deprecated" or (model.status == "alpha" and not self._sources.experimental):
            return None
        variants = merge_variants(list_variants(model), (settings or {}).get("variants") or {})
        return msgspec.structs.replace(model, variants=variants or None)

    def _describe(self, id: str, description: Plain, settings: Plain) -> Plain:
        if self._settings.get("npm") or self._settings.get("api"):
            description = {key: value for key, value in description.items() if key != "provider"}
        is_renamed = settings.get("id", id) != id and "name" not in settings
        plain = (
            merge_deep(description, settings)
            | {"id": settings.get("id") or id}
            | ({"name": id} if is_renamed else {})
        )
        if "cost" not in plain and get_local_url(self.id, self._sources.env) and is_loopback(self.base_url):
            plain["cost"] = FREE_COST_ENTRY
        return plain

    def _is_admitted(self, id: str) -> bool:
        """Return True if the configured whitelist and blacklist admit the model."""
        whitelist, blacklist = self._settings.get("whitelist"), self._settings.get("blacklist") or ()
        return id not in blacklist and (not whitelist or id in whitelist)

    def _needs_own_key(self, model: Model) -> bool:
        return self.key is PUBLIC_KEY and (model.cost is None or model.cost.input > 0)

    # --- access ---

    def get_access(self, model: Model, loaded: Plain | None = None) -> Access:
        """Return how to reach a model. Raise `ProviderAuthError` that says what to set if there is no key.

        Options from a login (`loaded`) override a key in the environment; the configuration overrides both.
        """
        package = PACKAGES.get(model.api.npm)
        options, key = merge_deep(loaded or {}, self.options), self._choose_key(loaded or {})
        configured_url = options.get("endpoint") or options.get("baseURL")
        address = configured_url or model.api.url or (package.url if package is not None else "")
        variables = resolve_variables(model.api.npm, options, self._sources.env)
        url = fill_variables(address, variables, self.id)
        if package is not None and needs_address(model.api.npm):
            check_url(url, self.id)
        headers = {**self._get_headers(), **(options.get("headers") or {})}
        if (key is None and needs_key(url, self.key_names, headers)) or self._needs_own_key(model):
            raise make_missing_key_error(self.id, self.key_names, login_type=self.login_type)
        rest = {name: value for name, value in options.items() if name not in CONSUMED_OPTIONS}
        return Access(
            provider_id=self.id,
            npm=model.api.npm,
            url=url,
            key=key,
            headers=headers,
            options=add_region(model.api.npm, rest, variables),
            aws=find_signer(model.api.npm, self.id, options, variables) if key is not None else None,
        )

    def _choose_key(self, loaded: Plain) -> ProviderKey | None:
        loaded_key = loaded.get("apiKey")
        if not loaded_key or (self.key is not None and self.key.source == "config"):
            return self.key
        return ProviderKey(secret=loaded_key, source="stored")

    def _get_headers(self) -> dict[str, str]:
        return {"X-Title": "weft"} if self.id in TITLE_HEADER_PROVIDERS else {}


class ProviderOffers:
    """All providers, except those that are disabled."""

    def __init__(self, sources: OfferSources) -> None:
        self._sources = sources
        self._offers: dict[str, ProviderOffer | None] = {}

    @property
    def configured(self) -> tuple[str, ...]:
        return tuple(self._sources.configured)

    def find(self, provider: str) -> ProviderOffer | None:
        if provider not in self._offers:
            self._offers[provider] = self._make_offer(provider)
        return self._offers[provider]

    def explain_disabled(self, provider: str) -> str:
        """Return a sentence that names the setting which disables a provider, or "" if none does."""
        if provider in self._sources.disabled:
            return f"{provider} is listed in disabled_providers."
        if self._sources.enabled is not None and provider not in self._sources.enabled:
            return f"{provider} is not listed in enabled_providers."
        return ""

    def list_all(self) -> list[ProviderOffer]:
        """Return the configured providers, then those of the catalogue."""
        ids = dict.fromkeys((*self._sources.configured, *self._sources.catalogue.list_providers()))
        return [offer for id in ids if (offer := self.find(id)) is not None]

    def find_similar(self, provider: str) -> list[str]:
        """Return the ids that are most similar to this one."""
        return find_similar(provider, [*(offer.id for offer in self.list_all()), *LOCAL_SERVERS])

    def list_available(self) -> list[ProviderOffer]:
        """Return the providers that can be used now: they have a key or are configured."""
        return [offer for offer in self.list_all() if offer.available]

    def _make_offer(self, id: str) -> ProviderOffer | None:
        sources = self._sources
        if id in sources.disabled or (sources.enabled is not None and id not in sources.enabled):
            return None
        entry, settings = sources.catalogue.find(id), sources.configured.get(id)
        if entry is None and settings is None and not get_local_url(id, sources.env):
            return None
        return ProviderOffer(id, entry or CatalogueEntry(), settings, sources)


def to_plain_entries(providers: Mapping[str, Any] | None) -> dict[str, Plain]:
    """Return the entries under `provider` as plain values."""
    return {id: to_plain(entry) for id, entry in (providers or {}).items()}


def list_model_names(offers: Iterable[ProviderOffer]) -> list[str]:
    return [f"{offer.id}/{id}" for offer in offers for id in offer.list_ids()]


SCRIPTED_PROVIDER: Final = "scripted"
DEMO: Final = "demo"
FREE: Final = Cost(input=Decimal(0), output=Decimal(0), cache=CachePrice(read=Decimal(0), write=Decimal(0)))
SCRIPT_PRICE: Final = Cost(
    input=Decimal(3), output=Decimal(15), cache=CachePrice(read=Decimal("0.3"), write=Decimal("3.75"))
)


def make_scripted_model(id: str) -> Model:
    """Return a model that plays a script. The demo is free; other scripts have a price, so that costs can be tested."""
    return Model(
        id=id,
        provider_id=SCRIPTED_PROVIDER,
        name=f"Scripted ({id})",
        api=ModelApi(id=id),
        cost=FREE if id == DEMO else SCRIPT_PRICE,
        limit=Limit(context=200_000, output=8_000),
    )

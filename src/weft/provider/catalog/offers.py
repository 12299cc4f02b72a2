"""Offers: every provider with what it serves and what is needed to reach it."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from decimal import Decimal
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Final

import msgspec
from msgspec import Struct

from weft.errors import ConfigError
from weft.model.catalog import CachePrice, Cost, Limit, Model, ModelApi
from weft.model.wire import to_plain
from weft.provider.catalog.access import (
    COMPATIBLE,
    LOCAL,
    PACKAGES,
    SPENT,
    URLS,
    Access,
    check_url,
    fill_in,
    find_cloud_key,
    find_signer,
    has_address,
    is_loopback,
    key_names,
    missing_key,
    needs_key,
    own_npm,
    settings,
    with_region,
)
from weft.provider.catalog.choice import variants, with_configured
from weft.provider.catalog.credentials import Key, Login
from weft.provider.catalog.local import local_url
from weft.provider.catalog.models import Catalogue, Plain, Shelf, Warn, merge, to_model

# A provider that serves some models to whoever asks; it wants this for a key then.
OPENCODE: Final = "opencode"
PUBLIC: Final = Key(secret="public", source="public")
FREE: Final[Plain] = {"input": Decimal(0), "output": Decimal(0)}
TITLED: Final = ("openrouter", "vercel", "zenmux")


# The options that a login brings, as they are now.
Load = Callable[[], Awaitable[Plain]]


def _no_load(_: str) -> Load | None:
    return None


class Sources(Struct, frozen=True, kw_only=True):
    """What offers are made of. `configured` are the entries under `provider`, in plain words, by id.

    `enabled` is the list of those allowed, None if all are; `experimental` keeps models in their first trials. `load`
    says how a provider's login is made use of, if somebody has declared that.
    """

    catalogue: Catalogue
    warn: Warn
    configured: Mapping[str, Plain] = {}
    logins: Mapping[str, Login] = {}
    env: Mapping[str, str] = {}
    enabled: frozenset[str] | None = None
    disabled: frozenset[str] = frozenset()
    experimental: bool = False
    load: Callable[[str], Load | None] = _no_load


class Offer:
    """A provider: what it serves, and what is needed to reach it."""

    def __init__(self, id: str, shelf: Shelf, said: Plain | None, sources: Sources) -> None:
        self.id = id
        self.configured = said is not None
        self._shelf = shelf
        self._said = said or {}
        self._sources = sources
        self.options: Plain = self._said.get("options") or {}
        self.name: str = self._said.get("name") or shelf.name or id
        self.npm: str = self._said.get("npm") or own_npm(id) or shelf.npm or COMPATIBLE
        login = sources.logins.get(id)
        own = (login.url if login is not None else "") or URLS.get(id, "")
        self.url: str = self._said.get("api") or own or shelf.api or local_url(id, sources.env)
        self.variables: tuple[str, ...] = tuple(self._said.get("env") or shelf.env)
        self._models: Mapping[str, Plain] = self._said.get("models") or {}

    @property
    def base_url(self) -> str:
        """Where its server is, as far as can be said without a model. Variables in it are not filled in."""
        package = PACKAGES.get(self.npm)
        return self.options.get("baseURL") or self.url or (package.url if package is not None else "")

    @cached_property
    def key(self) -> Key | None:
        """The key it is asked with: the configured one, else the stored one, else the environment's."""
        given = self.options.get("apiKey")
        if isinstance(given, str) and given:
            return Key(secret=given, source="config")
        login = self._sources.logins.get(self.id)
        if login is not None and login.secret:
            return Key(secret=login.secret, source="stored")
        found = find_cloud_key(
            self.npm, self.variables, self.options, self._sources.env, files=self.configured
        )
        return found or (PUBLIC if self.id == OPENCODE else None)

    @property
    def key_names(self) -> list[str]:
        """What would hold its key, any of which will do: variables, or an option that is there and empty."""
        # A `{env:NAME}` of the configuration whose variable is not set leaves nothing behind.
        empty = not self.options.get("apiKey", "-")
        option = [f"provider.{self.id}.options.apiKey (it is empty)"] if empty else []
        return key_names(self.npm, self.variables) or option

    @property
    def stored(self) -> str:
        """The kind of credential that is stored for it; empty if none is."""
        login = self._sources.logins.get(self.id)
        return login.type if login is not None else ""

    @property
    def known(self) -> bool:
        """Whether we speak what it speaks."""
        return self.npm in PACKAGES

    @property
    def available(self) -> bool:
        return self.known and (self.configured or self.key is not None or self.load is not None)

    @property
    def load(self) -> Load | None:
        """How to get the options that its stored login brings; None if there is none, or nothing to make of it."""
        return self._sources.load(self.id) if self.stored else None

    @property
    def open(self) -> bool:
        """Whether only its server knows its models: any name may be one."""
        local = local_url(self.id, self._sources.env) and not self._models
        return bool(local or not (self._models or self._shelf.models))

    # --- models ---

    def list_ids(self) -> list[str]:
        return sorted({*self._shelf.models, *self._models})

    def list_models(self, *, everything: bool = False) -> list[Model]:
        """Those it can be asked for as things are; with `everything`, those that want a key we do not have, too."""
        found = (self.find(id) for id in self.list_ids())
        return [
            model for model in found if model is not None and (everything or not self._costs_a_key(model))
        ]

    def find(self, id: str) -> Model | None:
        said = self._models.get(id)
        known = self._shelf.find((said or {}).get("id") or id)
        if not self._served(id) or (said is None and known is None and not self.open):
            return None
        plain = self._described(id, known or {}, said or {})
        try:
            model = to_model(self.id, id, plain, reached=ModelApi(id=id, url=self.url, npm=self.npm))
        except msgspec.ValidationError as error:
            self._sources.warn(
                ConfigError("models", f"{error}; the model is left out", key=f"{self.id}/{id}")
            )
            return None
        if model.status == "deprecated" or (model.status == "alpha" and not self._sources.experimental):
            return None
        offered = with_configured(variants(model), (said or {}).get("variants") or {})
        return msgspec.structs.replace(model, variants=offered or None)

    def _described(self, id: str, known: Plain, said: Plain) -> Plain:
        if self._said.get("npm") or self._said.get("api"):
            known = {key: value for key, value in known.items() if key != "provider"}
        renamed = said.get("id", id) != id and "name" not in said
        plain = merge(known, said) | {"id": said.get("id") or id} | ({"name": id} if renamed else {})
        if "cost" not in plain and local_url(self.id, self._sources.env) and is_loopback(self.base_url):
            plain["cost"] = FREE
        return plain

    def _served(self, id: str) -> bool:
        """Whether the lists of the configuration let this model through."""
        allowed, refused = self._said.get("whitelist"), self._said.get("blacklist") or ()
        return id not in refused and (not allowed or id in allowed)

    def _costs_a_key(self, model: Model) -> bool:
        return self.key is PUBLIC and (model.cost is None or model.cost.input > 0)

    # --- reaching it ---

    def access(self, model: Model, loaded: Plain | None = None) -> Access:
        """How to reach a model. Raises `ProviderAuthError` for want of a key, and says what to set.

        What a login brought (`loaded`) counts for less than what is configured, and for more than a key in the environment.
        """
        package = PACKAGES.get(model.api.npm)
        options, key = merge(loaded or {}, self.options), self._key_with(loaded or {})
        said = options.get("endpoint") or options.get("baseURL")
        address = said or model.api.url or (package.url if package is not None else "")
        known = settings(model.api.npm, options, self._sources.env)
        url = fill_in(address, known, self.id)
        if package is not None and has_address(model.api.npm):
            check_url(url, self.id)
        headers = {**self._own_headers(), **(options.get("headers") or {})}
        if (key is None and needs_key(url, self.key_names, headers)) or self._costs_a_key(model):
            raise missing_key(self.id, self.key_names, stored=self.stored)
        rest = {name: value for name, value in options.items() if name not in SPENT}
        return Access(
            provider_id=self.id,
            npm=model.api.npm,
            url=url,
            key=key,
            headers=headers,
            options=with_region(model.api.npm, rest, known),
            aws=find_signer(model.api.npm, self.id, options, known) if key is not None else None,
        )

    def _key_with(self, loaded: Plain) -> Key | None:
        brought = loaded.get("apiKey")
        if not brought or (self.key is not None and self.key.source == "config"):
            return self.key
        return Key(secret=brought, source="stored")

    def _own_headers(self) -> dict[str, str]:
        return {"X-Title": "weft"} if self.id in TITLED else {}


class Offers:
    """The providers there are. One that is switched off is not there."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._made: dict[str, Offer | None] = {}

    @property
    def configured(self) -> tuple[str, ...]:
        return tuple(self._sources.configured)

    def find(self, provider: str) -> Offer | None:
        if provider not in self._made:
            self._made[provider] = self._make(provider)
        return self._made[provider]

    def why_off(self, provider: str) -> str:
        """What says that a provider is not there, if it was switched off; empty if it was not."""
        if provider in self._sources.disabled:
            return f"disabled_providers switches {provider} off."
        if self._sources.enabled is not None and provider not in self._sources.enabled:
            return f"enabled_providers leaves {provider} out."
        return ""

    def list_all(self) -> list[Offer]:
        """In the order of who is meant: the configured ones, then the catalogue's."""
        ids = dict.fromkeys((*self._sources.configured, *self._sources.catalogue.list_providers()))
        return [offer for id in ids if (offer := self.find(id)) is not None]

    def near(self, provider: str) -> list[str]:
        """The ids most like this one."""
        return get_close_matches(provider, [*(offer.id for offer in self.list_all()), *LOCAL], n=3)

    def list_available(self) -> list[Offer]:
        """Those that can be used as things are: there is a key, or a word in the configuration."""
        return [offer for offer in self.list_all() if offer.available]

    def _make(self, id: str) -> Offer | None:
        sources = self._sources
        if id in sources.disabled or (sources.enabled is not None and id not in sources.enabled):
            return None
        shelf, said = sources.catalogue.find(id), sources.configured.get(id)
        if shelf is None and said is None and not local_url(id, sources.env):
            return None
        return Offer(id, shelf or Shelf(), said, sources)


def to_configured(providers: Mapping[str, Any] | None) -> dict[str, Plain]:
    """The entries under `provider` in plain words, whatever values they were read into."""
    return {id: to_plain(entry) for id, entry in (providers or {}).items()}


def names_of(offers: Iterable[Offer]) -> list[str]:
    return [f"{offer.id}/{id}" for offer in offers for id in offer.list_ids()]


PROVIDER: Final = "scripted"
DEMO: Final = "demo"
NO_PRICE: Final = Cost(
    input=Decimal(0), output=Decimal(0), cache=CachePrice(read=Decimal(0), write=Decimal(0))
)
PRICE: Final = Cost(
    input=Decimal(3), output=Decimal(15), cache=CachePrice(read=Decimal("0.3"), write=Decimal("3.75"))
)


def scripted_model(id: str) -> Model:
    """A model that follows a script. The demo is free, as it is played; others have a price to count with."""
    return Model(
        id=id,
        provider_id=PROVIDER,
        name=f"Scripted ({id})",
        api=ModelApi(id=id),
        cost=NO_PRICE if id == DEMO else PRICE,
        limit=Limit(context=200_000, output=8_000),
    )

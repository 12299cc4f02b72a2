"""Show and change configuration for front ends: settings without secrets, providers, models, credentials."""

import asyncio
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from decimal import Decimal
from typing import Any, Final, Literal

from msgspec.structs import fields, replace

from weft.config.edit import (
    PRIVATE_MODE,
    check_change,
    choose_project_file,
    choose_user_file,
    write_change,
    write_text,
)
from weft.config.load import LoadedConfig, load_config
from weft.config.schema import get_default_keybinds
from weft.config.secrets import REDACTED, list_secret_values, redact_settings
from weft.config.sources import ConfigScope
from weft.errors import InvalidInputError, NoModelError, NotFoundError, NotPermittedError, UnsupportedError
from weft.local.workspace_sources import WorkspaceSources
from weft.model.catalog import Cost, Model
from weft.model.provider import (
    AnyAuth,
    ApiAuth,
    AuthMethod,
    ListedModel,
    LoginInstructions,
    ProviderInfo,
    ProviderList,
)
from weft.model.wire import to_plain
from weft.provider.catalog import choice
from weft.provider.catalog.credentials import remove_login, store_login
from weft.provider.catalog.offers import SCRIPTED_PROVIDER, ProviderOffer, ProviderOffers
from weft.provider.registry import Registry, is_meant_to_be_used
from weft.trust.decision import ProjectTrust

Source = Literal["env", "config", "custom", "api"]

# --- providers and models ---

SOURCES: Final[dict[str, Source]] = {
    "environment": "env",
    "config": "config",
    "stored": "api",
    "public": "custom",
}
UNKNOWN_PRICE: Final = Cost(input=Decimal(0), output=Decimal(0))
_FIELDS: Final = tuple(field.name for field in fields(Model))


def list_providers(models: Registry, offers: ProviderOffers | None, secrets: Collection[str]) -> ProviderList:
    """List every provider. Connected providers list the models that can be used, the others all their models."""
    offered = [] if offers is None else offers.list_all()
    # A service that needs no key counts as connected only if the person configured it.
    available = {offer.id for offer in offered if offer.available and is_meant_to_be_used(offer)}
    served = list(_list_served(models))
    infos = [*served, *(to_provider_info(offer, secrets) for offer in offered)]
    added = {info.id for info in served}
    connected = [info.id for info in infos if info.models and info.id in available | added]
    preferred = _find_default(models)
    default = {
        info.id: preferred[1] if preferred is not None and preferred[0] == info.id else best
        for info in infos
        if (best := _find_best_model(info)) is not None
    }
    return ProviderList(all=tuple(infos), default=default, connected=tuple(dict.fromkeys(connected)))


def to_provider_info(offer: ProviderOffer, secrets: Collection[str]) -> ProviderInfo:
    source = SOURCES[offer.key.source] if offer.key is not None else "config" if offer.configured else "env"
    models = offer.list_models(everything=not offer.available)
    return ProviderInfo(
        id=offer.id,
        name=offer.name,
        source=source,
        env=offer.variables,
        options=_redact_options(offer.options, secrets),
        models={model.id: to_listed_model(model, secrets) for model in models},
    )


def to_listed_model(model: Model, secrets: Collection[str] = ()) -> ListedModel:
    values = {name: getattr(model, name) for name in _FIELDS}
    values["family"] = model.family or ""
    values["cost"] = model.cost or UNKNOWN_PRICE
    values["options"] = _redact_options(model.options, secrets)
    values["headers"] = dict.fromkeys(model.headers, REDACTED)
    return ListedModel(**values, priced=model.cost is not None)


def _redact_options(options: dict[str, Any], secrets: Collection[str]) -> dict[str, Any]:
    # OpenCode returns the keys in clear text.
    redacted: dict[str, Any] = redact_settings(options, secrets=secrets)
    return redacted


def _list_served(models: Registry) -> Iterable[ProviderInfo]:
    """List the providers that the program added. The scripted demo provider is listed only if it is the default."""
    preferred = _find_default(models)
    by_provider: dict[str, dict[str, ListedModel]] = {}
    for each in models.list_served():
        if each.provider_id != SCRIPTED_PROVIDER or (
            preferred is not None and preferred[0] == SCRIPTED_PROVIDER
        ):
            by_provider.setdefault(each.provider_id, {})[each.id] = to_listed_model(each)
    for id, found in by_provider.items():
        yield ProviderInfo(id=id, name=id, source="custom", env=(), models=found)


def _find_default(models: Registry) -> tuple[str, str] | None:
    try:
        found = models.get_default()
    except NoModelError:
        return None
    return found.provider_id, found.model_id


def _find_best_model(info: ProviderInfo) -> str | None:
    found = choice.choose_best_model(info.models.values()) or next(iter(info.models.values()), None)
    return found.id if found is not None else None


def list_known_providers(offers: ProviderOffers | None) -> list[str]:
    """Return the ids of the providers that weft can talk to. Each takes an API key."""
    return [] if offers is None else [offer.id for offer in offers.list_all() if offer.has_adapter]


# --- settings and credentials ---

MAX_KEY_LENGTH: Final = 16_384
PROVIDER_ID: Final = re.compile(r"[A-Za-z0-9][\w.:/@+-]{0,199}")
# Keys that OpenCode always returns; its clients rely on them.
REQUIRED_KEYS: Final[dict[str, Any]] = {"agent": {}, "mode": {}, "command": {}, "plugin": []}


class LocalConfiguration:
    """The `Configuration` of a directory. A change takes effect when the directory is opened again."""

    def __init__(self, sources: WorkspaceSources, models: Registry, now: Callable[[], int]) -> None:
        self._sources = sources
        self._models = models
        self._now = now
        self._listing: ProviderList | None = None

    async def get(self, *, own: bool = False) -> dict[str, Any]:
        if not own:
            return self._to_shown(self._sources.loaded)
        return self._to_shown(await asyncio.to_thread(load_config, self._get_user_scope()))

    async def update(self, change: dict[str, Any], *, own: bool = False) -> dict[str, Any]:
        check_change(change)
        write = self._update_own if own else self._update_project
        return self._to_shown(await asyncio.to_thread(write, change))

    async def list_providers(self) -> ProviderList:
        if self._listing is None:
            self._listing = await asyncio.to_thread(self._list_providers)
        return self._listing

    async def list_auth_methods(self) -> dict[str, list[AuthMethod]]:
        known = await asyncio.to_thread(lambda: list_known_providers(self._sources.offers()))
        return self._sources.logins().list_methods(known)

    async def authorize(
        self, provider: str, method: int, *, inputs: Mapping[str, str] | None = None
    ) -> LoginInstructions:
        self._auth_file()  # fail before the person goes to a browser
        return await self._sources.logins().authorize(provider, method, inputs or {})

    async def finish_authorizing(self, provider: str, method: int, *, code: str | None = None) -> None:
        await self.store_auth(provider, await self._sources.logins().finish(provider, method, code))

    async def store_auth(self, provider: str, auth: AnyAuth) -> None:
        if PROVIDER_ID.fullmatch(provider) is None:
            raise InvalidInputError("provider", f"{provider[:80]!r} is not a valid provider id")
        if isinstance(auth, ApiAuth) and not _is_key(auth.key):
            raise InvalidInputError("key", "not a valid key: it is empty or contains invalid characters")
        await asyncio.to_thread(store_login, self._auth_file(), provider, to_plain(auth))

    async def remove_auth(self, provider: str) -> None:
        if not await asyncio.to_thread(remove_login, self._auth_file(), provider):
            raise NotFoundError("stored key", provider[:80])

    def _list_providers(self) -> ProviderList:
        return list_providers(self._models, self._sources.offers(), self._secrets(self._sources.loaded))

    # --- reading ---

    def _to_shown(self, loaded: LoadedConfig | None) -> dict[str, Any]:
        plain = (
            {} if loaded is None else redact_settings(to_plain(loaded.config), secrets=self._secrets(loaded))
        )
        # Added after secrets are redacted, because no key binding is a secret.
        binds = None if loaded is None else loaded.config.keybinds
        return {**REQUIRED_KEYS, **plain, "keybinds": {**get_default_keybinds(), **(binds or {})}}

    def _secrets(self, loaded: LoadedConfig | None) -> set[str]:
        more = {} if loaded is None else loaded.environment
        return list_secret_values({**self._sources.env, **more}) | set(more.values())

    # --- writing ---

    def _update_project(self, change: dict[str, Any]) -> LoadedConfig:
        scope = self._get_scope()
        path = choose_project_file(scope)
        trusting = ProjectTrust(scope)
        was_trusted = trusting.get_status().why == "given"
        held_before = {(held.kind, held.name) for held in trusting.list_held_back()}
        before, after = write_change(path, change, lock=self._lock())
        if was_trusted and after != before:
            trusting.trust(self._now())  # the person made the change, so the project stays trusted
        held_now = [] if scope.trusted else trusting.list_held_back()
        for held in held_now:
            if (held.kind, held.name) not in held_before:
                _restore_file(path, before)
                raise NotPermittedError(
                    f"the project is not trusted, so {held.kind} {held.name} would have no effect",
                    hint="trust the project first: weft trust",
                )
        return load_config(scope)

    def _update_own(self, change: dict[str, Any]) -> LoadedConfig:
        write_change(
            choose_user_file(self._sources.paths.config), change, lock=self._lock(), mode=PRIVATE_MODE
        )
        return load_config(self._get_user_scope())

    def _get_scope(self) -> ConfigScope:
        if self._sources.scope is None:
            raise UnsupportedError("changing a configuration that was not read from files")
        return self._sources.scope

    def _get_user_scope(self) -> ConfigScope:
        """Return the scope of the person's own configuration, without a project."""
        here = self._sources.paths.config
        return replace(self._get_scope(), directory=here, worktree=here, trusted=True)

    def _lock(self) -> str:
        return os.path.join(self._sources.paths.state, "weft", "config.lock")

    def _auth_file(self) -> str:
        if not self._sources.paths.data:
            raise UnsupportedError("storing keys without a data directory")
        return self._sources.paths.auth_file


def _restore_file(path: str, text: str) -> None:
    if text:
        write_text(path, text)
    else:
        os.unlink(path)


def _is_key(key: str) -> bool:
    return 0 < len(key) <= MAX_KEY_LENGTH and key.isascii() and key.isprintable() and " " not in key

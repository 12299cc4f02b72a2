"""Show and change configuration for front ends: settings without secrets, providers, models, credentials."""

import asyncio
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from decimal import Decimal
from typing import Any, Final, Literal

from msgspec.structs import fields, replace

from weft.config.edit import OWN_MODE, check_change, own_file, project_file, put_text, write_change
from weft.config.load import Loaded, load_config
from weft.config.schema import default_keybinds
from weft.config.secrets import MASK, mask, secret_values
from weft.config.sources import Situation
from weft.errors import InvalidInputError, NoModelError, NotFoundError, NotPermittedError, UnsupportedError
from weft.local.workspace import Known
from weft.model.catalog import Cost, Model
from weft.model.provider import (
    AnyAuth,
    ApiAuth,
    AuthMethod,
    Authorization,
    ListedModel,
    ProviderInfo,
    ProviderList,
)
from weft.model.wire import to_plain
from weft.provider.catalog import choice
from weft.provider.catalog.credentials import remove_login, store_login
from weft.provider.catalog.offers import PROVIDER, Offer, Offers
from weft.provider.registry import Registry, points_here
from weft.trust.decision import Trusting

Source = Literal["env", "config", "custom", "api"]

SOURCES: Final[dict[str, Source]] = {
    "environment": "env",
    "config": "config",
    "stored": "api",
    "public": "custom",
}
UNKNOWN_PRICE: Final = Cost(input=Decimal(0), output=Decimal(0))
_FIELDS: Final = tuple(field.name for field in fields(Model))


def list_providers(models: Registry, offers: Offers | None, secrets: Collection[str]) -> ProviderList:
    """Every provider; those that are connected with the models they can be asked for, the others with all."""
    offered = [] if offers is None else offers.list_all()
    # A service that answers whoever asks is not connected for that: nobody has pointed to it.
    available = {offer.id for offer in offered if offer.available and points_here(offer)}
    served = list(_served(models))
    infos = [*served, *(to_info(offer, secrets) for offer in offered)]
    handed_in = {info.id for info in served}
    connected = [info.id for info in infos if info.models and info.id in available | handed_in]
    usual = _default_of(models)
    default = {
        info.id: usual[1] if usual is not None and usual[0] == info.id else best
        for info in infos
        if (best := _best(info)) is not None
    }
    return ProviderList(all=tuple(infos), default=default, connected=tuple(dict.fromkeys(connected)))


def to_info(offer: Offer, secrets: Collection[str]) -> ProviderInfo:
    source = SOURCES[offer.key.source] if offer.key is not None else "config" if offer.configured else "env"
    models = offer.list_models(everything=not offer.available)
    return ProviderInfo(
        id=offer.id,
        name=offer.name,
        source=source,
        env=offer.variables,
        options=_covered(offer.options, secrets),
        models={model.id: to_listed(model, secrets) for model in models},
    )


def to_listed(model: Model, secrets: Collection[str] = ()) -> ListedModel:
    told = {name: getattr(model, name) for name in _FIELDS}
    told["family"] = model.family or ""
    told["cost"] = model.cost or UNKNOWN_PRICE
    told["options"] = _covered(model.options, secrets)
    told["headers"] = dict.fromkeys(model.headers, MASK)
    return ListedModel(**told, priced=model.cost is not None)


def _covered(options: dict[str, Any], secrets: Collection[str]) -> dict[str, Any]:
    """OpenCode hands out keys to whoever asks."""
    covered: dict[str, Any] = mask(options, secrets=secrets)
    return covered


def _served(models: Registry) -> Iterable[ProviderInfo]:
    """Those that were handed in. The scripted one, which is there to try things out, only where it is meant."""
    usual = _default_of(models)
    by_provider: dict[str, dict[str, ListedModel]] = {}
    for each in models.list_served():
        if each.provider_id != PROVIDER or (usual is not None and usual[0] == PROVIDER):
            by_provider.setdefault(each.provider_id, {})[each.id] = to_listed(each)
    for id, found in by_provider.items():
        yield ProviderInfo(id=id, name=id, source="custom", env=(), models=found)


def _default_of(models: Registry) -> tuple[str, str] | None:
    try:
        found = models.default()
    except NoModelError:
        return None
    return found.provider_id, found.model_id


def _best(info: ProviderInfo) -> str | None:
    found = choice.best(info.models.values()) or next(iter(info.models.values()), None)
    return found.id if found is not None else None


def list_known(offers: Offers | None) -> list[str]:
    """The providers that we can talk with: each takes a key."""
    return [] if offers is None else [offer.id for offer in offers.list_all() if offer.known]


LONGEST_KEY: Final = 16_384
PROVIDER_ID: Final = re.compile(r"[A-Za-z0-9][\w.:/@+-]{0,199}")
# Keys that OpenCode always answers with; its clients do not look whether they are there.
ALWAYS: Final[dict[str, Any]] = {"agent": {}, "mode": {}, "command": {}, "plugin": []}


class Configured:
    """`Configuration` over what was found on opening. What is changed holds from the next opening on."""

    def __init__(self, known: Known, models: Registry, now: Callable[[], int]) -> None:
        self._known = known
        self._models = models
        self._now = now
        self._listing: ProviderList | None = None

    async def get(self, *, own: bool = False) -> dict[str, Any]:
        if not own:
            return self._shown(self._known.loaded)
        return self._shown(await asyncio.to_thread(load_config, self._own_situation()))

    async def update(self, change: dict[str, Any], *, own: bool = False) -> dict[str, Any]:
        check_change(change)
        write = self._update_own if own else self._update_project
        return self._shown(await asyncio.to_thread(write, change))

    async def list_providers(self) -> ProviderList:
        if self._listing is None:
            self._listing = await asyncio.to_thread(self._list_providers)
        return self._listing

    async def list_auth_methods(self) -> dict[str, list[AuthMethod]]:
        known = await asyncio.to_thread(lambda: list_known(self._known.offers()))
        return self._known.ways.list_methods(known)

    async def authorize(
        self, provider: str, method: int, *, inputs: Mapping[str, str] | None = None
    ) -> Authorization:
        self._auth_file()  # before anybody is sent to a browser for nothing
        return await self._known.ways.authorize(provider, method, inputs or {})

    async def finish_authorizing(self, provider: str, method: int, *, code: str | None = None) -> None:
        await self.store_auth(provider, await self._known.ways.finish(provider, method, code))

    async def store_auth(self, provider: str, auth: AnyAuth) -> None:
        if PROVIDER_ID.fullmatch(provider) is None:
            raise InvalidInputError("provider", f"{provider[:80]!r} is no name of one")
        if isinstance(auth, ApiAuth) and not _is_key(auth.key):
            raise InvalidInputError("key", "that is no key: it is empty, or has odd characters in it")
        await asyncio.to_thread(store_login, self._auth_file(), provider, to_plain(auth))

    async def remove_auth(self, provider: str) -> None:
        if not await asyncio.to_thread(remove_login, self._auth_file(), provider):
            raise NotFoundError("stored key", provider[:80])

    def _list_providers(self) -> ProviderList:
        return list_providers(self._models, self._known.offers(), self._secrets(self._known.loaded))

    # --- what is shown ---

    def _shown(self, loaded: Loaded | None) -> dict[str, Any]:
        said = {} if loaded is None else mask(to_plain(loaded.config), secrets=self._secrets(loaded))
        # After the covering: none of these is a secret, whatever it is called.
        binds = None if loaded is None else loaded.config.keybinds
        return {**ALWAYS, **said, "keybinds": {**default_keybinds(), **(binds or {})}}

    def _secrets(self, loaded: Loaded | None) -> set[str]:
        more = {} if loaded is None else loaded.environment
        return secret_values({**self._known.env, **more}) | set(more.values())

    # --- what is written ---

    def _update_project(self, change: dict[str, Any]) -> Loaded:
        situation = self._situation()
        path = project_file(situation)
        trusting = Trusting(situation)
        vouched = trusting.standing().why == "given"
        idle = {(held.kind, held.name) for held in trusting.held_back()}
        before, after = write_change(path, change, lock=self._lock())
        if vouched and after != before:
            trusting.trust(self._now())  # it was the person who changed it
        now_idle = [] if situation.trusted else trusting.held_back()
        for held in now_idle:
            if (held.kind, held.name) not in idle:
                _put_back(path, before)
                raise NotPermittedError(
                    f"the project is not trusted, and {held.kind} {held.name} in it would not be in force",
                    hint="vouch for it first: weft trust",
                )
        return load_config(situation)

    def _update_own(self, change: dict[str, Any]) -> Loaded:
        write_change(own_file(self._known.paths.config), change, lock=self._lock(), mode=OWN_MODE)
        return load_config(self._own_situation())

    def _situation(self) -> Situation:
        if self._known.situation is None:
            raise UnsupportedError("changing a configuration that does not come from files")
        return self._known.situation

    def _own_situation(self) -> Situation:
        """As it would be in a directory that belongs to nobody else."""
        here = self._known.paths.config
        return replace(self._situation(), directory=here, worktree=here, trusted=True)

    def _lock(self) -> str:
        return os.path.join(self._known.paths.state, "weft", "config.lock")

    def _auth_file(self) -> str:
        if not self._known.paths.data:
            raise UnsupportedError("storing keys where there is no place for them")
        return self._known.paths.auth_file


def _put_back(path: str, text: str) -> None:
    if text:
        put_text(path, text)
    else:
        os.unlink(path)


def _is_key(key: str) -> bool:
    return 0 < len(key) <= LONGEST_KEY and key.isascii() and key.isprintable() and " " not in key

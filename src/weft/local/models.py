"""The providers and models that configuration, stored keys and environment make available."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING

from msgspec import Struct

from weft.config.flags import read_flags
from weft.config.load import LoadedConfig
from weft.config.schema import Config, DeadlinesConfig
from weft.errors import ConfigError, InvalidInputError
from weft.host.clock import Clock
from weft.host.paths import Paths
from weft.model.catalog import parse_ref
from weft.model.part import ModelRef
from weft.model.provider import AnyAuth, ProviderInfo
from weft.provider.catalog.adapters import Adapters
from weft.provider.catalog.credentials import StoredLogin, find_auth, list_logins
from weft.provider.catalog.models import make_catalogue
from weft.provider.catalog.offers import (
    DEMO,
    OfferSources,
    ProviderOffers,
    make_scripted_model,
    to_plain_entries,
)
from weft.provider.chunk import AnyChunk
from weft.provider.contract import ModelRequest
from weft.provider.endpoint import LOCAL_DEADLINES, StreamDeadlines
from weft.provider.registry import Registry, ServedModel

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.local.provider_logins import LoginMethods
    from weft.provider.catalog.offers import LoadLogin


class ProviderEnvironment(Struct, frozen=True, kw_only=True):
    """The environment that providers depend on. `warn` receives problems of the configuration that do not prevent work.

    `logins` is set if a plugin declares any: only such a login loads the options of its provider.
    """

    env: Mapping[str, str]
    paths: Paths
    warn: Callable[[ConfigError], None]
    logins: LoginMethods | None = None


def build_offers(loaded: LoadedConfig, environment: ProviderEnvironment) -> ProviderOffers:
    """Return what the providers offer, by the catalogue, the configuration, stored logins and the environment."""
    config, flags = loaded.config, read_flags(environment.env)
    allowed = config.enabled_providers

    def describe(provider: str) -> ProviderInfo | None:
        from weft.config.secrets import list_secret_values  # noqa: PLC0415  only the login of a plugin asks
        from weft.local.configuration import to_provider_info  # noqa: PLC0415  as above

        offer = offers.find(provider)
        return None if offer is None else to_provider_info(offer, list_secret_values(environment.env))

    async def find_stored(provider: str) -> AnyAuth | None:
        return await asyncio.to_thread(find_auth, environment.paths.auth_file, provider)

    def find_loader(provider: str) -> LoadLogin | None:
        if environment.logins is None:
            return None
        from weft.local.provider_logins import find_options_loader  # noqa: PLC0415  few plugins declare a login

        return find_options_loader(environment.logins, provider, find_stored, describe)

    offers = ProviderOffers(
        OfferSources(
            catalogue=make_catalogue(environment.paths.models_file, environment.warn),
            warn=environment.warn,
            configured=to_plain_entries(config.provider),
            logins=_read_logins(environment),
            env={**environment.env, **loaded.environment},
            enabled=frozenset(allowed) if allowed is not None else None,
            disabled=frozenset(config.disabled_providers or ()),
            experimental=flags.enable_experimental_models,
            find_loader=find_loader,
        )
    )
    return offers


def _read_logins(environment: ProviderEnvironment) -> dict[str, StoredLogin]:
    try:
        return list_logins(environment.paths.auth_file)
    except ConfigError as error:
        environment.warn(error)
        return {}


class LazyDemo:
    """The demo model. Its script is read when the model is first asked."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        from weft.provider.demo import make_demo_provider  # noqa: PLC0415  most runs ask another model

        async with aclosing(make_demo_provider(self._clock).stream(request)) as chunks:
            async for chunk in chunks:
                yield chunk


def load_models(
    loaded: LoadedConfig, environment: ProviderEnvironment, clock: Clock, extra: tuple[ServedModel, ...]
) -> Registry:
    """Return the registry of all models: the demo model, those in `extra`, and those of the providers. Fetch nothing."""
    return Registry(
        [ServedModel(make_scripted_model(DEMO), LazyDemo(clock)), *extra],
        default=parse_model_setting("model", loaded.config.model),
        small=parse_model_setting("small_model", loaded.config.small_model),
        offers=build_offers(loaded, environment),
        connect=make_adapters(loaded.config),
    )


def make_adapters(config: Config) -> Adapters:
    return Adapters(to_provider_deadlines(config), to_provider_deadlines(config, LOCAL_DEADLINES))


def to_provider_deadlines(config: Config, defaults: StreamDeadlines | None = None) -> StreamDeadlines:
    """Read the deadlines for requests to providers. `defaults` has those that are not configured."""
    configured, defaults = config.weft_settings.deadlines or DeadlinesConfig(), defaults or StreamDeadlines()
    return StreamDeadlines(
        connect=configured.connect or defaults.connect,
        first_byte=configured.first_byte or defaults.first_byte,
        between=configured.chunk or defaults.between,
    )


def parse_model_setting(key: str, name: str | None) -> ModelRef | None:
    """Return the model that a configuration key names, or None if it is not set. Raise `InvalidInputError` if it is not valid."""
    if not name:
        return None
    ref = parse_ref(name)
    if ref is None:
        raise InvalidInputError(
            key,
            f"{name!r} does not name a model",
            hint="write it as provider/model; weft config shows which file sets it",
        )
    return ref

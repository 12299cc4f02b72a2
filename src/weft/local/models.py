"""The providers and models that configuration, stored keys and environment make available."""

import asyncio
from collections.abc import Callable, Mapping

from msgspec import Struct, field

from weft.config.flags import read_flags
from weft.config.load import Loaded
from weft.config.schema import Config
from weft.config.schema import Deadlines as Said
from weft.config.secrets import secret_values
from weft.errors import ConfigError, InvalidInputError
from weft.host.clock import Clock
from weft.host.paths import Paths
from weft.local.configuration import to_info
from weft.local.logins import Ways, find_loader
from weft.model.catalog import parse_ref
from weft.model.part import ModelRef
from weft.model.provider import AnyAuth, ProviderInfo
from weft.provider.catalog.adapters import Adapters
from weft.provider.catalog.credentials import Login, find_auth, list_logins
from weft.provider.catalog.models import open_catalogue
from weft.provider.catalog.offers import Offers, Sources, to_configured
from weft.provider.demo import serve_demo
from weft.provider.endpoint import Deadlines
from weft.provider.registry import Registry, Served


class Around(Struct, frozen=True, kw_only=True):
    """The machine as far as providers go. `warn` hears what is odd and does no harm, `ways` are those to log in."""

    env: Mapping[str, str]
    paths: Paths
    warn: Callable[[ConfigError], None]
    ways: Ways = field(default_factory=Ways)


def find_offers(loaded: Loaded, around: Around) -> Offers:
    config, flags = loaded.config, read_flags(around.env)
    allowed = config.enabled_providers

    def describe(provider: str) -> ProviderInfo | None:
        offer = offers.find(provider)
        return None if offer is None else to_info(offer, secret_values(around.env))

    async def stored(provider: str) -> AnyAuth | None:
        return await asyncio.to_thread(find_auth, around.paths.auth_file, provider)

    offers = Offers(
        Sources(
            catalogue=open_catalogue(around.paths.models_file, around.warn),
            warn=around.warn,
            configured=to_configured(config.provider),
            logins=_logins(around),
            env={**around.env, **loaded.environment},
            enabled=frozenset(allowed) if allowed is not None else None,
            disabled=frozenset(config.disabled_providers or ()),
            experimental=flags.enable_experimental_models,
            load=lambda provider: find_loader(around.ways, provider, stored, describe),
        )
    )
    return offers


def _logins(around: Around) -> dict[str, Login]:
    try:
        return list_logins(around.paths.auth_file)
    except ConfigError as error:
        around.warn(error)
        return {}


def find_models(loaded: Loaded, around: Around, clock: Clock, also: tuple[Served, ...]) -> Registry:
    """Every model: the scripted one, those in `also`, and those on offer. Nothing is fetched for it."""
    return Registry(
        [serve_demo(clock), *also],
        default=named_model("model", loaded.config.model),
        small=named_model("small_model", loaded.config.small_model),
        offers=find_offers(loaded, around),
        connect=Adapters(to_waits(loaded.config)),
    )


def to_waits(config: Config) -> Deadlines:
    """How long a model's server is waited for."""
    own = config.experimental.weft if config.experimental else None
    said, usual = (own.deadlines if own else None) or Said(), Deadlines()
    return Deadlines(
        connect=said.connect or usual.connect,
        first_byte=said.first_byte or usual.first_byte,
        between=said.chunk or usual.between,
    )


def named_model(key: str, name: str | None) -> ModelRef | None:
    """What a key of the configuration names; nothing else is ever used in its place."""
    if not name:
        return None
    ref = parse_ref(name)
    if ref is None:
        raise InvalidInputError(key, f"{name!r} does not name a model", hint="write it as provider/model")
    return ref

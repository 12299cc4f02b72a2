"""The providers that a configuration, the stored keys and an environment make available."""

import asyncio
from collections.abc import Callable, Mapping

from msgspec import Struct, field

from weft.app.around.providers import to_info
from weft.app.login.ways import Ways, find_loader
from weft.config.flags import read_flags
from weft.config.load import Loaded
from weft.config.masks import secret_values
from weft.errors import ConfigError
from weft.host.paths import Paths
from weft.model.around.provider import AnyAuth, ProviderInfo
from weft.provider.offer.catalogue import open_catalogue
from weft.provider.offer.credentials import Login, find_auth, list_logins
from weft.provider.offer.offer import Sources
from weft.provider.offer.offers import Offers, to_configured


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

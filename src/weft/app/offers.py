"""The providers that a configuration, the stored keys and an environment make available."""

from collections.abc import Callable, Mapping

from msgspec import Struct

from weft.config.flags import read_flags
from weft.config.load import Loaded
from weft.errors import ConfigError
from weft.host.paths import Paths
from weft.provider.offer.catalogue import open_catalogue
from weft.provider.offer.credentials import Login, list_logins
from weft.provider.offer.offer import Sources
from weft.provider.offer.offers import Offers, to_configured


class Around(Struct, frozen=True, kw_only=True):
    """The machine as far as providers go. `warn` hears what is odd and does no harm."""

    env: Mapping[str, str]
    paths: Paths
    warn: Callable[[ConfigError], None]


def find_offers(loaded: Loaded, around: Around) -> Offers:
    config, flags = loaded.config, read_flags(around.env)
    allowed = config.enabled_providers
    return Offers(
        Sources(
            catalogue=open_catalogue(around.paths.models_file, around.warn),
            warn=around.warn,
            configured=to_configured(config.provider),
            logins=_logins(around),
            env={**around.env, **loaded.environment},
            enabled=frozenset(allowed) if allowed is not None else None,
            disabled=frozenset(config.disabled_providers or ()),
            experimental=flags.enable_experimental_models,
        )
    )


def _logins(around: Around) -> dict[str, Login]:
    try:
        return list_logins(around.paths.auth_file)
    except ConfigError as error:
        around.warn(error)
        return {}

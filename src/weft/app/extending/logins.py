"""The ways to log in: our own, and those that plugins declare."""

from collections.abc import Callable, Iterable

from weft.app.extending.loading import Plugin
from weft.app.login.built_in import list_built_in
from weft.app.login.ways import Ways
from weft.config.load import Loaded
from weft.errors import ConfigError, InvalidInputError
from weft.host.clock import Clock
from weft.plugin.auth import list_auths, login_in


def find_ways(
    loaded: Loaded, plugins: Iterable[Plugin], clock: Clock, warn: Callable[[ConfigError], None]
) -> Ways:
    """A plugin's stands in place of ours. What makes no sense is told, and costs the plugin its logins alone."""
    ways = Ways(list_built_in(loaded.vouched, clock))
    for plugin in plugins:
        try:
            declared = list_auths(plugin.carried.namespace)
        except InvalidInputError as error:
            warn(ConfigError(plugin.wanted.where, str(error)))
            continue
        for auth in declared:
            ways.add(login_in(plugin.room, auth, clock))
    return ways

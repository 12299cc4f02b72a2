"""Trust: what a project's own configuration may do before a person has vouched for it.

A repository that was merely cloned must not send the person's keys to an address of its choosing, nor read their
environment or files into it. Whose word it is stands beside every setting (`Origin.own`).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from weft.app.address import find_own_setting
from weft.config.finding import KeyPath
from weft.config.layer import Origin
from weft.config.load import Loaded
from weft.errors import ConfigError
from weft.host.paths import Paths
from weft.model.wire import to_plain
from weft.provider.offer.access import is_loopback

KEY = ("experimental", "weft", "trusted")
ADDRESSES = frozenset({"baseURL", "api", "enterpriseUrl"})
REFUSED = (
    "a project may not say where your keys are sent; put it into your own configuration, or name the project under "
    "experimental.weft.trusted there"
)


def is_trusted(paths: Paths, env: Mapping[str, str], worktree: str) -> bool:
    """Whether the person has named this checkout in their own configuration, or trusts for this once."""
    if env.get("WEFT_TRUST") == "1":
        return True
    named = find_own_setting(paths, KEY)
    return isinstance(named, list) and worktree in named


def without_redirects(loaded: Loaded) -> tuple[dict[str, Any], list[ConfigError]]:
    """The providers as configured, less the addresses a project chose that are not on this machine; and a word on
    each. OpenCode sends the person's key there."""
    providers: dict[str, Any] = to_plain(loaded.config.provider or {})
    refused: list[ConfigError] = []
    for path, holder in list(_holders(providers, ("provider",))):
        for name in ADDRESSES & holder.keys():
            origin = _origin(loaded, (*path, name))
            url = holder[name]
            if origin is not None and not origin.own and isinstance(url, str) and not is_loopback(url):
                del holder[name]
                refused.append(ConfigError(origin.path, REFUSED, key=".".join((*path, name))))
    return providers, refused


def _holders(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, dict[str, Any]]]:
    """Every object below, with the way to it."""
    if isinstance(value, dict):
        yield path, value
        for key, item in list(value.items()):
            yield from _holders(item, (*path, key))


def _origin(loaded: Loaded, path: KeyPath) -> Origin | None:
    """Whose word a setting is: that of the nearest thing above it that has one."""
    lengths = range(len(path), 0, -1)
    return next((loaded.origins[path[:end]] for end in lengths if path[:end] in loaded.origins), None)

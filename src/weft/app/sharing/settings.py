"""Whether sessions may be shown to others, and where, as configuration and environment have it."""

from collections.abc import Mapping
from typing import Final, Literal
from urllib.parse import urlsplit

from msgspec import Struct

from weft.config.flags import read_flags
from weft.config.schema import Config
from weft.errors import InvalidInputError, SharingDisabledError

LONGEST_ADDRESS: Final = 2048
NOWHERE: Final = (
    "weft share ID --to page.html writes a page; weft serve --share shows pages; "
    '"enterprise": {"url": …} in opencode.json names a share server'
)


class ShareSettings(Struct, frozen=True, kw_only=True):
    """`server` is the share server of the configuration, `host` the address of our own pages while they are served.

    OpenCode shares to a public server when none is configured. Here nothing leaves for a place that nobody named.
    """

    mode: Literal["manual", "auto", "disabled"] = "manual"
    disabled_by: str = ""
    server: str = ""
    host: str = ""

    def check(self) -> None:
        if self.mode == "disabled":
            raise SharingDisabledError(self.disabled_by)


def to_share_settings(config: Config, env: Mapping[str, str], host: str) -> ShareSettings:
    """What a project that is not trusted says of it is not in the configuration, unless it switches sharing off."""
    flags = read_flags(env)
    server = (config.enterprise.url if config.enterprise else None) or ""
    if flags.disable_share or config.share == "disabled":
        by = "OPENCODE_DISABLE_SHARE" if flags.disable_share else '"share": "disabled"'
        return ShareSettings(mode="disabled", disabled_by=by, host=host)
    mode: Literal["manual", "auto"] = "auto" if flags.auto_share or config.share == "auto" else "manual"
    return ShareSettings(mode=mode, server=server.rstrip("/"), host=host)


def to_address(given: str, field: str) -> str:
    """The address of a share server, without a slash at its end. Before an `@` it may say who we are there."""
    try:
        parts = urlsplit(given)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or len(given) > LONGEST_ADDRESS or any(char <= " " for char in given):
        raise InvalidInputError(
            field, "it is no address of a server", hint="such as https://share.example.org"
        )
    return given.rstrip("/")

"""What the parts of an `Api` show: configuration, paths, providers, skills and login methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from weft.config.load import LoadedConfig
from weft.config.sources import ConfigScope
from weft.host.paths import Paths
from weft.model.agent import Skill
from weft.provider.catalog.offers import ProviderOffers

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.local.logins import LoginMethods


def _no_skills() -> tuple[Skill, ...]:
    return ()


def _no_logins() -> LoginMethods:
    from weft.local.logins import LoginMethods  # noqa: PLC0415  few logins start in a program

    return LoginMethods()


def _no_offers() -> None:
    return None


class WorkspaceSources(Struct, frozen=True, kw_only=True):
    """What `Workspace` and `Configuration` show: configuration, paths, providers, skills and login methods.

    `offers` and `skills` are looked up at each call, `logins` at the first. All fields are empty in an `Api` that was built without files.
    """

    env: Mapping[str, str] = {}
    paths: Paths = Paths(data="", config="", cache="", state="", home="", os_home="")
    scope: ConfigScope | None = None
    loaded: LoadedConfig | None = None
    offers: Callable[[], ProviderOffers | None] = _no_offers
    skills: Callable[[], tuple[Skill, ...]] = _no_skills
    logins: Callable[[], LoginMethods] = _no_logins

"""What the parts of an `Api` show: configuration, paths, providers, skills and login methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from weft.config.load import LoadedConfig
from weft.config.sources import ConfigScope
from weft.errors import UnsupportedError
from weft.host.paths import Paths
from weft.model.agent import Skill
from weft.provider.catalog.offers import ProviderOffers

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from contextlib import AbstractAsyncContextManager

    from weft.api import Api
    from weft.local.provider_logins import LoginMethods
    from weft.provider.tape import Tape
    from weft.run.runtime import Runtime
    from weft.tool.contract import AnyTool

    class Engine(Api, Protocol):
        """The `Api` of another directory, with what runs there."""

        @property
        def runtime(self) -> Runtime: ...

    class OpenEngine(Protocol):
        """Open the engine of another directory, configured like this one. Nobody answers its permission requests."""

        def __call__(
            self, directory: str, store: str, *, tape: Tape | None = None, change_tools: ChangeTools = tuple
        ) -> AbstractAsyncContextManager[Engine]: ...


ChangeTools = Callable[["tuple[AnyTool, ...]"], "tuple[AnyTool, ...]"]


def _no_skills() -> tuple[Skill, ...]:
    return ()


def _no_logins() -> LoginMethods:
    from weft.local.provider_logins import LoginMethods  # noqa: PLC0415  few logins start in a program

    return LoginMethods()


def _no_offers() -> None:
    return None


def _open_nothing(
    directory: str, store: str, *, tape: Tape | None = None, change_tools: ChangeTools = tuple
) -> AbstractAsyncContextManager[Engine]:
    del store, tape, change_tools
    raise UnsupportedError(f"opening {directory} from a program without files")


class WorkspaceSources(Struct, frozen=True, kw_only=True):
    """What `Workspace` and `Configuration` show: configuration, paths, providers, skills and login methods.

    `store` is the address of the store, `open_engine` opens other directories. `snapshots` is the directory of the store's snapshots,
    empty for a store that ends with its process. `offers` and `skills` are looked up at each call, `logins` at the first.
    All fields are empty in an `Api` that was built without files.
    """

    env: Mapping[str, str] = {}
    store: str = ""
    paths: Paths = Paths(data="", config="", cache="", state="", home="", os_home="")
    snapshots: str = ""
    scope: ConfigScope | None = None
    loaded: LoadedConfig | None = None
    offers: Callable[[], ProviderOffers | None] = _no_offers
    skills: Callable[[], tuple[Skill, ...]] = _no_skills
    logins: Callable[[], LoginMethods] = _no_logins
    open_engine: OpenEngine = _open_nothing

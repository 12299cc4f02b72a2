"""Open weft for a directory: find its store, its project, its configuration, and put the house together."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from weft.api import Api
from weft.app.address import store_url
from weft.app.assemble import Seams, Settings, open_local
from weft.app.indexing import open_indexer
from weft.app.library import Library
from weft.app.local import Local
from weft.app.models import find_models
from weft.app.offers import Around
from weft.app.place import find_place, settle_place
from weft.app.trust import is_trusted
from weft.config.agents import build_agents, choose_agent
from weft.config.flags import read_flags
from weft.config.instructions import read_instructions, to_sources
from weft.config.load import Loaded, load_config
from weft.config.schema import Config
from weft.config.sources import Situation
from weft.errors import ConfigError
from weft.host.paths import Paths, paths_from
from weft.host.process import tool_environment
from weft.model.project import Place
from weft.provider.registry import Served
from weft.provider.tape import Tape, TapedModels
from weft.run.kit import Compaction
from weft.store.tree import Tree
from weft.store.url import open_store
from weft.tool.registry import TOOLS


def _ignore(_: ConfigError) -> None:
    pass


class Opening(Struct, frozen=True, kw_only=True):
    """What is to be opened, and how.

    `answered` says that somebody will reply to questions about permissions. `models` are served beside the
    configured ones. `tape` records what models answer, or answers in their place. `warn` hears what is odd in the
    configuration and in force all the same.
    """

    directory: str = "."
    env: Mapping[str, str] = os.environ
    store: str | None = None
    answered: bool = False
    models: tuple[Served, ...] = ()
    tape: Tape | None = None
    seams: Seams = Seams()
    warn: Callable[[ConfigError], None] = _ignore


@asynccontextmanager
async def open_app(opening: Opening) -> AsyncIterator[Local]:
    """An `Api` over a directory. Configuration that cannot be understood is refused here, not half obeyed."""
    env, paths = opening.env, paths_from(opening.env)
    url = store_url(env, paths, opening.store)
    async with open_store(url) as store:
        found = await find_place(store, opening.directory, env, opening.seams.clock.now())
        loaded = await asyncio.to_thread(_load, found.place, paths, env)
        for warning in loaded.warnings:
            opening.warn(warning)
        trusted = is_trusted(paths, env, found.place.worktree)
        around = Around(env=env, paths=paths, warn=opening.warn, trusted=trusted)
        models = find_models(loaded, around, opening.seams.clock, opening.models)
        if opening.tape is not None:
            opening.tape.at(to_places(found.place, paths))
            models = TapedModels(models, opening.tape)
        settings = to_settings(loaded, found.place, paths, opening)
        async with (
            aclosing(models),
            open_local(found.place, store, models, settings, opening.seams) as local,
        ):
            await settle_place(store, local.kit.journal, found)
            async with _indexed(local, url, paths) as local_with_library:
                yield local_with_library


@asynccontextmanager
async def _indexed(local: Local, url: str, paths: Paths) -> AsyncIterator[Local]:
    """The same with an index of its sessions that follows them, if it is one of files."""
    if not url.startswith("file:"):
        yield local
        return
    library = Library(Tree(url.removeprefix("file:")), paths.cache)
    async with open_indexer(library, local.bus, local.kit.clock):
        yield replace(local, library=library)


@asynccontextmanager
async def open_weft(
    directory: str = ".",
    *,
    store: str | None = None,
    answered: bool = False,
    models: tuple[Served, ...] = (),
    tape: Tape | None = None,
) -> AsyncIterator[Api]:
    """weft for Python programs: an `Api` over a directory, as `weft run` has it there.

    `store` is an address (`memory:` keeps nothing), `models` are served beside the configured ones. Say `answered`
    if you reply to questions about permissions; otherwise what has to be asked is refused. A `tape` records what the
    models answer, or answers in their place (`weft.testing.replay`).
    """
    opening = Opening(directory=directory, store=store, answered=answered, models=models, tape=tape)
    async with open_app(opening) as api:
        yield api


def to_places(place: Place, paths: Paths) -> dict[str, str]:
    """What is somewhere else on another machine, and may be spoken of in a request."""
    return {
        "directory": place.directory,
        "worktree": place.worktree,
        "config": paths.config,
        "data": paths.data,
        "home": paths.home,
    }


def _load(place: Place, paths: Paths, env: Mapping[str, str]) -> Loaded:
    return load_config(to_situation(place, paths, env), strict=True)


def to_situation(place: Place, paths: Paths, env: Mapping[str, str]) -> Situation:
    trusted = is_trusted(paths, env, place.worktree)
    return Situation(
        directory=place.directory, worktree=place.worktree, paths=paths, env=env, trusted=trusted
    )


def to_settings(loaded: Loaded, place: Place, paths: Paths, opening: Opening) -> Settings:
    flags = read_flags(opening.env)
    agents = build_agents(loaded.config, paths, place.worktree)
    sources = to_sources(loaded, to_situation(place, paths, opening.env))
    return Settings(
        agents=agents,
        default_agent=choose_agent(agents, loaded.config),
        tools=TOOLS,
        tool_output=paths.tool_output,
        environment=tool_environment(opening.env),
        output_limit=flags.output_token_max,
        compaction=to_compaction(loaded.config),
        instructions=partial(read_instructions, sources),
        plans=paths.plans,
        plan_files=flags.plan_mode,
        guard_off=flags.disable_filetime_check,
        answered=opening.answered,
    )


def to_compaction(config: Config) -> Compaction:
    """Both are on unless switched off (the environment's switches are in the configuration by now)."""
    said = config.compaction
    return Compaction(
        auto=said is None or said.auto is not False, prune=said is None or said.prune is not False
    )

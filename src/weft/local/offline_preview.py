"""Preview the next request of a stored session, for commands: the configuration is read, and nothing is started."""

import os
import sys
from collections.abc import Mapping

from weft.config.load import load_config
from weft.config.skills import find_skills
from weft.config.store_address import resolve_store_url
from weft.host.clock import SystemClock
from weft.host.paths import paths_from
from weft.local.mcp_settings import list_enabled_servers
from weft.local.models import ProviderEnvironment, load_models
from weft.local.open import OpenOptions, read_scope, read_settings
from weft.local.plugin_host import list_hook_commands
from weft.local.plugin_sources import find_plugins
from weft.local.preview import Preview, PreviewContext, preview_request
from weft.local.reader import SessionReader
from weft.model.ids import Mint
from weft.model.project import Place
from weft.model.session import SessionInfo
from weft.run.briefing import list_briefing_keys


def preview(reader: SessionReader, session: SessionInfo, env: Mapping[str, str]) -> Preview:
    """Return the request that the next step of a stored session would send."""
    stored = (reader.store.find_value(key) for key in list_briefing_keys(session))
    context = _load_context(reader.place(), env)
    return preview_request(context, session, reader.store.list_messages(session.id), stored)


def _load_context(place: Place, env: Mapping[str, str]) -> PreviewContext:
    paths, clock = paths_from(env), SystemClock()
    scope = read_scope(place, paths, env)
    loaded = load_config(scope, strict=True)
    environment = ProviderEnvironment(env=env, paths=paths, warn=lambda _: None)
    options, skills = OpenOptions(directory=place.directory, env=env), find_skills(scope).skills
    settings = read_settings(loaded, place, scope, options, skills, resolve_store_url(env, paths))
    return PreviewContext(
        place=place,
        platform=sys.platform,
        models=load_models(loaded, environment, clock, ()),
        agents=settings.agents,
        default_agent=settings.default_agent,
        tools={tool.name: tool for tool in settings.tools},
        output_limit=settings.output_limit,
        compaction=settings.compaction,
        instructions=settings.instructions,
        plans=settings.plans,
        plan_files=settings.plan_files,
        mint=Mint(clock.now, os.urandom),
        now=clock.now(),
        servers=tuple(list_enabled_servers(loaded.config)),
        plugins=(
            *(plugin.name for plugin in find_plugins(loaded, scope).sources),
            *(" ".join(command.argv) for command in list_hook_commands(loaded, lambda _: None)),
        ),
    )

"""Hooks that are commands, as configured under `experimental.weft.hooks`."""

from collections.abc import Callable, Iterator
from typing import Final

from weft.config.check import nearest
from weft.config.load import Loaded
from weft.config.schema import Experimental, Own
from weft.errors import ConfigError
from weft.plugin.chain import SECONDS
from weft.plugin.command import CommandHook
from weft.plugin.hooks import COMMAND_BEFORE, EVENT, HOOKS, PERMISSION_ASK, TOOL_AFTER, TOOL_BEFORE

KEY: Final = "experimental.weft.hooks"
MATCHED: Final = {each.name for each in (TOOL_BEFORE, TOOL_AFTER, EVENT, COMMAND_BEFORE, PERMISSION_ASK)}


def list_commands(loaded: Loaded, warn: Callable[[ConfigError], None]) -> Iterator[CommandHook]:
    """Every command to be asked, hook by hook, in the order configured."""
    own = (loaded.config.experimental or Experimental()).weft or Own()
    usual = (own.plugins.seconds if own.plugins else None) or SECONDS
    for name, commands in (own.hooks or {}).items():
        origin = loaded.origins.get((*KEY.split("."), name))
        path, key = origin.path if origin else KEY, f"{KEY}.{name}"
        if name not in HOOKS:
            warn(ConfigError(path, "there is no such hook", key=key, near=nearest(name, HOOKS)))
            continue
        for each in commands:
            if not each.command:
                warn(ConfigError(path, "the command is empty", key=key))
                continue
            if each.matcher is not None and name not in MATCHED:
                warn(ConfigError(path, "a matcher means nothing at this hook, and is passed over", key=key))
            yield CommandHook(
                hook=name, argv=each.command, matcher=each.matcher, seconds=each.timeout or usual
            )

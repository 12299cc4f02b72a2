"""Complete merged settings: convert legacy keys, apply environment variables, add defaults."""

from collections.abc import Mapping
from typing import Any

from weft.config.check import ACTIONS
from weft.config.flags import Flags
from weft.config.jsonc import JsoncDocument
from weft.config.layer import (
    ConfigLayer,
    ConfigOrigin,
    ConfigProblems,
    MergedConfig,
    make_layer,
    tools_to_permission,
)
from weft.config.schema import get_default_keybinds
from weft.errors import ConfigError
from weft.host.paths import find_user_name

DEFAULT_ORIGIN = ConfigOrigin(kind="default", path="", own=True)


def apply_defaults(
    merged: MergedConfig, flags: Flags, env: Mapping[str, str], problems: ConfigProblems
) -> None:
    """Complete the merged settings in place, in OpenCode's order."""
    _convert_modes(merged)
    _apply_permission(merged, flags, problems)
    _convert_tools(merged)
    _set_default(merged, "username", find_user_name(env))
    if merged.data.get("autoshare") is True and "share" not in merged.data:
        merged.set(("share",), "auto", merged.find_origin(("autoshare",)) or DEFAULT_ORIGIN)
    for name, keys in get_default_keybinds().items():
        if name not in merged.data.get("keybinds", {}):
            merged.set(("keybinds", name), keys, DEFAULT_ORIGIN)
    _apply_switches(merged, flags)
    _drop_repeated_plugins(merged)


def _set_default(merged: MergedConfig, key: str, value: Any) -> None:
    if value is not None and key not in merged.data:
        merged.set((key,), value, DEFAULT_ORIGIN)


def _convert_modes(merged: MergedConfig) -> None:
    for name, mode in merged.data.get("mode", {}).items():
        origin = merged.find_origin(("mode", name)) or DEFAULT_ORIGIN
        merged.add(ConfigLayer(origin=origin, data={"agent": {name: {**mode, "mode": "primary"}}}))


def _apply_permission(merged: MergedConfig, flags: Flags, problems: ConfigProblems) -> None:
    if not flags.permission:
        return
    origin = ConfigOrigin(kind="environment", path="OPENCODE_PERMISSION", own=True)
    word = flags.permission.strip().strip('"')
    value: Any = word
    if word not in ACTIONS:
        try:
            value = JsoncDocument(origin.path, flags.permission).value
        except ConfigError as error:
            problems.errors.append(error)
            # Reported again below, and treated as "ask": an unreadable rule must not allow anything.
            value = None
    merged.add(make_layer(origin, {"permission": value}, None, problems))


def _convert_tools(merged: MergedConfig) -> None:
    """Convert `tools` to permissions. They come first in order, so that explicit permissions override them."""
    tools = merged.data.get("tools")
    if not tools:
        return
    permission = merged.data.get("permission", {})
    converted = tools_to_permission(tools)
    for name in tools:
        for key in tools_to_permission({name: True}):
            if key not in permission:
                merged.set(
                    ("permission", key), converted[key], merged.find_origin(("tools", name)) or DEFAULT_ORIGIN
                )
    merged_permission = merged.data["permission"]
    merged.data["permission"] = {**{key: merged_permission[key] for key in converted}, **merged_permission}


def _apply_switches(merged: MergedConfig, flags: Flags) -> None:
    if flags.disable_autocompact:
        merged.set(("compaction", "auto"), False, _to_switch_origin("OPENCODE_DISABLE_AUTOCOMPACT"))
    if flags.disable_prune:
        merged.set(("compaction", "prune"), False, _to_switch_origin("OPENCODE_DISABLE_PRUNE"))


def _to_switch_origin(name: str) -> ConfigOrigin:
    return ConfigOrigin(kind="environment", path=name, own=True)


def get_plugin_name(entry: str) -> str:
    """Return the name that identifies a plugin: the stem of a file, or the name of a package without its version."""
    if entry.startswith("file://"):
        stem = entry.rsplit("/", 1)[-1]
        return stem.rsplit(".", 1)[0] if "." in stem[1:] else stem
    separator = entry.rfind("@")
    return entry[:separator] if separator > 0 else entry


def _drop_repeated_plugins(merged: MergedConfig) -> None:
    plugins = merged.data.get("plugin")
    if not plugins:
        return
    origins = [merged.origins.pop(("plugin", str(index))) for index in range(len(plugins))]
    last = {get_plugin_name(entry): index for index, entry in enumerate(plugins)}
    kept = sorted(last.values())
    merged.data["plugin"] = [plugins[index] for index in kept]
    for new_index, index in enumerate(kept):
        merged.origins[("plugin", str(new_index))] = origins[index]

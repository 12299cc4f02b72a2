"""The last touches to merged settings: old names, switches in the environment, defaults."""

from collections.abc import Mapping
from typing import Any

from weft.config.check import ACTIONS
from weft.config.flags import Flags
from weft.config.jsonc import Document
from weft.config.layer import Layer, Merged, Origin, Problems, make_layer, tools_to_permission
from weft.config.schema import default_keybinds
from weft.errors import ConfigError
from weft.host.paths import user_name

DEFAULT = Origin(kind="default", path="", own=True)


def finish(merged: Merged, flags: Flags, env: Mapping[str, str], problems: Problems) -> None:
    """In this order, which is OpenCode's."""
    _fold_modes(merged)
    _apply_permission(merged, flags, problems)
    _fold_tools(merged)
    _set_default(merged, "username", user_name(env))
    if merged.data.get("autoshare") is True and "share" not in merged.data:
        merged.put(("share",), "auto", merged.origin_of(("autoshare",)) or DEFAULT)
    for name, keys in default_keybinds().items():
        if name not in merged.data.get("keybinds", {}):
            merged.put(("keybinds", name), keys, DEFAULT)
    _apply_switches(merged, flags)
    _drop_repeated_plugins(merged)


def _set_default(merged: Merged, key: str, value: Any) -> None:
    if value is not None and key not in merged.data:
        merged.put((key,), value, DEFAULT)


def _fold_modes(merged: Merged) -> None:
    for name, mode in merged.data.get("mode", {}).items():
        origin = merged.origin_of(("mode", name)) or DEFAULT
        merged.add(Layer(origin=origin, data={"agent": {name: {**mode, "mode": "primary"}}}))


def _apply_permission(merged: Merged, flags: Flags, problems: Problems) -> None:
    if not flags.permission:
        return
    origin = Origin(kind="environment", path="OPENCODE_PERMISSION", own=True)
    word = flags.permission.strip().strip('"')
    value: Any = word
    if word not in ACTIONS:
        try:
            value = Document(origin.path, flags.permission).value
        except ConfigError as error:
            problems.errors.append(error)
            # Noted once more below, and taken as "ask": what cannot be read must not open anything.
            value = None
    merged.add(make_layer(origin, {"permission": value}, None, problems))


def _fold_tools(merged: Merged) -> None:
    """Below what is said of permissions, but first in order: the permissions are the later word."""
    tools = merged.data.get("tools")
    if not tools:
        return
    before = merged.data.get("permission", {})
    folded = tools_to_permission(tools)
    for name in tools:
        for key in tools_to_permission({name: True}):
            if key not in before:
                merged.put(("permission", key), folded[key], merged.origin_of(("tools", name)) or DEFAULT)
    after = merged.data["permission"]
    merged.data["permission"] = {**{key: after[key] for key in folded}, **after}


def _apply_switches(merged: Merged, flags: Flags) -> None:
    if flags.disable_autocompact:
        merged.put(("compaction", "auto"), False, _switch("OPENCODE_DISABLE_AUTOCOMPACT"))
    if flags.disable_prune:
        merged.put(("compaction", "prune"), False, _switch("OPENCODE_DISABLE_PRUNE"))


def _switch(name: str) -> Origin:
    return Origin(kind="environment", path=name, own=True)


def plugin_name(entry: str) -> str:
    """What makes two entries the same plugin: a file's stem, or a package without its version."""
    if entry.startswith("file://"):
        stem = entry.rsplit("/", 1)[-1]
        return stem.rsplit(".", 1)[0] if "." in stem[1:] else stem
    at = entry.rfind("@")
    return entry[:at] if at > 0 else entry


def _drop_repeated_plugins(merged: Merged) -> None:
    plugins = merged.data.get("plugin")
    if not plugins:
        return
    origins = [merged.origins.pop(("plugin", str(index))) for index in range(len(plugins))]
    last = {plugin_name(entry): index for index, entry in enumerate(plugins)}
    kept = sorted(last.values())
    merged.data["plugin"] = [plugins[index] for index in kept]
    for place, index in enumerate(kept):
        merged.origins[("plugin", str(place))] = origins[index]

"""Load the configuration: read all layers in order and merge them. A broken file does not affect the others.

From the weakest layer to the strongest:

1. what organisations publish for users who are logged in (`.well-known`);
2. the user's configuration directory: `config.json`, `opencode.json`, `opencode.jsonc`, then its agents, commands,
   modes and plugins;
3. `~/.opencode`, likewise;
4. the file that `OPENCODE_CONFIG` names;
5. project files: every `opencode.jsonc` from the top of the checkout down to the directory, then every `opencode.json`
   (so one at the top overrides a `.jsonc` further down, as in OpenCode);
6. project directories: every `.opencode` from the top down, so that the nearest wins;
7. the directory that `OPENCODE_CONFIG_DIR` names;
8. `OPENCODE_CONFIG_CONTENT`.

Then legacy keys are converted, environment variables apply, and defaults fill in the rest.

OpenCode documents that the nearer and more explicit layer wins, but does otherwise: a global agent overrides a
project's file, the top `.opencode` overrides the nearest, `~/.opencode` overrides both, and all of them override
`OPENCODE_CONFIG_CONTENT`. `WEFT_CONFIG_ORDER=opencode` selects exactly that order.

Unlike OpenCode, loading writes nothing (no `$schema` into the user's file, no `package.json`) and installs nothing.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, convert

from weft.config.check import ACTIONS, check_config
from weft.config.definitions import read_definitions
from weft.config.flags import Flags, read_flags
from weft.config.jsonc import ConfigFinding, JsoncDocument, KeyPath
from weft.config.layer import (
    ConfigLayer,
    ConfigOrigin,
    ConfigProblems,
    MergedConfig,
    make_layer,
    parse_toml,
    read_text,
    tools_to_permission,
)
from weft.config.remote import Fetch, RemoteDocuments, fetch_layer, list_organisations
from weft.config.schema import Config, get_default_keybinds
from weft.config.sources import (
    ConfigDirectory,
    ConfigFile,
    ConfigScope,
    ConfigSource,
    InlineConfig,
    list_sources,
)
from weft.config.substitution import Resolve, make_bounded_resolver, make_resolver
from weft.config.trust import (
    find_root,
    hold_back_layers,
    is_inside,
    is_ordinary_file,
    list_held_tools,
    narrow_providers,
)
from weft.errors import ConfigError
from weft.host.paths import find_user_name
from weft.model.trust import HeldItem

DEFAULT_ORIGIN = ConfigOrigin(kind="default", path="", own=True)


class LoadedConfig(Struct, frozen=True, kw_only=True):
    """The configuration, and where it came from.

    `trusted_config` is the configuration without an untrusted project; for a trusted project it is `config` itself.
    `origins` maps every setting to its source; each entry of `plugin` and `instructions` has its own. `layers` are the
    sources that exist, the weakest first. `problems` are settings or files that are not in force; what `warnings`
    describe is in force. `environment` holds the variables that organisations' configurations may use. `directories`
    are the configuration directories that exist, the weakest first. `held` lists what an untrusted project configures
    that is not in force.
    """

    config: Config
    trusted_config: Config
    origins: Mapping[KeyPath, ConfigOrigin]
    layers: tuple[ConfigLayer, ...]
    problems: tuple[ConfigError, ...]
    warnings: tuple[ConfigError, ...]
    environment: Mapping[str, str]
    directories: tuple[str, ...]
    held: tuple[HeldItem, ...] = ()

    def find_origin(self, path: KeyPath) -> ConfigOrigin | None:
        """Return the source of a setting, or of the section that contains it."""
        return next(
            (self.origins[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self.origins), None
        )


def load_config(scope: ConfigScope, *, fetch: Fetch | None = None, strict: bool = False) -> LoadedConfig:
    """Load the configuration. A setting with a problem is not in force; with `strict`, the first problem is raised.

    Without `fetch`, what an organisation publishes is read from the copy of the last fetch.
    """
    flags, problems = read_flags(scope.env), ConfigProblems()
    problems.warnings += [ConfigError("environment", warning) for warning in flags.warnings]
    logins = list_organisations(scope.paths.auth_file, problems)
    environment = {login.key: login.token for login in logins}
    env = {**scope.env, **environment}
    remote = RemoteDocuments(scope.paths.cache, fetch)
    layers = [layer for login in logins if (layer := fetch_layer(login, remote, env, problems)) is not None]
    problems.warnings += remote.stale
    sources = list_sources(scope, flags)
    layers += [layer for source in sources for layer in _read_source(source, scope, env, problems)]
    held: list[HeldItem] = []
    if not scope.trusted:
        layers, held = hold_back_layers(layers, scope)
        held += list_held_tools(sources)
    merged = _merge(layers, flags, scope.env, problems)
    if strict and problems.errors:
        raise problems.errors[0]
    config = convert(merged.data, Config)
    trusted_layers = [layer for layer in layers if layer.origin.own or scope.trusted]
    trusted_config = (
        config if len(trusted_layers) == len(layers) else _merge_trusted(trusted_layers, flags, scope.env)
    )
    return LoadedConfig(
        config=config if trusted_config is config else narrow_providers(config, trusted_config),
        trusted_config=trusted_config,
        origins=merged.origins.by_path,
        layers=tuple(layers),
        problems=tuple(problems.errors),
        warnings=tuple(problems.warnings),
        environment=environment,
        directories=_list_directories(sources),
        held=tuple(held),
    )


def _merge_trusted(layers: list[ConfigLayer], flags: Flags, env: Mapping[str, str]) -> Config:
    """Merge the trusted layers alone. Their problems have been reported already."""
    return convert(_merge(layers, flags, env, ConfigProblems()).data, Config)


def _merge(
    layers: list[ConfigLayer], flags: Flags, env: Mapping[str, str], problems: ConfigProblems
) -> MergedConfig:
    merged = MergedConfig()
    for layer in layers:
        merged.add(layer)
    _apply_defaults(merged, flags, env, problems)
    data, findings = check_config(merged.data, is_complete=True)
    for finding in findings:
        _report_incomplete(finding, merged, layers, problems)
    merged.keep(data)
    return merged


def _report_incomplete(
    finding: ConfigFinding, merged: MergedConfig, layers: list[ConfigLayer], problems: ConfigProblems
) -> None:
    """Report an object that no layer completes. The problem names the layer that begins it."""
    origin = merged.origins.find(finding.path) or DEFAULT_ORIGIN
    layer = next((layer for layer in layers if layer.origin == origin), None)
    problems.add(origin, layer, [finding])


def _list_directories(sources: list[ConfigSource]) -> tuple[str, ...]:
    paths = (source.origin.path for source in sources if isinstance(source, ConfigDirectory))
    return tuple(dict.fromkeys(path for path in paths if os.path.isdir(path)))


# --- reading the sources ---


def _read_source(
    source: ConfigSource, scope: ConfigScope, env: Mapping[str, str], problems: ConfigProblems
) -> Iterator[ConfigLayer]:
    try:
        match source:
            case ConfigDirectory(origin):
                yield from read_definitions(origin, problems)
            case InlineConfig(origin, text):
                yield from _read_document(origin, text, None, problems)
            case ConfigFile():
                yield from _read_file(source, scope, env, problems)
    except ConfigError as error:
        problems.errors.append(error)


def _read_file(
    source: ConfigFile, scope: ConfigScope, env: Mapping[str, str], problems: ConfigProblems
) -> Iterator[ConfigLayer]:
    origin = source.origin
    text = read_text(origin.path)
    if text is None:
        if source.named:
            raise ConfigError(origin.path, "does not exist, but OPENCODE_CONFIG names it")
        return
    if os.path.basename(origin.path) == "config":
        yield make_layer(origin, parse_toml(origin.path, text), None, problems)
        return
    yield from _read_document(origin, text, _make_resolver(origin, scope, env), problems)


def _make_resolver(origin: ConfigOrigin, scope: ConfigScope, env: Mapping[str, str]) -> Resolve:
    directory = os.path.dirname(origin.path)
    if origin.own or scope.trusted:
        return make_resolver(env, directory=directory, home=scope.paths.os_home)
    # An untrusted project could send the content of any file or variable to a server.
    root = find_root(scope, origin.path)
    return make_bounded_resolver(
        directory, lambda path: is_inside(path, root) and is_ordinary_file(path, root)
    )


def _read_document(
    origin: ConfigOrigin, text: str, resolve: Resolve | None, problems: ConfigProblems
) -> Iterator[ConfigLayer]:
    try:
        document = JsoncDocument(origin.path, text, resolve)
    except ConfigError as error:
        problems.errors.append(error)
        if '"permission"' in text or '"tools"' in text:
            # A missing comma must not lift the restrictions in the file.
            reason = 'the rules cannot be read; until the file is corrected, every permission is "ask"'
            problems.errors.append(ConfigError(origin.path, reason, key="permission"))
            yield ConfigLayer(origin=origin, data={"permission": {"*": "ask"}})
        return
    problems.add(origin, document, document.findings)
    yield make_layer(origin, document.value, document, problems)


# --- completing the merged settings ---


def _apply_defaults(
    merged: MergedConfig, flags: Flags, env: Mapping[str, str], problems: ConfigProblems
) -> None:
    """Complete the merged settings in place, in OpenCode's order."""
    _convert_modes(merged)
    _apply_permission(merged, flags, problems)
    _convert_tools(merged)
    _set_default(merged, "username", find_user_name(env))
    if merged.data.get("autoshare") is True and "share" not in merged.data:
        merged.set(("share",), "auto", merged.origins.find(("autoshare",)) or DEFAULT_ORIGIN)
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
        origin = merged.origins.find(("mode", name)) or DEFAULT_ORIGIN
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
                    ("permission", key),
                    converted[key],
                    merged.origins.find(("tools", name)) or DEFAULT_ORIGIN,
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
    origins = [merged.origins.by_path[("plugin", str(index))] for index in range(len(plugins))]
    merged.origins.forget(("plugin",))
    last = {get_plugin_name(entry): index for index, entry in enumerate(plugins)}
    kept = sorted(last.values())
    merged.data["plugin"] = [plugins[index] for index in kept]
    for new_index, index in enumerate(kept):
        merged.origins.set(("plugin", str(new_index)), origins[index])

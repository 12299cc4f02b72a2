"""Configuration layers: the settings of one source, how layers are merged, and where each setting came from."""

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, Protocol

from msgspec import Struct
from msgspec.structs import fields

from weft.config.check import check_config
from weft.config.jsonc import CORRECTION_HINT, ConfigFinding, KeyPath, is_too_deep
from weft.config.schema import AgentConfig
from weft.errors import ConfigError

OriginKind = Literal[
    "default",
    "well-known",
    "global",
    "home",
    "custom",
    "project",
    "custom directory",
    "inline",
    "environment",
]

MAX_CONFIG_BYTES = 4 << 20
UNREADABLE_HINT = "this must be a file that you may read, in a directory that you may read"

# Tools that write files were once configured one by one, as OpenCode's old `tools` still does. No new tool joins these.
_EDITING_TOOLS = ("write", "edit", "patch", "multiedit")
_AGENT_KEYS = frozenset(field.encode_name for field in fields(AgentConfig))


class ConfigOrigin(Struct, frozen=True, kw_only=True):
    """Where a setting came from. `own` is True for the user's own files and False for the project's."""

    kind: OriginKind
    path: str
    own: bool


class LocatedText(Protocol):
    """A text that knows the position of its keys."""

    def locate(self, path: KeyPath) -> tuple[int, int]: ...


class ConfigLayer(Struct, frozen=True, kw_only=True):
    """The settings of one source. `data` holds only what fits the schema. `text`, if present, knows the line of each
    key.
    """

    origin: ConfigOrigin
    data: dict[str, Any]
    text: LocatedText | None = None

    def locate(self, path: KeyPath) -> tuple[int, int]:
        """Return line and column of a key, or (0, 0) without a text."""
        return self.text.locate(path) if self.text is not None else (0, 0)


class ConfigProblems:
    """Problems of loading. `errors` disable a setting, `warnings` do not."""

    def __init__(self) -> None:
        self.errors: list[ConfigError] = []
        self.warnings: list[ConfigError] = []

    def add(self, origin: ConfigOrigin, text: LocatedText | None, findings: Iterable[ConfigFinding]) -> None:
        """Add findings as errors or warnings, with file, line and key."""
        for finding in findings:
            at = text.locate(finding.path) if text is not None else (0, 0)
            key = ".".join(finding.path)
            hint = CORRECTION_HINT if any(at) and not finding.is_warning else ""
            error = ConfigError(origin.path, finding.reason, at=at, key=key, near=finding.near, hint=hint)
            (self.warnings if finding.is_warning else self.errors).append(error)


def make_layer(
    origin: ConfigOrigin, value: Mapping[str, Any], text: LocatedText | None, problems: ConfigProblems
) -> ConfigLayer:
    """Return a layer with the settings that fit the schema. Report the others as problems."""
    kept, findings = check_config(dict(value))
    problems.add(origin, text, findings)
    return ConfigLayer(origin=origin, data=_convert_legacy_keys(kept, origin), text=text)


def read_text(path: str) -> str | None:
    """Return the text of a file, or None if it does not exist. Raise `ConfigError` if it cannot be read."""
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            raw = file.read(MAX_CONFIG_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a valid file name"
        raise ConfigError(path, f"cannot be read: {reason}", hint=UNREADABLE_HINT) from error
    if len(raw) > MAX_CONFIG_BYTES:
        raise ConfigError(path, f"larger than {MAX_CONFIG_BYTES >> 20} MB")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        # Not `from error`: it holds the content of the file.
        raise ConfigError(path, "not UTF-8 text", at=(line, 0)) from None


def _open_at_once(path: str, flags: int) -> int:
    """Open a file. A pipe or a terminal would wait for whoever writes to it, so it is refused unless a person named it (`/dev/fd/63`)."""
    if path.startswith(("/dev/", "/proc/")):
        return os.open(path, flags)
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is a pipe or a device")
    return descriptor


def tools_to_permission(tools: Mapping[str, bool]) -> dict[str, Any]:
    """Convert the legacy map of enabled tools to permissions."""
    return {
        ("edit" if name in _EDITING_TOOLS else name): ("allow" if enabled else "deny")
        for name, enabled in tools.items()
    }


def _convert_legacy_keys(data: dict[str, Any], origin: ConfigOrigin) -> dict[str, Any]:
    """Replace legacy keys, and make the paths of plugins absolute."""
    converted = dict(data)
    for section in ("agent", "mode"):
        if section in data:
            converted[section] = {name: _convert_legacy_agent(agent) for name, agent in data[section].items()}
    if "plugin" in data:
        converted["plugin"] = [_resolve_plugin(entry, origin) for entry in data["plugin"]]
    return converted


def _convert_legacy_agent(agent: dict[str, Any]) -> dict[str, Any]:
    converted = {key: value for key, value in agent.items() if key in _AGENT_KEYS}
    others = {key: value for key, value in agent.items() if key not in _AGENT_KEYS}
    if others:
        converted["options"] = {**agent.get("options", {}), **others}
    if "tools" in agent:
        converted["permission"] = {**tools_to_permission(agent["tools"]), **agent.get("permission", {})}
    if "maxSteps" in agent:
        converted.setdefault("steps", agent["maxSteps"])
    return converted


def _resolve_plugin(entry: str, origin: ConfigOrigin) -> str:
    """Make a path relative to its file absolute. The name of a package stays."""
    if not entry.startswith(("./", "../", "/")):
        return entry
    path = os.path.normpath(os.path.join(os.path.dirname(origin.path), entry))
    return f"file://{path}" if os.path.exists(path) else entry


_TOML_POSITION = r"at line (\d+), column (\d+)"


def parse_toml(path: str, text: str) -> dict[str, Any]:
    """Parse the legacy TOML configuration into today's keys. Raise `ConfigError` if it is not TOML.

    OpenCode rewrites the file as `config.json` and deletes it. We read it in place and leave the user's files alone.
    """
    import tomllib  # noqa: PLC0415  few still have such a file

    try:
        settings = tomllib.loads(text)
    except (
        ValueError,
        RecursionError,
    ) as error:  # also a number of thousands of digits, which Python refuses to read
        position = re.search(_TOML_POSITION, str(error))
        at = (int(position[1]), int(position[2])) if position else (0, 0)
        # The original message may quote the file.
        raise ConfigError(path, "not TOML", at=at) from None
    if is_too_deep(settings):
        raise ConfigError(path, "nested too deeply")
    provider, model = settings.pop("provider", None), settings.pop("model", None)
    if isinstance(provider, str) and isinstance(model, str):
        settings["model"] = f"{provider}/{model}"
    return settings


# Lists that are joined over all layers. A later layer replaces any other list.
APPENDED_LISTS = ("plugin", "instructions")
# Hooks are joined, too, so that a project's hooks do not replace the user's.
HOOKS_PATH = ("experimental", "weft", "hooks")


class _Section(dict[str, "_Section"]):
    """The keys of a section, or of a setting, which has none."""


class Origins:
    """Where each setting came from, in the order in which they came. A section is found fast, even among very many."""

    def __init__(self) -> None:
        self.by_path: dict[KeyPath, ConfigOrigin] = {}
        self._numbers: dict[KeyPath, int] = {}
        self._last = 0
        self._root = _Section()

    def set(self, path: KeyPath, origin: ConfigOrigin) -> None:
        self.by_path[path] = origin
        self._last += 1
        self._numbers.setdefault(path, self._last)
        section = self._root
        for key in path:
            section = section.setdefault(key, _Section())

    def forget(self, path: KeyPath) -> None:
        """Forget the setting at a path, and all below it."""
        sections = [self._root]
        for key in path:
            if key not in sections[-1]:
                return
            sections.append(sections[-1][key])
        for inside in list(self._iterate(path, sections[-1])):
            del self.by_path[inside], self._numbers[inside]
        sections[-1].clear()
        for depth in range(len(path), 0, -1):
            if sections[depth] or path[:depth] in self.by_path:
                break
            del sections[depth - 1][path[depth - 1]]

    def find(self, path: KeyPath) -> ConfigOrigin | None:
        """Return the origin of a setting, of the first one below it, or of the section that contains it."""
        section: _Section | None = self._root
        for key in path:
            section = None if section is None else section.get(key)
        inside = () if section is None else self._iterate(path, section)
        first = min(inside, key=self._numbers.__getitem__, default=None)
        if first is not None:
            return self.by_path[first]
        above = (self.by_path[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self.by_path)
        return next(above, None)

    def _iterate(self, path: KeyPath, section: _Section) -> Iterator[KeyPath]:
        if path in self.by_path:
            yield path
        for key, inside in section.items():
            yield from self._iterate((*path, key), inside)


class MergedConfig:
    """The layers added so far. A key keeps its first position, because the order of permissions matters."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = {}
        self.origins = Origins()

    def add(self, layer: ConfigLayer) -> None:
        self._merge(self.data, layer.data, (), layer.origin)

    def set(self, path: KeyPath, value: Any, origin: ConfigOrigin) -> None:
        """Set one key, replacing its value."""
        target = self.data
        for key in path[:-1]:
            target = target.setdefault(key, {})
        self._set(target, path, value, origin)

    def keep(self, data: dict[str, Any]) -> None:
        """Keep only these settings, a part of those that were merged."""
        self.data = data
        for path in list(self.origins.by_path):
            if not _contains(data, path):
                self.origins.forget(path)

    def _merge(
        self, target: dict[str, Any], overrides: Mapping[str, Any], path: KeyPath, origin: ConfigOrigin
    ) -> None:
        for key, value in overrides.items():
            item_path = (*path, key)
            if not path and key in APPENDED_LISTS:
                self._append_entries(item_path, value, origin)
            elif path == HOOKS_PATH and isinstance(target.get(key), list):
                self._set(target, item_path, [*target[key], *value], origin)
            elif isinstance(value, dict) and isinstance(target.get(key), dict):
                self._merge(target[key], value, item_path, origin)
            else:
                self._set(target, item_path, value, origin)

    def _append_entries(self, path: KeyPath, entries: list[str], origin: ConfigOrigin) -> None:
        joined: list[str] = self.data.setdefault(path[0], [])
        present = set(joined)
        for entry in entries:
            if entry not in present:
                self.origins.set((*path, str(len(joined))), origin)
                joined.append(entry)
                present.add(entry)

    def _set(self, target: dict[str, Any], path: KeyPath, value: Any, origin: ConfigOrigin) -> None:
        if path[-1] in target:
            self.origins.forget(path)
        target[path[-1]] = _copy_value(value)
        self._record_origins(value, path, origin)

    def _record_origins(self, value: Any, path: KeyPath, origin: ConfigOrigin) -> None:
        if isinstance(value, dict) and value:
            for key, item in value.items():
                self._record_origins(item, (*path, key), origin)
        else:
            self.origins.set(path, origin)


def _contains(value: Any, path: KeyPath) -> bool:
    for key in path:
        if isinstance(value, list):
            return True  # a list is kept as a whole
        if not isinstance(value, dict) or key not in value:
            return False
        value = value[key]
    return True


def _copy_value(value: Any) -> Any:
    """Copy containers, because later layers are merged into them."""
    if isinstance(value, dict):
        return {key: _copy_value(item) for key, item in value.items()}
    return list(value) if isinstance(value, list) else value

"""Configuration layers: what one source says, how layers are merged, and where each setting came from."""

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Protocol

from msgspec import Struct
from msgspec.structs import fields

from weft.config.check import check
from weft.config.jsonc import Finding, KeyPath
from weft.config.schema import AgentConfig
from weft.errors import ConfigError

Kind = Literal[
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

LIMIT = 4 << 20

# Tools that write files were once switched one by one; they answer to one permission.
_EDITING = ("write", "edit", "patch", "multiedit")
_AGENT_KEYS = frozenset(field.encode_name for field in fields(AgentConfig))


class Origin(Struct, frozen=True, kw_only=True):
    """Where a setting comes from, and whether it is the person's own word or the project's."""

    kind: Kind
    path: str
    own: bool


class Located(Protocol):
    """A text that knows where its keys stand."""

    def at(self, path: KeyPath) -> tuple[int, int]: ...


class Layer(Struct, frozen=True, kw_only=True):
    """`data` holds only what fits the schema. `text`, if there is one, tells the line of a key."""

    origin: Origin
    data: dict[str, Any]
    text: Located | None = None

    def at(self, path: KeyPath) -> tuple[int, int]:
        return self.text.at(path) if self.text is not None else (0, 0)


class Problems:
    """What went wrong on the way: `errors` cost a setting, `warnings` do not."""

    def __init__(self) -> None:
        self.errors: list[ConfigError] = []
        self.warnings: list[ConfigError] = []

    def note(self, origin: Origin, text: Located | None, findings: Iterable[Finding]) -> None:
        for finding in findings:
            at = text.at(finding.path) if text is not None else (0, 0)
            key = ".".join(finding.path)
            error = ConfigError(origin.path, finding.reason, at=at, key=key, near=finding.near)
            (self.warnings if finding.mild else self.errors).append(error)


def make_layer(origin: Origin, value: Mapping[str, Any], text: Located | None, problems: Problems) -> Layer:
    """What of `value` fits, as a layer; what does not is noted."""
    kept, findings = check(dict(value))
    problems.note(origin, text, findings)
    return Layer(origin=origin, data=_in_todays_names(kept, origin), text=text)


def read_text(path: str) -> str | None:
    """A file's text, None if there is no such file. Raises `ConfigError` if it cannot be read."""
    try:
        with open(path, "rb") as file:
            raw = file.read(LIMIT + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a file name"
        raise ConfigError(path, f"cannot be read: {reason}") from error
    if len(raw) > LIMIT:
        raise ConfigError(path, f"larger than {LIMIT >> 20} MB")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        # Not `from error`: it carries the file's content.
        raise ConfigError(path, "not UTF-8 text", at=(line, 0)) from None


def tools_to_permission(tools: Mapping[str, bool]) -> dict[str, Any]:
    """The old map of tools that are on or off, as permissions."""
    return {
        ("edit" if name in _EDITING else name): ("allow" if enabled else "deny")
        for name, enabled in tools.items()
    }


def _in_todays_names(data: dict[str, Any], origin: Origin) -> dict[str, Any]:
    renewed = dict(data)
    for section in ("agent", "mode"):
        if section in data:
            renewed[section] = {name: _renew_agent(agent) for name, agent in data[section].items()}
    if "plugin" in data:
        renewed["plugin"] = [_resolve_plugin(entry, origin) for entry in data["plugin"]]
    return renewed


def _renew_agent(agent: dict[str, Any]) -> dict[str, Any]:
    renewed = {key: value for key, value in agent.items() if key in _AGENT_KEYS}
    others = {key: value for key, value in agent.items() if key not in _AGENT_KEYS}
    if others:
        renewed["options"] = {**agent.get("options", {}), **others}
    if "tools" in agent:
        renewed["permission"] = {**tools_to_permission(agent["tools"]), **agent.get("permission", {})}
    if "maxSteps" in agent:
        renewed.setdefault("steps", agent["maxSteps"])
    return renewed


def _resolve_plugin(entry: str, origin: Origin) -> str:
    """A path relative to its file becomes absolute; a package's name stays."""
    if not entry.startswith(("./", "../", "/")):
        return entry
    path = os.path.normpath(os.path.join(os.path.dirname(origin.path), entry))
    return f"file://{path}" if os.path.exists(path) else entry


_PLACE = re.compile(r"at line (\d+), column (\d+)")


def from_toml(path: str, text: str) -> dict[str, Any]:
    """What a TOML configuration says, in today's keys. Raises `ConfigError`.

    OpenCode rewrites it as `config.json` and deletes it. We read it where it lies, and leave a person's files alone.
    """
    try:
        found = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        place = _PLACE.search(str(error))
        at = (int(place[1]), int(place[2])) if place else (0, 0)
        # Its own text may quote the file.
        raise ConfigError(path, "not TOML", at=at) from None
    provider, model = found.pop("provider", None), found.pop("model", None)
    if isinstance(provider, str) and isinstance(model, str):
        found["model"] = f"{provider}/{model}"
    return found


# Lists that grow from layer to layer. Any other list is replaced by the later one.
JOINED = ("plugin", "instructions")
# Here, too: what a person has watched everywhere is not to be forgotten where a project has more to watch.
HOOKS = ("experimental", "weft", "hooks")


class Merged:
    """The layers added so far. A key stays where it first appeared: the order of permissions means something."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = {}
        self.origins: dict[KeyPath, Origin] = {}

    def add(self, layer: Layer) -> None:
        self._lay(self.data, layer.data, (), layer.origin)

    def put(self, path: KeyPath, value: Any, origin: Origin) -> None:
        """Set one key, replacing what was there."""
        target = self.data
        for key in path[:-1]:
            target = target.setdefault(key, {})
        self._set(target, path, value, origin)

    def remove(self, path: KeyPath) -> None:
        target = self.data
        for key in path[:-1]:
            target = target.get(key, {})
        target.pop(path[-1], None)
        self._forget(path)

    def origin_of(self, path: KeyPath) -> Origin | None:
        """Of a setting, of the first one below it, or of what it is part of."""
        below = (origin for each, origin in self.origins.items() if each[: len(path)] == path)
        above = (self.origins[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self.origins)
        return next(below, None) or next(above, None)

    def _lay(self, target: dict[str, Any], over: Mapping[str, Any], path: KeyPath, origin: Origin) -> None:
        for key, value in over.items():
            here = (*path, key)
            if not path and key in JOINED:
                self._join(here, value, origin)
            elif path == HOOKS and isinstance(target.get(key), list):
                self._set(target, here, [*target[key], *value], origin)
            elif isinstance(value, dict) and isinstance(target.get(key), dict):
                self._lay(target[key], value, here, origin)
            else:
                self._set(target, here, value, origin)

    def _join(self, path: KeyPath, entries: list[str], origin: Origin) -> None:
        joined: list[str] = self.data.setdefault(path[0], [])
        for entry in entries:
            if entry not in joined:
                self.origins[(*path, str(len(joined)))] = origin
                joined.append(entry)

    def _set(self, target: dict[str, Any], path: KeyPath, value: Any, origin: Origin) -> None:
        if path[-1] in target:
            self._forget(path)
        target[path[-1]] = _copy(value)
        self._record(value, path, origin)

    def _forget(self, path: KeyPath) -> None:
        for each in [each for each in self.origins if each[: len(path)] == path]:
            del self.origins[each]

    def _record(self, value: Any, path: KeyPath, origin: Origin) -> None:
        if isinstance(value, dict) and value:
            for key, item in value.items():
                self._record(item, (*path, key), origin)
        else:
            self.origins[path] = origin


def _copy(value: Any) -> Any:
    """Containers anew: later layers are laid into them."""
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return list(value) if isinstance(value, list) else value

"""Layers laid over one another, and which of them each setting came from."""

from collections.abc import Mapping
from typing import Any

from weft.config.finding import KeyPath
from weft.config.layer import Layer, Origin

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

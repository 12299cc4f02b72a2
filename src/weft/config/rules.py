"""Permissions as configured, turned into rules."""

from collections.abc import Mapping

from weft.config.schema import PermissionMap
from weft.model.permission import Action, Rule, Ruleset


def to_ruleset(permission: PermissionMap | None, *, home: str) -> Ruleset:
    """One rule per entry, in the order written. `~` and `$HOME` at the front of a pattern are the person's home."""
    return tuple(
        Rule(permission=key, pattern=pattern, action=action)
        for key, value in (permission or {}).items()
        for pattern, action in _patterns(value, home).items()
    )


def _patterns(value: Action | Mapping[str, Action], home: str) -> dict[str, Action]:
    if isinstance(value, str):
        return {"*": value}
    return {_expand(pattern, home): action for pattern, action in value.items()}


def _expand(pattern: str, home: str) -> str:
    if pattern == "~" or pattern.startswith("~/"):
        return home + pattern[1:]
    return home + pattern.removeprefix("$HOME") if pattern.startswith("$HOME") else pattern

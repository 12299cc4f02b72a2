"""Hooks as functions of a test, with a record of their calls."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from weft.errors import BlockedError
from weft.plugin.hooks import HookOutput, Hook

Told = TypeVar("Told")
Now = TypeVar("Now", bound=HookOutput)
Say = Callable[[Any, Any], Any]


class FakeHooks:
    """Maps the name of a hook to a function that returns the new value, or None to leave it."""

    def __init__(self, said: Mapping[str, Say]) -> None:
        self._said = said
        self.calls: list[tuple[str, Any, Any]] = []

    def any(self, hook: Hook[Any, Any]) -> bool:
        return hook.name in self._said

    async def ask(self, hook: Hook[Told, Now], told: Told, now: Now) -> Now:
        assert isinstance(told, hook.told)
        assert isinstance(now, hook.now)
        self.calls.append((hook.name, told, now))
        try:
            given = self._said[hook.name](told, now)
        except BlockedError:
            assert hook.blocks, f"{hook.name} cannot say no"
            raise
        return now if given is None else given

    def names(self) -> list[str]:
        return [name for name, _, _ in self.calls]


def block(reason: str) -> Say:
    """Return a hook that blocks with a reason."""

    def say(told: Any, now: Any) -> Any:
        raise BlockedError(reason)

    return say


def leave(told: Any, now: Any) -> None:
    """Change nothing."""

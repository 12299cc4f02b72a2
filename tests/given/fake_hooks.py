"""Fake hooks: each gives the answer that the test sets, and records its input."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from weft.errors import BlockedError
from weft.plugin.hooks import Hook, HookOutput

Told = TypeVar("Told")
Now = TypeVar("Now", bound=HookOutput)
Say = Callable[[Any, Any], Any]


class FakeHooks:
    """Functions by the name of their hook. Each gets the input and the current value, and returns the new value or None."""

    def __init__(self, said: Mapping[str, Say]) -> None:
        self._said = said
        self.calls: list[tuple[str, Any, Any]] = []

    def any(self, hook: Hook[Any, Any]) -> bool:
        return hook.name in self._said

    async def ask(self, hook: Hook[Told, Now], input: Told, output: Now) -> Now:
        assert isinstance(input, hook.input)
        assert isinstance(output, hook.output)
        self.calls.append((hook.name, input, output))
        try:
            given = self._said[hook.name](input, output)
        except BlockedError:
            assert hook.blocks, f"{hook.name} cannot say no"
            raise
        return output if given is None else given

    def names(self) -> list[str]:
        return [name for name, _, _ in self.calls]


def block(reason: str) -> Say:
    """A hook that forbids it."""

    def say(input: Any, output: Any) -> Any:
        raise BlockedError(reason)

    return say


def leave(input: Any, output: Any) -> None:
    """A hook that changes nothing."""

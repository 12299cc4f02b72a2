"""weft as a plugin has it: what it awaits in its own loop is done in ours."""

import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from weft.api import Api
from weft.errors import UnsupportedError
from weft.plugin.room import Outside


class Remote:
    """An object of ours, seen from a plugin's room: its coroutines can be awaited there, and what it is made of likewise."""

    def __init__(self, target: Any, outside: Outside, promised: type = object) -> None:
        self._target = target
        self._outside = outside
        self._promised = promised

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or (self._promised is not object and not hasattr(self._promised, name)):
            raise AttributeError(f"weft promises nothing of the name {name!r}")
        found = getattr(self._target, name)
        if inspect.iscoroutinefunction(found):
            return self._carried_over(found)
        if callable(found):
            raise UnsupportedError(
                f"{name} from within a plugin", hint='for what happens there is @hook("event")'
            )
        return Remote(found, self._outside)

    def _carried_over(self, function: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
        async def call(*given: Any, **named: Any) -> Any:
            return await self._outside.do(lambda: function(*given, **named))

        return call


def to_remote(api: Api, outside: Outside) -> Any:
    return Remote(api, outside, Api)

"""The desk: what the tools of one session share, from call to call."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from weft.model.todo import Todo
from weft.tool.guard import Guard
from weft.tool.spill import Spill


class Edited(Protocol):
    """Tell that a file was changed; returns when those who tidy it up (formatters) are done."""

    async def __call__(self, path: str) -> None: ...


class TodoList(Protocol):
    """The session's list of what is to be done."""

    async def read(self) -> Sequence[Todo]: ...

    async def write(self, todos: Sequence[Todo]) -> None: ...


class Desk(Struct, frozen=True, kw_only=True):
    """`environment` is all that child processes see; make it with `tool_environment`."""

    guard: Guard
    spill: Spill
    todos: TodoList
    edited: Edited
    environment: Mapping[str, str]

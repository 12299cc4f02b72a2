"""The desk: what the tools of one session share, from call to call."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from weft.host.clock import SystemClock
from weft.model.ids import Mint
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


def bare_desk() -> Desk:
    """A desk for one call outside of any session: it remembers nothing after it, and nobody is told."""
    spill = Spill(os.path.join(tempfile.gettempdir(), "weft-output"), Mint(SystemClock().now, os.urandom))
    return Desk(guard=Guard(), spill=spill, todos=MemoryTodos(), edited=_nobody_tidies, environment={})


class MemoryTodos:
    """A list that lives as long as the object."""

    def __init__(self) -> None:
        self._todos: tuple[Todo, ...] = ()

    async def read(self) -> Sequence[Todo]:
        return self._todos

    async def write(self, todos: Sequence[Todo]) -> None:
        self._todos = tuple(todos)


async def _nobody_tidies(path: str) -> None:
    del path

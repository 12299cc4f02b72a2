"""The desk: what the tools of one session share, from call to call."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from weft.host.sandbox.wall import OPEN, Sandbox
from weft.model.finding import Recalled
from weft.model.todo import Todo
from weft.outlook import EditorTerminals
from weft.tool.buffers import Files
from weft.tool.diagnostic import Lookout, Unwatched
from weft.tool.guard import Guard
from weft.tool.inquire import Handover, Inquire, NoHandover, nobody
from weft.tool.job import Jobs, NoJobs
from weft.tool.reach import Reach
from weft.tool.spill import Spill


class Edited(Protocol):
    """Tell that a file was changed; returns when those who tidy it up (formatters) are done."""

    async def __call__(self, path: str) -> None: ...


class TodoList(Protocol):
    """The session's list of what is to be done."""

    async def read(self) -> Sequence[Todo]: ...

    async def write(self, todos: Sequence[Todo]) -> None: ...


class Recall(Protocol):
    """Find words in what was summed up, and is no longer before the model."""

    async def __call__(self, words: str, *, limit: int) -> Sequence[Recalled]: ...


class Desk(Struct, frozen=True, kw_only=True):
    """`environment` is all that child processes see; make it with `tool_environment`. `sandbox` is put around them."""

    guard: Guard
    spill: Spill
    todos: TodoList
    edited: Edited
    recall: Recall
    environment: Mapping[str, str]
    files: Files = Files()
    terminals: EditorTerminals | None = None
    lookout: Lookout = Unwatched()
    reach: Reach = Reach()
    inquire: Inquire = nobody
    handover: Handover = NoHandover()
    jobs: Jobs = NoJobs()
    sandbox: Sandbox = OPEN

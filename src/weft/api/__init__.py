"""The `Api`: every operation that a front end may use. `weft.local` implements it in process, `weft.client` over HTTP."""

from collections.abc import AsyncIterator
from typing import Protocol

from weft.api.configuration import Configuration, Mcp
from weft.api.data import Data
from weft.api.permissions import Permissions, Questions
from weft.api.runs import ClientTools, Commands, Runs, Undo
from weft.api.sessions import Messages, Moves, Sessions, SessionSearch, Transfers
from weft.api.sharing import Sharing
from weft.api.trials import Trials
from weft.api.workspace import Files, Terminals, Workspace, Worktrees
from weft.model.event import Event, PublishedEvent
from weft.model.project import Project


class Events(Protocol):
    """Events as they happen.

    * `events` yields events in the order in which they happened, each with a cursor to resume after.
    * A cursor that is no longer held raises `CursorLostError`.
    * `publish` publishes an event of a front end. Events that are stored are refused with `InvalidInputError`.
    """

    def events(self, *, after: int | None = None) -> AsyncIterator[PublishedEvent]: ...

    async def publish(self, event: Event) -> None: ...


class Api(
    Sessions,
    Messages,
    SessionSearch,
    Transfers,
    Runs,
    ClientTools,
    Undo,
    Commands,
    Permissions,
    Questions,
    Events,
    Protocol,
):
    """All operations, for one directory of one project."""

    @property
    def workspace(self) -> Workspace: ...

    @property
    def configuration(self) -> Configuration: ...

    @property
    def files(self) -> Files: ...

    @property
    def terminals(self) -> Terminals: ...

    @property
    def mcp(self) -> Mcp: ...

    @property
    def sharing(self) -> Sharing: ...

    @property
    def worktrees(self) -> Worktrees: ...

    @property
    def trials(self) -> Trials: ...

    @property
    def data(self) -> Data: ...

    @property
    def moves(self) -> Moves: ...

    async def current_project(self) -> Project: ...

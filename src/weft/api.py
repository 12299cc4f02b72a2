"""The promise: every operation a front end may ask for. Kept in process by `weft.app`, over HTTP by `weft.client`."""

from collections.abc import AsyncIterator
from typing import Protocol

from weft.model.event import Told
from weft.model.ids import PermissionID, SessionID
from weft.model.input import PromptInput, SessionInput
from weft.model.message import MessageWithParts
from weft.model.permission import PermissionRequest, Reply
from weft.model.project import Project
from weft.model.session import Session


class Sessions(Protocol):
    """Conversations at rest.

    * a session exists on disk before `create_session` returns it;
    * `get_session` and `list_messages` raise `NotFoundError` for an id there is none of;
    * `list_sessions` gives the newest first, `list_messages` the oldest first.
    """

    async def create_session(self, input: SessionInput) -> Session: ...

    async def get_session(self, id: SessionID) -> Session: ...

    async def list_sessions(self, *, roots: bool = False, limit: int | None = None) -> list[Session]: ...

    async def list_messages(
        self, session: SessionID, *, limit: int | None = None
    ) -> list[MessageWithParts]: ...


class Runs(Protocol):
    """Conversations in motion.

    * a prompt is on disk before anything runs, and is answered, or the reason why not is stored and told;
    * `prompt` gives the last message of the run; sent while one is under way, it joins it;
    * the same `message_id` sent twice is one prompt;
    * `check_prompt` raises what `prompt` would raise about agent and model, and does nothing else;
    * `abort` ends the run of a session and gives whether there was one; no part stays open behind it.
    """

    async def check_prompt(self, input: PromptInput) -> None: ...

    async def prompt(self, session: SessionID, input: PromptInput) -> MessageWithParts: ...

    async def abort(self, session: SessionID) -> bool: ...


class Permissions(Protocol):
    """Questions of an agent about what it may do.

    * an answer to a question that is not open raises `NotFoundError`;
    * `reject` also answers every other open question of that session; a `message` tells the agent what to do instead.
    """

    async def list_permissions(self) -> list[PermissionRequest]: ...

    async def reply_permission(self, id: PermissionID, reply: Reply, *, message: str = "") -> None: ...


class Events(Protocol):
    """What happens, as it happens.

    * events come in the order they happened, each with a cursor to resume after;
    * a cursor that is no longer held raises `CursorLostError`.
    """

    def events(self, *, after: int | None = None) -> AsyncIterator[Told]: ...


class Api(Sessions, Runs, Permissions, Events, Protocol):
    """All of it, for one directory of one project."""

    async def current_project(self) -> Project: ...

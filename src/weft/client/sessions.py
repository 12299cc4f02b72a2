"""Stored sessions and their messages, over HTTP."""

import os
from collections.abc import AsyncIterator
from typing import Any

from weft.client.http import (
    ServerConnection,
    delete,
    get,
    message_path,
    part_path,
    patch,
    post,
    put,
    require_weft,
    session_path,
    weft_path,
)
from weft.errors import InvalidInputError, NotFoundError
from weft.model.diff import FileDiff
from weft.model.ids import MessageID, PartID, SessionID, check_id, check_new_id
from weft.model.input import SessionInput
from weft.model.message import AnyMessage, MessageWithParts, find_end
from weft.model.part import AnyPart
from weft.model.session import SessionChange, SessionInfo, SessionTree, Todo, TrashBundle
from weft.model.session_query import ALL_SESSIONS, SessionQuery, select_sessions
from weft.model.wire import to_plain

PAGE_SIZE = 100


class RemoteSessions:
    """The `Sessions` of a server."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    async def create_session(self, input: SessionInput) -> SessionInfo:
        if input.workspace is not None:
            require_weft(self._connection, "a git workspace")
        if input.parent_id is not None:
            check_id("session", input.parent_id)
            if not self._connection.is_weft:  # OpenCode does not check the parent
                await self.get_session(input.parent_id)
        return await self._connection.send(post("/session", input), SessionInfo)

    async def create_next(
        self, input: SessionInput, *, id: SessionID | None = None, directory: str | None = None
    ) -> SessionInfo:
        if id is None and directory is None:
            return await self.create_session(input)
        require_weft(self._connection, "choosing a session's id or directory")
        if id is not None:
            check_new_id("session", id)
        if directory is not None and not os.path.isabs(directory):
            raise InvalidInputError("directory", f"{directory[:80]!r} is not an absolute path")
        body = {"id": id, "directory": directory, **to_plain(input)}
        request = post(
            weft_path("/session"), {name: value for name, value in body.items() if value is not None}
        )
        return await self._connection.send(request, SessionInfo)

    async def get_session(self, id: SessionID) -> SessionInfo:
        return await self._connection.send(get(session_path(id)), SessionInfo)

    async def list_sessions(self, query: SessionQuery = ALL_SESSIONS) -> list[SessionInfo]:
        if not self._connection.is_weft:
            if query.everywhere:
                require_weft(self._connection, "listing the sessions of every project")
            return select_sessions(await self._connection.send(get("/session"), list[SessionInfo]), query)
        plain = to_plain(query)
        # `directory` names the directory that the server opens, so the one that is asked for has another name.
        if (directory := plain.pop("directory", None)) is not None:
            plain["at"] = directory
        if tags := plain.pop("tags", ()):
            plain["tag"] = ",".join(tags)
        return await self._connection.send(get(weft_path("/session"), **plain), list[SessionInfo])

    async def list_children(self, id: SessionID) -> list[SessionInfo]:
        await self._check_exists(id)
        found: list[SessionInfo] = await self._connection.send(
            get(session_path(id, "children")), list[SessionInfo]
        )
        return (
            sorted(found, key=lambda each: (each.time.created, each.id))
            if not self._connection.is_weft
            else found
        )

    async def get_tree(self, id: SessionID) -> SessionTree:
        require_weft(self._connection, "getting a tree of sessions", hint="use list_children for each level")
        return await self._connection.send(get(weft_path(session_path(id, "tree"))), SessionTree)

    async def update_session(
        self, id: SessionID, change: SessionChange, *, expected: SessionInfo | None = None
    ) -> SessionInfo:
        if not self._connection.is_weft:
            return await self._update_opencode(id, change, expected)
        body = {"change": change} | ({} if expected is None else {"expected": expected})
        return await self._connection.send(patch(weft_path(session_path(id)), body), SessionInfo)

    async def _update_opencode(
        self, id: SessionID, change: SessionChange, expected: SessionInfo | None
    ) -> SessionInfo:
        """Update a session of OpenCode, which accepts only a title and a time of archiving."""
        rest = {name for name in to_plain(change) if name not in {"title", "archived"}}
        if rest or expected is not None or change.archived is False:
            require_weft(
                self._connection, f"changing a session's {', '.join(sorted(rest)) or 'archive mark'}"
            )
        body: dict[str, Any] = {} if change.title is None else {"title": change.title.strip()}
        if body.get("title") == "":
            raise InvalidInputError("title", "it is empty")
        if change.archived is not None:
            since = (await self.get_session(id)).time.updated if change.archived is True else change.archived
            body["time"] = {"archived": since}
        return await self._connection.send(patch(session_path(id), body), SessionInfo)

    async def touch_session(self, id: SessionID) -> SessionInfo:
        require_weft(self._connection, "touching a session")
        return await self._connection.send(post(weft_path(session_path(id, "touch"))), SessionInfo)

    async def rename_session(self, id: SessionID, title: str) -> SessionInfo:
        return await self.update_session(id, SessionChange(title=title))

    async def archive_session(self, id: SessionID, *, archived: bool = True) -> SessionInfo:
        return await self.update_session(id, SessionChange(archived=archived))

    async def pin_session(self, id: SessionID, *, pinned: bool = True) -> SessionInfo:
        return await self.update_session(id, SessionChange(pinned=pinned))

    async def tag_session(self, id: SessionID, *tags: str) -> SessionInfo:
        return await self.update_session(id, SessionChange(tag=tags))

    async def untag_session(self, id: SessionID, *tags: str) -> SessionInfo:
        return await self.update_session(id, SessionChange(untag=tags))

    async def fork_session(self, id: SessionID, *, at: MessageID | None = None) -> SessionInfo:
        await self._check_exists(id)
        body = {} if at is None else {"messageID": check_id("message", at)}
        return await self._connection.send(post(session_path(id, "fork"), body), SessionInfo)

    async def remove_session(self, id: SessionID, *, trash: bool = True) -> list[SessionInfo]:
        if self._connection.is_weft:
            return await self._connection.send(
                delete(weft_path(session_path(id)), trash=trash), list[SessionInfo]
            )
        if trash:
            hint = "remove_session(id, trash=False) removes it for good"
            require_weft(self._connection, "moving a session to the trash", hint=hint)
        removed = await self._list_descendants(await self.get_session(id))
        await self._connection.send(delete(session_path(id)), bool)
        return removed

    async def _list_descendants(self, top: SessionInfo) -> list[SessionInfo]:
        """Return a session and its descendants, children first."""
        found: list[SessionInfo] = []
        for child in await self.list_children(top.id):
            found.extend(await self._list_descendants(child))
        return [*found, top]

    async def restore_session(self, id: SessionID) -> list[SessionInfo]:
        require_weft(self._connection, "the trash")
        return await self._connection.send(post(weft_path(session_path(id, "restore"))), list[SessionInfo])

    async def list_trash(self) -> list[TrashBundle]:
        require_weft(self._connection, "the trash")
        return await self._connection.send(get(weft_path("/trash")), list[TrashBundle])

    async def list_diff(self, session: SessionID, *, message: MessageID | None = None) -> list[FileDiff]:
        if message is not None:
            check_id("message", message)
        await self._check_exists(session, message)
        return await self._connection.send(
            get(session_path(session, "diff"), messageID=message), list[FileDiff]
        )

    async def list_todos(self, session: SessionID) -> list[Todo]:
        await self._check_exists(session)
        return await self._connection.send(get(session_path(session, "todo")), list[Todo])

    async def _check_exists(self, id: SessionID, message: MessageID | None = None) -> None:
        """Raise `NotFoundError` if a session or message does not exist: OpenCode answers with an empty list instead."""
        if self._connection.is_weft:
            return
        await self.get_session(id)
        if message is not None:
            await self._connection.send(get(message_path(id, message)), MessageWithParts)


class RemoteMessages(RemoteSessions):
    """The `Messages` of a server."""

    async def list_messages(
        self, session: SessionID, *, limit: int | None = None, before: MessageID | None = None
    ) -> list[MessageWithParts]:
        if before is not None:
            check_id("message", before)
        if not self._connection.is_weft and before is not None:
            found = await self._list_messages(session)
            end = find_end(before, (each.info.id for each in found))
            return found[:end][-limit:] if limit else found[:end] if limit is None else []
        if limit == 0:
            await self.get_session(session)
            return []
        if limit is None and before is not None:
            return [each async for each in self._stream_backwards(session, before)][::-1]
        return await self._list_messages(session, limit, before)

    async def stream_messages(self, session: SessionID) -> AsyncIterator[MessageWithParts]:
        if self._connection.is_weft:
            async for each in self._stream_backwards(session, None):
                yield each
            return
        for each in reversed(await self._list_messages(session)):
            yield each

    async def _stream_backwards(
        self, session: SessionID, before: MessageID | None
    ) -> AsyncIterator[MessageWithParts]:
        while page := await self._list_messages(session, PAGE_SIZE, before):
            for each in reversed(page):
                yield each
            before = page[0].info.id
            if len(page) < PAGE_SIZE:
                return

    async def _list_messages(
        self, session: SessionID, limit: int | None = None, before: MessageID | None = None
    ) -> list[MessageWithParts]:
        request = get(session_path(session, "message"), limit=limit, before=before)
        found: list[MessageWithParts] = await self._connection.send(request, list[MessageWithParts])
        if not found:
            await self._check_exists(session)
        return found

    async def get_message(self, session: SessionID, id: MessageID) -> MessageWithParts:
        return await self._connection.send(get(message_path(session, id)), MessageWithParts)

    async def update_message(self, message: AnyMessage) -> AnyMessage:
        path = message_path(message.session_id, message.id)
        require_weft(self._connection, "adding or replacing a message")
        updated: AnyMessage = await self._connection.send(put(weft_path(path), message), AnyMessage)
        return updated

    async def update_part(self, part: AnyPart, *, delta: str | None = None) -> AnyPart:
        path = part_path(part.session_id, part.message_id, part.id)
        if self._connection.is_weft:
            body = {"part": part} | ({} if delta is None else {"delta": delta})
            request = put(weft_path(path), body)
        else:
            await self.get_message(part.session_id, part.message_id)
            request = patch(path, part)
        updated: AnyPart = await self._connection.send(request, AnyPart)
        return updated

    async def remove_message(self, session: SessionID, id: MessageID) -> None:
        path = message_path(session, id)
        require_weft(self._connection, "removing a message")
        await self._connection.send(delete(path), bool)

    async def remove_part(self, session: SessionID, message: MessageID, id: PartID) -> None:
        path = part_path(session, message, id)
        if not self._connection.is_weft:
            found = await self.get_message(session, message)
            if id not in {each.id for each in found.parts}:
                raise NotFoundError("part", id)
        await self._connection.send(delete(path), bool)

"""Sessions and their messages at rest, over HTTP."""

import os
from collections.abc import AsyncIterator
from typing import Any

from weft.client.http import (
    Line,
    delete,
    get,
    message_at,
    need_weft,
    own,
    part_at,
    patch,
    post,
    put,
    session_at,
)
from weft.client.opencode import select
from weft.errors import InvalidInputError, NotFoundError
from weft.model.diff import FileDiff
from weft.model.ids import MessageID, PartID, SessionID, check_new, checked
from weft.model.input import SessionInput
from weft.model.message import AnyMessage, MessageWithParts, place_of
from weft.model.part import AnyPart
from weft.model.session import EVERY, Session, SessionChange, SessionQuery, SessionTree, Todo, Trashed
from weft.model.wire import to_plain

PAGE = 100


class RemoteSessions:
    """`Sessions`, kept by a server."""

    def __init__(self, line: Line) -> None:
        self._line = line

    async def create_session(self, input: SessionInput) -> Session:
        if input.parent_id is not None:
            checked("session", input.parent_id)
            if not self._line.ours:  # OpenCode takes any parent
                await self.get_session(input.parent_id)
        return await self._line.ask(post("/session", input), Session)

    async def create_next(
        self, input: SessionInput, *, id: SessionID | None = None, directory: str | None = None
    ) -> Session:
        if id is None and directory is None:
            return await self.create_session(input)
        need_weft(self._line, "choosing a session's id or directory")
        if id is not None:
            check_new("session", id)
        if directory is not None and not os.path.isabs(directory):
            raise InvalidInputError("directory", f"{directory[:80]!r} is not an absolute path")
        body = {"id": id, "directory": directory, **to_plain(input)}
        asked = post(own("/session"), {name: value for name, value in body.items() if value is not None})
        return await self._line.ask(asked, Session)

    async def get_session(self, id: SessionID) -> Session:
        return await self._line.ask(get(session_at(id)), Session)

    async def list_sessions(self, query: SessionQuery = EVERY) -> list[Session]:
        if not self._line.ours:
            if query.everywhere:
                need_weft(self._line, "listing the sessions of every project")
            return select(await self._line.ask(get("/session"), list[Session]), query)
        plain = to_plain(query)
        # A server lists by the directory that is asked; those of another one are chosen here.
        directory, limit = plain.pop("directory", None), plain.get("limit")
        if directory is not None:
            plain.pop("limit", None)
        found: list[Session] = await self._line.ask(get(own("/session"), **plain), list[Session])
        if directory is None:
            return found
        return [each for each in found if each.directory == directory][:limit]

    async def list_children(self, id: SessionID) -> list[Session]:
        await self._must_be_there(id)
        found: list[Session] = await self._line.ask(get(session_at(id, "children")), list[Session])
        return sorted(found, key=lambda each: (each.time.created, each.id)) if not self._line.ours else found

    async def get_tree(self, id: SessionID) -> SessionTree:
        need_weft(self._line, "a tree of sessions", hint="list_children goes from one to the next")
        return await self._line.ask(get(own(session_at(id, "tree"))), SessionTree)

    async def update_session(
        self, id: SessionID, change: SessionChange, *, expected: Session | None = None
    ) -> Session:
        if not self._line.ours:
            return await self._change_there(id, change, expected)
        body = {"change": change} | ({} if expected is None else {"expected": expected})
        return await self._line.ask(patch(own(session_at(id)), body), Session)

    async def _change_there(self, id: SessionID, change: SessionChange, expected: Session | None) -> Session:
        """OpenCode takes a title, and a time since when a session is archived."""
        rest = {name for name in to_plain(change) if name not in {"title", "archived"}}
        if rest or expected is not None or change.archived is False:
            need_weft(self._line, f"changing a session's {', '.join(sorted(rest)) or 'archive mark'}")
        body: dict[str, Any] = {} if change.title is None else {"title": change.title.strip()}
        if body.get("title") == "":
            raise InvalidInputError("title", "it is empty")
        if change.archived is not None:
            since = (await self.get_session(id)).time.updated if change.archived is True else change.archived
            body["time"] = {"archived": since}
        return await self._line.ask(patch(session_at(id), body), Session)

    async def touch_session(self, id: SessionID) -> Session:
        need_weft(self._line, "touching a session")
        return await self._line.ask(post(own(session_at(id, "touch"))), Session)

    async def rename_session(self, id: SessionID, title: str) -> Session:
        return await self.update_session(id, SessionChange(title=title))

    async def archive_session(self, id: SessionID, *, archived: bool = True) -> Session:
        return await self.update_session(id, SessionChange(archived=archived))

    async def pin_session(self, id: SessionID, *, pinned: bool = True) -> Session:
        return await self.update_session(id, SessionChange(pinned=pinned))

    async def tag_session(self, id: SessionID, *tags: str) -> Session:
        return await self.update_session(id, SessionChange(tag=tags))

    async def untag_session(self, id: SessionID, *tags: str) -> Session:
        return await self.update_session(id, SessionChange(untag=tags))

    async def fork_session(self, id: SessionID, *, at: MessageID | None = None) -> Session:
        await self._must_be_there(id)
        body = {} if at is None else {"messageID": checked("message", at)}
        return await self._line.ask(post(session_at(id, "fork"), body), Session)

    async def remove_session(self, id: SessionID, *, trash: bool = True) -> list[Session]:
        if self._line.ours:
            return await self._line.ask(delete(own(session_at(id)), trash=trash), list[Session])
        if trash:
            hint = "remove_session(id, trash=False) removes it for good"
            need_weft(self._line, "putting a session into a trash", hint=hint)
        gone = await self._below(await self.get_session(id))
        await self._line.ask(delete(session_at(id)), bool)
        return gone

    async def _below(self, top: Session) -> list[Session]:
        """All that goes with a session, children first."""
        gone: list[Session] = []
        for child in await self.list_children(top.id):
            gone.extend(await self._below(child))
        return [*gone, top]

    async def restore_session(self, id: SessionID) -> list[Session]:
        need_weft(self._line, "a trash")
        return await self._line.ask(post(own(session_at(id, "restore"))), list[Session])

    async def list_trash(self) -> list[Trashed]:
        need_weft(self._line, "a trash")
        return await self._line.ask(get(own("/trash")), list[Trashed])

    async def list_diff(self, session: SessionID, *, message: MessageID | None = None) -> list[FileDiff]:
        if message is not None:
            checked("message", message)
        await self._must_be_there(session, message)
        return await self._line.ask(get(session_at(session, "diff"), messageID=message), list[FileDiff])

    async def list_todos(self, session: SessionID) -> list[Todo]:
        await self._must_be_there(session)
        return await self._line.ask(get(session_at(session, "todo")), list[Todo])

    async def _must_be_there(self, id: SessionID, named: MessageID | None = None) -> None:
        """OpenCode answers some questions about what is not there with nothing; so it is asked whether it is."""
        if self._line.ours:
            return
        await self.get_session(id)
        if named is not None:
            await self._line.ask(get(message_at(id, named)), MessageWithParts)


class RemoteMessages(RemoteSessions):
    """`Messages`, kept by a server."""

    async def list_messages(
        self, session: SessionID, *, limit: int | None = None, before: MessageID | None = None
    ) -> list[MessageWithParts]:
        if before is not None:
            checked("message", before)
        if not self._line.ours and before is not None:
            found = await self._messages(session)
            end = place_of(before, (each.info.id for each in found))
            return found[:end][-limit:] if limit else found[:end] if limit is None else []
        if limit == 0:
            await self.get_session(session)
            return []
        if limit is None and before is not None:
            return [each async for each in self._backwards(session, before)][::-1]
        return await self._messages(session, limit, before)

    async def stream_messages(self, session: SessionID) -> AsyncIterator[MessageWithParts]:
        if self._line.ours:
            async for each in self._backwards(session, None):
                yield each
            return
        for each in reversed(await self._messages(session)):
            yield each

    async def _backwards(
        self, session: SessionID, before: MessageID | None
    ) -> AsyncIterator[MessageWithParts]:
        while page := await self._messages(session, PAGE, before):
            for each in reversed(page):
                yield each
            before = page[0].info.id
            if len(page) < PAGE:
                return

    async def _messages(
        self, session: SessionID, limit: int | None = None, before: MessageID | None = None
    ) -> list[MessageWithParts]:
        asked = get(session_at(session, "message"), limit=limit, before=before)
        found: list[MessageWithParts] = await self._line.ask(asked, list[MessageWithParts])
        if not found:
            await self._must_be_there(session)
        return found

    async def get_message(self, session: SessionID, id: MessageID) -> MessageWithParts:
        return await self._line.ask(get(message_at(session, id)), MessageWithParts)

    async def update_message(self, message: AnyMessage) -> AnyMessage:
        path = message_at(message.session_id, message.id)
        need_weft(self._line, "putting a message in place")
        put_there: AnyMessage = await self._line.ask(put(own(path), message), AnyMessage)
        return put_there

    async def update_part(self, part: AnyPart, *, delta: str | None = None) -> AnyPart:
        path = part_at(part.session_id, part.message_id, part.id)
        if self._line.ours:
            body = {"part": part} | ({} if delta is None else {"delta": delta})
            asked = put(own(path), body)
        else:
            await self.get_message(part.session_id, part.message_id)
            asked = patch(path, part)
        put_there: AnyPart = await self._line.ask(asked, AnyPart)
        return put_there

    async def remove_message(self, session: SessionID, id: MessageID) -> None:
        path = message_at(session, id)
        need_weft(self._line, "taking a message out")
        await self._line.ask(delete(path), bool)

    async def remove_part(self, session: SessionID, message: MessageID, id: PartID) -> None:
        path = part_at(session, message, id)
        if not self._line.ours:
            there = await self.get_message(session, message)
            if id not in {each.id for each in there.parts}:
                raise NotFoundError("part", id)
        await self._line.ask(delete(path), bool)

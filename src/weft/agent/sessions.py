"""The session store on its own: keep histories of any framework in weft, and load, fork and search them."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from hashlib import sha256
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from msgspec.structs import replace

from weft.bus import Bus, BusListener
from weft.config.store_address import resolve_store_url
from weft.context.compaction import search_messages
from weft.errors import InvalidInputError, NotFoundError, SessionBusyError, StoreError, UnreadableError
from weft.host.clock import Clock, SystemClock
from weft.host.paths import paths_from
from weft.host.processes import describe_process
from weft.journal import Journal, open_journal
from weft.local.offline import OfflineSessions
from weft.local.place import find_place, record_place
from weft.model.event import Durable, MessageRemoved, PublishedEvent, SessionDeleted, session_of
from weft.model.ids import HEX_LENGTH, PREFIXES, MessageID, Mint, SessionID, check_id
from weft.model.input import SessionInput
from weft.model.message import MessageWithParts, UserMessage, find_end
from weft.model.part import ToolPart
from weft.model.project import Place
from weft.model.search import Hit, RecallMatch
from weft.model.session import SessionChange, SessionInfo
from weft.model.session_query import SessionQuery
from weft.model.url import redact_url
from weft.session import fork, lifecycle, remove
from weft.session.append import (
    MessageBuilder,
    NewMessage,
    Role,
    check_messages,
    copy_json,
    list_unmatched_results,
)
from weft.session.messages import iterate_newest_first
from weft.store.contract import Store
from weft.store.url import open_store as open_backend
from weft.transfer.rebind import make_letters

ID_PREFIX = f"{PREFIXES['session']}_"
# Values of callers are stored below this word, so that they cannot replace those of weft.
VALUES = "values"
FOUND = 20
CREATION_SECONDS = 0.01
CLOSED_HINT = "use it inside `async with weft.open_store(…) as store`"

Infos = list[SessionInfo]
Hits = list[Hit]
Value = Mapping[str, object]


class OpenedStore:
    """An open store with its journal and bus. Every use checks that it is still open, and that this is its event loop."""

    def __init__(self, store: Store, journal: Journal, bus: Bus, *, url: str, directory: str) -> None:
        self._store = store
        self._journal = journal
        self.url = url
        self._directory = directory
        self._loop = asyncio.get_running_loop()
        self._place: Place | None = None
        self.bus = bus
        self.clock: Clock = SystemClock()
        self.mint = Mint(self.clock.now, os.urandom)
        self.closed: asyncio.Future[None] = self._loop.create_future()

    @property
    def store(self) -> Store:
        self.check()
        return self._store

    @property
    def journal(self) -> Journal:
        self.check()
        return self._journal

    def check(self) -> None:
        """Raise `StoreError` if the store is closed or belongs to another event loop."""
        if self.closed.done():
            raise StoreError("the store is closed", hint=CLOSED_HINT)
        if asyncio.get_running_loop() is not self._loop:
            raise StoreError(
                "the store belongs to another event loop",
                hint="open a store in each event loop; several may share one address",
            )

    def close(self) -> None:
        self.closed.set_result(None)

    async def make_session_maker(self) -> lifecycle.SessionMaker:
        """Return a maker of sessions for the directory. The project of the directory is found and recorded at the first use."""
        store, journal = self.store, self.journal
        if self._place is None:
            found = await find_place(store, self._directory, os.environ, self.clock.now())
            await record_place(store, journal, found)
            self._place = found.place
        return lifecycle.SessionMaker(
            journal=journal, clock=self.clock, mint=self.mint, random=os.urandom, place=self._place
        )

    def make_remover(self) -> remove.Remover:
        return OfflineSessions(
            store=self.store,
            journal=self.journal,
            clock=self.clock,
            directory=self._directory,
            env=os.environ,
        ).remover()


class AppendContext(NamedTuple):
    """What an append needs to know of the messages before it: the last time, the last prompt, and the calls it completes."""

    at: int = 0
    prompt: MessageID = MessageID("")
    calls: Mapping[str, ToolPart] = {}


class Session:
    """One session of a store. Every method raises `NotFoundError` if the session no longer exists.

    `append` and `rewind` are all or nothing, and durable when they return. Appends of several tasks or processes do not mix: an append
    that starts after another has returned comes after it.
    """

    def __init__(self, opened: OpenedStore, id: SessionID) -> None:
        self._opened = opened
        self._id = id

    def __repr__(self) -> str:
        return f"Session({self._id!r})"

    @property
    def id(self) -> SessionID:
        """The id of the session."""
        return self._id

    async def info(self) -> SessionInfo:
        """Return the record of the session: title, times, tags, project."""
        return await self._opened.store.get_session(self._id)

    async def append(self, *messages: str | NewMessage, role: Role = "user") -> list[MessageWithParts]:
        """Append messages and return them as they are stored. `role` is that of plain texts.

        Raise `InvalidInputError` if one of them cannot be stored; then none is.
        """
        new = check_messages(messages, role)
        if not new:
            return []
        return await self._write(new, await self._look_back(new))

    async def load(
        self, *, last: int | None = None, before: MessageID | None = None
    ) -> list[MessageWithParts]:
        """Return the messages, oldest first. With `last`, return at most that many of the last ones; with `before`, only those before that message."""
        if last is not None and last < 0:
            raise InvalidInputError("last", f"{last} is negative", hint="leave it out for all messages")
        await self.info()
        return await self._opened.store.list_messages(self._id, last=last, before=before)

    async def rewind(self, at: MessageID, *messages: NewMessage) -> list[MessageWithParts]:
        """Remove the message `at` and all after it, append `messages` in their place, and return those."""
        new = check_messages(messages, "user")
        history = await self.load()
        end = find_end(at, (message.info.id for message in history))
        kept, dropped = history[:end], history[end:]
        wanted = list_unmatched_results(new)
        before = AppendContext(
            at=kept[-1].info.time.created if kept else 0,
            prompt=next(
                (each.info.id for each in reversed(kept) if isinstance(each.info, UserMessage)), MessageID("")
            ),
            calls={call: part for each in kept for call, part in _list_calls(each) if call in wanted},
        )
        removed = [MessageRemoved(session_id=self._id, message_id=each.info.id) for each in dropped]
        return await self._write(new, before, *removed)

    async def fork(self, *, at: MessageID | None = None) -> "Session":
        """Create a session with a copy of the messages before the message `at`, or of all messages, and return it."""
        maker, source = await self._opened.make_session_maker(), await self.info()
        forked = await fork.fork(maker, self._opened.store, source, at=at)
        return Session(self._opened, forked.id)

    async def search(self, words: str, *, limit: int = FOUND) -> list[RecallMatch]:
        """Return the texts of this session that contain all the words, the newest first."""
        messages = await self.load()
        return search_messages(messages, words, limit=limit) if words.strip() and limit > 0 else []

    def events(self, *, after: int | None = None) -> AsyncIterator[PublishedEvent]:
        """Yield each event that this store handle writes about the session, from now on or after a cursor.

        It ends when the session is removed or the store is closed. Raise `CursorLostError` if the events after the cursor are
        no longer held. Changes of other processes are stored, but not yielded.
        """
        self._opened.check()
        return self._follow(self._opened.bus.listen(after))

    async def _follow(self, listener: BusListener) -> AsyncIterator[PublishedEvent]:
        while (news := await _take(listener, self._opened)) is not None:
            for each in news:
                if session_of(each.event) == self._id:
                    yield each
                    if isinstance(each.event, SessionDeleted):
                        return

    async def rename(self, title: str) -> SessionInfo:
        """Give the session another title."""
        return await self._change(SessionChange(title=title))

    async def tag(self, *tags: str) -> SessionInfo:
        """Add tags."""
        return await self._change(SessionChange(tag=tags))

    async def untag(self, *tags: str) -> SessionInfo:
        """Remove tags."""
        return await self._change(SessionChange(untag=tags))

    async def archive(self, *, archived: bool = True) -> SessionInfo:
        """Archive the session, or bring it back from the archive."""
        return await self._change(SessionChange(archived=archived))

    async def remove(self, *, trash: bool = True) -> None:
        """Move the session and its child sessions to the trash (`weft session trash`), or delete them for good.

        Raise `SessionBusyError` if one of them runs.
        """
        await remove.remove(self._opened.make_remover(), self._id, trash=trash)

    async def _change(self, change: SessionChange) -> SessionInfo:
        now = self._opened.clock.now()
        return await lifecycle.edit(
            self._opened.journal, self._id, lambda session: lifecycle.apply_change(session, change, now)
        )

    async def _look_back(self, new: Sequence[NewMessage]) -> AppendContext:
        """Read as many of the last messages as the new ones need."""
        wanted = list_unmatched_results(new)
        at, prompt, calls = 0, MessageID(""), dict[str, ToolPart]()
        needs_prompt = new[0].role != "user"
        # Most appends need no more than the last message.
        async for message in iterate_newest_first(self._opened.store, self._id, first=1):
            at = max(at, message.info.time.created)
            if not prompt and isinstance(message.info, UserMessage):
                prompt = message.info.id
            for call, part in _list_calls(message):
                if call in wanted:
                    calls[call] = part
                    wanted.discard(call)
            if not wanted and (prompt or not needs_prompt):
                break
        return AppendContext(at, prompt, calls)

    async def _write(
        self, new: Sequence[NewMessage], before: AppendContext, *removed: Durable
    ) -> list[MessageWithParts]:
        session = await self._reserve_time(before.at)
        builder = MessageBuilder(
            session,
            self._opened.mint,
            at=session.time.updated,
            prompt=before.prompt,
            calls=before.calls,
        )
        for each in new:
            builder.add(each)
        await self._opened.journal.commit(*removed, *builder.to_events())
        return builder.messages()

    async def _reserve_time(self, last: int) -> SessionInfo:
        """Return the session with a time of last use that no other append has.

        Messages are sorted by time, then by id, and ids of two processes can mix within a millisecond.
        """
        now = self._opened.clock.now()

        def advance(session: SessionInfo) -> SessionInfo:
            later = max(now, last + 1, session.time.updated + 1)
            return replace(session, time=replace(session.time, updated=later))

        return await self._opened.journal.edit(self._id, advance)


def _list_calls(message: MessageWithParts) -> list[tuple[str, ToolPart]]:
    return [(part.call_id, part) for part in message.parts if isinstance(part, ToolPart)]


async def _take(listener: BusListener, opened: OpenedStore) -> list[PublishedEvent] | None:
    """Wait for events, and return them. Return None if the store is closed and all events have been read."""
    if opened.bus.cursor > listener.cursor:
        return await listener.take()
    taking = asyncio.ensure_future(listener.take())
    waiting: list[asyncio.Future[Any]] = [taking, opened.closed]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        return taking.result() if taking.done() else None
    finally:
        taking.cancel()


class SessionStore:
    """Sessions at one address. Open one with `open_store`."""

    def __init__(self, opened: OpenedStore) -> None:
        self._opened = opened

    def __repr__(self) -> str:
        return f"SessionStore({redact_url(self._opened.url)!r})"

    async def session(self, name: str | None = None, *, title: str | None = None) -> Session:
        """Continue the session of this name, or create it. Without a name, create a new session.

        Any text is a name, also for several processes at once. A name that begins with `ses_` is the id of a session that exists;
        if there is none, raise `NotFoundError`. `title` is that of a new session; the default is the name.
        """
        if name is None:
            return await self._create(None, title)
        if not isinstance(name, str):
            raise InvalidInputError(
                "name", f"it is of the type {type(name).__name__}", hint="pass any text, or an id"
            )
        if not name.strip():
            raise InvalidInputError("name", "it is empty", hint="leave it out for a new session")
        if name.startswith(ID_PREFIX):
            return Session(self._opened, await self._get_id(name))
        return await self._continue(make_session_id(name), title or name[: lifecycle.MAX_TITLE_LENGTH])

    async def search(self, words: str, *, limit: int = FOUND) -> Hits:
        """Return the sessions that contain all the words, best match first. Words in double quotes must occur literally."""
        return await self._opened.store.search(words, limit=limit)

    async def put_value(self, key: Sequence[str], value: Value | None) -> None:
        """Store a JSON object that belongs to no session. None deletes it.

        The words of a key are up to 128 letters, digits, `_`, `.` and `-`.
        """
        copied = None if value is None else copy_json("value", value)
        await self._opened.store.put_value((VALUES, *key), copied)

    async def find_value(self, key: Sequence[str]) -> Value | None:
        """Return the object that was stored under a key, None if there is none."""
        found: Value | None = await self._opened.store.find_value((VALUES, *key))
        return found

    async def update_value(
        self, key: Sequence[str], change: Callable[[Value | None], Value | None]
    ) -> Value | None:
        """Replace an object by the result of `change`, atomically, and return it. `change` may run in another thread."""

        def checked(value: Value | None) -> Value | None:
            changed = change(value)
            return None if changed is None else copy_json("value", changed)

        updated: Value | None = await self._opened.store.update_value((VALUES, *key), checked)
        return updated

    async def list(
        self,
        *,
        search: str | None = None,
        tag: str | None = None,
        archived: bool | None = None,
        limit: int | None = None,
    ) -> Infos:
        """Return the sessions of all projects, the last used first. `search` is a part of the title."""
        query = SessionQuery(
            search=search,
            tags=(tag,) if tag else (),
            archived=archived,
            limit=limit,
            order="updated",
            everywhere=True,
        )
        return await self._opened.store.query_sessions(query)

    async def _get_id(self, given: str) -> SessionID:
        try:
            return (await self._opened.store.get_session(SessionID(check_id("session", given)))).id
        except UnreadableError:
            raise
        except NotFoundError as error:
            raise NotFoundError(
                "session",
                given,
                hint="a name that begins with ses_ is an id; list the sessions, or use another name",
            ) from error

    async def _continue(self, id: SessionID, title: str) -> Session:
        """Open the session, or create it. Of several processes one creates it, and the others wait."""
        while True:
            if await self._exists(id):
                return Session(self._opened, id)
            try:
                async with self._opened.journal.lease(id, describe_process()):
                    if not await self._exists(id):
                        return await self._create(id, title)
            except SessionBusyError:
                await self._opened.clock.sleep(CREATION_SECONDS)

    async def _exists(self, id: SessionID) -> bool:
        try:
            await self._opened.store.get_session(id)
        except UnreadableError:
            raise
        except NotFoundError:
            return False
        return True

    async def _create(self, id: SessionID | None, title: str | None) -> Session:
        checked = None if title is None else lifecycle.check_title(title)
        maker = await self._opened.make_session_maker()
        created = await lifecycle.create(maker, SessionInput(title=checked), id=id)
        return Session(self._opened, created.id)


def make_session_id(name: str) -> SessionID:
    """Return the id of the session of a name: the same in every process, without a table of names."""
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return SessionID(f"{ID_PREFIX}{digest[:HEX_LENGTH]}{make_letters('session name', name)}")


class StoreOpening(AbstractAsyncContextManager[SessionStore]):
    """A store that is not open yet: use it in `async with`."""

    def __init__(self, url: str | None, directory: str | os.PathLike[str]) -> None:
        self._context = _open_store(url, directory)

    async def __aenter__(self) -> SessionStore:
        return await self._context.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._context.__aexit__(kind, error, trace)

    if not TYPE_CHECKING:

        def __enter__(self) -> NoReturn:
            raise TypeError("a store is async: write `async with weft.open_store(…) as store:`")

        def __exit__(self, *error: object) -> None: ...


def open_store(
    url: str | os.PathLike[str] | None = None, *, directory: str | os.PathLike[str] = "."
) -> StoreOpening:
    """Open the store at an address: a path, `file:<path>`, `sqlite:<path>`, `postgres://…` or `memory:`. Without one, open the store of `weft`.

    New sessions belong to the project of `directory`. Any number of processes may open the same address. Raise
    `InvalidInputError` if the address is not that of a store.
    """
    if url is not None and not isinstance(url, str | os.PathLike):
        raise InvalidInputError(
            "url",
            f"it is of the type {type(url).__name__}",
            hint="pass a path, file:<path>, sqlite:<path>, postgres://… or memory:",
        )
    return StoreOpening(None if url is None else os.fspath(url), directory)


@asynccontextmanager
async def _open_store(url: str | None, directory: str | os.PathLike[str]) -> AsyncIterator[SessionStore]:
    paths = paths_from(os.environ)
    address = resolve_store_url(os.environ, paths, url)
    bus, place = Bus(), _locate(directory)
    async with (
        open_backend(address, cache=paths.cache) as backend,
        open_journal(backend, bus, SystemClock(), directory=place) as journal,
    ):
        opened = OpenedStore(backend, journal, bus, url=address, directory=place)
        try:
            yield SessionStore(opened)
        finally:
            opened.close()


def _locate(directory: str | os.PathLike[str]) -> str:
    """Return the absolute path, so that a later change of the working directory has no effect."""
    return os.path.abspath(directory)

"""The contract of a store: it persists durable events, and every backend keeps the same rules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from weft.model.damage import Damage
from weft.model.diff import FileDiff
from weft.model.event import Durable
from weft.model.ids import MessageID, ProjectID, SessionID
from weft.model.message import MessageWithParts
from weft.model.project import Project
from weft.model.search import Figures, Hit
from weft.model.session import SessionInfo, Todo, TrashBundle
from weft.model.session_query import SessionQuery
from weft.model.transfer import SessionExport
from weft.store.lease import LeaseToken

if TYPE_CHECKING:  # for types alone: few runs count or verify anything, and few stores have a log
    from weft.store.chain import ChainLines
    from weft.store.change_log import StoreChangeLog
    from weft.store.event_log import SessionLog
    from weft.store.statistics import StatisticsQuery

Key = tuple[str, ...]
SessionEditor = Callable[[SessionInfo], SessionInfo]
RootCommit = Callable[[str], str | None]
LogExtender = Callable[[bytes | None], Sequence[bytes]]
UpgradeProgress = Callable[[int, int], None]
NO_LEASES: Sequence[LeaseToken] = ()


class Store(Protocol):
    """Persists durable events and reads back what they describe.

    Writing:
    * `apply` is all or nothing, even if the process dies in the middle, and outlives the process once it has returned;
    * some events also outlive a power cut: a new or deleted session, a prompt, a completed answer, a removal, and an `edit` that
      changes anything; with them, so does everything that was applied to their sessions before, by this process or by earlier
      holders of the lease that is named;
    * applying an event twice has the same effect as applying it once;
    * deleting a session also deletes its messages, parts, diff and todos; removing a message also removes its parts;
    * growth of a part that does not exist, or whose offset does not match, changes nothing;
    * `edit` is atomic: no other change happens between its read and its write; events of the same session are stored with it, all
      or nothing; without events, an edit that changes nothing writes nothing;
    * unknown fields of a document survive when the document is written again;
    * a writer that names a lease which somebody else has taken over meanwhile, or that was given back, gets `LeaseLostError`,
      and nothing is changed.

    Reading:
    * `get_…` raises `NotFoundError`, `find_…` returns None, lists are sorted oldest first;
    * the order is by time, then by unwrapped id, never by raw id;
    * the next read sees everything that another process wrote through a store;
    * `query_sessions` returns the sessions that match a query, newest first, and does not read the others where the backend can
      avoid it; following the cursor of each page's last session visits every session that does not change meanwhile once;
    * `list_messages` returns the `last` messages, counted back from the message `before` if it is given;
    * a document that cannot be read is skipped, stays where it is, and is reported by `damage`.

    Trash:
    * `discard` moves sessions into the trash as one bundle, all or none, with everything that deleting them would delete;
    * `restore` puts a bundle back byte for byte, all or none, and never overwrites an existing session;
    * `purge` deletes a bundle for good;
    * `read_bundle` returns the sessions of a bundle with all that belongs to them, in the order of the bundle;
    * `restore`, `purge` and `read_bundle` raise `NotFoundError` if there is no such bundle.

    Private values (stored but never published as events: share secrets, grants, open requests, totals of the day):
    * `find_value` returns what `put_value` stored, None if there is nothing; putting None deletes the value;
    * `update_value` atomically replaces a value by the result of `change`;
    * `list_keys` returns the keys that begin with `prefix`, sorted.

    Logs (lines that are only ever appended: decisions about permissions):
    * `append_log` appends the lines that `extend` returns for the last line, which is None in an empty log; nobody else appends in
      between; a line is any bytes without a newline; an empty result appends nothing;
    * `read_log` returns all lines, oldest first, of an unknown log none; `list_logs` works like `list_keys`;
    * `trim_log` removes the oldest lines until at most `keep` are left, and returns how many it removed.

    Search:
    * `search` returns the best match of each session that contains all `words`, best first; a match in a title counts most, and
      one in the conversation more than one in reasoning or a tool call; the words must occur in the same message or title;
    * every text is valid as `words`; what is in double quotes must occur literally, other words may be the beginning of one;
    * `figures` adds up the messages that are not older than their session: older ones were copied by a fork;
    * both see a change by any process once it was named to `update_index`, or its session was updated with it or after it; text
      that is still growing may be missing;
    * `update_index` raises nothing: what it fails to index is found when the session is updated next.

    Running:
    * a session's `lease` has one holder at a time across all processes; if it is taken, `lease` raises `SessionBusyError`
      with the holder's name at once, without waiting; its token proves to a writing method who holds it;
    * `find_holder` returns the holder of a session's lease, None if nobody holds it;
    * a process that died no longer holds its lease; `list_abandoned` returns such a session until somebody takes its
      lease and gives it back, or the session is deleted.

    Chain:
    * every `apply` and `edit` adds one entry to the chain of each session that it changes, in the same all or nothing (see
      `weft.store.chain`): the digest of each document that it puts and the key of each that it removes;
    * growth adds none; the part is in the chain when it is put again;
    * an entry is bound to the one before it, the first to the id of the session, and says whether the session began with it;
    * a chain moves to the trash and back with its session, and is deleted with it;
    * `read_chain` returns the chain of a session, without entries if the session is unknown or older than chains.

    Sharing:
    * `event_log` is the log through which several nodes see the same events; None if this store has none.

    Resuming:
    * `change_log` names what changed last, so that listeners of a single server resume after a restart; None if this store has none.
    """

    @property
    def event_log(self) -> SessionLog | None: ...

    @property
    def change_log(self) -> StoreChangeLog | None: ...

    async def apply(self, *events: Durable, leases: Sequence[LeaseToken] = NO_LEASES) -> None: ...

    async def edit(
        self,
        session: SessionID,
        editor: SessionEditor,
        *events: Durable,
        leases: Sequence[LeaseToken] = NO_LEASES,
    ) -> SessionInfo: ...

    async def list_projects(self) -> list[Project]: ...

    async def find_project(self, id: ProjectID) -> Project | None: ...

    async def list_sessions(self, project: ProjectID | None = None) -> list[SessionInfo]: ...

    async def query_sessions(self, query: SessionQuery) -> list[SessionInfo]: ...

    async def get_session(self, id: SessionID) -> SessionInfo: ...

    async def list_messages(
        self, session: SessionID, *, last: int | None = None, before: MessageID | None = None
    ) -> list[MessageWithParts]: ...

    async def find_message(self, session: SessionID, id: MessageID) -> MessageWithParts | None: ...

    async def list_diff(self, session: SessionID) -> list[FileDiff]: ...

    async def list_todos(self, session: SessionID) -> list[Todo]: ...

    async def search(self, words: str, *, limit: int, project: ProjectID | None = None) -> list[Hit]: ...

    async def figures(self, query: StatisticsQuery) -> Figures: ...

    async def update_index(self, changed: Mapping[SessionID, Collection[MessageID]]) -> None: ...

    async def discard(self, sessions: Sequence[SessionID], *, at: int) -> TrashBundle: ...

    async def restore(self, bundle: str) -> TrashBundle: ...

    async def purge(self, bundle: str) -> None: ...

    async def read_bundle(self, bundle: str) -> list[SessionExport]: ...

    async def list_trash(self) -> list[TrashBundle]: ...

    async def put_value(self, key: Key, value: Any) -> None: ...

    async def find_value(self, key: Key) -> Any: ...

    async def update_value(
        self, key: Key, change: Callable[[Any], Any], *, leases: Sequence[LeaseToken] = NO_LEASES
    ) -> Any: ...

    async def list_keys(self, prefix: Key = ()) -> list[Key]: ...

    async def append_log(self, log: Key, extend: LogExtender) -> None: ...

    async def read_log(self, log: Key) -> list[bytes]: ...

    async def list_logs(self, prefix: Key = ()) -> list[Key]: ...

    async def trim_log(self, log: Key, *, keep: int) -> int: ...

    def lease(self, session: SessionID, owner: str) -> AbstractAsyncContextManager[LeaseToken]: ...

    async def find_holder(self, session: SessionID) -> str | None: ...

    async def list_abandoned(self) -> list[SessionID]: ...

    async def read_chain(self, session: SessionID) -> ChainLines: ...

    async def damage(self) -> list[Damage]: ...


@runtime_checkable
class PartsByMessage(Protocol):
    """A store that keeps parts by the id of their message alone, so that two messages of one id would share them.

    `owners` returns the session of each of these messages that is stored already. Whoever brings messages along from elsewhere asks for
    them first.
    """

    async def owners(self, messages: Sequence[MessageID]) -> dict[MessageID, SessionID]: ...

"""After any sequence of operations, every store returns the same as the memory store."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from given.postgres import make_url
from weft.errors import LeaseLostError, NotFoundError, SessionBusyError
from weft.model.diff import FileDiff
from weft.model.event import (
    Durable,
    MessageRemoved,
    MessageUpdated,
    PartGrew,
    PartRemoved,
    PartUpdated,
    ProjectUpdated,
    SessionCreated,
    SessionDeleted,
    SessionDiffed,
    SessionUpdated,
    TodoUpdated,
)
from weft.model.ids import MessageID, PartID, ProjectID, SessionID
from weft.model.project import Project, ProjectTime
from weft.model.session import SessionInfo, Todo, WeftSessionData
from weft.model.session_query import SessionQuery, to_cursor
from weft.store.contract import Key, Store
from weft.store.lease import LeaseToken
from weft.store.memory import MemoryStore
from weft.store.url import open_store
from weft.testing.store_samples import answer, prompt, session, text

SESSIONS = [SessionID("ses_a"), SessionID("ses_b")]
PROJECTS = [ProjectID("p1"), ProjectID("p2")]
KEYS = [("session_share", "ses_a"), ("lease", "ses_a"), ("lease", "ses_b")]
LOGS = [("log", "a"), ("log", "b"), ("alone",)]

sessions = st.sampled_from(SESSIONS)
projects = st.sampled_from(PROJECTS)
numbers = st.integers(1, 2)
words = st.sampled_from(["", "a", "bc", "\ud83d", "\x00", "é\n"])


@st.composite
def session_events(draw: st.DrawFn) -> Durable:
    info = replace(
        session(draw(sessions), project=draw(projects), created=draw(numbers), title=draw(words)),
        weft=draw(st.sampled_from([None, WeftSessionData(pinned=True, tags=("red",))])),
        parent_id=draw(st.sampled_from([None, *SESSIONS])),
    )
    kind = draw(st.sampled_from([SessionCreated, SessionUpdated, SessionUpdated, SessionDeleted]))
    return kind(info=info)


@st.composite
def message_events(draw: st.DrawFn) -> Durable:
    owner, number = draw(sessions), draw(numbers)
    id = f"msg_{owner}_{number}"
    made = draw(st.sampled_from([prompt, answer]))(id, of=owner, created=draw(numbers))
    gone = MessageRemoved(session_id=owner, message_id=MessageID(id))
    return draw(st.sampled_from([MessageUpdated(info=made), MessageUpdated(info=made), gone]))


@st.composite
def part_events(draw: st.DrawFn) -> Durable:
    owner, part = draw(sessions), f"prt_{draw(numbers)}"
    message = f"msg_{owner}_{draw(numbers)}"
    ids: dict[str, Any] = {"session_id": owner, "message_id": MessageID(message), "part_id": PartID(part)}
    put = PartUpdated(part=text(part, draw(words), of=message, session=owner))
    grew = PartGrew(field="text", delta=draw(words), offset=draw(st.integers(0, 4)), **ids)
    return draw(st.sampled_from([put, put, grew, grew, grew, PartRemoved(**ids)]))


@st.composite
def other_events(draw: st.DrawFn) -> Durable:
    owner, many = draw(sessions), draw(st.integers(0, 2))
    diff = tuple(FileDiff(file=f"f{number}", additions=number, deletions=0) for number in range(many))
    todos = tuple(Todo(content=str(number), status="pending", priority="low") for number in range(many))
    project = Project(id=draw(projects), worktree=draw(words), time=ProjectTime(created=many))
    return draw(
        st.sampled_from(
            [
                SessionDiffed(session_id=owner, diff=diff),
                TodoUpdated(session_id=owner, todos=todos),
                ProjectUpdated(info=project),
            ]
        )
    )


events = st.one_of(session_events(), message_events(), part_events(), part_events(), other_events())


async def discard_session(store: Store, id: SessionID, *, back: bool) -> None:
    """Discard a session if it exists, and restore or purge it."""
    try:
        trashed = await store.discard([id], at=1)
    except NotFoundError:
        return
    await (store.restore(trashed.id) if back else store.purge(trashed.id))


class Place:
    """One place where sessions are stored, opened twice, as by two processes; and the leases that it gave."""

    def __init__(self, runner: asyncio.Runner, address: str) -> None:
        self._runner = runner
        self._address = address
        self._stacks = [AsyncExitStack(), AsyncExitStack()]
        self.stores = [self._open(0), self._open(1)]
        self._held: dict[SessionID, tuple[int, AsyncExitStack]] = {}
        self.tokens: list[LeaseToken] = []

    def _open(self, which: int) -> Store:
        return self._runner.run(self._stacks[which].enter_async_context(open_store(self._address)))

    def do(self, which: int, work: Callable[[Store], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            return await work(self.stores[which])

        return self._runner.run(run())

    def open_again(self, which: int) -> None:
        for id in [id for id, (holder, _) in self._held.items() if holder == which]:
            self.give_back(id)
        self._runner.run(self._stacks[which].aclose())
        self.stores[which] = self._open(which)

    def take_lease(self, which: int, session: SessionID, owner: str) -> str:
        """Return who holds the lease now."""
        stack = AsyncExitStack()
        try:
            token = self._runner.run(stack.enter_async_context(self.stores[which].lease(session, owner)))
        except SessionBusyError as busy:
            return busy.owner
        self._held[session] = which, stack
        self.tokens.append(token)
        return owner

    def give_back(self, session: SessionID) -> None:
        if session in self._held:
            self._runner.run(self._held.pop(session)[1].aclose())

    def write_with(self, which: int, number: int, events: list[Durable]) -> str:
        """Write with the token of a lease, and return who holds the lease instead, or "written"."""
        if not self.tokens:
            return "no token"
        token = self.tokens[number % len(self.tokens)]

        async def write() -> str:
            try:
                await self.stores[which].apply(*events, leases=[token])
            except LeaseLostError as error:
                return f"lost to {error.owner!r}"
            return "written"

        return self._runner.run(write())

    def close(self) -> None:
        for id in list(self._held):
            self.give_back(id)
        for stack in self._stacks:
            self._runner.run(stack.aclose())


class Reference(Place):
    """The memory store. It ends when it is closed, so it is opened once."""

    def __init__(self, runner: asyncio.Runner) -> None:
        super().__init__(runner, "memory:")
        only = MemoryStore()
        self.stores = [only, only]

    def open_again(self, which: int) -> None:
        for id in [id for id, (holder, _) in self._held.items() if holder == which]:
            self.give_back(id)


async def edit_session(store: Store, id: SessionID, title: str, events: list[Durable]) -> SessionInfo | None:
    """Give a session another title and store events with it. Return what is stored, None if there is no such session."""
    try:
        return await store.edit(id, lambda known: replace(known, title=known.title + title), *events)
    except NotFoundError:
        return None


which_one = st.integers(0, 1)


class Sequences(RuleBasedStateMachine):
    """Every kind of store at a place of its own, and a memory store as the reference."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.reference = Reference(self.runner)
        self.places = {name: Place(self.runner, url) for name, url in self.make_urls().items()}

    def make_urls(self) -> dict[str, str]:
        """Return a new address for every store but the reference."""
        return {
            "file": f"file:{self.directory.name}/storage",
            "sqlite": f"sqlite:{self.directory.name}/sessions.db",
        }

    def do_everywhere(self, work: Callable[[Place], Any]) -> Any:
        """Do the same at all places. Return the outcome, which is the same everywhere."""
        expected = work(self.reference)
        for name, place in self.places.items():
            assert (name, work(place)) == (name, expected)
        return expected

    @initialize()
    def begin(self) -> None:
        """Store a part, so that there is something to grow, to query and to remove."""
        id = f"msg_{SESSIONS[0]}_1"
        self.apply(
            [
                SessionCreated(info=session(SESSIONS[0], created=1, title="a")),
                MessageUpdated(info=answer(id, of=SESSIONS[0], created=1)),
                PartUpdated(part=text("prt_1", "a", of=id, session=SESSIONS[0])),
            ],
            0,
        )

    @rule(batch=st.lists(events, min_size=1, max_size=5), which=which_one)
    def apply(self, batch: list[Durable], which: int) -> None:
        self.do_everywhere(lambda place: place.do(which, lambda store: store.apply(*batch)))

    @rule(event=part_events(), which=which_one)
    def grow(self, event: Durable, which: int) -> None:
        self.apply([event], which)

    @rule(id=sessions, title=words, batch=st.lists(part_events(), max_size=2), which=which_one)
    def edit(self, id: SessionID, title: str, batch: list[Durable], which: int) -> None:
        self.do_everywhere(lambda place: place.do(which, lambda store: edit_session(store, id, title, batch)))

    @rule(key=st.sampled_from(KEYS), value=st.sampled_from([None, 1, {"a": ["b"]}]), which=which_one)
    def put_value(self, key: Key, value: Any, which: int) -> None:
        self.do_everywhere(lambda place: place.do(which, lambda store: store.put_value(key, value)))

    @rule(
        log=st.sampled_from(LOGS),
        lines=st.lists(st.sampled_from([b"", b"a", b"\x00\xff"]), max_size=3),
        which=which_one,
    )
    def append_log(self, log: Key, lines: list[bytes], which: int) -> None:
        def extend(last: bytes | None) -> list[bytes]:
            return [(last or b"")[:2] + line for line in lines]

        self.do_everywhere(lambda place: place.do(which, lambda store: store.append_log(log, extend)))

    @rule(log=st.sampled_from(LOGS), keep=st.integers(0, 3), which=which_one)
    def trim_log(self, log: Key, keep: int, which: int) -> None:
        self.do_everywhere(lambda place: place.do(which, lambda store: store.trim_log(log, keep=keep)))

    @rule(id=sessions, back=st.booleans(), which=which_one)
    def discard(self, id: SessionID, back: bool, which: int) -> None:
        self.do_everywhere(lambda place: place.do(which, lambda store: discard_session(store, id, back=back)))

    @rule(id=sessions, owner=st.sampled_from(["one", "\u00e9two"]), which=which_one)
    def take_lease(self, id: SessionID, owner: str, which: int) -> None:
        self.do_everywhere(lambda place: place.take_lease(which, id, owner))

    @rule(id=sessions)
    def give_back(self, id: SessionID) -> None:
        self.do_everywhere(lambda place: place.give_back(id))

    @rule(event=session_events(), number=st.integers(0, 5), which=which_one)
    def write_with_a_lease(self, event: Durable, number: int, which: int) -> None:
        self.do_everywhere(lambda place: place.write_with(which, number, [event]))

    @rule(which=which_one)
    def open_again(self, which: int) -> None:
        self.do_everywhere(lambda place: place.open_again(which))

    @invariant()
    def all_stores_agree(self) -> None:
        for which in (0, 1):
            self.do_everywhere(lambda place, which=which: place.do(which, read_all))

    def teardown(self) -> None:
        for place in (self.reference, *self.places.values()):
            place.close()
        self.runner.close()
        self.directory.cleanup()


QUERIES = [
    SessionQuery(),
    SessionQuery(project_id=PROJECTS[0], order="updated"),
    SessionQuery(roots=True, limit=1),
    SessionQuery(parent_id=SESSIONS[0]),
    SessionQuery(pinned=True, tags=("red",)),
    SessionQuery(search="A", archived=False),
    SessionQuery(start=2, end=3),
    SessionQuery(after=to_cursor(session("ses_a", created=2), "created")),
]


async def read_all(store: Store) -> list[Any]:
    return [
        await store.list_projects(),
        await store.list_sessions(),
        [await store.list_sessions(project) for project in PROJECTS],
        [await store.query_sessions(query) for query in QUERIES],
        [await store.list_messages(id) for id in SESSIONS],
        [await store.list_messages(id, last=1) for id in SESSIONS],
        [await store.list_diff(id) for id in SESSIONS],
        [await store.list_todos(id) for id in SESSIONS],
        [await store.find_value(key) for key in KEYS],
        await store.list_keys(),
        [await store.read_log(log) for log in LOGS],
        await store.list_logs(("log",)),
        [await store.find_holder(id) for id in SESSIONS],
        [len((await store.read_chain(id)).lines) for id in SESSIONS],
        await store.list_abandoned(),
        await store.damage(),
    ]


class PostgresSequences(Sequences):
    """The same on Postgres. It is slower than the others, so it gets fewer examples."""

    def make_urls(self) -> dict[str, str]:
        return {"postgres": make_url()}


TestSequences = pytest.mark.slow(Sequences.TestCase)
TestSequences.settings = settings(max_examples=25, stateful_step_count=15, deadline=None)
TestPostgresSequences = pytest.mark.slow(PostgresSequences.TestCase)
TestPostgresSequences.settings = settings(max_examples=10, stateful_step_count=15, deadline=None)

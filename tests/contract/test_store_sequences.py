"""After any sequence of operations, the file store returns the same as the memory store."""

import asyncio
import tempfile
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from weft.errors import NotFoundError
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
from weft.model.session import Todo
from weft.store.contract import Store
from weft.store.files.store import FileStore
from weft.store.memory import MemoryStore
from weft.testing.store_values import answer, prompt, session, text

SESSIONS = [SessionID("ses_a"), SessionID("ses_b")]
PROJECTS = [ProjectID("p1"), ProjectID("p2")]
KEYS = [("session_share", "ses_a"), ("lease", "ses_a"), ("lease", "ses_b")]

sessions = st.sampled_from(SESSIONS)
projects = st.sampled_from(PROJECTS)
numbers = st.integers(1, 2)
words = st.sampled_from(["", "a", "bc", "\ud83d", "\x00", "é\n"])


@st.composite
def session_events(draw: st.DrawFn) -> Durable:
    info = session(draw(sessions), project=draw(projects), created=draw(numbers), title=draw(words))
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


class Sequences(RuleBasedStateMachine):
    """Two file stores on one tree, and a memory store as the reference."""

    def __init__(self) -> None:
        super().__init__()
        self.place = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.reference = MemoryStore()
        self.stores = [self.opened(), self.opened()]

    def opened(self) -> FileStore:
        store = FileStore(f"{self.place.name}/storage")
        self.runner.run(store.prepare(lambda _: None))
        return store

    @rule(batch=st.lists(events, min_size=1, max_size=5), which=st.integers(0, 1))
    def apply(self, batch: list[Durable], which: int) -> None:
        self.runner.run(self.reference.apply(*batch))
        self.runner.run(self.stores[which].apply(*batch))

    @rule(event=part_events(), which=st.integers(0, 1))
    def grow(self, event: Durable, which: int) -> None:
        self.apply([event], which)

    @rule(key=st.sampled_from(KEYS), value=st.sampled_from([None, 1, {"a": ["b"]}]), which=st.integers(0, 1))
    def put_value(self, key: tuple[str, ...], value: Any, which: int) -> None:
        self.runner.run(self.reference.put_value(key, value))
        self.runner.run(self.stores[which].put_value(key, value))

    @rule(id=sessions, back=st.booleans(), which=st.integers(0, 1))
    def discard(self, id: SessionID, back: bool, which: int) -> None:
        for store in (self.reference, self.stores[which]):
            self.runner.run(discard_session(store, id, back=back))

    @rule(which=st.integers(0, 1))
    def open_again(self, which: int) -> None:
        self.stores[which] = self.opened()

    @invariant()
    def all_stores_agree(self) -> None:
        expected = self.runner.run(everything(self.reference))
        for store in self.stores:
            assert self.runner.run(everything(store)) == expected

    def teardown(self) -> None:
        self.runner.close()
        self.place.cleanup()


async def everything(store: Store) -> list[Any]:
    return [
        await store.list_projects(),
        await store.list_sessions(),
        [await store.list_sessions(project) for project in PROJECTS],
        [await store.list_messages(id) for id in SESSIONS],
        [await store.list_messages(id, last=1) for id in SESSIONS],
        [await store.list_diff(id) for id in SESSIONS],
        [await store.list_todos(id) for id in SESSIONS],
        [await store.find_value(key) for key in KEYS],
        await store.damage(),
    ]


TestSequences = Sequences.TestCase
TestSequences.settings = settings(max_examples=25, stateful_step_count=15, deadline=None)

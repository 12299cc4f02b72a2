"""Repair a tree by hand, under its locks, keeping a backup of what is changed."""

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from msgspec import Struct
from msgspec.structs import replace

from weft.host.files import Disk, read_file
from weft.model.diff import cap_diffs, is_capped
from weft.model.event import Durable, MessageUpdated, SessionDiffed
from weft.model.ids import GLOBAL_PROJECT, MessageID, ProjectID, SessionID
from weft.model.message import AnyMessage, AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import TextPart
from weft.model.project import Project
from weft.model.session import Session, SessionTime
from weft.store.files.batch import Batch, Plan, lock_of
from weft.store.files.documents import LIMIT
from weft.store.files.inventory import Inventory, weigh
from weft.store.files.layout import Layout, session_lock
from weft.store.files.lock import Guard
from weft.store.files.messages import Messages
from weft.store.files.reader import Tree
from weft.store.files.writer import Writer
from weft.version import VERSION


class Caretaker:
    """`label` and `now` (ms) name the directory below `.weft/backup` that the originals go to, each at its own path."""

    def __init__(self, tree: Tree, label: str, now: int, *, disk: Disk | None = None) -> None:
        self.tree = tree
        self.messages = Messages(tree)
        self.layout: Layout = tree.layout
        self.backup = f"{self.layout.backups}/{label}-{now}"
        self.disk = disk or Disk()
        self._guard = Guard(self.layout, self.disk)
        self._writer = Writer(self.layout, self.disk, self._guard)

    @contextmanager
    def holding(self, *locks: str) -> Generator[tuple[str, ...]]:
        with self._guard.writing(locks) as held:
            yield held

    def recover(self) -> None:
        """Finish what dead writers began, and sweep away what they were writing."""
        self._guard.recover()

    def put(self, *events: Durable) -> None:
        """Apply events, all or nothing. The documents they replace or remove are copied aside first."""
        with self.holding(*(lock_of(event) for event in events)) as held:
            self.put_held(held, *events)

    def put_held(self, held: tuple[str, ...], *events: Durable) -> None:
        """The same for who holds the locks already."""
        batch = Batch(self.tree, self.messages)
        for event in events:
            batch.feed(event)
        plan = batch.plan()
        self._copy_aside(plan, held[0])
        self._writer.write(plan, held, flush=True)

    def lay_aside(self, path: str) -> bool:
        """Move a file or a directory out of the way; the caller holds its lock. False if it is gone already."""
        target = self._free(f"{self.backup}/{self.layout.relative(path)}")
        try:
            self.disk.move(path, target)
        except FileNotFoundError:
            return False
        self.disk.prune(os.path.dirname(path))
        return True

    def _copy_aside(self, plan: Plan, lock: str) -> None:
        for path in (*plan.puts, *plan.drops):
            if os.path.isfile(path):
                temp = self.layout.temp(lock, f"{os.urandom(6).hex()}.aside")
                self.disk.prepare(temp, read_file(path, limit=LIMIT)[0], flush=True)
                self.disk.move(temp, self._free(f"{self.backup}/{self.layout.relative(path)}"))

    def _free(self, path: str) -> str:
        number = 0
        while os.path.lexists(f"{path}~{number}" if number else path):
            number += 1
        return f"{path}~{number}" if number else path


TITLE_LENGTH = 60


def rebuilt(
    id: SessionID,
    messages: Sequence[MessageWithParts],
    projects: Iterable[Project],
    *,
    project: ProjectID | None = None,
) -> Session | None:
    """The session, as far as it can be told; None if there is no message to tell it from.

    `project` is where its document lay, if that is known. Else it is the project its agent worked in.
    """
    if not messages:
        return None
    times = [message.info.time.created for message in messages]
    ends = [
        message.info.time.completed or 0 for message in messages if isinstance(message.info, AssistantMessage)
    ]
    directory, root = _place(messages)
    found = [each.id for each in projects if root and root in (each.worktree, *each.sandboxes)]
    return Session(
        id=id,
        slug=f"recovered-{id[-6:].lower()}",
        version=VERSION,
        project_id=project or next(iter(found), GLOBAL_PROJECT),
        directory=directory,
        title=_title(messages),
        time=SessionTime(created=min(times), updated=max(*times, *ends, 0)),
    )


def _place(messages: Sequence[MessageWithParts]) -> tuple[str, str]:
    """Where the agent stood, and the top of that checkout."""
    for message in messages:
        if isinstance(message.info, AssistantMessage) and message.info.path is not None:
            return message.info.path.cwd, message.info.path.root
    return "", ""


def _title(messages: Sequence[MessageWithParts]) -> str:
    for part in (part for message in messages for part in message.parts):
        if isinstance(part, TextPart) and not part.synthetic and part.text.strip():
            return f"Recovered: {' '.join(part.text.split())[:TITLE_LENGTH]}"
    return "Recovered session"


Told = Callable[[int], None]

# A smaller document cannot hold what is over the bounds of one file.
SUSPECT = 64 << 10


class Shrunk(Struct, frozen=True, kw_only=True):
    """A document that was, or could be, made smaller."""

    path: str
    bytes: int
    after: int


class _Found(Struct, frozen=True, kw_only=True):
    path: str
    session: SessionID
    message: MessageID | None = None


def find_oversized(tree: Tree, inventory: Inventory, *, told: Told = lambda _: None) -> list[Shrunk]:
    """The documents whose diffs are over the bounds. What they would come to is known once they are shrunk."""
    return [
        Shrunk(path=found.path, bytes=weigh(found.path).bytes, after=0)
        for found in _suspects(tree, inventory, told)
        if _capped(tree, found) is not None
    ]


def shrink(caretaker: Caretaker, inventory: Inventory, *, told: Told = lambda _: None) -> list[Shrunk]:
    """Cap them, each under its session's lock; the originals are copied aside first."""
    shrunk: list[Shrunk] = []
    for found in _suspects(caretaker.tree, inventory, told):
        with suppress(FileNotFoundError), caretaker.holding(session_lock(found.session)) as held:
            event = _capped(caretaker.tree, found)
            if event is not None:
                before = weigh(found.path).bytes
                caretaker.put_held(held, event)
                shrunk.append(Shrunk(path=found.path, bytes=before, after=weigh(found.path).bytes))
    return shrunk


def _suspects(tree: Tree, inventory: Inventory, told: Told) -> Iterator[_Found]:
    for number, session in enumerate(sorted(inventory.sessions)):
        told(number)
        id = SessionID(session)
        if session in inventory.diffs and weigh(tree.layout.diff(id)).bytes > SUSPECT:
            yield _Found(path=tree.layout.diff(id), session=id)
        for name in sorted(inventory.messages.get(session, ())):
            path = tree.layout.message(id, MessageID(name))
            if weigh(path).bytes > SUSPECT:
                yield _Found(path=path, session=id, message=MessageID(name))


def _capped(tree: Tree, found: _Found) -> Durable | None:
    """The event that makes it small, None if it is small enough or cannot be read."""
    if found.message is None:
        diffs = tree.list_diff(found.session)
        return None if is_capped(diffs) else SessionDiffed(session_id=found.session, diff=cap_diffs(diffs))
    info: AnyMessage | None = tree.documents.find(found.path, AnyMessage)
    if not isinstance(info, UserMessage) or info.summary is None or is_capped(info.summary.diffs):
        return None
    summary = replace(info.summary, diffs=cap_diffs(info.summary.diffs))
    return MessageUpdated(info=replace(info, id=found.message, session_id=found.session, summary=summary))

"""Repair a tree under its locks, and keep a backup of everything that is changed."""

import os
from collections.abc import Generator, Iterable, Iterator, Sequence
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
from weft.store.files.batch import Batch, WritePlan, lock_of
from weft.store.files.documents import LIMIT
from weft.store.files.inventory import Inventory, ProgressCallback, measure_usage
from weft.store.files.layout import Layout, session_lock
from weft.store.files.lock import SessionLocks
from weft.store.files.messages import MessageReader
from weft.store.files.tree import Tree
from weft.store.files.writer import BatchWriter
from weft.version import VERSION


class TreeRepairer:
    """Saves originals below `.weft/backup/<label>-<now>`, each at its own path. `now` is in ms."""

    def __init__(self, tree: Tree, label: str, now: int, *, disk: Disk | None = None) -> None:
        self.tree = tree
        self.messages = MessageReader(tree)
        self.layout: Layout = tree.layout
        self.backup = f"{self.layout.backups}/{label}-{now}"
        self.disk = disk or Disk()
        self._locks = SessionLocks(self.layout, self.disk)
        self._writer = BatchWriter(self.layout, self.disk, self._locks)

    @contextmanager
    def holding(self, *locks: str) -> Generator[tuple[str, ...]]:
        with self._locks.writing(locks) as held:
            yield held

    def recover(self) -> None:
        """Finish the batches of dead writers and remove their temporary files."""
        self._locks.recover()

    def put(self, *events: Durable) -> None:
        """Apply events, all or nothing. Back up the documents that they replace or remove first."""
        with self.holding(*(lock_of(event) for event in events)) as held:
            self.put_held(held, *events)

    def put_held(self, held: tuple[str, ...], *events: Durable) -> None:
        """Like `put`, for a caller that already holds the locks."""
        batch = Batch(self.tree, self.messages)
        for event in events:
            batch.feed(event)
        plan = batch.plan()
        self._back_up(plan, held[0])
        self._writer.write(plan, held, flush=True)

    def move_to_backup(self, path: str) -> bool:
        """Move a file or directory to the backup. The caller holds its lock. Return False if it is already gone."""
        target = self._find_free_path(f"{self.backup}/{self.layout.relative(path)}")
        try:
            self.disk.move(path, target)
        except FileNotFoundError:
            return False
        self.disk.prune(os.path.dirname(path))
        return True

    def _back_up(self, plan: WritePlan, lock: str) -> None:
        for path in (*plan.puts, *plan.drops):
            if os.path.isfile(path):
                temp = self.layout.temp(lock, f"{os.urandom(6).hex()}.aside")
                self.disk.prepare(temp, read_file(path, limit=LIMIT)[0], flush=True)
                self.disk.move(temp, self._find_free_path(f"{self.backup}/{self.layout.relative(path)}"))

    def _find_free_path(self, path: str) -> str:
        number = 0
        while os.path.lexists(f"{path}~{number}" if number else path):
            number += 1
        return f"{path}~{number}" if number else path


TITLE_LENGTH = 60


def rebuild_session(
    id: SessionID,
    messages: Sequence[MessageWithParts],
    projects: Iterable[Project],
    *,
    project: ProjectID | None = None,
) -> Session | None:
    """Rebuild a lost session document from its messages. Return None if there are none.

    `project` is the project that held the document, if it is known. The default is the project in which the agent worked.
    """
    if not messages:
        return None
    times = [message.info.time.created for message in messages]
    ends = [
        message.info.time.completed or 0 for message in messages if isinstance(message.info, AssistantMessage)
    ]
    directory, root = _find_place(messages)
    found = [each.id for each in projects if root and root in (each.worktree, *each.sandboxes)]
    return Session(
        id=id,
        slug=f"recovered-{id[-6:].lower()}",
        version=VERSION,
        project_id=project or next(iter(found), GLOBAL_PROJECT),
        directory=directory,
        title=_choose_title(messages),
        time=SessionTime(created=min(times), updated=max(*times, *ends, 0)),
    )


def _find_place(messages: Sequence[MessageWithParts]) -> tuple[str, str]:
    """Return the working directory of the agent, and the root of that checkout."""
    for message in messages:
        if isinstance(message.info, AssistantMessage) and message.info.path is not None:
            return message.info.path.cwd, message.info.path.root
    return "", ""


def _choose_title(messages: Sequence[MessageWithParts]) -> str:
    for part in (part for message in messages for part in message.parts):
        if isinstance(part, TextPart) and not part.synthetic and part.text.strip():
            return f"Recovered: {' '.join(part.text.split())[:TITLE_LENGTH]}"
    return "Recovered session"


# A smaller document cannot contain a diff that exceeds the bounds.
SUSPECT_BYTES = 64 << 10


class ShrunkDocument(Struct, frozen=True, kw_only=True):
    """A document that was shrunk, or could be: its size before and after."""

    path: str
    bytes: int
    after: int


class _OversizedDocument(Struct, frozen=True, kw_only=True):
    path: str
    session: SessionID
    message: MessageID | None = None


def find_oversized(
    tree: Tree, inventory: Inventory, *, on_progress: ProgressCallback = lambda _: None
) -> list[ShrunkDocument]:
    """Return the documents whose diffs exceed the bounds. `after` is 0, because the new size is not known yet."""
    return [
        ShrunkDocument(path=found.path, bytes=measure_usage(found.path).bytes, after=0)
        for found in _list_suspects(tree, inventory, on_progress)
        if _cap(tree, found) is not None
    ]


def shrink(
    repairer: TreeRepairer, inventory: Inventory, *, on_progress: ProgressCallback = lambda _: None
) -> list[ShrunkDocument]:
    """Cap oversized diffs, each under the lock of its session. The originals are backed up."""
    shrunk: list[ShrunkDocument] = []
    for found in _list_suspects(repairer.tree, inventory, on_progress):
        with suppress(FileNotFoundError), repairer.holding(session_lock(found.session)) as held:
            event = _cap(repairer.tree, found)
            if event is not None:
                before = measure_usage(found.path).bytes
                repairer.put_held(held, event)
                shrunk.append(
                    ShrunkDocument(path=found.path, bytes=before, after=measure_usage(found.path).bytes)
                )
    return shrunk


def _list_suspects(
    tree: Tree, inventory: Inventory, on_progress: ProgressCallback
) -> Iterator[_OversizedDocument]:
    for number, session in enumerate(sorted(inventory.sessions)):
        on_progress(number)
        id = SessionID(session)
        if session in inventory.diffs and measure_usage(tree.layout.diff(id)).bytes > SUSPECT_BYTES:
            yield _OversizedDocument(path=tree.layout.diff(id), session=id)
        for name in sorted(inventory.messages.get(session, ())):
            path = tree.layout.message(id, MessageID(name))
            if measure_usage(path).bytes > SUSPECT_BYTES:
                yield _OversizedDocument(path=path, session=id, message=MessageID(name))


def _cap(tree: Tree, found: _OversizedDocument) -> Durable | None:
    """Return the event that caps a document, None if it is small enough or unreadable."""
    if found.message is None:
        diffs = tree.list_diff(found.session)
        return None if is_capped(diffs) else SessionDiffed(session_id=found.session, diff=cap_diffs(diffs))
    info: AnyMessage | None = tree.documents.find(found.path, AnyMessage)
    if not isinstance(info, UserMessage) or info.summary is None or is_capped(info.summary.diffs):
        return None
    summary = replace(info.summary, diffs=cap_diffs(info.summary.diffs))
    return MessageUpdated(info=replace(info, id=found.message, session_id=found.session, summary=summary))

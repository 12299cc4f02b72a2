"""A small file store that contains one document of every kind, and functions that list its documents."""

import os
from decimal import Decimal
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from weft.model.diff import FileDiff
from weft.model.event import (
    MessageUpdated,
    PartUpdated,
    ProjectUpdated,
    SessionCreated,
    SessionDiffed,
    TodoUpdated,
)
from weft.model.ids import MessageID, PartID, ProjectID, SessionID
from weft.model.message import AssistantMessage, AssistantTime, MessagePath, UserMessage
from weft.model.part import Moment, TextPart
from weft.model.project import Project, ProjectTime
from weft.model.session import SessionInfo, Todo
from weft.store.contract import Store
from weft.store.files.store import FileStore
from weft.testing.store_samples import NOW, PROJECT, session

FIRST, CHILD, OTHER = "ses_first", "ses_child", "ses_other"


async def open_file_store(root: Path) -> FileStore:
    store = FileStore(str(root))
    await store.prepare(lambda _: None)
    return store


async def fill(store: Store) -> None:
    """Store three sessions, one a child of the first, each with two messages of two parts, a diff and todos; and a project."""
    project = Project(id=PROJECT, worktree="/work", vcs="git", time=ProjectTime(created=NOW, updated=NOW))
    await store.apply(ProjectUpdated(info=project))
    for number, id in enumerate((FIRST, CHILD, OTHER)):
        await put_session(store, id, created=NOW + number, parent=FIRST if id == CHILD else None)


async def put_session(
    store: Store, id: str, *, created: int = NOW, parent: str | None = None, **more: Any
) -> SessionInfo:
    made = replace(
        session(id, created=created), parent_id=None if parent is None else SessionID(parent), **more
    )
    asked, answered = MessageID(f"msg_{id[4:]}_1"), MessageID(f"msg_{id[4:]}_2")
    prompt = UserMessage(id=asked, session_id=made.id, time=Moment(created=created), agent="build")
    answer = AssistantMessage(
        id=answered,
        session_id=made.id,
        time=AssistantTime(created=created + 1, completed=created + 2),
        parent_id=asked,
        path=MessagePath(cwd="/work", root="/work"),
        cost=Decimal("0.25"),
    )
    parts = [
        TextPart(
            id=PartID(f"prt_{message[4:]}_{letter}"),
            session_id=made.id,
            message_id=message,
            text=f"{letter} of {message}",
        )
        for message in (asked, answered)
        for letter in "ab"
    ]
    diff = (FileDiff(file="a.py", before="", after="x\n", additions=1, deletions=0),)
    todos = (Todo(content="weave", status="pending", priority="high", id="1"),)
    await store.apply(
        SessionCreated(info=made),
        MessageUpdated(info=prompt),
        MessageUpdated(info=answer),
        *(PartUpdated(part=part) for part in parts),
        SessionDiffed(session_id=made.id, diff=diff),
        TodoUpdated(session_id=made.id, todos=todos),
    )
    return made


def documents(root: Path) -> list[str]:
    """Return every document, by its path below the root."""
    found = (path.relative_to(root).as_posix() for path in root.rglob("*.json") if path.is_file())
    return sorted(path for path in found if not path.startswith(".weft/"))


def contents(root: Path) -> dict[str, bytes]:
    return {path: (root / path).read_bytes() for path in documents(root)}


def make_old(root: Path) -> None:
    """Make every file old enough not to be half written."""
    for path in root.rglob("*"):
        os.utime(path, (1, 1))


async def list_readable(root: Path, ids: tuple[str, ...] = (FIRST, CHILD, OTHER)) -> set[str]:
    """Return the documents that a store can read, by their path below the root."""
    store = await open_file_store(root)
    found = {f"project/{project.id}.json" for project in await store.list_projects()}
    for each in await store.list_sessions():
        found.add(f"session/{each.project_id}/{each.id}.json")
    for id in (SessionID(each) for each in ids):
        for message in await store.list_messages(id):
            found.add(f"message/{id}/{message.info.id}.json")
            found |= {f"part/{message.info.id}/{part.id}.json" for part in message.parts}
        found |= {f"session_diff/{id}.json"} if await store.list_diff(id) else set()
        found |= {f"todo/{id}.json"} if await store.list_todos(id) else set()
    return found


def project_of(root: Path, id: str) -> ProjectID:
    [found] = root.glob(f"session/*/{id}.json")
    return ProjectID(found.parent.name)

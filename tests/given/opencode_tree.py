"""Write a tree of many small sessions, as OpenCode stores them, to import from."""

import json
from pathlib import Path

from given.session_exports import export
from weft.model.transfer import SessionExport
from weft.model.wire import encode_pretty


def write_tree(root: Path, count: int) -> Path:
    """Write `count` sessions of two messages and three parts each, and return the storage directory."""
    storage = root / "opencode" / "storage"
    for number in range(1, count + 1):
        write_session(storage, export(number))
    project = {
        "id": "there",
        "worktree": "/there/project",
        "vcs": "git",
        "time": {"created": 1, "updated": 1},
        "sandboxes": [],
    }
    write_bytes(storage / "project" / "there.json", json.dumps(project).encode())
    (storage / "migration").write_text("2")
    return storage


def write_session(storage: Path, given: SessionExport) -> None:
    write_bytes(
        storage / "session" / given.info.project_id / f"{given.info.id}.json", encode_pretty(given.info)
    )
    for message in given.messages:
        write_bytes(
            storage / "message" / given.info.id / f"{message.info.id}.json", encode_pretty(message.info)
        )
        for part in message.parts:
            write_bytes(storage / "part" / message.info.id / f"{part.id}.json", encode_pretty(part))


def write_bytes(path: Path, raw: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)

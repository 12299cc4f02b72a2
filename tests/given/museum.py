"""The museum of stores: each exhibit in tests/museum is a store as an earlier version of weft or OpenCode wrote it.

Every version must open them all. tools/museum.py adds to them.
"""

import gzip
import hashlib
import json
import os
import tarfile
from pathlib import Path
from typing import Any

from given.postgres import NUMBERS, get_server
from weft.api import Api
from weft.model.ids import SessionID

MUSEUM = Path(__file__).parent.parent / "museum"
# Sessions name the directory that they work in. The project is the same for all exhibits, and on every machine.
MUSEUM_PROJECT = Path("/tmp/weft-museum/project")


def list_exhibits(prefix: str) -> list[str]:
    return sorted(path.stem for path in MUSEUM.glob(f"{prefix}*.json"))


def read_manifest(name: str) -> dict[str, Any]:
    """Return what an opened exhibit must contain. Fail if the exhibit was changed."""
    manifest: dict[str, Any] = json.loads((MUSEUM / f"{name}.json").read_bytes())
    [archive] = MUSEUM.glob(f"{name}.*.gz")
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == manifest.pop("sha256")
    return manifest


def unpack(name: str, directory: Path) -> str:
    """Copy an exhibit out of the museum, and return the URL of the store."""
    if name.startswith("postgres-"):
        return _load(gzip.decompress((MUSEUM / f"{name}.sql.gz").read_bytes()).decode())
    with tarfile.open(MUSEUM / f"{name}.tar.gz") as archive:
        archive.extractall(directory, filter="data")
    return f"sqlite:{directory}/sessions.db" if name.startswith("sqlite-") else f"file:{directory}/storage"


def _load(dump: str) -> str:
    """Load a dump into a database of its own: the functions of a schema know its name. Roles belong to the server, so a dump has none."""
    server = get_server()
    database = f"museum_{os.getpid()}_{next(NUMBERS)}"
    server.query(f"CREATE DATABASE {database}")
    role = (
        "DO $$ BEGIN CREATE ROLE weft_principal NOLOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$;"
    )
    server.load(f"{role}\n{dump}", database)
    return f"{server.get_url(database)}?schema=museum"


async def describe(api: Api, id: SessionID) -> dict[str, Any]:
    """Return what a person sees of a session."""
    info = await api.get_session(id)
    messages = await api.list_messages(id)
    return {
        "id": id,
        "title": info.title,
        "parent": info.parent_id,
        "todos": [todo.content for todo in await api.list_todos(id)],
        "messages": [
            {
                "role": message.info.role,
                "cost": str(getattr(message.info, "cost", 0)),
                "parts": [
                    {
                        "type": part.type,
                        "text": getattr(part, "text", None),
                        "tool": getattr(part, "tool", None),
                    }
                    for part in message.parts
                ],
            }
            for message in messages
        ],
    }

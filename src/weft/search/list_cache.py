"""Cache the session documents of a large project in one file, so that listing them reads one file."""

import os
from collections.abc import Iterable
from contextlib import suppress
from zlib import adler32, crc32

import msgspec

from weft.host.files import read_file, write_atomic
from weft.model.ids import ProjectID, SessionID
from weft.model.session import Session, newest_sort_key
from weft.store.reader import StoreReader

LIST_CACHE_VERSION = 1
MAX_CACHE_BYTES = 1 << 30
Stamp = tuple[int, int, int]
CachedRow = tuple[str, int, int, int, Session]


class SessionListCache(msgspec.Struct, frozen=True, array_like=True):
    """The sessions of a project with their stamps, oldest first."""

    root: str
    project: str
    sessions: list[CachedRow]


def hash_key(text: str) -> str:
    """Return a short hash for the name of a file."""
    raw = os.fsencode(text)
    return f"{crc32(raw):08x}{adler32(raw):08x}"


def cache_path(cache: str, root: str, project: ProjectID) -> str:
    name = f"sessions-{hash_key(os.path.realpath(root))}.v{LIST_CACHE_VERSION}.{hash_key(project)}.list"
    return os.path.join(cache, "weft", name)


def find_list_cache(cache: str, root: str, project: ProjectID) -> SessionListCache | None:
    """Return the cache of a project; None if there is none or it is unreadable."""
    try:
        raw, _ = read_file(cache_path(cache, root, project), limit=MAX_CACHE_BYTES)
        cached = msgspec.json.decode(raw, type=SessionListCache)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return cached if (cached.root, cached.project) == (os.path.realpath(root), project) else None


def write_list_cache(
    cache: str, root: str, project: ProjectID, rows: Iterable[tuple[str, Stamp, bytes]]
) -> None:
    """Write the cache from ids, stamps and encoded documents. Failures are ignored."""
    encoded = b",".join(
        msgspec.json.encode((id, *stamp))[:-1] + b"," + document + b"]"
        for id, stamp, document in rows
        if _is_plain(document)
    )
    head = msgspec.json.encode((os.path.realpath(root), project))[:-1]
    path = cache_path(cache, root, project)
    with suppress(OSError, UnicodeEncodeError):
        write_atomic(path, head + b",[" + encoded + b"]]", temp=f"{path}.{os.getpid()}")


def _is_plain(document: bytes) -> bool:
    """Return True if the document has no unknown fields. The cache would lose these fields."""
    try:
        msgspec.json.decode(document, type=Session)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return b'"$extra"' not in document


def list_cached_sessions(reader: StoreReader, cache: str, project: ProjectID) -> list[Session] | None:
    """Return all sessions of a project, oldest first, or None if there is no cache or it is too old to be useful."""
    cached = find_list_cache(cache, reader.address, project)
    if cached is None:
        return None
    stamps = {id: stamp for (_, id), stamp in reader.list_stamps(project).items()}
    current = [
        session
        for id, mtime, size, inode, session in cached.sessions
        if stamps.get(SessionID(id)) == (mtime, size, inode)
    ]
    missing = len(stamps) - len(current)
    if missing > len(current):
        return None  # most sessions would have to be read, and reading all of them is faster
    return _merge_others(reader, project, current, stamps) if missing else current


def _merge_others(
    reader: StoreReader, project: ProjectID, current: list[Session], ids: Iterable[SessionID]
) -> list[Session]:
    current_ids = {session.id for session in current}
    read = [reader.find_session(id) for id in ids if id not in current_ids]
    others = [session for session in read if session is not None and session.project_id == project]
    return sorted(current + others, key=newest_sort_key, reverse=True)

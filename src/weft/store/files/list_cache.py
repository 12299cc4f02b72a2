"""Cache the session documents of a large project in one file, so that listing them reads one file."""

import os
from collections.abc import Iterable
from contextlib import suppress

import msgspec

from weft.host.files import Stamp, is_final_stamp, make_directory, read_file, write_atomic
from weft.model.ids import ProjectID, SessionID
from weft.model.session import SessionInfo, newest_sort_key
from weft.model.wire import encode
from weft.store.files.layout import hash_key
from weft.store.files.tree import Tree

LIST_CACHE_VERSION = 1
MAX_CACHE_BYTES = 1 << 30
# Fewer sessions are read from their files about as fast as from a cache.
MIN_CACHED_SESSIONS = 500
# Changed sessions are read from their files. For fewer, that is cheaper than writing the cache again.
MIN_CHANGED_SESSIONS = 50
CachedRow = tuple[str, int, int, int, SessionInfo]


class SessionListCache(msgspec.Struct, frozen=True, array_like=True):
    """The sessions of a project with their stamps, oldest first."""

    root: str
    project: str
    sessions: list[CachedRow]


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


def list_cached_sessions(tree: Tree, cache: str, project: ProjectID) -> list[SessionInfo] | None:
    """Return all sessions of a project, oldest first; None if they are so few that a cache does not pay.

    Sessions whose stamp has changed are read. If there are many, the cache is written again.
    """
    cached = find_list_cache(cache, tree.layout.root, project)
    if cached is None and tree.count_sessions(project) < MIN_CACHED_SESSIONS:
        return None
    stamps = {id: stamp for (_, id), stamp in tree.list_stamps(project).items()}
    rows = [] if cached is None else cached.sessions
    sessions = {
        SessionID(id): session
        for id, mtime, size, inode, session in rows
        if stamps.get(SessionID(id)) == (mtime, size, inode)
    }
    changed = [id for id in stamps if id not in sessions]
    if not changed:
        return list(sessions.values())
    for id in changed:
        session = tree.find_session_in(project, id)
        if session is not None:
            sessions[id] = session
    listed = sorted(sessions.values(), key=newest_sort_key, reverse=True)
    if len(changed) > max(MIN_CHANGED_SESSIONS, len(listed) // 100):
        # A file that changed just now may change again without a new stamp, so the cache leaves it out.
        final = [(session, stamps[session.id]) for session in listed if is_final_stamp(stamps[session.id])]
        write_list_cache(cache, tree.layout.root, project, final)
    return listed


def write_list_cache(
    cache: str, root: str, project: ProjectID, rows: Iterable[tuple[SessionInfo, Stamp]]
) -> None:
    """Write the cache. Failures are ignored."""
    encoded = b",".join(
        msgspec.json.encode((session.id, *stamp))[:-1] + b"," + document + b"]"
        for session, stamp in rows
        if _is_plain(document := encode(session))
    )
    head = msgspec.json.encode((os.path.realpath(root), project))[:-1]
    path = cache_path(cache, root, project)
    with suppress(OSError, UnicodeEncodeError):
        make_directory(os.path.dirname(path))
        write_atomic(path, head + b",[" + encoded + b"]]", temp=f"{path}.{os.getpid()}")


def _is_plain(document: bytes) -> bool:
    """Return True if the document has no unknown fields. The cache is decoded strictly, and with one it could not be read.

    Strict decoding accepts one unknown field, `$extra`: it takes it for `Wire.extra_`.
    """
    try:
        msgspec.json.decode(document, type=SessionInfo)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return b'"$extra"' not in document

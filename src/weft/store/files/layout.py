"""Paths in the JSON tree: OpenCode's own layout, and `.weft` for files that only weft writes."""

import os
from zlib import adler32, crc32

from weft.errors import InvalidInputError
from weft.model.ids import MessageID, PartID, ProjectID, SessionID, check_file_name

SUFFIX = ".json"
LOG_SUFFIX = ".log"
KEPT_WITH_OPENCODE = ("session_share", "share", "permission")
TEMP_MARK = "~"
SESSION_LOCK_PREFIX = "session."
VALUE_LOCKS = 16


class Layout:
    """Builds the paths below one root. Raises `InvalidIdError` for an id that could not be a file name."""

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)
        self.own = f"{self.root}/.weft"
        # The first versions of OpenCode kept each project's sessions next to the tree, not in it.
        self.oldest = f"{os.path.dirname(self.root)}/project"
        # OpenCode 1.2 and later keep sessions in this database, but still write their diffs into this tree.
        self.database = f"{os.path.dirname(self.root)}/opencode.db"
        # Earlier versions kept requests, grants and the log of decisions here. Only the default store has such a neighbour.
        parent, name = os.path.split(self.root)
        self.permission_files = f"{parent}/permission" if name == "storage" else ""
        self.migration = f"{self.root}/migration"
        self.temps = f"{self.own}/temp"
        self.locks = f"{self.own}/lock"
        self.notes = f"{self.own}/redo"  # write-ahead notes
        self.growths = f"{self.own}/growth"
        self.leases = f"{self.own}/run"
        self.backups = f"{self.own}/backup"
        self.upgrades = f"{self.own}/upgrade"
        self.trash = f"{self.own}/trash"
        self.logs = f"{self.own}/log"
        self.orders = f"{self.own}/index"
        self.chains = f"{self.own}/chain"

    def collection(self, name: str) -> str:
        return f"{self.root}/{name}"

    def lease(self, session: SessionID) -> str:
        return f"{self.leases}/{check_file_name('session', session)}"

    def project(self, id: ProjectID) -> str:
        return f"{self.root}/project/{check_file_name('project', id)}{SUFFIX}"

    def sessions(self, project: ProjectID) -> str:
        return f"{self.root}/session/{check_file_name('project', project)}"

    def session(self, project: ProjectID, id: SessionID) -> str:
        return f"{self.sessions(project)}/{check_file_name('session', id)}{SUFFIX}"

    def order(self, project: ProjectID) -> str:
        """Return the directory for the order in which the sessions of a project were created."""
        return f"{self.orders}/{check_file_name('project', project)}"

    def messages(self, session: SessionID) -> str:
        return f"{self.root}/message/{check_file_name('session', session)}"

    def message(self, session: SessionID, id: MessageID) -> str:
        return f"{self.messages(session)}/{check_file_name('message', id)}{SUFFIX}"

    def parts(self, message: MessageID) -> str:
        return f"{self.root}/part/{check_file_name('message', message)}"

    def part(self, message: MessageID, id: PartID) -> str:
        return f"{self.parts(message)}/{check_file_name('part', id)}{SUFFIX}"

    def diff(self, session: SessionID) -> str:
        return f"{self.root}/session_diff/{check_file_name('session', session)}{SUFFIX}"

    def todo(self, session: SessionID) -> str:
        return f"{self.root}/todo/{check_file_name('session', session)}{SUFFIX}"

    def chain(self, session: SessionID) -> str:
        return f"{self.chains}/{check_file_name('session', session)}"

    def value_path(self, key: tuple[str, ...]) -> str:
        if not key:
            raise InvalidInputError("key", "it is empty")
        path = "/".join(check_file_name("key", word) for word in key) + SUFFIX
        is_opencode_key = len(key) > 1 and key[0] in KEPT_WITH_OPENCODE
        return f"{self.root}/{path}" if is_opencode_key else f"{self.own}/kept/{path}"

    def value_directories(self) -> dict[str, tuple[str, ...]]:
        """Return the directories of values, and the beginning of the keys that each one holds."""
        opencode = {f"{self.root}/{name}": (name,) for name in KEPT_WITH_OPENCODE}
        return {f"{self.own}/kept": (), **opencode}

    def log(self, key: tuple[str, ...]) -> str:
        if not key:
            raise InvalidInputError("log", "it is empty")
        return f"{self.logs}/{'/'.join(check_file_name('log', word) for word in key)}{LOG_SUFFIX}"

    def growth_directory(self, message: MessageID) -> str:
        return f"{self.growths}/{check_file_name('message', message)}"

    def growth(self, message: MessageID, part: PartID) -> str:
        return f"{self.growth_directory(message)}/{check_file_name('part', part)}"

    def bundle(self, id: str) -> str:
        return f"{self.trash}/{check_file_name('bundle', id)}"

    def label(self, bundle: str) -> str:
        return f"{self.bundle(bundle)}/bundle{SUFFIX}"

    def trashed_tree(self, bundle: str) -> str:
        """Return the directory that mirrors the tree: files in a bundle have the same relative paths as before."""
        return f"{self.bundle(bundle)}/tree"

    def lock(self, name: str) -> str:
        return f"{self.locks}/{name}"

    def note(self, lock: str) -> str:
        return f"{self.notes}/{lock}"

    def temp(self, lock: str, token: str) -> str:
        """Return a path for a file that the holder of a lock is writing. The name contains the name of the lock."""
        return f"{self.temps}/{lock}{TEMP_MARK}{token}"

    def relative(self, path: str) -> str:
        return path[len(self.root) + 1 :]

    def absolute(self, path: str) -> str:
        return f"{self.root}/{path}"


def session_lock(id: SessionID) -> str:
    return f"{SESSION_LOCK_PREFIX}{check_file_name('session', id)}"


def project_lock(id: ProjectID) -> str:
    return f"project.{check_file_name('project', id)}"


def value_lock(key: tuple[str, ...]) -> str:
    """Return the lock of a value. Values share a few locks, because a lock file cannot be removed with its value."""
    return f"value.{crc32('/'.join(key).encode()) % VALUE_LOCKS}"


def hash_key(text: str) -> str:
    """Return a short hash for the name of a file."""
    raw = os.fsencode(text)
    return f"{crc32(raw):08x}{adler32(raw):08x}"

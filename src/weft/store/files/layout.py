"""Paths in the JSON tree: OpenCode's for what is OpenCode's, `.weft` for ours."""

import os

from weft.errors import InvalidInputError
from weft.model.ids import MessageID, PartID, ProjectID, SessionID, file_name

SUFFIX = ".json"
SHELVES = (
    "project",
    "session",
    "message",
    "part",
    "session_diff",
    "todo",
    "session_share",
    "share",
    "permission",
)
KEPT_WITH_OPENCODE = ("session_share", "share", "permission")
TEMP_MARK = "~"


class Layout:
    """Paths below one root. Whatever id becomes part of a path is checked on the way."""

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)
        self.own = f"{self.root}/.weft"
        # Beside the tree, not in it: there the first versions kept each project's sessions.
        self.oldest = f"{os.path.dirname(self.root)}/project"
        # OpenCode 1.2 and later keep sessions there, and their diffs still in this tree.
        self.database = f"{os.path.dirname(self.root)}/opencode.db"
        self.migration = f"{self.root}/migration"
        self.temps = f"{self.own}/temp"
        self.locks = f"{self.own}/lock"
        self.redos = f"{self.own}/redo"
        self.growths = f"{self.own}/growth"
        self.runs = f"{self.own}/run"
        self.backups = f"{self.own}/backup"
        self.upgrades = f"{self.own}/upgrade"
        self.trash = f"{self.own}/trash"

    def shelf(self, name: str) -> str:
        return f"{self.root}/{name}"

    def run(self, session: SessionID) -> str:
        return f"{self.runs}/{file_name('session', session)}"

    def project(self, id: ProjectID) -> str:
        return f"{self.root}/project/{file_name('project', id)}{SUFFIX}"

    def sessions(self, project: ProjectID) -> str:
        return f"{self.root}/session/{file_name('project', project)}"

    def session(self, project: ProjectID, id: SessionID) -> str:
        return f"{self.sessions(project)}/{file_name('session', id)}{SUFFIX}"

    def messages(self, session: SessionID) -> str:
        return f"{self.root}/message/{file_name('session', session)}"

    def message(self, session: SessionID, id: MessageID) -> str:
        return f"{self.messages(session)}/{file_name('message', id)}{SUFFIX}"

    def parts(self, message: MessageID) -> str:
        return f"{self.root}/part/{file_name('message', message)}"

    def part(self, message: MessageID, id: PartID) -> str:
        return f"{self.parts(message)}/{file_name('part', id)}{SUFFIX}"

    def diff(self, session: SessionID) -> str:
        return f"{self.root}/session_diff/{file_name('session', session)}{SUFFIX}"

    def todo(self, session: SessionID) -> str:
        return f"{self.root}/todo/{file_name('session', session)}{SUFFIX}"

    def kept(self, key: tuple[str, ...]) -> str:
        if not key:
            raise InvalidInputError("key", "it has no words")
        path = "/".join(file_name("key", word) for word in key) + SUFFIX
        shelved = len(key) > 1 and key[0] in KEPT_WITH_OPENCODE
        return f"{self.root}/{path}" if shelved else f"{self.own}/kept/{path}"

    def grown(self, message: MessageID) -> str:
        return f"{self.growths}/{file_name('message', message)}"

    def growth(self, message: MessageID, part: PartID) -> str:
        return f"{self.grown(message)}/{file_name('part', part)}"

    def bundle(self, id: str) -> str:
        return f"{self.trash}/{file_name('bundle', id)}"

    def label(self, bundle: str) -> str:
        return f"{self.bundle(bundle)}/bundle{SUFFIX}"

    def thrown(self, bundle: str) -> str:
        """What is in a bundle lies below this as it lay below the root."""
        return f"{self.bundle(bundle)}/tree"

    def lock(self, name: str) -> str:
        return f"{self.locks}/{name}"

    def redo(self, lock: str) -> str:
        return f"{self.redos}/{lock}"

    def temp(self, lock: str, token: str) -> str:
        """A place for what is being written by the holder of a lock; its name says whose it is."""
        return f"{self.temps}/{lock}{TEMP_MARK}{token}"

    def relative(self, path: str) -> str:
        return path[len(self.root) + 1 :]

    def absolute(self, path: str) -> str:
        return f"{self.root}/{path}"


def session_lock(id: SessionID) -> str:
    return f"session.{file_name('session', id)}"


def project_lock(id: ProjectID) -> str:
    return f"project.{file_name('project', id)}"


def kept_lock(key: tuple[str, ...]) -> str:
    return ".".join(("kept", *key))

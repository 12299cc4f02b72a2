"""Move the records of permissions into the tree, which earlier versions kept in files of their own next to it."""

import os
import re
from contextlib import ExitStack, suppress
from typing import Any, Final

from weft.errors import DocumentError, InvalidIdError
from weft.host.files import Disk, hold_lock, read_file
from weft.model.ids import check_file_name
from weft.model.wire import encode_pretty, parse
from weft.store.files.documents import LIMIT
from weft.store.files.layout import value_lock
from weft.store.files.lock import SessionLocks
from weft.store.files.log import LogFiles
from weft.store.files.tree import Tree

RECORDS: Final = "permissions"
LISTS: Final = {"asked.json": (RECORDS, "requests"), "grants.json": (RECORDS, "grants")}
LOGS: Final = "log"
DONE_SUFFIX: Final = ".moved-into-storage"
LOCK: Final = "permission-import"
_LOG_NAME = re.compile(r"(?P<name>[^.~]+)(?:\.(?P<until>\d+))?\.jsonl")


class PermissionImport:
    """Copies the records into the tree, and renames their directory when all are copied.

    An interrupted import starts again, and copies nothing twice. Locks keep earlier versions out that still run.
    """

    def __init__(self, tree: Tree, locks: SessionLocks, disk: Disk) -> None:
        self._tree = tree
        self._layout = layout = tree.layout
        self._locks = locks
        self._disk = disk
        self._directory = layout.permission_files
        self._logs = LogFiles(layout, disk)

    def run(self) -> None:
        with hold_lock(self._layout.lock(LOCK)):
            if not self._tree.has_permission_files():
                return  # another process was first
            chains = self._list_chains()
            with ExitStack() as held:
                for name in LISTS:
                    held.enter_context(hold_lock(f"{self._directory}/{name}.lock"))
                for name in chains:
                    held.enter_context(hold_lock(f"{self._directory}/{LOGS}/{name}.jsonl.lock"))
                for name in LISTS:
                    self._import_list(name)
                for name, files in chains.items():
                    self._import_chain(name, files)
                self._disk.move(self._directory, self._find_new_name())

    def _import_list(self, name: str) -> None:
        """Add the items of a list to the value that has taken its place."""
        items = _read_list(f"{self._directory}/{name}")
        if not items:
            return
        key = LISTS[name]
        path = self._layout.value_path(key)
        with self._locks.writing([value_lock(key)]):
            known = _read_list(path)
            self._put(path, [*known, *(item for item in items if item not in known)])

    def _import_chain(self, name: str, files: list[str]) -> None:
        lines = [line for file in files for line in _read_lines(file)]
        end = _read_json(f"{self._directory}/{LOGS}/{name}.end")
        log, number = name, 1
        while not self._append(log, lines):
            # The tree already has a log of this project. This one gets a name of its own: joined, their hash chains would break.
            number += 1
            log = f"{name}-{number}"
        if not isinstance(end, dict):
            return
        first = _read_number(lines[0]) if lines else 1
        key = (RECORDS, "end", log)
        path = self._layout.value_path(key)
        with self._locks.writing([value_lock(key)]):
            if not os.path.exists(path):
                self._put(path, {**end, "dropped": max(0, first - 1)})

    def _append(self, log: str, lines: list[bytes]) -> bool:
        """Write the lines of a chain to a log, or those that are missing. Return False if the log has other lines."""
        is_ours = True

        def extend(last: bytes | None) -> list[bytes]:
            nonlocal is_ours
            if last is None:
                return lines
            is_ours = last in lines
            return lines[lines.index(last) + 1 :] if is_ours else []

        self._logs.append((RECORDS, log), extend)
        return is_ours

    def _list_chains(self) -> dict[str, list[str]]:
        """Return the files of each project's chain, oldest first."""
        directory = f"{self._directory}/{LOGS}"
        found: dict[str, list[tuple[float, str]]] = {}
        with suppress(FileNotFoundError, NotADirectoryError):
            for file in os.listdir(directory):
                match = _LOG_NAME.fullmatch(file)
                if match is None or not _is_file_name(match["name"]):
                    continue
                until = float(match["until"] or "inf")  # the file that was written last has no number
                found.setdefault(match["name"], []).append((until, f"{directory}/{file}"))
        return {name: [path for _, path in sorted(files)] for name, files in sorted(found.items())}

    def _put(self, path: str, value: Any) -> None:
        temp = self._layout.temp(LOCK, "value")
        self._disk.prepare(temp, encode_pretty(value), flush=True)
        self._disk.move(temp, path)
        self._disk.flush(os.path.dirname(path))

    def _find_new_name(self) -> str:
        names = (f"{self._directory}{DONE_SUFFIX}{f'-{number}' if number else ''}" for number in range(1000))
        return next(name for name in names if not os.path.lexists(name))


def _is_file_name(name: str) -> bool:
    try:
        check_file_name("project", name)
    except InvalidIdError:
        return False
    return True


def _read_json(path: str) -> Any:
    """Return the content of a JSON file, None if it is missing or unreadable. An unreadable file stays in the directory."""
    try:
        return parse(read_file(path, limit=LIMIT)[0], where=path)
    except (OSError, DocumentError):
        return None


def _read_list(path: str) -> list[Any]:
    found = _read_json(path)
    return found if isinstance(found, list) else []


def _read_lines(path: str) -> list[bytes]:
    raw, _ = read_file(path, limit=LIMIT)
    return raw.split(b"\n")[:-1]  # the last line was never completed


def _read_number(line: bytes) -> int:
    with suppress(DocumentError):
        record = parse(line)
        if isinstance(record, dict) and isinstance(record.get("seq"), int):
            return int(record["seq"])
    return 1

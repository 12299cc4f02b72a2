"""Carry files and snapshots to another machine: read the objects of trees, add them elsewhere, and plan what they change there.

Every function blocks.
"""

import os
import stat
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from weft.errors import BundleError, ConflictError
from weft.host.files import share_lock
from weft.model.diff import Patch, Tree
from weft.snapshot.contract import FileTrees, PackedObject
from weft.snapshot.directory import FileTooLargeError
from weft.snapshot.entry import (
    DIRECTORY,
    FILE,
    FileEntry,
    TreeState,
    format_path,
    frame,
    from_tree,
    object_name,
)
from weft.snapshot.ledger import RecordedChange
from weft.snapshot.tracker import FileTracker

MAX_MOVED_FILE_BYTES: Final = 512 << 20
# Names that would lead out of the checkout, or into its repository.
FORBIDDEN_NAMES: Final = frozenset((b"", b".", b"..", b".git"))


def pack_files(tracker: FileTracker, paths: Collection[bytes]) -> FileTrees:
    """Store these files as they are now. Raise `ConflictError` for a path that is neither a file nor a link, or is too large."""
    tracker.make()
    present: dict[bytes, FileEntry] = {}
    absent: dict[bytes, FileEntry] = {}
    with share_lock(tracker.place.lock):
        empty = FileEntry(FILE | 0o644, tracker.objects.write(b"", always=True))
        for path in paths:
            status = tracker.files.find_status(path)
            if status is None or stat.S_ISDIR(status.st_mode):
                absent[path] = empty
                continue
            try:
                entry, content, _ = tracker.files.read(path, limit=MAX_MOVED_FILE_BYTES)
            except (OSError, FileTooLargeError) as error:
                reason = (
                    f"is larger than {MAX_MOVED_FILE_BYTES >> 20} MB"
                    if isinstance(error, FileTooLargeError)
                    else "cannot be read"
                )
                raise ConflictError(
                    "file", format_path(path), reason, hint="commit it, or remove it"
                ) from error
            tracker.objects.write(content, always=True)
            present[path] = entry
        return FileTrees(
            tracker.objects.write_state(TreeState(files=present)),
            tracker.objects.write_state(TreeState(files=absent)),
        )


def read_objects(
    tracker: FileTracker, trees: Iterable[Tree], known: Collection[str] = frozenset()
) -> Iterator[PackedObject]:
    """Yield every object of these trees once, except those that are `known`, and what a known tree names.

    What cannot be read is left out: an undo that needs it says so.
    """
    seen: set[str] = set(known)
    blobs: set[str] = set()
    todo: list[str] = [*trees]
    while todo:
        oid = todo.pop()
        if oid in seen:
            continue
        seen.add(oid)
        content = tracker.objects.find(oid)
        if content is None:
            continue
        yield PackedObject("tree", oid, content)
        for _, entry in from_tree(content):
            if entry.mode == DIRECTORY:
                todo.append(entry.oid)
            else:
                blobs.add(entry.oid)
    for oid, content in tracker.objects.read(blobs.difference(known)):
        yield PackedObject("blob", oid, content)


def add_objects(tracker: FileTracker, objects: Iterable[PackedObject], where: str) -> None:
    """Store objects from elsewhere. Raise `BundleError` if one is not what its name says, or names a path that must not be written."""
    tracker.make()
    with share_lock(tracker.place.lock):
        for each in objects:
            kind = each.kind.encode()
            if object_name(frame(kind, each.content)) != each.oid:
                raise BundleError(where, f"the object {each.oid} is damaged")
            if each.kind == "tree":
                _check_tree(each.content, where)
            tracker.objects.write(each.content, kind, always=True)


def _check_tree(content: bytes, where: str) -> None:
    try:
        names = [name for name, _ in from_tree(content)]
    except ValueError as error:
        raise BundleError(where, "one of its trees is damaged") from error
    for name in names:
        if name.lower() in FORBIDDEN_NAMES or b"/" in name:
            raise BundleError(where, f"it names a file {format_path(name)!r}, which is not allowed")


def plan_overlay(tracker: FileTracker, trees: FileTrees) -> Patch:
    """Return the patch whose restore changes the current files into these.

    Raise `ConflictError` if one of the current files cannot be read.
    """
    wanted: dict[bytes, FileEntry | None] = dict(tracker.objects.read_state(trees.present).files)
    wanted |= dict.fromkeys(tracker.objects.read_state(trees.absent).files)
    changes: list[RecordedChange] = []
    with share_lock(tracker.place.lock):
        for path, entry in wanted.items():
            current = _read_current(tracker, path)
            has = tuple(sorted(tracker.files.list_existing_parents(path)))
            # A directory that is empty without the file goes with it: git knows no empty directories.
            changes.append(RecordedChange(path, entry, current, 0, () if entry is None else has, has))
        return tracker.make_patch(changes)


def _read_current(tracker: FileTracker, path: bytes) -> FileEntry | None:
    status = tracker.files.find_status(path)
    if status is None or stat.S_ISDIR(status.st_mode):
        return None
    try:
        return tracker.files.read(path, limit=MAX_MOVED_FILE_BYTES)[0]
    except (OSError, FileTooLargeError) as error:
        name = os.fsdecode(tracker.files.absolute(path))
        raise ConflictError("file", name, "is there already and cannot be read") from error

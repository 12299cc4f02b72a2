"""Read the changes of a file from the dataset and the snapshots, and find the author of each line. Every function blocks."""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from weft.blame.authorship import (
    EMPTY,
    Authorship,
    AuthorState,
    Content,
    FileEdit,
    FileVersion,
    expand_runs,
    order_edits,
)
from weft.blame.lines import (
    Line,
    Version,
    is_binary,
    list_removed,
    match_lines,
    measure_similarity,
    split_lines,
)
from weft.dataset.changes import (
    CallChange,
    get_step_facts,
    list_changed_paths,
    list_changed_together,
    list_changes,
)
from weft.dataset.database import Dataset
from weft.model.data import Author, FileStep
from weft.model.ids import ProjectID
from weft.snapshot.contract import SnapshotReader
from weft.snapshot.entry import blob_name, format_path

# A result of an older version is not used.
CACHE_VERSION: Final = 2
MIN_RENAME_SIMILARITY: Final = 0.5
MAX_RENAME_CANDIDATES: Final = 200
MAX_DEPTH: Final = 4
# Tools that run commands, which may bring back earlier contents. No name: it is not known which call it was.
SHELL_TOOLS: Final = frozenset({"bash", "jobs", ""})


class BlameSource(Struct, frozen=True, kw_only=True):
    """Where to look: the dataset, which must be up to date, the project, the checkout, and the snapshots of any checkout."""

    dataset: Dataset
    project: ProjectID
    root: str
    open_archive: Callable[[str], SnapshotReader]
    environ: Mapping[str, str]


class FileHistory(NamedTuple):
    """What is known of a path: its changes, oldest first, and the authors of its versions.

    `latest` names the content after the last change; None if the file is gone, or nothing is known of it. `missing` counts the
    changes that have no snapshots.
    """

    changes: Sequence[CallChange]
    authorship: Authorship
    latest: str | None
    missing: int


class OtherFile(NamedTuple):
    """Another file that a patch changed: before the patch, with the authors of its lines, and its lines after it."""

    path: str
    before: FileVersion
    after: Sequence[Line]


class FileHistories:
    """The histories of the files of a project. Each is read once."""

    def __init__(self, source: BlameSource) -> None:
        self._source = source
        self._archives: dict[str, SnapshotReader] = {}
        self._contents: dict[str, Sequence[Line]] = {}
        self._histories: dict[tuple[str, str, int], FileHistory] = {}
        self.binary: set[str] = set()
        # The changes of all files that were read. The number of a change is its place in this list.
        self.changes: list[CallChange] = []

    # --- changes ---

    def list_changes(self, path: str) -> list[CallChange]:
        """Return the changes of a path, oldest first."""
        return list_changes(self._source.dataset, self._source.project, path)

    def find_author(self, change: CallChange) -> Author:
        """Return the author of a change, with the step that made it."""
        facts = get_step_facts(self._source.dataset, change)
        return Author(
            kind="session",
            session_id=change.session_id,
            title=facts.title,
            step_id=change.step_id,
            step=facts.number,
            call_id=change.call_id,
            tool=change.tool,
            prompt_id=facts.prompt_id or None,
            prompt=next((line.strip() for line in facts.prompt.splitlines() if line.strip()), ""),
            agent=facts.agent,
            provider_id=facts.provider_id,
            model_id=facts.model_id,
            time=change.time,
            cost=Decimal(facts.cost),
            priced=bool(facts.priced),
            path=change.path,
        )

    def make_step(self, change: CallChange) -> FileStep:
        """Return a change for a log, with the number of its lines if there are snapshots of it."""
        author = self.find_author(change)
        contents = self._read_sides(change)
        if contents is None or self.binary & {each.oid for each in contents if each is not None}:
            return FileStep(author=author, undone=bool(change.undone))
        before, after = (() if each is None else each.lines for each in contents)
        kept = sum(match.size for match in match_lines(before, after))
        return FileStep(
            author=author,
            additions=len(after) - kept,
            deletions=len(before) - kept,
            undone=bool(change.undone),
        )

    # --- versions ---

    def trace(self, path: str, until: CallChange | None = None, *, depth: int = 0) -> FileHistory:
        """Return the history of a path, up to a change that is left out."""
        key = path, "" if until is None else f"{until.session_id} {until.part_id}", depth
        if key not in self._histories:
            self._histories[key] = self._trace(path, until, depth)
        return self._histories[key]

    def _trace(self, path: str, until: CallChange | None, depth: int) -> FileHistory:
        changes = self.list_changes(path)
        if until is not None:
            changes = [each for each in changes if _is_before(each, until)]
        edits, doubts, missing = self._read_edits(changes)
        keys = _make_keys(edits, doubts)
        done, state = self._find_cached(keys, len(edits))
        first = edits[0] if edits else None
        origin = EMPTY
        if not done and first is not None and first.before is not None and depth < MAX_DEPTH:
            _, origin = self.find_origin(path, first.before, self.changes[first.number], depth=depth)
        authorship = Authorship(self._read_lines, state, origin=origin)
        for edit in edits[done:]:
            for checkout in doubts.pop(edit.number, ()):
                authorship.doubt(checkout)
            self._feed(authorship, edit, depth)
        if edits and done < len(edits):
            self._cache(keys[-1], authorship.get_state(), edits)
        for checkouts in doubts.values():
            for checkout in checkouts:
                authorship.doubt(checkout)
        latest = None if not edits or edits[-1].after is None else edits[-1].after.oid
        return FileHistory(changes, authorship, latest, missing)

    def _feed(self, authorship: Authorship, edit: FileEdit, depth: int) -> None:
        change = self.changes[edit.number]
        came_from: FileVersion | None = None
        if edit.before is None and edit.after is not None and depth < MAX_DEPTH:
            deleted = [other.before for other in self._read_others(change, depth) if not other.after]
            came_from = _choose_similar(deleted, edit.after.lines)

        def list_removed_elsewhere() -> list[FileVersion]:
            # Only for the file that was asked for: each other file would ask for all others again.
            others = [] if depth else self._read_others(change, depth)
            return [list_removed(other.before, other.after) for other in others]

        authorship.feed(edit, came_from=came_from, removed_elsewhere=list_removed_elsewhere)

    def _read_others(self, change: CallChange, depth: int) -> list[OtherFile]:
        """Return the other files of the same patch that were there before it."""
        paths = list_changed_together(self._source.dataset, change)
        found: list[OtherFile] = []
        for path in paths[:MAX_RENAME_CANDIDATES]:
            other = change._replace(path=path)
            contents = self._read_sides(other)
            if contents is None or contents[0] is None or contents[0].oid in self.binary:
                continue
            before, after = contents
            history = self.trace(path, change, depth=depth + 1)
            version = history.authorship.attribute(os.path.realpath(change.root), before)
            found.append(OtherFile(path, version, () if after is None else after.lines))
        return found

    def find_origin(
        self, path: str, content: Content, until: CallChange | None = None, *, depth: int = 0
    ) -> tuple[str, FileVersion]:
        """Return the name and the last version of the file that somebody renamed to this path between steps; "" if nobody did.

        Only files that are gone can have been renamed.
        """
        root = self._source.root
        deleted = [
            each
            for each in list_changed_paths(self._source.dataset, self._source.project)
            if each != path and not os.path.lexists(os.path.join(root, each))
        ]
        versions: dict[str, FileVersion] = {}
        for each in deleted[:MAX_RENAME_CANDIDATES]:
            history = self.trace(each, until, depth=depth + 1)
            if history.latest is not None and history.latest not in self.binary:
                known = expand_runs(history.authorship.get_state().known[history.latest])
                versions[each] = Version(self._read_lines(history.latest), known)
            if history.latest == content.oid:
                return each, versions[each]
        best = _choose_similar(list(versions.values()), content.lines)
        name = next((each for each, version in versions.items() if version is best), "")
        return name, EMPTY if best is None else best

    def list_with_renames(self, path: str) -> list[CallChange]:
        """Return the changes of a path and of the names that the file had before, oldest first."""
        changes = self.list_changes(path)
        earlier, depth = self._find_earlier_name(path, changes), 0
        while earlier is not None and depth < MAX_DEPTH:
            name, until = earlier
            before = [
                each
                for each in self.list_changes(name)
                if until is None or (_is_before(each, until) and each.part_id != until.part_id)
            ]
            changes, depth = before + changes, depth + 1
            earlier = self._find_earlier_name(name, before)
        return changes

    def _find_earlier_name(
        self, path: str, changes: Sequence[CallChange]
    ) -> tuple[str, CallChange | None] | None:
        """Return the name that a file had before its first change, and the change that renamed it, None if a person did."""
        first = next((each for each in changes if each.recorded), None)
        contents = None if first is None else self._read_sides(first)
        if first is None or contents is None:
            return None
        before, after = contents
        if before is not None:
            name, _ = self.find_origin(path, before, first)
            return (name, None) if name else None
        others = self._read_others(first, 0) if after is not None else []
        deleted = [each for each in others if not each.after]
        best = None if after is None else _choose_similar([each.before for each in deleted], after.lines)
        return next(((each.path, first) for each in deleted if each.before is best), None)

    # --- contents ---

    def make_content(self, raw: bytes) -> Content:
        """Return the content of a file as it is now."""
        oid = blob_name(raw)
        self._contents.setdefault(oid, split_lines(raw))
        if is_binary(raw):
            self.binary.add(oid)
        return Content(oid, self._contents[oid])

    def _read_edits(self, changes: Sequence[CallChange]) -> tuple[list[FileEdit], dict[int, list[str]], int]:
        """Return the changes that have snapshots, as edits in order, and what is known of the changes that have none.

        The second value has their checkouts, by the number of the edit that follows them (-1 if none does). The third is their number.
        """
        edits: list[FileEdit] = []
        doubts: dict[int, list[str]] = {}
        open_doubts: list[str] = []
        missing = 0
        self._preload(changes)
        for change in changes:
            checkout = os.path.realpath(change.root or self._source.root)
            contents = self._read_sides(change)
            if contents is None:
                missing += 1
                open_doubts.append(checkout)
                continue
            number = len(self.changes)
            self.changes.append(change)
            if open_doubts:
                doubts[number], open_doubts = open_doubts, []
            may_restore = change.tool in SHELL_TOOLS
            edits.append(
                FileEdit(number, checkout, *contents, may_restore=may_restore, undone=bool(change.undone))
            )
        if open_doubts:
            doubts[-1] = open_doubts
        return order_edits(edits), doubts, missing

    def _preload(self, changes: Sequence[CallChange]) -> None:
        """Read all contents at once: one by one, git would be started for each."""
        wanted: dict[str, set[str]] = {}
        for change in changes:
            if change.recorded:
                path = _encode_path(change.path)
                entries = (
                    self._get_archive(change.root).find_entry(tree, path)
                    for tree in (change.before, change.after)
                )
                wanted.setdefault(change.root, set()).update(each.oid for each in entries if each is not None)
        for root, oids in wanted.items():
            contents = self._get_archive(root).read_contents(oids - self._contents.keys())
            for content in contents.values():
                self.make_content(content)

    def _read_sides(self, change: CallChange) -> tuple[Content | None, Content | None] | None:
        """Return a file before and after a change. Return None if a snapshot is gone."""
        if not change.recorded:
            return None
        archive, path = self._get_archive(change.root), _encode_path(change.path)
        sides: list[Content | None] = []
        for tree in (change.before, change.after):
            if not archive.has_tree(tree):
                return None
            entry = archive.find_entry(tree, path)
            if entry is None:
                sides.append(None)
                continue
            if entry.oid not in self._contents:
                for raw in archive.read_contents([entry.oid]).values():
                    self.make_content(raw)
            if entry.oid not in self._contents:
                return None
            sides.append(Content(entry.oid, self._contents[entry.oid]))
        return sides[0], sides[1]

    def _read_lines(self, oid: str) -> Sequence[Line]:
        return self._contents.get(oid, ())

    def _get_archive(self, root: str) -> SnapshotReader:
        if root not in self._archives:
            self._archives[root] = self._source.open_archive(root or self._source.root)
        return self._archives[root]

    # --- results that are kept ---

    def _find_cached(self, keys: Sequence[str], count: int) -> tuple[int, AuthorState]:
        """Return how many of the edits a kept result covers, and the result. Its authors count from the first edit."""
        if not keys:
            return 0, AuthorState()
        found = self._source.dataset.find_blame(keys)
        if found is None:
            return 0, AuthorState()
        key, raw = found
        numbers = list(range(len(self.changes) - count, len(self.changes)))
        known, last_contents, uncertain, undone = msgspec.json.decode(raw)
        authors = {
            oid: tuple((numbers[each] if isinstance(each, int) else each, count) for each, count in runs)
            for oid, runs in known.items()
        }
        places = {checkout: (last, kept) for checkout, (last, kept) in last_contents.items()}
        done = keys.index(key) + 1
        return done, AuthorState(authors, places, frozenset(uncertain), frozenset(undone))

    def _cache(self, key: str, state: AuthorState, edits: Sequence[FileEdit]) -> None:
        """Keep a result, unless lines came from other files: the numbers of those mean nothing later."""
        first = min(edit.number for edit in edits)
        numbers = range(first, first + len(edits))
        used = {each for runs in state.known.values() for each, _ in runs if isinstance(each, int)}
        if not used <= set(numbers):
            return
        known: dict[str, list[Any]] = {
            oid: [(each - first if isinstance(each, int) else each, count) for each, count in runs]
            for oid, runs in state.known.items()
        }
        raw = msgspec.json.encode((known, state.last_contents, sorted(state.uncertain), sorted(state.undone)))
        self._source.dataset.put_blame(key, raw)


def _is_before(one: CallChange, other: CallChange) -> bool:
    return (one.time, one.number) < (other.time, other.number)


def _choose_similar(versions: Sequence[FileVersion], lines: Sequence[Line]) -> FileVersion | None:
    best = max(versions, key=lambda each: measure_similarity(each.lines, lines), default=None)
    if best is None or measure_similarity(best.lines, lines) < MIN_RENAME_SIMILARITY:
        return None
    return best


def _make_keys(edits: Sequence[FileEdit], doubts: Mapping[int, Sequence[str]]) -> list[str]:
    """Return a key for the result after each edit. It names everything that the result depends on."""
    keys: list[str] = []
    digest = hashlib.sha256(b"blame %d" % CACHE_VERSION)
    for edit in edits:
        sides = [None if each is None else each.oid for each in (edit.before, edit.after)]
        facts = (edit.checkout, sides, edit.may_restore, edit.undone, doubts.get(edit.number, []))
        digest.update(msgspec.json.encode(facts))
        keys.append(digest.hexdigest())
    return keys


def _encode_path(path: str) -> bytes:
    return os.fsencode(path)


def to_stored_path(path: str) -> str:
    """Return a relative path as the dataset stores it."""
    return format_path(os.fsencode(path))

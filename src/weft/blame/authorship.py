"""Find who wrote each line of a file, from the versions that snapshots recorded (pure)."""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from weft.blame.lines import (
    MIN_MOVED_CHARS,
    Line,
    Version,
    count_chars,
    follow_lines,
    match_lines,
    measure_similarity,
)

PERSON: Final = "person"
UNKNOWN: Final = "unknown"
ORDER_WINDOW: Final = 8
# Older versions than these are not searched for lines that came back.
MAX_SEARCHED_VERSIONS: Final = 20

# The number of a change, or one of the two words above.
LineAuthor = int | str
FileVersion = Version[LineAuthor]
EMPTY: Final[FileVersion] = Version((), ())


# The authors of consecutive lines: how many lines each has. A file has many more lines than changes of the author.
AuthorRuns = tuple[tuple[LineAuthor, int], ...]


class Content(NamedTuple):
    """The content of a file, and the name of it: equal names mean equal contents."""

    oid: str
    lines: Sequence[Line]


class FileEdit(NamedTuple):
    """A change that one call made to a file. A content of None means that there was no file.

    `checkout` is where the file is: each has its own sequence of versions. A shell command `may_restore` earlier versions, for
    example by git; other tools write what they are told. `undone` says that the change was undone later.
    """

    number: int
    checkout: str
    before: Content | None
    after: Content | None
    may_restore: bool = False
    undone: bool = False


class AuthorState(NamedTuple):
    """The result of all changes so far, from which later ones can be followed.

    `known` has the authors of each content, oldest first. `last_contents` has two contents for each checkout: the last one, and the
    last one that was not undone. `uncertain` are checkouts in which a change was not recorded. `undone` are contents of changes that were undone.
    """

    known: Mapping[str, AuthorRuns] = {}
    last_contents: Mapping[str, tuple[str | None, str | None]] = {}
    uncertain: frozenset[str] = frozenset()
    undone: frozenset[str] = frozenset()


NOTHING_KNOWN: Final = AuthorState()


class Authorship:
    """Follows the lines of one path. Feed it all changes in order, then ask for the authors of a content.

    `read` returns the lines of a content by its name. `origin` is the version that the file had under another name.
    """

    def __init__(
        self,
        read: Callable[[str], Sequence[Line]],
        state: AuthorState = NOTHING_KNOWN,
        *,
        origin: FileVersion = EMPTY,
    ) -> None:
        self._read = read
        self._known = dict(state.known)
        self._last_contents = dict(state.last_contents)
        self._uncertain = set(state.uncertain)
        self._undone = set(state.undone)
        self._line_sets: dict[str, frozenset[Line]] = {}
        self._origin = origin

    def get_state(self) -> AuthorState:
        return AuthorState(
            dict(self._known), dict(self._last_contents), frozenset(self._uncertain), frozenset(self._undone)
        )

    def feed(
        self,
        edit: FileEdit,
        *,
        came_from: FileVersion | None = None,
        removed_elsewhere: Callable[[], Sequence[FileVersion]] = tuple,
    ) -> None:
        """Add a change. `came_from` is the file that it renamed, `removed_elsewhere` what it removed from other files."""
        before = self.attribute(edit.checkout, edit.before)
        if edit.after is None:
            self._set_last(edit.checkout, None, undone=edit.undone)
            return
        lines = edit.after.lines
        if edit.may_restore and edit.after.oid in self._known:
            self._set_last(edit.checkout, edit.after.oid, undone=edit.undone)
            return
        base = came_from if came_from is not None and edit.before is None else before
        authors = follow_lines(base, lines)
        if _count_open(lines, authors) >= MIN_MOVED_CHARS:
            authors = follow_lines(base, lines, removed_elsewhere=removed_elsewhere())
        if edit.may_restore:
            self._search_known(lines, authors)
        if edit.undone and edit.after.oid not in self._known:
            self._undone.add(edit.after.oid)
        self._put(edit.after.oid, [edit.number if each is None else each for each in authors])
        self._set_last(edit.checkout, edit.after.oid, undone=edit.undone)

    def doubt(self, checkout: str) -> None:
        """Note that a call changed the file here without a snapshot, so that the author of the next new lines is unknown."""
        self._uncertain.add(checkout)

    def attribute(self, checkout: str, content: Content | None) -> FileVersion:
        """Return a content with its authors, as it was found in a checkout. Lines that no session recorded are a person's, or unknown."""
        if content is None:
            self._set_last(checkout, None)
            return EMPTY
        if content.oid not in self._known:
            base, fallback = self._choose_base(checkout, content)
            authors = follow_lines(base, content.lines)
            self._search_known(content.lines, authors)
            self._put(content.oid, [fallback if each is None else each for each in authors])
        self._uncertain.discard(checkout)
        self._set_last(checkout, content.oid)
        return Version(content.lines, expand_runs(self._known[content.oid]))

    def _choose_base(self, checkout: str, content: Content) -> tuple[FileVersion, LineAuthor]:
        """Return the version that a content is most likely made from, and who made it if nobody recorded it."""
        if checkout in self._last_contents:
            fallback = UNKNOWN if checkout in self._uncertain else PERSON
            last, kept = self._last_contents[checkout]
            # What was undone may still be there in part: a person may have kept some files.
            bases = [self._get(oid) for oid in dict.fromkeys((kept, last))]
            return max(bases, key=lambda base: measure_similarity(base.lines, content.lines)), fallback
        if self._origin.lines:
            return self._origin, UNKNOWN if checkout in self._uncertain else PERSON
        recent = [self._get(oid) for oid in list(self._known)[: -MAX_SEARCHED_VERSIONS - 1 : -1]]
        best = max(recent, key=lambda base: measure_similarity(base.lines, content.lines), default=EMPTY)
        return best, UNKNOWN

    def _search_known(self, lines: Sequence[Line], authors: list[LineAuthor | None]) -> None:
        """Find lines that are new here in other known versions: a merge, a rebase or a checkout brought them."""
        missing = {line for line, author in zip(lines, authors, strict=True) if author is None}
        for oid in list(self._known)[: -MAX_SEARCHED_VERSIONS - 1 : -1]:
            if None not in authors:
                return
            # Whoever writes undone lines again is their author.
            if oid in self._undone or self._get_line_set(oid).isdisjoint(missing):
                continue
            known = self._get(oid)
            for match in match_lines(known.lines, lines):
                block = range(match.new, match.new + match.size)
                if None in authors[match.new : match.new + match.size] and (
                    count_chars(lines[match.new : match.new + match.size]) >= MIN_MOVED_CHARS
                ):
                    for index in block:
                        if authors[index] is None:
                            authors[index] = known.authors[match.old + index - match.new]

    def _get_line_set(self, oid: str) -> frozenset[Line]:
        if oid not in self._line_sets:
            while len(self._line_sets) > 2 * MAX_SEARCHED_VERSIONS:
                del self._line_sets[next(iter(self._line_sets))]
            self._line_sets[oid] = frozenset(self._read(oid))
        return self._line_sets[oid]

    def _get(self, oid: str | None) -> FileVersion:
        if oid is None:
            return EMPTY
        runs = self._known.get(oid)
        return EMPTY if runs is None else Version(self._read(oid), expand_runs(runs))

    def _put(self, oid: str, authors: Sequence[LineAuthor]) -> None:
        self._known.pop(oid, None)  # the newest is last
        self._known[oid] = to_runs(authors)

    def _set_last(self, checkout: str, oid: str | None, *, undone: bool = False) -> None:
        """Remember the last content of a checkout, and the last one that was not undone."""
        _, kept = self._last_contents.get(checkout, (None, None))
        self._last_contents[checkout] = (oid, kept if undone else oid)


def to_runs(authors: Sequence[LineAuthor]) -> AuthorRuns:
    """Return the authors of lines as runs."""
    return tuple((author, len(list(block))) for author, block in groupby(authors))


def expand_runs(runs: AuthorRuns) -> list[LineAuthor]:
    """Return the author of each line."""
    return [author for author, count in runs for _ in range(count)]


def _count_open(lines: Sequence[Line], authors: Sequence[LineAuthor | None]) -> int:
    return count_chars([line for line, author in zip(lines, authors, strict=True) if author is None])


def order_edits(edits: Sequence[FileEdit]) -> list[FileEdit]:
    """Return edits in the order in which they happened. Two that were stored in the wrong order are recognised by their contents."""
    ordered: list[FileEdit] = []
    rest = list(edits)
    last_contents: dict[str, str | None] = {}
    while rest:
        first = rest[0]
        is_next = first.checkout in last_contents and last_contents[first.checkout] == _name(first.before)
        edit = rest.pop(0 if is_next else _find_earlier(rest[:ORDER_WINDOW], last_contents))
        last_contents[edit.checkout] = _name(edit.after)
        ordered.append(edit)
    return ordered


def _find_earlier(near: Sequence[FileEdit], last_contents: Mapping[str, str | None]) -> int:
    """Return the index of an edit that must come before the first one: it ends where that begins, and nothing leads to it."""
    first = near[0]
    for index, each in enumerate(near):
        if (
            index
            and each.checkout == first.checkout
            and _name(each.after) == _name(first.before)
            and last_contents.get(each.checkout, _name(each.before)) == _name(each.before)
            and all(_name(other.after) != _name(each.before) for other in near[:index])
        ):
            return index
    return 0


def _name(content: Content | None) -> str | None:
    return None if content is None else content.oid

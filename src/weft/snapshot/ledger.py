"""The ledger: what one session changed and has not been told yet, link by link, kept in a file against a crash."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Struct

from weft.host.files import read_bytes, write_atomic
from weft.model.diff import Patch
from weft.model.ids import SessionID
from weft.snapshot.entry import Entry, State, is_same, parents

LIMIT: Final = 256 << 20


class Link(Struct, frozen=True, array_like=True):
    """One change of one file, when it ended, and the directories on its way that were there before and after."""

    path: bytes
    before: Entry | None
    after: Entry | None
    at: int
    had: tuple[bytes, ...] = ()
    has: tuple[bytes, ...] = ()


class Opened(Struct, frozen=True, kw_only=True):
    """A watched call that has not ended: the files it announced, as they were; None if it may change any."""

    began: int
    files: tuple[Link, ...] | None


class Page(Struct, frozen=True, kw_only=True):
    """All that is known of a session. `taken` was told, and may not have been stored yet."""

    session: SessionID
    links: tuple[Link, ...] = ()
    opened: tuple[Opened, ...] = ()
    uncovered: tuple[tuple[bytes, str], ...] = ()
    taken: tuple[Patch, ...] = ()


class Ledger:
    """The links of a session in order, and what is open. `save` after changing it."""

    def __init__(self, path: str, page: Page) -> None:
        self.path = path
        self.session = page.session
        self.links = list(page.links)
        self.opened = {each.began: each for each in page.opened}
        self.uncovered = dict(page.uncovered)
        self.taken = page.taken

    def add(self, link: Link, began: int) -> None:
        """Take in what a call that began then found. What other calls of the session did meanwhile stays theirs."""
        inside = [each for each in self.links if each.path == link.path and each.at > began]
        if not inside:
            self.links.append(link)
            return
        # The call saw one change where there were several: its own part is what came before them and after.
        first, last = inside[0], inside[-1]
        early = Link(link.path, link.before, first.before, first.at, link.had, first.had)
        self.links.insert(self.links.index(first), early)
        self.links.append(Link(link.path, last.after, link.after, link.at, last.has, link.has))

    def clear(self) -> None:
        self.links = []
        self.uncovered = {}

    @property
    def is_empty(self) -> bool:
        return not (self.links or self.opened or self.uncovered or self.taken)

    def save(self) -> None:
        page = Page(
            session=self.session,
            links=tuple(self.links),
            opened=tuple(self.opened.values()),
            uncovered=tuple(self.uncovered.items()),
            taken=self.taken,
        )
        write_atomic(self.path, msgspec.json.encode(page), temp=f"{self.path}~")


def load(path: str) -> Ledger | None:
    """What a process left. None if it left nothing that can be read."""
    with suppress(OSError, msgspec.DecodeError):
        return Ledger(path, msgspec.json.decode(read_bytes(path, limit=LIMIT), type=Page))
    return None


def join(links: Iterable[Link]) -> Iterator[Link]:
    """Fewer links that come to the same: one where nothing of somebody else's lies between, none if nothing is left."""
    joined: list[Link] = []
    last: dict[bytes, int] = {}
    for link in links:
        at = last.get(link.path)
        if at is not None and is_same(joined[at].after, link.before):
            old = joined[at]
            joined[at] = Link(link.path, old.before, link.after, link.at, old.had, link.has)
        else:
            last[link.path] = len(joined)
            joined.append(link)
    kept = [link for link in joined if not is_same(link.before, link.after)]
    yield from sorted(kept, key=lambda link: link.at)


def group(links: Sequence[Link]) -> list[list[Link]]:
    """Links in order, cut wherever one file comes a second time, or could not stand beside the others in a tree."""
    groups: list[list[Link]] = []
    seen: set[bytes] = set()
    sides: tuple[set[bytes], set[bytes]] = (set(), set())
    for link in links:
        present = (link.before is not None, link.after is not None)
        clash = link.path in seen or any(
            _clashes(link.path, side) for side, there in zip(sides, present, strict=True) if there
        )
        if clash or not groups:
            groups.append([])
            seen, sides = set(), (set(), set())
        groups[-1].append(link)
        seen.add(link.path)
        for side, there in zip(sides, present, strict=True):
            if there:
                side.update((link.path, *(each + b"/" for each in parents(link.path))))
    return groups


def _clashes(path: bytes, side: set[bytes]) -> bool:
    """Whether a file would stand where a directory does, or the other way round."""
    return path + b"/" in side or any(each in side for each in parents(path))


def to_states(links: Iterable[Link]) -> tuple[State, State]:
    """The files of a group as they were and as they were left."""
    links = list(links)
    before = {link.path: link.before for link in links if link.before is not None}
    after = {link.path: link.after for link in links if link.after is not None}
    # A directory that one change did not find was made by it, though a later one found it there.
    absent = {each for link in links for each in parents(link.path) if each not in link.had}
    had = {each for link in links for each in link.had} - absent
    has: dict[bytes, bool] = {}
    for link in links:
        has.update((each, each in link.has) for each in parents(link.path))
    left = {each for each, there in has.items() if there}
    return (
        State(files=before, dirs=_directories(had, before)),
        State(files=after, dirs=_directories(left, after)),
    )


def _directories(known: set[bytes], files: Mapping[bytes, Entry]) -> frozenset[bytes]:
    """Those that do not stand where a file does."""
    return frozenset(
        each for each in known if each not in files and not any(up in files for up in parents(each))
    )

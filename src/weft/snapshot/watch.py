"""Watch tool calls to know whose change it was."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import GitError
from weft.host.files import Disk
from weft.model.diff import Patch
from weft.model.ids import SessionID
from weft.snapshot.entry import Entry, is_same
from weft.snapshot.index import Change, Scanned
from weft.snapshot.ledger import Ledger, Link, Opened, Page
from weft.snapshot.works import Refused, Seen, Works

CONTESTED: Final = "another session ran a command at the same time"


class Window(Struct, frozen=True, kw_only=True, eq=False):
    """A call being watched: the files it announced, or `any`; `blind` says why then its changes cannot be seen."""

    session: SessionID
    began: int
    seen: tuple[Seen, ...] = ()
    any: bool = False
    blind: str = ""


class Watching:
    def __init__(self, works: Works, live: str) -> None:
        self._works = works
        self._live = live
        self._seq = 0
        self._scanned_at = 0
        self._looking = asyncio.Lock()
        self._saving = asyncio.Lock()
        self._ledgers: dict[SessionID, Ledger] = {}
        self._windows: set[Window] = set()
        self._extras: dict[bytes, str] = {}
        self._announced: list[tuple[SessionID, bytes, Entry | None]] = []

    # --- calls that say what they change ---

    async def open_some(self, session: SessionID, files: Sequence[str]) -> Window:
        began = self._next()
        seen = await asyncio.to_thread(self._works.see, files)
        window = Window(session=session, began=began, seen=tuple(seen))
        links = tuple(
            Link(each.path, each.found, None, began, tuple(sorted(each.dirs)))
            for each in seen
            if each.path is not None and not isinstance(each.found, Refused)
        )
        await self._open(window, links)
        return window

    async def close_some(self, window: Window) -> None:
        await self._see_again(window)
        self._extras |= {each.path: each.file for each in window.seen if each.path is not None}
        await self._close(window)

    async def _see_again(self, window: Window) -> None:
        seen = await asyncio.to_thread(self._works.see_again, window.seen)
        for before, after in zip(window.seen, seen, strict=True):
            self._note(window, before, after)

    def _note(self, window: Window, before: Seen, after: Seen) -> None:
        ledger = self.ledger(window.session)
        old, new, path = before.found, after.found, before.path
        if path is None or isinstance(old, Refused) or isinstance(new, Refused):
            if old != new:
                refused = new if isinstance(new, Refused) else old
                reason = refused.reason if isinstance(refused, Refused) else ""
                ledger.uncovered[os.fsencode(before.file)] = reason
            return
        change = Change(path=path, before=old, after=new, had=before.dirs, has=after.dirs)
        if not window.any:
            self._announced.append((ledger.session, path, new))
            self._add(ledger, change, window.began)
        elif not is_same(old, new):
            self._claim(change, ledger, window.began)

    def _add(self, ledger: Ledger, change: Change, began: int) -> None:
        if not is_same(change.before, change.after):
            had, has = tuple(sorted(change.had)), tuple(sorted(change.has))
            ledger.add(Link(change.path, change.before, change.after, self._next(), had, has), began)

    # --- calls that may change anything ---

    async def open_all(self, session: SessionID, blind: str) -> Window:
        """`blind` says why there is nothing to compare with, "" if there is."""
        async with self._looking:
            blind = blind or await self._look()
            began = self._next()
            seen = () if blind else await asyncio.to_thread(self._see_extras)
            window = Window(session=session, began=began, seen=tuple(seen), any=True, blind=blind)
            await self._open(window, None)
            return window

    def _see_extras(self) -> list[Seen]:
        """What tools touched and a look at all files passes over, because it is ignored."""
        with suppress(GitError):
            for path in self._works.scanned(self._extras):
                del self._extras[path]
        return self._works.see(self._extras.values())

    async def close_all(self, window: Window) -> None:
        async with self._looking:
            blind = window.blind or await self._look()
            if blind:
                self.ledger(window.session).uncovered[b""] = blind
            await self._see_again(window)
            await self._close(window)

    async def look(self) -> str:
        """See what changed. Gives why that failed, "" if it did not."""
        async with self._looking:
            return await self._look()

    async def _look(self) -> str:
        seen = [each.found for window in self._windows if window.any for each in window.seen]
        sources = {each.oid for each in seen if isinstance(each, Entry)}
        try:
            scanned = await asyncio.to_thread(self._works.scan, sources)
        except (GitError, OSError) as error:
            return f"the files could not be looked through: {error}"
        self._attribute(scanned, {each.session for each in self._windows if each.any})
        self._scanned_at = self._next()
        return ""

    def _attribute(self, scanned: Scanned, sessions: set[SessionID]) -> None:
        for session in sessions:
            ledger = self.ledger(session)
            ledger.uncovered.update(scanned.uncovered)
            for change in scanned.changes:
                self._claim(change, ledger, self._scanned_at)

    def _claim(self, change: Change, ledger: Ledger, began: int) -> None:
        """Give what was found while calls of a session were open to it, as far as it is not another's."""
        others = [each for each in self._windows if each.session != ledger.session]
        if any(_announces(each, change.path) for each in others):
            return  # that session will say what it did
        told = [(whose, after) for whose, path, after in self._announced if path == change.path]
        is_told = bool(told) and is_same(told[-1][1], change.after)
        if told and told[-1][0] != ledger.session:
            if is_told:
                return
            change = replace(change, before=told[-1][1])
        if not is_told and any(each.any for each in others):
            ledger.uncovered[change.path] = CONTESTED
        else:
            self._add(ledger, change, began)

    # --- telling it ---

    async def take(self, session: SessionID) -> tuple[Patch, ...]:
        ledger = self._ledgers.get(session)
        if ledger is None or not (ledger.links or ledger.uncovered):
            return ()
        links, uncovered = list(ledger.links), dict(ledger.uncovered)
        ledger.clear()
        found = await asyncio.to_thread(self._works.patches, session, links, uncovered)
        ledger.taken = (*ledger.taken, *found)
        await self._save(ledger)
        return found

    async def stored(self, session: SessionID) -> None:
        ledger = self._ledgers.get(session)
        if ledger is not None and ledger.taken:
            ledger.taken = ()
            await self._save(ledger)

    async def adopt(self, session: SessionID, patches: tuple[Patch, ...]) -> None:
        """Answer for what a dead process took, until it is stored."""
        ledger = self.ledger(session)
        ledger.taken = (*ledger.taken, *patches)
        await self._save(ledger)

    def ledger(self, session: SessionID) -> Ledger:
        if session not in self._ledgers:
            self._ledgers[session] = Ledger(f"{self._live}/{session}.json", Page(session=session))
        return self._ledgers[session]

    @property
    def is_settled(self) -> bool:
        return all(ledger.is_empty for ledger in self._ledgers.values())

    async def _open(self, window: Window, links: tuple[Link, ...] | None) -> None:
        self._windows.add(window)
        ledger = self.ledger(window.session)
        ledger.opened[window.began] = Opened(began=window.began, files=links)
        await self._save(ledger)

    async def _close(self, window: Window) -> None:
        self._windows.discard(window)
        if not any(each.any for each in self._windows):
            self._announced.clear()
        ledger = self.ledger(window.session)
        ledger.opened.pop(window.began, None)
        await self._save(ledger)

    async def _save(self, ledger: Ledger) -> None:
        async with self._saving:
            if ledger.is_empty:
                await asyncio.to_thread(Disk().remove, ledger.path)
            else:
                await asyncio.to_thread(ledger.save)

    def _next(self) -> int:
        self._seq += 1
        return self._seq


def _announces(window: Window, path: bytes) -> bool:
    return not window.any and any(each.path == path for each in window.seen)

"""Watch tool calls to attribute changes of files to sessions."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import GitError
from weft.host.files import Disk, try_lock, write_atomic
from weft.host.tasks import run_to_completion
from weft.model.diff import Patch
from weft.model.ids import SessionID
from weft.snapshot.entry import FileEntry, is_same
from weft.snapshot.index import ScannedChange, ScanResult
from weft.snapshot.ledger import ChangeLedger, LedgerPage, OpenCall, RecordedChange
from weft.snapshot.tracker import FileTracker, RefusedFile, SeenFile

CONTESTED_BY_COMMAND: Final = "another session ran a command at the same time"
CONTESTED_BY_PROCESS: Final = "another weft process worked in this directory at the same time"
# In the directory of each process: not empty while calls that may change files run.
CALLS_FILE: Final = "calls"
# Next to these directories: the name of the process in which such a call began or ended last.
LAST_WORKER_FILE: Final = "last-worker"


class WatchedCall(Struct, frozen=True, kw_only=True, eq=False):
    """A running call: the files it announced, or `any`. `blind` says why the changes of an `any` call cannot be seen."""

    session: SessionID
    began: int
    files: tuple[SeenFile, ...] = ()
    any: bool = False
    blind: str = ""
    call: str = ""


class CallWatcher:
    """Attributes changes to the calls that are running, and keeps a ledger for each session."""

    def __init__(self, tracker: FileTracker, live: str) -> None:
        self._tracker = tracker
        self._live = live
        self._last_number = 0
        self._scanned_at = 0
        self._scanned_time = 0
        self._is_contested = False
        self._scan_lock = asyncio.Lock()
        self._save_lock = asyncio.Lock()
        self._ledgers: dict[SessionID, ChangeLedger] = {}
        self._calls: set[WatchedCall] = set()
        self._extras: dict[bytes, str] = {}
        self._announced: list[tuple[SessionID, bytes, FileEntry | None]] = []

    # --- calls that announce their files ---

    async def open_some(self, session: SessionID, files: Sequence[str], id: str = "") -> WatchedCall:
        """Begin a call that changes these files alone. `id` is that of the call."""
        began = self._next_number()
        seen = await asyncio.to_thread(self._tracker.record, files)
        call = WatchedCall(session=session, began=began, files=tuple(seen), call=id)
        changes = tuple(
            RecordedChange(each.path, each.found, None, began, tuple(sorted(each.dirs)))
            for each in seen
            if each.path is not None and not isinstance(each.found, RefusedFile)
        )
        await self._open(call, changes)
        return call

    async def close_some(self, call: WatchedCall) -> None:
        """End it, and record what became of its files."""
        await self._record_again(call)
        self._extras |= {each.path: each.file for each in call.files if each.path is not None}
        await self._close(call)

    async def _record_again(self, call: WatchedCall) -> None:
        seen = await asyncio.to_thread(self._tracker.record_again, call.files)
        for before, after in zip(call.files, seen, strict=True):
            self._note_change(call, before, after)

    def _note_change(self, call: WatchedCall, before: SeenFile, after: SeenFile) -> None:
        ledger = self.get_ledger(call.session)
        old, new, path = before.found, after.found, before.path
        if path is None or isinstance(old, RefusedFile) or isinstance(new, RefusedFile):
            if old != new:
                refused = new if isinstance(new, RefusedFile) else old
                reason = refused.reason if isinstance(refused, RefusedFile) else ""
                ledger.uncovered[os.fsencode(before.file)] = reason
            return
        change = ScannedChange(path=path, before=old, after=new, had=before.dirs, has=after.dirs)
        if not call.any:
            self._announced.append((ledger.session, path, new))
            self._add(ledger, change, call.began)
        elif not is_same(old, new):
            self._claim(change, ledger, call.began)

    def _add(self, ledger: ChangeLedger, change: ScannedChange, began: int) -> None:
        if not is_same(change.before, change.after):
            had, has = tuple(sorted(change.had)), tuple(sorted(change.has))
            ledger.add(
                RecordedChange(change.path, change.before, change.after, self._next_number(), had, has), began
            )

    # --- calls that may change any file ---

    async def open_all(self, session: SessionID, blind: str, id: str = "") -> WatchedCall:
        """Begin a call that may change any file. `blind` is the reason why files cannot be compared, "" if they can."""
        async with self._scan_lock:
            blind = blind or await self._scan()
            began = self._next_number()
            seen = () if blind else await asyncio.to_thread(self._record_extras)
            call = WatchedCall(
                session=session, began=began, files=tuple(seen), any=True, blind=blind, call=id
            )
            await self._open(call, None)
            return call

    def _record_extras(self) -> list[SeenFile]:
        """Look at files that tools changed but a scan of all files skips, because git ignores them."""
        with suppress(GitError):
            for path in self._tracker.list_scanned(self._extras):
                del self._extras[path]
        return self._tracker.record(self._extras.values())

    async def close_all(self, call: WatchedCall) -> None:
        """End it, and attribute to it what a scan finds changed."""
        async with self._scan_lock:
            blind = call.blind or await self._scan()
            if blind:
                self.get_ledger(call.session).uncovered[b""] = blind
            await self._record_again(call)
            await self._close(call)

    async def scan(self) -> str:
        """Scan for changes. Return the reason if that failed, "" if not."""
        async with self._scan_lock:
            return await self._scan()

    async def _scan(self) -> str:
        seen = [each.found for call in self._calls if call.any for each in call.files]
        sources = {each.oid for each in seen if isinstance(each, FileEntry)}
        try:
            began = await asyncio.to_thread(self._write_calls)
            scanned = await asyncio.to_thread(self._tracker.scan, sources)
            is_contested = await asyncio.to_thread(self._did_others_work)
        except (GitError, OSError) as error:
            return f"the files could not be scanned: {error}"
        self._scanned_time, self._is_contested = began, False
        self._attribute(
            scanned, {each.session for each in self._calls if each.any}, is_contested=is_contested
        )
        self._scanned_at = self._next_number()
        return ""

    def _show_calls(self) -> None:
        """Show other processes that a call has begun or ended here."""
        self._is_contested = self._was_other_last()
        self._write_calls()
        write_atomic(self._last_worker, os.fsencode(self._live), temp=f"{self._live}/{LAST_WORKER_FILE}")

    def _write_calls(self) -> int:
        """Note whether calls run here. Return the time of that by the file system's clock, in ns since 1970."""
        with open(f"{self._live}/{CALLS_FILE}", "wb") as file:
            file.write(b"1" if self._calls else b"")
            file.flush()
            os.utime(file.fileno())
            return os.fstat(file.fileno()).st_mtime_ns

    @property
    def _last_worker(self) -> str:
        return f"{os.path.dirname(os.path.dirname(self._live))}/{LAST_WORKER_FILE}"

    def _was_other_last(self) -> bool:
        """Return True if a call of another process has begun or ended since the last scan."""
        try:
            with open(self._last_worker, "rb") as file:
                is_recent = os.fstat(file.fileno()).st_mtime_ns >= self._scanned_time
                return self._is_contested or (is_recent and file.read() != os.fsencode(self._live))
        except FileNotFoundError:
            return self._is_contested

    def _did_others_work(self) -> bool:
        """Return True if calls of another process ran in this directory since the last scan."""
        if self._was_other_last():
            return True
        parent, own = os.path.split(self._live)
        for name in os.listdir(parent):
            if name == own or not _has_content(f"{parent}/{name}/{CALLS_FILE}"):
                continue
            with suppress(OSError), try_lock(f"{parent}/{name}/lock") as is_dead:
                if not is_dead:
                    return True
        return False

    def _attribute(self, scanned: ScanResult, sessions: set[SessionID], *, is_contested: bool) -> None:
        for session in sessions:
            ledger = self.get_ledger(session)
            ledger.uncovered.update(scanned.uncovered)
            for change in scanned.changes:
                self._claim(change, ledger, self._scanned_at, is_contested=is_contested)

    def _claim(
        self, change: ScannedChange, ledger: ChangeLedger, began: int, *, is_contested: bool = False
    ) -> None:
        """Attribute a change to a session unless it belongs to another one. `is_contested` if another process may have made it."""
        others = [call for call in self._calls if call.session != ledger.session]
        if any(_announces(call, change.path) for call in others):
            return  # that session records the change itself
        announced = [(owner, after) for owner, path, after in self._announced if path == change.path]
        is_announced = bool(announced) and is_same(announced[-1][1], change.after)
        if announced and announced[-1][0] != ledger.session:
            if is_announced:
                return
            change = replace(change, before=announced[-1][1])
        if not is_announced and any(call.any for call in others):
            ledger.uncovered[change.path] = CONTESTED_BY_COMMAND
        elif not is_announced and is_contested:
            ledger.uncovered[change.path] = CONTESTED_BY_PROCESS
        else:
            self._add(ledger, change, began)

    # --- reporting changes ---

    async def take(self, session: SessionID) -> tuple[Patch, ...]:
        ledger = self._ledgers.get(session)
        if ledger is None or not (ledger.links or ledger.uncovered):
            return ()
        changes, uncovered = list(ledger.links), dict(ledger.uncovered)
        ledger.clear()
        patches = await asyncio.to_thread(self._tracker.make_patches, session, changes, uncovered)
        ledger.taken = (*ledger.taken, *patches)
        await self._save(ledger)
        return patches

    async def mark_stored(self, session: SessionID) -> None:
        ledger = self._ledgers.get(session)
        if ledger is not None and ledger.taken:
            ledger.taken = ()
            await self._save(ledger)

    async def adopt(self, session: SessionID, patches: tuple[Patch, ...], call: str = "") -> None:
        """Take over patches of a dead process until they are stored."""
        ledger = self.get_ledger(session)
        ledger.calls.add(call)
        ledger.taken = (*ledger.taken, *patches)
        await self._save(ledger)

    def get_ledger(self, session: SessionID) -> ChangeLedger:
        if session not in self._ledgers:
            self._ledgers[session] = ChangeLedger(f"{self._live}/{session}.json", LedgerPage(session=session))
        return self._ledgers[session]

    @property
    def has_stored_all(self) -> bool:
        return all(ledger.is_empty for ledger in self._ledgers.values())

    async def _open(self, call: WatchedCall, changes: tuple[RecordedChange, ...] | None) -> None:
        self._calls.add(call)
        ledger = self.get_ledger(call.session)
        ledger.calls.add(call.call)
        ledger.opened[call.began] = OpenCall(began=call.began, files=changes, blind=call.blind)
        try:
            await run_to_completion(self._save_and_show(ledger))
        except BaseException:
            # Whoever opened it never gets the call, so nobody else would close it.
            await run_to_completion(self._close(call))
            raise

    async def _close(self, call: WatchedCall) -> None:
        self._calls.discard(call)
        if not any(each.any for each in self._calls):
            self._announced.clear()
        ledger = self.get_ledger(call.session)
        ledger.opened.pop(call.began, None)
        await self._save_and_show(ledger)

    async def _save_and_show(self, ledger: ChangeLedger) -> None:
        await self._save(ledger)
        async with self._save_lock:  # two at once would write into one temporary file
            await asyncio.to_thread(self._show_calls)

    async def _save(self, ledger: ChangeLedger) -> None:
        async with self._save_lock:
            if ledger.is_empty:
                ledger.calls.clear()
                await asyncio.to_thread(Disk().remove, ledger.path)
                if ledger.is_empty:  # no call has begun meanwhile
                    self._ledgers.pop(ledger.session, None)
            else:
                await asyncio.to_thread(ledger.save)

    def _next_number(self) -> int:
        self._last_number += 1
        return self._last_number


def _has_content(path: str) -> bool:
    try:
        return os.stat(path).st_size > 0
    except OSError:  # no call has begun there yet, or the process has ended
        return False


def _announces(call: WatchedCall, path: bytes) -> bool:
    return not call.any and any(each.path == path for each in call.files)

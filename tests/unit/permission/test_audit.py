"""The audit log: append-only, and every change to it is detected."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from given.gate_harness import NOW, PROJECT, make_caller, make_gate_harness, rules
from weft.errors import StoreError
from weft.local.permissions import PermissionSettings, open_gates, redact_text
from weft.model.event import Event
from weft.permission.audit import (
    MAX_TEXT_CHARS,
    MAX_WAITING,
    AuditChain,
    AuditEntry,
    AuditLog,
    ChainBreak,
    ChainEnd,
    find_break,
    read_decisions,
    read_end,
    read_entries,
)
from weft.permission.policy import GateContext
from weft.permission.storage import end_key, log_key
from weft.store.contract import NO_LEASES, Key
from weft.store.lease import LeaseToken
from weft.store.memory import MemoryStore
from weft.testing.clock import HandClock

KEYS = ("sk-ant-api03-" + "Ab3dEf6hIj9kLm2nOp5q" * 4, "ghp_" + "Zy8xWv5uTs2rQp9oNm6lKj3iHg0fEd7c")
GOOGLE_KEY = "AIza" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R"  # it is one with exactly this length only


def entry(number: int, **more: str) -> AuditEntry:
    return AuditEntry(time=number, what="allowed", permission="bash", patterns=(f"echo {number}",), **more)


class StoredChain:
    """A chain in a store in memory, whose log and end a test may change."""

    def __init__(self, **limits: int) -> None:
        self.store = MemoryStore()
        self.chain = AuditChain(self.store, PROJECT, **limits)  # type: ignore[arg-type]

    async def fill(self, count: int, *, start: int = 1) -> "StoredChain":
        for number in range(start, start + count):
            await self.chain.append([entry(number)])
        return self

    async def lines(self) -> list[bytes]:
        return await self.store.read_log(log_key(PROJECT))

    async def write(self, lines: Sequence[bytes]) -> None:
        await self.store.trim_log(log_key(PROJECT), keep=0)
        await self.store.append_log(log_key(PROJECT), lambda _: lines)

    async def end(self) -> ChainEnd | None:
        return read_end(await self.store.find_value(end_key(PROJECT)))

    async def check(self) -> tuple[int, ChainBreak | None]:
        return find_break(await self.lines(), await self.end())


async def test_written_records_are_read_back_and_verified() -> None:
    log = await StoredChain().fill(3)
    assert list(read_entries(await log.lines())) == [(number, entry(number)) for number in (1, 2, 3)]
    assert await log.check() == (3, None)


def test_an_empty_log_is_valid() -> None:
    assert find_break([], None) == (0, None)


async def test_a_changed_record_is_reported() -> None:
    log = await StoredChain().fill(5)
    lines = await log.lines()
    await log.write([*lines[:2], lines[2].replace(b"echo 3", b"echo 9"), *lines[3:]])
    reason = "does not follow the record before it: one of them was changed, added or removed"
    assert await log.check() == (3, ChainBreak(seq=4, line=4, reason=reason))


async def test_a_changed_last_record_is_reported_even_after_further_records() -> None:
    log = await StoredChain().fill(3)
    lines = await log.lines()
    await log.write([*lines[:2], lines[2].replace(b"echo 3", b"echo 9")])
    assert (await log.check())[1] == ChainBreak(seq=3, line=3, reason="is not the one that was written")
    await log.fill(1, start=4)
    broken = (await log.check())[1]
    assert broken is not None
    assert broken.seq == 4


async def test_a_missing_record_is_reported() -> None:
    log = await StoredChain().fill(5)
    lines = await log.lines()
    await log.write(lines[:1] + lines[2:])
    broken = (await log.check())[1]
    assert broken is not None
    assert (broken.seq, broken.line) == (3, 2)


@pytest.mark.parametrize("left", [0, 1, 4])
async def test_a_truncated_log_is_reported(left: int) -> None:
    log = await StoredChain().fill(5)
    await log.write((await log.lines())[:left])
    held, broken = await log.check()
    assert (held, broken and broken.seq) == (left, left + 1)
    await log.fill(1, start=9)
    assert (await log.check())[1] is not None


async def test_a_log_without_a_recorded_end_is_reported() -> None:
    log = await StoredChain().fill(2)
    await log.store.put_value(end_key(PROJECT), None)
    assert (await log.check())[1] is not None


async def test_an_invalid_record_is_reported() -> None:
    log = await StoredChain().fill(2)
    await log.write([(await log.lines())[0], b"nonsense"])
    assert await log.check() == (1, ChainBreak(seq=2, line=2, reason="is not a record"))


async def test_a_crash_before_the_end_was_recorded_does_not_break_the_log() -> None:
    log = await StoredChain().fill(2)
    noted = await log.store.find_value(end_key(PROJECT))
    await log.fill(1, start=3)
    await log.store.put_value(end_key(PROJECT), noted)
    assert await log.check() == (3, None)
    await log.fill(1, start=4)
    assert await log.check() == (4, None)


async def test_concurrent_appends_form_one_chain() -> None:
    log = StoredChain()
    await asyncio.gather(*(log.chain.append([entry(number)]) for number in range(20)))
    assert await log.check() == (20, None)
    end = await log.end()
    assert end is not None
    assert end.seq == 20


async def test_the_oldest_records_are_dropped_and_the_log_says_how_many() -> None:
    log = await StoredChain(max_records=30, kept_records=10).fill(100)
    lines = await log.lines()
    assert await log.check() == (len(lines), None)
    assert 10 <= len(lines) <= 31
    end, noted = await log.end(), [found.count for _, found in read_entries(lines) if found.count]
    assert end is not None
    assert end.dropped == noted[-1]
    await log.write(lines[5:])
    broken = (await log.check())[1]
    assert broken is not None
    assert "known to have been dropped" in broken.reason


async def test_secrets_are_redacted_in_the_log() -> None:
    store = MemoryStore()
    chain = AuditChain(store, PROJECT, redact=lambda text: text.replace("s3cret", "[covered]"))
    await chain.append(
        [AuditEntry(time=1, what="answered", patterns=("curl -u me:s3cret",), message="use s3cret")]
    )
    [(_, found)] = read_entries(await store.read_log(log_key(PROJECT)))
    assert (found.patterns, found.message) == (("curl -u me:[covered]",), "use [covered]")


class SlowStore(MemoryStore):
    """A store whose log can be made to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.began = asyncio.Event()
        self.may_go_on = asyncio.Event()

    async def append_log(
        self, log: tuple[str, ...], extend: Callable[[bytes | None], Sequence[bytes]]
    ) -> None:
        self.began.set()
        await self.may_go_on.wait()
        await super().append_log(log, extend)


async def test_a_cancelled_write_is_completed_and_not_repeated() -> None:
    store = SlowStore()
    log = AuditLog(AuditChain(store, PROJECT))
    log.note(entry(1))
    writing = asyncio.ensure_future(log.flush())
    await store.began.wait()
    writing.cancel()
    store.may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await writing
    await log.try_flush()
    assert list(read_entries(await store.read_log(log_key(PROJECT)))) == [(1, entry(1))]


async def test_the_oldest_of_too_many_waiting_records_are_lost_and_the_log_says_how_many() -> None:
    stored = StoredChain()
    log = AuditLog(stored.chain)
    for number in range(MAX_WAITING + 2):
        log.note(entry(number))
    await log.flush()
    lost, *written = [found for _, found in read_entries(await stored.lines())]
    assert lost == AuditEntry(time=2, what="lost", count=2)
    assert written == [entry(number) for number in range(2, MAX_WAITING + 2)]


async def test_a_record_that_comes_while_others_are_written_is_not_lost() -> None:
    store = SlowStore()
    log = AuditLog(AuditChain(store, PROJECT))
    for number in range(MAX_WAITING):
        log.note(entry(number))
    writing = asyncio.ensure_future(log.flush())
    await store.began.wait()
    log.note(entry(MAX_WAITING))
    store.may_go_on.set()
    await writing
    await log.flush()
    written = [found for _, found in read_entries(await store.read_log(log_key(PROJECT)))]
    assert written == [entry(number) for number in range(MAX_WAITING + 1)]


class FaultyStore(MemoryStore):
    """Refuses the first writes to a log, or the first changes of a value."""

    def __init__(self, *, logs: int = 0, values: int = 0) -> None:
        super().__init__()
        self._faults = {"log": logs, "value": values}

    def _refuse(self, what: str) -> None:
        self._faults[what] -= 1
        if self._faults[what] >= 0:
            raise StoreError("no space left")

    async def append_log(self, log: Key, extend: Callable[[bytes | None], Sequence[bytes]]) -> None:
        self._refuse("log")
        await super().append_log(log, extend)

    async def update_value(
        self, key: Key, change: Callable[[Any], Any], *, leases: Sequence[LeaseToken] = NO_LEASES
    ) -> Any:
        self._refuse("value")
        return await super().update_value(key, change, leases=leases)


async def test_records_are_not_written_twice_if_their_end_cannot_be_recorded() -> None:
    store = FaultyStore(values=1)
    log = AuditLog(AuditChain(store, PROJECT))
    for number in (1, 2):
        log.note(entry(number))
        await log.try_flush()
    lines = await store.read_log(log_key(PROJECT))
    assert list(read_entries(lines)) == [(1, entry(1)), (2, entry(2))]
    assert find_break(lines, read_end(await store.find_value(end_key(PROJECT)))) == (2, None)


async def test_a_refused_write_is_tried_again_without_another_record() -> None:
    store, clock = FaultyStore(logs=2), HandClock(NOW)
    log = AuditLog(AuditChain(store, PROJECT))
    log.note(entry(1))
    flushing = asyncio.ensure_future(log.keep_flushing(clock))
    async with asyncio.timeout(5):
        for _ in range(3):
            await clock.somebody_sleeps(1)
            clock.turn(1000)
            await asyncio.sleep(0.01)
    flushing.cancel()
    assert list(read_entries(await store.read_log(log_key(PROJECT)))) == [(1, entry(1))]


@given(st.data())
def test_a_change_of_any_byte_is_found(data: st.DataObject) -> None:
    log = asyncio.run(StoredChain().fill(4))
    raw = bytearray(b"\n".join(asyncio.run(log.lines())))
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] ^= data.draw(st.sampled_from([1, 2, 4, 8, 16]))
    assert find_break(raw.split(b"\n"), asyncio.run(log.end()))[1] is not None


async def test_decisions_are_in_the_log_when_a_directory_is_closed() -> None:
    store, clock = MemoryStore(), HandClock(NOW)
    harness = make_gate_harness(clock=clock)
    context = GateContext(clock=clock, mint=harness.mint, project=PROJECT, publish=ignore_event)
    async with open_gates(PermissionSettings(persistent=True), context, store) as (gate, _):
        await gate.let_pass(harness.request("ls"), make_caller(rules("bash:*:allow")))
    [decision] = await read_decisions(store, PROJECT, limit=5)
    assert (decision.what, decision.patterns) == ("allowed", ("ls",))


async def test_every_secret_of_a_command_is_redacted_in_the_log() -> None:
    store, clock = MemoryStore(), HandClock(NOW)
    harness = make_gate_harness(clock=clock)
    context = GateContext(clock=clock, mint=harness.mint, project=PROJECT, publish=ignore_event)
    command = f"curl -H 'Authorization: Bearer {KEYS[0]}' && OPENAI_API_KEY={KEYS[1]} run"
    async with open_gates(PermissionSettings(persistent=True), context, store) as (gate, _):
        await gate.let_pass(harness.request(command), make_caller(rules("bash:*:allow")))
    [decision] = await read_decisions(store, PROJECT, limit=5)
    assert [key for key in KEYS if key in decision.patterns[0]] == []
    assert decision.patterns[0].count("[redacted:") == len(KEYS)


@pytest.mark.parametrize("visible", [0, 1, 20, 38, 39])
@pytest.mark.parametrize("after", ["", " && ls" * 10_000])
async def test_a_secret_where_the_text_of_a_record_ends_is_redacted_too(visible: int, after: str) -> None:
    store, key = MemoryStore(), GOOGLE_KEY
    before = "x " * (MAX_TEXT_CHARS // 2) + "curl "
    command = f"{before[-(MAX_TEXT_CHARS - visible) :]}{key}{after}"
    chain = AuditChain(store, PROJECT, redact=redact_text)
    await chain.append([AuditEntry(time=1, what="answered", patterns=(command,), message=command)])
    [(_, found)] = read_entries(await store.read_log(log_key(PROJECT)))
    redacted = command.replace(key, "[redacted:google-key]")[:MAX_TEXT_CHARS]
    assert found.patterns == (found.message,)
    assert redacted.startswith(found.message)
    assert len(redacted) - len(found.message) < len(key)


async def test_a_record_of_many_secrets_ends_before_one_that_was_not_read_whole() -> None:
    store, key = MemoryStore(), GOOGLE_KEY
    chain = AuditChain(store, PROJECT, redact=redact_text)
    for shift in range(len(key) + 1):
        await chain.append([AuditEntry(time=1, what="answered", message="x" * shift + f" {key}" * 1000)])
    for _, found in read_entries(await store.read_log(log_key(PROJECT))):
        assert key[:10] not in found.message
        assert "[redacted:google-key]" in found.message


async def ignore_event(_: Event) -> None:
    """Drop an event: nobody listens."""

"""`weft storage verify` notices damage and forgery of every kind, and nothing else, in every durable store."""

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest
from msgspec.structs import replace

from given.postgres import get_server, make_url
from weft.maintenance.anchor import list_heads
from weft.maintenance.verify import VerifyResult, verify_store
from weft.model.diff import FileDiff
from weft.model.event import (
    Durable,
    MessageRemoved,
    MessageUpdated,
    PartRemoved,
    PartUpdated,
    SessionCreated,
    SessionDeleted,
    SessionDiffed,
    SessionUpdated,
    TodoUpdated,
)
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import AssistantTime
from weft.model.part import (
    AnyPart,
    CallTime,
    CompletedState,
    Span,
    StepFinishPart,
    TextPart,
    Tokens,
    ToolPart,
)
from weft.model.proof import AnchoredHead, ProofFinding
from weft.model.session import ForkedFrom, Todo, WeftSessionData, get_weft_data, with_weft_data
from weft.model.spending import Ledger, Spent
from weft.model.wire import decode
from weft.store.chain import digest_document
from weft.store.contract import Store
from weft.store.maintenance import StoreMaintenance, open_maintenance
from weft.store.url import open_store
from weft.testing.store_samples import ANSWER, NOW, PROMPT, SESSION, answer, growth, prompt, session, text

OTHER = SessionID("ses_2")
LATER = NOW + 10**12
STORES = ("files", "sqlite", "postgres")


class StoredDocuments:
    """Changes documents behind weft's back."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.kind = "files" if url.startswith("file:") else url.partition(":")[0]
        self.root = Path(url.partition(":")[2])

    @property
    def schema(self) -> str:
        return self.url.partition("schema=")[2]

    # A document is named by its table and its key: ("message", "ses_1", "msg_1").

    def _path(self, table: str, *key: str) -> Path:
        match table:
            case "session":
                return self.root / "session" / "p1" / f"{key[0]}.json"
            case "message":
                return self.root / "message" / key[0] / f"{key[1]}.json"
            case "part":
                return self.root / "part" / key[1] / f"{key[2]}.json"
            case "chain":
                return self.root / ".weft" / "chain" / key[0]
            case _:
                return self.root / {"diff": "session_diff", "todo": "todo"}[table] / f"{key[0]}.json"

    def _run(self, sql: str, *values: Any) -> list[Any]:
        if self.kind == "sqlite":
            connection = apsw.Connection(str(self.root))
            try:
                return connection.execute(sql, values).fetchall()
            finally:
                connection.close()
        parts = iter(values)
        whole = re.sub(r"\?", lambda _: _to_literal(next(parts)), sql)
        lines = get_server().query(f"SET search_path TO {self.schema}; {whole}")
        return [line.split("|") for line in lines]

    def _to_condition(self, table: str, key: tuple[str, ...]) -> tuple[str, str, tuple[Any, ...]]:
        """Return the table of a database, the condition for a row, and its values."""
        if self.kind == "sqlite":
            history = "history = (SELECT number FROM history WHERE session = ? AND bundle IS NULL)"
            match table:
                case "session":
                    return "session", "id = ?", key
                case "message":
                    return "message", f"{history} AND id = ?", key
                case "part":
                    return "part", f"{history} AND message = ? AND id = ?", key
                case "chain":
                    return "chain", history.replace("history =", "number >> 32 =", 1), key
                case _:
                    return table, history, key
        match table:
            case "session":
                return "session", "id = ?", key
            case "message":
                return "message", "session = ? AND id = ?", key
            case "part":
                return "part", "session = ? AND message = ? AND id = ?", key
            case "chain":
                return "chain", "session = ?", key
            case _:
                return "detail", "session = ? AND kind = ?", (*key, table)

    def read(self, table: str, *key: str) -> bytes:
        if self.kind == "files":
            return self._path(table, *key).read_bytes()
        name, condition, values = self._to_condition(table, key)
        column = "document" if self.kind == "sqlite" else "encode(document, 'hex')"
        found = self._run(f"SELECT {column} FROM {name} WHERE {condition}", *values)
        return _to_bytes(found[0][0])

    def write(self, table: str, *key: str, raw: bytes) -> None:
        if self.kind == "files":
            self._path(table, *key).write_bytes(raw)
            return
        name, condition, values = self._to_condition(table, key)
        self._run(f"UPDATE {name} SET document = ? WHERE {condition}", raw, *values)

    def edit(self, table: str, *key: str, **fields: Any) -> None:
        document = json.loads(self.read(table, *key))
        self.write(table, *key, raw=json.dumps({**document, **fields}, indent=2).encode())

    def remove(self, table: str, *key: str) -> None:
        if self.kind == "files":
            self._path(table, *key).unlink()
            return
        name, condition, values = self._to_condition(table, key)
        self._run(f"DELETE FROM {name} WHERE {condition}", *values)

    def add(self, table: str, *key: str, raw: bytes) -> None:
        if self.kind == "files":
            path = self._path(table, *key)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(raw)
        elif self.kind == "sqlite":
            history = "SELECT number FROM history WHERE session = ? AND bundle IS NULL"
            if table == "message":
                self._run(
                    f"INSERT INTO message (history, id, created, position, document) VALUES (({history}), ?, {NOW}, 0, ?)",
                    *key,
                    raw,
                )
            else:
                self._run(
                    f"INSERT INTO part (history, message, id, length, document) VALUES (({history}), ?, ?, 1, ?)",
                    *key,
                    raw,
                )
        elif table == "message":
            self._run(
                f"INSERT INTO message (session, id, created, number, document) VALUES (?, ?, {NOW}, 0, ?)",
                *key,
                raw,
            )
        else:
            self._run(
                "INSERT INTO part (session, message, id, grows, document) VALUES (?, ?, ?, true, ?)",
                *key,
                raw,
            )

    # --- chains ---

    def read_lines(self, id: str = SESSION) -> list[bytes]:
        if self.kind == "files":
            return self._path("chain", id).read_bytes().split(b"\n")[1:-1]
        name, condition, values = self._to_condition("chain", (id,))
        if self.kind == "sqlite":
            rows = self._run(
                f"SELECT lower(hex(hash)), body FROM {name} WHERE {condition} ORDER BY number", *values
            )
            return [hash.encode() + b" " + bytes(body) for hash, body in rows]
        rows = self._run(
            f"SELECT encode(hash, 'hex'), encode(body, 'hex') FROM {name} WHERE {condition} ORDER BY number",
            *values,
        )
        return [hash.encode() + b" " + _to_bytes(body) for hash, body in rows]

    def write_lines(self, lines: list[bytes], id: str = SESSION, *, head: bool = False) -> None:
        """Replace a chain. With `head`, the head of a file fits to it."""
        if self.kind == "files":
            path = self._path("chain", id)
            first = path.read_bytes().split(b"\n")[0]
            if head and lines:
                first = b"%012d %s" % (len(lines), lines[-1][:64])
            path.write_bytes(b"\n".join([first, *lines, b""]))
            return
        name, condition, values = self._to_condition("chain", (id,))
        if self.kind == "sqlite":
            [[history]] = self._run("SELECT number FROM history WHERE session = ? AND bundle IS NULL", id)
            self._run(f"DELETE FROM {name} WHERE {condition}", *values)
            for number, line in enumerate(lines, 1):
                hash, _, body = line.partition(b" ")
                self._run(
                    "INSERT INTO chain (number, hash, body) VALUES (?, ?, ?)",
                    (history << 32) + number,
                    bytes.fromhex(hash.decode()),
                    body,
                )
            return
        self._run(f"DELETE FROM {name} WHERE {condition}", *values)
        for number, line in enumerate(lines, 1):
            hash, _, body = line.partition(b" ")
            self._run(
                f"INSERT INTO chain (session, number, hash, body) VALUES (?, {number}, ?, ?)",
                id,
                bytes.fromhex(hash.decode()),
                body,
            )


def _to_literal(value: Any) -> str:
    return f"'\\x{value.hex()}'::bytea" if isinstance(value, bytes) else f"'{value}'"


def _to_bytes(found: Any) -> bytes:
    return bytes.fromhex(found) if isinstance(found, str) else bytes(found)


# --- a session with everything, written in several steps ---

TOOL = PartID("prt_3")
STEP = PartID("prt_4")
REPLY = PartID("prt_5")
SECOND = MessageID("msg_3")


def tool_part() -> ToolPart:
    state = CompletedState(
        input={"command": "ls"},
        output="a\nb\n",
        title="ls",
        metadata={},
        time=CallTime(start=NOW, end=NOW + 1),
    )
    return ToolPart(
        id=TOOL, session_id=SESSION, message_id=ANSWER, call_id="call_1", tool="bash", state=state
    )


def step_part(cost: str = "0.0123") -> StepFinishPart:
    tokens = Tokens(input=10, output=20)
    return StepFinishPart(
        id=STEP, session_id=SESSION, message_id=ANSWER, reason="stop", cost=Decimal(cost), tokens=tokens
    )


def reply_part(words: str = "Two files.", *, end: int | None = NOW + 2) -> TextPart:
    return replace(text(REPLY, words, of=ANSWER), time=Span(start=NOW + 1, end=end))


async def fill(store: Store) -> None:
    done = replace(answer(), time=AssistantTime(created=NOW + 1, completed=NOW + 3))
    await store.apply(SessionCreated(info=session(title="Look around")))
    await store.apply(MessageUpdated(info=prompt()), PartUpdated(part=text("prt_1", "What is here?")))
    await store.apply(PartUpdated(part=text("prt_2", "Please look.")))
    await store.apply(MessageUpdated(info=answer()))
    await store.apply(PartUpdated(part=tool_part()))
    await store.apply(PartUpdated(part=reply_part("", end=None)))
    await store.apply(growth(REPLY, "Two ", 0, of=ANSWER))
    await store.apply(growth(REPLY, "files.", 4, of=ANSWER))
    await store.apply(PartUpdated(part=reply_part()))
    await store.apply(PartUpdated(part=step_part()), MessageUpdated(info=done))
    await store.apply(
        SessionDiffed(
            session_id=SESSION, diff=(FileDiff(file="a", before="", after="b", additions=1, deletions=0),)
        )
    )
    await store.apply(
        TodoUpdated(
            session_id=SESSION, todos=(Todo(id="1", content="look", status="completed", priority="high"),)
        )
    )
    spent = Ledger(own=Spent(cost=Decimal("0.0123")), until=NOW + 1)  # the time of the last counted answer
    await store.edit(SESSION, lambda known: with_weft_data(known, replace(get_weft_data(known), spent=spent)))
    await store.apply(SessionCreated(info=session(OTHER)), MessageUpdated(info=prompt("msg_9", of=OTHER)))
    await store.apply(PartUpdated(part=text("prt_9", "Another one.", of="msg_9", session=OTHER)))


@asynccontextmanager
async def open_filled(kind: str, tmp_path: Path) -> AsyncIterator[tuple[Store, str]]:
    url = {"files": f"file:{tmp_path}/storage", "sqlite": f"sqlite:{tmp_path}/sessions.db"}.get(
        kind
    ) or make_url()
    async with open_store(url) as store:
        await fill(store)
        yield store, url


def verify(url: str, *, anchored: tuple[AnchoredHead, ...] = (), strict: bool = False) -> VerifyResult:
    return verify_store(open_maintenance(url), now=LATER, anchored=anchored, strict=strict)


def list_findings(result: VerifyResult, id: str = SESSION) -> list[ProofFinding]:
    return [each for proof in result.proofs if proof.session == id for each in proof.findings]


def list_faults(result: VerifyResult) -> list[tuple[str, str]]:
    return [(each.kind, each.where) for proof in result.proofs for each in proof.findings if each.is_fault]


class Forgery(NamedTuple):
    """A change that weft did not make, and the faults that must be reported for it: kinds and documents."""

    name: str
    forge: Callable[[StoredDocuments], None]
    found: tuple[tuple[str, str], ...]
    # In a tree that OpenCode also writes to, this looks like something that it does.
    outside: bool = False
    # The check of documents names it too.
    fault: str = ""
    # In a tree the path counts: the part then belongs to the session that it was copied to, and is misplaced.
    only_misplaced: bool = False


P1, P2, P3, P4, P5 = (
    ("part", SESSION, PROMPT, "prt_1"),
    ("part", SESSION, PROMPT, "prt_2"),
    ("part", SESSION, ANSWER, TOOL),
    ("part", SESSION, ANSWER, STEP),
    ("part", SESSION, ANSWER, REPLY),
)
M1, M2 = ("message", SESSION, PROMPT), ("message", SESSION, ANSWER)
S = ("session", SESSION)


def edit(*place: str, **fields: Any) -> Callable[[StoredDocuments], None]:
    return lambda stored: stored.edit(*place, **fields)


def remove(*place: str) -> Callable[[StoredDocuments], None]:
    return lambda stored: stored.remove(*place)


def flip(place: tuple[str, ...], old: bytes, new: bytes) -> Callable[[StoredDocuments], None]:
    def change(stored: StoredDocuments) -> None:
        raw = stored.read(*place)
        assert old in raw
        stored.write(*place, raw=raw.replace(old, new, 1))

    return change


def edit_state(**fields: Any) -> Callable[[StoredDocuments], None]:
    def change(stored: StoredDocuments) -> None:
        state = json.loads(stored.read(*P3))["state"]
        stored.edit(*P3, state={**state, **fields})

    return change


def edit_lines(
    change: Callable[[list[bytes]], list[bytes]], *, head: bool = True
) -> Callable[[StoredDocuments], None]:
    return lambda stored: stored.write_lines(change(stored.read_lines()), head=head)


def swap_texts(stored: StoredDocuments) -> None:
    first, second = (json.loads(stored.read(*place))["text"] for place in (P1, P2))
    stored.edit(*P1, text=second)
    stored.edit(*P2, text=first)


def add_message(stored: StoredDocuments) -> None:
    document = {**json.loads(stored.read(*M1)), "id": SECOND}
    stored.add("message", SESSION, SECOND, raw=json.dumps(document).encode())


def add_part(stored: StoredDocuments) -> None:
    document = {**json.loads(stored.read(*P1)), "id": "prt_6"}
    stored.add("part", SESSION, PROMPT, "prt_6", raw=json.dumps(document).encode())


def take_over_part(stored: StoredDocuments) -> None:
    """Put a part of another session into this one."""
    raw = stored.read("part", OTHER, "msg_9", "prt_9")
    stored.add("part", SESSION, PROMPT, "prt_9", raw=raw)


def take_over_chain(stored: StoredDocuments) -> None:
    stored.write_lines(stored.read_lines(OTHER), head=True)


def swap_chains(stored: StoredDocuments) -> None:
    mine, theirs = stored.read_lines(), stored.read_lines(OTHER)
    stored.write_lines(theirs, head=True)
    stored.write_lines(mine, OTHER, head=True)


def forge_text_and_entry(stored: StoredDocuments) -> None:
    """Change a text, and its digest in the chain, but not the hashes after it."""
    before = digest_document(decode(stored.read(*P2), AnyPart))
    stored.edit(*P2, text="Please delete everything.")
    after = digest_document(decode(stored.read(*P2), AnyPart))
    stored.write_lines(
        [line.replace(before.encode(), after.encode()) for line in stored.read_lines()], head=True
    )


def cut_tail(stored: StoredDocuments) -> None:
    """Remove the answer's last part, and the entries of the chain from there on."""
    lines = stored.read_lines()
    stored.remove(*P5)
    stored.write_lines(lines[:-4])


def key(place: tuple[str, ...]) -> str:
    return "session" if place[0] == "session" else "/".join((place[0], *place[2:]))


def changed_documents(*places: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple(("changed", key(place)) for place in places)


def removed_documents(*places: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple(("removed", key(place)) for place in places)


CHAIN = (("chain", "chain"),)

FORGERIES = (
    Forgery("cost of an answer lowered", edit(*M2, cost=0.0001), (*changed_documents(M2), ("cost", key(M2)))),
    Forgery("cost of an answer raised", edit(*M2, cost=9.99), (*changed_documents(M2), ("cost", "session"))),
    Forgery("cost of a step lowered", edit(*P4, cost=0), changed_documents(P4)),
    Forgery("cost of a step raised", edit(*P4, cost=5), (*changed_documents(P4), ("cost", key(M2)))),
    Forgery("tokens of an answer changed", edit(*M2, tokens={"input": 1, "output": 1, "reasoning": 0, "cache": {"read": 0, "write": 0}}), changed_documents(M2)),
    Forgery("tokens of a step changed", edit(*P4, tokens={"input": 1, "output": 1, "reasoning": 0, "cache": {"read": 0, "write": 0}}), changed_documents(P4)),
    Forgery("total of the session lowered", lambda stored: stored.edit(*S, weft={"spent": {"own": {"cost": 0}, "until": NOW + 1}}), (*changed_documents(S), ("cost", "session"))),
    Forgery("text of a prompt changed", edit(*P1, text="What is not here?"), changed_documents(P1)),
    Forgery("text of a prompt extended", edit(*P1, text="What is here? And there?"), changed_documents(P1)),
    Forgery("text of a prompt emptied", edit(*P1, text=""), changed_documents(P1)),
    Forgery("text of an answer changed", edit(*P5, text="Three files."), changed_documents(P5)),
    Forgery("text of an answer extended", edit(*P5, text="Two files. And a secret one."), changed_documents(P5)),
    Forgery("output of a call changed", edit_state(output="a\n"), changed_documents(P3)),
    Forgery("input of a call changed", edit_state(input={"command": "rm -rf /"}), changed_documents(P3)),
    Forgery("status of a call changed", edit_state(status="error", error="no"), changed_documents(P3)),
    Forgery("time of a call changed", edit_state(time={"start": NOW, "end": NOW + 9}), changed_documents(P3)),
    Forgery("output called compacted and changed", edit_state(output="b\n", time={"start": NOW, "end": NOW + 1, "compacted": NOW + 5}), changed_documents(P3)),
    Forgery("tool of a call renamed", edit(*P3, tool="read"), changed_documents(P3)),
    Forgery("reason of a step changed", edit(*P4, reason="length"), changed_documents(P4)),
    Forgery("model of an answer changed", edit(*M2, modelID="cheap", providerID="other"), changed_documents(M2)),
    Forgery("time of an answer changed", edit(*M2, time={"created": NOW + 1, "completed": NOW + 9}), changed_documents(M2)),
    Forgery("agent of a prompt changed", edit(*M1, agent="plan"), changed_documents(M1)),
    Forgery("unknown field added", edit(*M1, extra="note"), changed_documents(M1)),
    Forgery("title changed", edit(*S, title="Nothing to see"), changed_documents(S)),
    Forgery("directory of the session changed", edit(*S, directory="/elsewhere"), changed_documents(S)),
    Forgery("session made a child", edit(*S, parentID=OTHER), changed_documents(S)),
    Forgery("session moved back in time", edit(*S, time={"created": 1, "updated": 2}), changed_documents(S)),
    Forgery("diff changed", lambda stored: stored.write("diff", SESSION, raw=b"[]"), (("removed", "diff"),)),
    Forgery("todos changed", flip(("todo", SESSION), b"completed", b"pending"), (("changed", "todo"),)),
    Forgery("part removed", remove(*P2), removed_documents(P2)),
    Forgery("last part removed", remove(*P5), removed_documents(P5)),
    Forgery("prompt removed", remove(*M1), removed_documents(M1)),
    Forgery("answer removed", remove(*M2), (*removed_documents(M2), )),
    Forgery("diff removed", remove("diff", SESSION), (("removed", "diff"),)),
    Forgery("todos removed", remove("todo", SESSION), (("removed", "todo"),)),
    Forgery("session removed", remove(*S), (("removed", "session"),), outside=True),
    Forgery("message added", add_message, (("added", f"message/{SECOND}"),), outside=True),
    Forgery("part added", add_part, (("added", f"part/{PROMPT}/prt_6"),), outside=True),
    Forgery("part of another session added", take_over_part, (("added", f"part/{PROMPT}/prt_9"),), only_misplaced=True),
    Forgery("two texts swapped", swap_texts, changed_documents(P1, P2)),
    Forgery("a bit flipped in a text", flip(P1, b"What", b"Whau"), changed_documents(P1)),
    Forgery("a bit flipped in a number", flip(M2, b"0.0123", b"0.0023"), (*changed_documents(M2), ("cost", key(M2)))),
    Forgery("a bit flipped in the syntax", flip(P2, b"{", b"["), removed_documents(P2), fault="unreadable"),
    Forgery("a document cut in the middle", lambda stored: stored.write(*P5, raw=stored.read(*P5)[:20]), removed_documents(P5), fault="unreadable"),
    Forgery("a document emptied", lambda stored: stored.write(*P1, raw=b""), removed_documents(P1), fault="unreadable"),
    Forgery("entry of the chain removed", edit_lines(lambda lines: [*lines[:3], *lines[4:]]), CHAIN),
    Forgery("entries of the chain swapped", edit_lines(lambda lines: [*lines[:3], lines[4], lines[3], *lines[5:]]), (*CHAIN, *CHAIN, *CHAIN)),
    Forgery("beginning of the chain removed", edit_lines(lambda lines: lines[2:]), CHAIN),
    Forgery("entry of the chain edited", edit_lines(lambda lines: [lines[0].replace(b'"created":true', b'"created":false'), *lines[1:]]), CHAIN),
    Forgery("entry of the chain unreadable", edit_lines(lambda lines: [*lines[:3], b"0" * 64 + b" garbage", *lines[4:]]), (*CHAIN, *CHAIN)),
    Forgery("hash in the chain edited", edit_lines(lambda lines: [*lines[:-1], b"0" * 64 + lines[-1][64:]]), CHAIN),
    Forgery("chain of another session", take_over_chain, CHAIN),
    Forgery("chains of two sessions swapped", swap_chains, CHAIN),
    Forgery("text and its entry forged", forge_text_and_entry, CHAIN),
    Forgery("tail of the chain and of the session cut", cut_tail, ()),
)  # fmt: skip


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda forgery: forgery.name.replace(" ", "-"))
async def test_damage_and_forgery_are_detected_and_named(forgery: Forgery, kind: str, tmp_path: Path) -> None:
    async with open_filled(kind, tmp_path) as (_, url):
        assert list_faults(verify(url)) == []
        forgery.forge(StoredDocuments(url))
        result = verify(url, strict=forgery.outside)
        assert not result.is_sound
        found = list_faults(result)
        if forgery.only_misplaced and kind == "files":
            assert [fault.kind for fault in result.faults] == ["misplaced"]
            return
        assert [each for each in forgery.found if each not in found] == []
        assert found, "it is named by the chain, not only by the check of documents"
        if forgery.outside and kind == "files":
            loose = verify(url)
            assert list_faults(loose) == []
            assert [each.kind for each in list_findings(loose)] == ["outside"]
        if forgery.fault:
            assert [fault.kind for fault in result.faults] == [forgery.fault]


def test_at_least_forty_kinds_of_damage_are_tried() -> None:
    assert len({forgery.name for forgery in FORGERIES}) == len(FORGERIES) >= 40


# --- no false alarms ---


async def remove_messages(store: Store, url: str) -> None:
    await store.apply(PartRemoved(session_id=SESSION, message_id=PROMPT, part_id=PartID("prt_2")))
    await store.apply(MessageRemoved(session_id=SESSION, message_id=ANSWER))
    await store.apply(
        MessageUpdated(info=answer("msg_4")), PartUpdated(part=text("prt_7", "again", of="msg_4"))
    )


async def compact_and_archive(store: Store, url: str) -> None:
    part = tool_part()
    assert isinstance(part.state, CompletedState)
    compacted = replace(part, state=replace(part.state, time=replace(part.state.time, compacted=LATER)))
    await store.apply(PartUpdated(part=compacted))
    await store.edit(SESSION, lambda known: replace(known, time=replace(known.time, archived=LATER)))


async def trash_and_restore(store: Store, url: str) -> None:
    bundle = await store.discard([SESSION, OTHER], at=NOW)
    assert verify(url).is_sound
    await store.restore(bundle.id)
    await store.apply(PartUpdated(part=text("prt_7", "after the trash")))


async def delete_and_create_again(store: Store, url: str) -> None:
    await store.apply(SessionDeleted(info=session()))
    assert verify(url).is_sound
    await store.apply(SessionCreated(info=session()), MessageUpdated(info=prompt()))
    await store.apply(SessionDeleted(info=session()), SessionCreated(info=session()))
    await store.apply(PartUpdated(part=text("prt_1", "anew")), MessageUpdated(info=prompt()))


async def purge(store: Store, url: str) -> None:
    bundle = await store.discard([OTHER], at=NOW)
    await store.purge(bundle.id)


async def apply_twice_and_reorder(store: Store, url: str) -> None:
    events: tuple[Durable, ...] = (
        PartUpdated(part=text("prt_8", "first", of="msg_5")),
        MessageUpdated(info=prompt("msg_5")),
        SessionUpdated(info=session(title="twice")),
    )
    await store.apply(*events)
    await store.apply(*events)


async def stream(store: Store, url: str) -> None:
    """Text that is still growing is reported and is not a fault. Once complete, it is in the chain."""
    await store.apply(MessageUpdated(info=answer("msg_6", created=NOW + 50)))
    part = replace(text("prt_10", "", of="msg_6"), time=Span(start=NOW))
    await store.apply(PartUpdated(part=part))
    await store.apply(growth("prt_10", "half a sen", 0, of="msg_6"))
    assert [each.kind for each in list_findings(verify(url))] == ["growing"]
    await store.apply(
        growth("prt_10", "tence", 10, of="msg_6"), PartUpdated(part=text("prt_11", "x", of="msg_6"))
    )
    assert [each.kind for each in list_findings(verify(url))] == ["growing"]
    await store.apply(
        PartUpdated(part=replace(part, text="half a sentence", time=Span(start=NOW, end=NOW + 1)))
    )


async def repair(store: Store, url: str) -> None:
    """What the doctor moves aside is recorded."""
    stored = StoredDocuments(url)
    stored.write(*P2, raw=b"{")
    maintenance: StoreMaintenance = open_maintenance(url)
    [fault] = maintenance.find_damage()
    assert not verify(url).is_sound
    assert maintenance.make_repairer("test", now=LATER).set_aside(fault.where) is not None


async def open_again(store: Store, url: str) -> None:
    async with open_store(url) as other:
        await other.apply(PartUpdated(part=text("prt_7", "from another process")))
        await store.apply(PartUpdated(part=text("prt_7", "and from this one")))
        await other.edit(SESSION, lambda known: replace(known, title="Another title"))
    await store.edit(SESSION, lambda known: replace(known, title="The last title"))


async def fork_at_once(store: Store, url: str) -> None:
    """A copied answer is as old as the fork, which does not count its cost."""
    fork, made = SessionID("ses_3"), NOW + 1
    data = WeftSessionData(forked_from=ForkedFrom(session_id=SESSION), spent=Ledger(until=made))
    await store.apply(
        SessionCreated(info=with_weft_data(session(fork, created=made), data)),
        MessageUpdated(info=prompt("msg_7", of=fork)),
        MessageUpdated(info=replace(answer("msg_8", of=fork, created=made), parent_id=MessageID("msg_7"))),
    )


OPERATIONS = (
    remove_messages,
    compact_and_archive,
    trash_and_restore,
    delete_and_create_again,
    purge,
    apply_twice_and_reorder,
    stream,
    repair,
    open_again,
    fork_at_once,
)


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("operate", OPERATIONS, ids=lambda operate: operate.__name__)
async def test_normal_operation_causes_no_false_alarm(
    operate: Callable[[Store, str], Any], kind: str, tmp_path: Path
) -> None:
    async with open_filled(kind, tmp_path) as (store, url):
        await operate(store, url)
        result = verify(url)
        assert [proof for proof in result.proofs if proof.findings] == []
        assert {proof.verdict for proof in result.proofs} == {"intact"}
        assert result.is_sound


# --- anchors ---


@pytest.mark.parametrize("kind", STORES)
async def test_an_anchor_detects_a_session_that_was_rolled_back(kind: str, tmp_path: Path) -> None:
    async with open_filled(kind, tmp_path) as (store, url):
        stored = StoredDocuments(url)
        before, lines = stored.read("part", SESSION, PROMPT, "prt_2"), stored.read_lines()
        await store.apply(PartUpdated(part=text("prt_2", "Please look again.")))
        heads = tuple(list_heads(open_maintenance(url)))
        assert verify(url, anchored=heads).is_sound
        # Whoever puts everything back as it was leaves no trace in the store itself.
        stored.write("part", SESSION, PROMPT, "prt_2", raw=before)
        stored.write_lines(lines, head=True)
        assert verify(url).is_sound
        result = verify(url, anchored=heads)
        assert list_faults(result) == [("anchor", "chain")]


async def test_an_anchor_detects_a_deleted_session(tmp_path: Path) -> None:
    async with open_filled("sqlite", tmp_path) as (store, url):
        heads = tuple(list_heads(open_maintenance(url)))
        await store.apply(SessionDeleted(info=session(OTHER)))
        assert verify(url).is_sound
        assert list_faults(verify(url, anchored=heads)) == [("anchor", "chain")]


# --- what OpenCode does to a session of weft's ---


async def test_changes_by_opencode_are_reported_as_changed_outside_weft(tmp_path: Path) -> None:
    async with open_filled("files", tmp_path) as (store, url):
        stored = StoredDocuments(url)
        document = json.loads(stored.read(*S))
        # It continues the session, compacts an old output, and removes what was undone.
        stored.edit(*S, title="Renamed", time={**document["time"], "updated": LATER})
        add_message(stored)
        edit_state(time={"start": NOW, "end": NOW + 1, "compacted": LATER})(stored)
        stored.remove(*P2)
        found = list_findings(verify(url))
        assert {(each.kind, each.where, each.at) for each in found} == {
            ("outside", "session", LATER),
            ("outside", f"message/{SECOND}", NOW),
            ("outside", key(P3), LATER),
            ("outside", key(P2), LATER),
        }
        assert verify(url).is_sound
        # When weft writes to the session again it records that somebody else had.
        await store.edit(SESSION, lambda known: replace(known, title="Renamed again"))
        found = list_findings(verify(url))
        assert {(each.kind, each.where) for each in found} == {
            ("outside", f"message/{SECOND}"),
            ("outside", key(P3)),
            ("outside", key(P2)),
        }
        assert verify(url).is_sound
        # But a text that is changed afterwards is a forgery all the same.
        stored.edit(*P1, text="forged")
        assert list_faults(verify(url)) == [("changed", key(P1))]

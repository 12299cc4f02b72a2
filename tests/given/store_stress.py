"""Stress test of one store: writers that are killed, concurrent writers and readers. Run as a script.

It forks, so it starts no threads: only children open a store. A child answers with one JSON line.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from random import Random
from typing import Any

from msgspec.structs import replace

from weft.errors import WeftError
from weft.model.event import (
    Durable,
    MessageRemoved,
    MessageUpdated,
    PartUpdated,
    SessionCreated,
    SessionDeleted,
    SessionUpdated,
)
from weft.model.ids import MessageID, SessionID
from weft.model.message import AssistantTime
from weft.model.session import SessionInfo
from weft.store.contract import Store
from weft.store.files.store import FileStore
from weft.store.memory import MemoryStore
from weft.store.postgres.connection import load_driver
from weft.store.postgres.store import PostgresStore
from weft.store.url import open_store
from weft.testing.store_samples import PROJECT, SESSION, answer, growth, prompt, session, text

OTHER = SessionID("ses_2")
MESSAGES = 30
LONGEST = 0.03
SELECT_CLIENTS = """SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"""


# --- children ---


def fork_child(work: Callable[[], Coroutine[Any, Any, Any]]) -> tuple[int, int]:
    """Fork a child that runs `work` and writes its result. Return its process id, and the pipe to read from."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    try:
        said = json.dumps(asyncio.run(work()))
        os.write(writing, said.encode())
    except BaseException as error:
        os.write(writing, json.dumps(repr(error)).encode())
        raise
    finally:
        os._exit(0)


def wait_for_answer(pid: int, reading: int) -> Any:
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return json.loads(said)


# --- killed writers ---


def batch(seed: int, number: int) -> list[Durable]:
    """Return the batch of a number: always the same, and of few documents, so that they are overwritten again and again."""
    random = Random(seed * 1_000_003 + number)
    ids = [f"msg_{(number - back) % MESSAGES:02}" for back in range(4)]
    new = answer(ids[0], created=number)
    done = replace(new, time=AssistantTime(created=number, completed=number))
    parts = [
        PartUpdated(part=text(f"prt_{each}", f"{number}", of=ids[0])) for each in range(random.randint(1, 4))
    ]
    grew = growth("prt_0", f" {number}", random.randint(0, 3), of=ids[random.randint(1, 3)])
    titled = SessionUpdated(info=session(title=str(number), project=random.choice(["p1", "p2"])))
    other = session(OTHER, title=str(number), project=random.choice(["p1", "p2"]))
    return random.choice(
        [
            [titled, MessageUpdated(info=prompt(ids[0], created=number)), *parts],
            [MessageUpdated(info=new), *parts],
            [MessageUpdated(info=done)],
            [grew],
            [grew],
            [grew, *parts],
            [MessageRemoved(session_id=SESSION, message_id=MessageID(ids[-1])), titled],
            [parts[0]],
            [titled, SessionUpdated(info=other)],
            [SessionDeleted(info=other), titled, SessionCreated(info=other)],
            [SessionDeleted(info=session()), titled, *parts, MessageUpdated(info=new)],
        ]
    )


async def read_all(store: Store) -> list[Any]:
    """Return all that a batch can change. Some batches only write parts of no message, which nothing but the chain shows."""
    return [
        await store.list_sessions(),
        await store.list_sessions(PROJECT),
        await store.list_messages(SESSION),
        await store.list_messages(OTHER),
        await store.damage(),
        [len((await store.read_chain(id)).lines) for id in (SESSION, OTHER)],
    ]


@asynccontextmanager
async def open_beside(url: str) -> AsyncIterator[Store]:
    """Open a store like a process that started before another one died: it does not look for what that one left."""
    if url.startswith("file:"):
        store = FileStore(url.removeprefix("file:"))
        yield store
        store.close()
    else:
        async with open_store(url) as opened:
            yield opened


async def write_forever(url: str, seed: int, first: int, acknowledged: str) -> None:
    log = os.open(acknowledged, os.O_WRONLY | os.O_APPEND)
    async with open_beside(url) as store:
        for number in count(first):
            await store.apply(*batch(seed, number))
            os.write(log, b"%d\n" % number)


async def apply_batches(store: Store, seed: int, numbers: range) -> None:
    for number in numbers:
        await store.apply(*batch(seed, number))


async def check(url: str, reference: Store, interrupted: Sequence[Durable], *, anew: bool) -> dict[str, Any]:
    """Report which of the two valid states is stored: with the interrupted batch, or, as in the reference, without it."""
    root = url.partition(":")[2]
    noted = len(_list_names(f"{root}/.weft/redo"))
    before = await read_all(reference)
    await reference.apply(*interrupted)
    after = await read_all(reference)
    async with (open_store if anew else open_beside)(url) as store:
        await wait_for_server(store)
        found = await read_all(store)
    async with open_store(url) as store:
        kept = found == await read_all(store)
    left = [name for place in ("redo", "temp") for name in _list_names(f"{root}/.weft/{place}")]
    state = "after" if found == after else "before" if found == before else f"neither: {found!r}"
    return {"state": state, "left": left, "kept": kept, "noted": noted}


async def wait_for_server(store: Store) -> None:
    """Wait until a database server has noticed that its client was killed, and has ended what it was doing for it."""
    if isinstance(store, PostgresStore):
        while await store.database.fetch_value(SELECT_CLIENTS):
            pass


def kill_repeatedly(url: str, place: str, seed: str, kills: str) -> dict[str, Any]:
    return _kill_repeatedly(url, f"{place}/acknowledged", int(seed), int(kills))


def _kill_repeatedly(url: str, acknowledged: str, seed: int, kills: int) -> dict[str, Any]:
    random, last, noted, states = Random(seed), -1, 0, {"before": 0, "after": 0}
    reference, applied = MemoryStore(), -1
    for kill in range(kills):
        open(acknowledged, "wb").close()
        pid, reading = fork_child(partial(write_forever, url, seed, last + 1, acknowledged))
        while last_acknowledged(acknowledged, last) == last:  # until it writes
            if os.waitpid(pid, os.WNOHANG) != (0, 0):
                return {"kill": kill, "died": os.read(reading, 10_000).decode()}
            time.sleep(0.001)  # the writer needs the core
        time.sleep(random.uniform(0, LONGEST))
        os.kill(pid, signal.SIGKILL)
        os.close(reading)
        os.waitpid(pid, 0)
        last = last_acknowledged(acknowledged, last)
        asyncio.run(apply_batches(reference, seed, range(applied + 1, last + 1)))
        applied = last
        # The child has a copy of the reference, and changes that alone.
        judge = partial(check, url, reference, batch(seed, last + 1), anew=kill % 2 == 0)
        found = wait_for_answer(*fork_child(judge))
        noted += found.pop("noted", 0) > 0
        if found not in ({"state": state, "left": [], "kept": True} for state in states):
            return {"kill": kill, "last": last, "found": found}
        states[found["state"]] += 1
        last += found["state"] == "after"
    return {"kills": kills, "batches": last + 1, "cut_short": noted, **states}


def _list_names(directory: str) -> list[str]:
    return os.listdir(directory) if os.path.isdir(directory) else []


def last_acknowledged(path: str, known: int) -> int:
    with open(path, "rb") as file:
        lines = file.read().split(b"\n")[:-1]
    return int(lines[-1]) if lines else known


# --- concurrent processes ---


async def write_concurrently(url: str, who: int, times: int) -> int:
    """Write to this writer's own session and to the shared one."""
    async with open_beside(url) as store:
        return await _write(store, who, times)


async def _write(store: Store, who: int, times: int) -> int:
    own = session(f"ses_own{who}")
    await store.apply(SessionCreated(info=own))
    for number in range(times):
        for owner in (own.id, SESSION):
            id = f"msg_{who}_{number}_{owner}"
            info = answer(id, of=owner, created=number)
            halves = [PartUpdated(part=text(f"prt_{half}", "x" * 50, of=id, session=owner)) for half in "ab"]
            await store.apply(MessageUpdated(info=info), *halves)
            await store.edit(owner, touch_session)
        await store.put_value(("counts", f"of{who}"), number)
    return times


def touch_session(known: SessionInfo) -> SessionInfo:
    return replace(known, time=replace(known.time, updated=known.time.updated + 1))


async def read_concurrently(url: str, stop: str) -> dict[str, int]:
    """Read until the stop file exists, and count inconsistent reads."""
    reads, halves, fewer, seen = 0, 0, 0, 0
    async with open_beside(url) as store:
        while not await asyncio.to_thread(os.path.exists, stop):
            messages = await store.list_messages(SESSION)
            halves += sum(len(each.parts) != 2 for each in messages)
            fewer += len(messages) < seen
            seen, reads = len(messages), reads + 1
            await store.get_session(SESSION)
    return {"halves": halves, "fewer": fewer, "read_something": reads > 0}


async def read_outcome(url: str, writers: int) -> dict[str, Any]:
    own = [SessionID(f"ses_own{who}") for who in range(writers)]
    async with open_beside(url) as store:
        counts = [await store.find_value(("counts", f"of{who}")) for who in range(writers)]
        edits = {each.id: each.time.updated - each.time.created for each in await store.list_sessions()}
        return {
            "shared": [len(await store.list_messages(SESSION)), edits[SESSION]],
            "own": [[len(await store.list_messages(id)), edits[id]] for id in own],
            "counts": counts,
            "damage": [str(each) for each in await store.damage()],
        }


async def create_shared(url: str) -> None:
    async with open_store(url) as store:
        await store.apply(SessionCreated(info=session()))


def write_in_parallel(url: str, place: str, writers: str, times: str) -> dict[str, Any]:
    stop, everybody = f"{place}/stop", range(int(writers))
    created = wait_for_answer(*fork_child(partial(create_shared, url)))
    assert created is None, created
    reading = [fork_child(partial(read_concurrently, url, stop)) for _ in range(2)]
    writing = [fork_child(partial(write_concurrently, url, who, int(times))) for who in everybody]
    wrote = [wait_for_answer(*each) for each in writing]
    open(stop, "wb").close()
    return {
        "wrote": wrote,
        "read": [wait_for_answer(*each) for each in reading],
        "found": wait_for_answer(*fork_child(partial(read_outcome, url, len(everybody)))),
    }


# --- many processes at once ---


async def commit_often(url: str, who: int, commits: int) -> dict[str, Any]:
    """Open the store, create it if need be, and commit again and again. Report errors and the longest wait."""
    errors, longest = list[str](), 0.0
    async with open_store(url) as store:
        for number in range(commits):
            began = time.perf_counter()
            try:
                await store.apply(MessageUpdated(info=answer(f"msg_{who}_{number}", created=number)))
            except WeftError as error:
                errors.append(str(error))
            longest = max(longest, time.perf_counter() - began)
    return {"errors": errors, "longest": longest}


async def count_messages(url: str) -> int:
    async with open_store(url) as store:
        return len(await store.list_messages(SESSION))


def commit_at_once(url: str, processes: str, commits: str) -> dict[str, Any]:
    began = time.perf_counter()
    children = [fork_child(partial(commit_often, url, who, int(commits))) for who in range(int(processes))]
    reports = [wait_for_answer(*each) for each in children]
    return {
        "errors": [error for report in reports for error in report["errors"]],
        "longest": max(report["longest"] for report in reports),
        "seconds": time.perf_counter() - began,
        "messages": wait_for_answer(*fork_child(partial(count_messages, url))),
    }


if __name__ == "__main__":
    kind, *given = sys.argv[1:]
    if given[0].startswith("postgres"):
        load_driver()  # once, and not in every child
    what = {"kill": kill_repeatedly, "beside": write_in_parallel, "storm": commit_at_once}[kind]
    sys.stdout.write(json.dumps(what(*given)))

"""Stress test of one store: writers that are killed, concurrent writers and readers. Run as a script.

It forks, so it starts no threads: only children open a store. A child answers with one JSON line.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import count
from random import Random
from typing import Any

from msgspec.structs import replace

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
from weft.model.session import Session
from weft.store.contract import Store
from weft.store.files.store import FileStore
from weft.store.memory import MemoryStore
from weft.testing.store_values import PROJECT, SESSION, answer, growth, prompt, session, text

OTHER = SessionID("ses_2")
MESSAGES = 30
LONGEST = 0.03


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


async def everything(store: Store) -> list[Any]:
    return [
        await store.list_sessions(),
        await store.list_sessions(PROJECT),
        await store.list_messages(SESSION),
        await store.list_messages(OTHER),
        await store.damage(),
    ]


async def write_forever(root: str, seed: int, first: int, acknowledged: str) -> None:
    store, log = FileStore(root), os.open(acknowledged, os.O_WRONLY | os.O_APPEND)
    for number in count(first):
        await store.apply(*batch(seed, number))
        os.write(log, b"%d\n" % number)


async def check(root: str, seed: int, last: int, *, anew: bool) -> dict[str, Any]:
    """Report which of the two valid states is stored: with the interrupted batch, or without it."""
    reference, store = MemoryStore(), FileStore(root)
    noted = len(_names(f"{root}/.weft/redo"))
    if anew:
        await store.prepare(lambda _: None)
    for number in range(last + 1):
        await reference.apply(*batch(seed, number))
    before = await everything(reference)
    await reference.apply(*batch(seed, last + 1))
    after = await everything(reference)
    found = await everything(store)
    if not anew:
        await store.prepare(lambda _: None)
    left = [name for place in ("redo", "temp") for name in _names(f"{root}/.weft/{place}")]
    state = "after" if found == after else "before" if found == before else f"neither: {found!r}"
    return {"state": state, "left": left, "kept": found == await everything(store), "noted": noted}


def kill_repeatedly(root: str, seed: int, kills: int) -> dict[str, Any]:
    random, last, noted, states = Random(seed), -1, 0, {"before": 0, "after": 0}
    acknowledged = f"{os.path.dirname(root)}/acknowledged"
    for kill in range(kills):
        open(acknowledged, "wb").close()
        pid, reading = fork_child(partial(write_forever, root, seed, last + 1, acknowledged))
        while last_acknowledged(acknowledged, last) == last:  # until it writes
            if os.waitpid(pid, os.WNOHANG) != (0, 0):
                return {"kill": kill, "died": os.read(reading, 10_000).decode()}
        time.sleep(random.uniform(0, LONGEST))
        os.kill(pid, signal.SIGKILL)
        os.close(reading)
        os.waitpid(pid, 0)
        last = last_acknowledged(acknowledged, last)
        found = wait_for_answer(*fork_child(partial(check, root, seed, last, anew=kill % 2 == 0)))
        noted += found.pop("noted", 0) > 0
        if found not in ({"state": state, "left": [], "kept": True} for state in states):
            return {"kill": kill, "last": last, "found": found}
        states[found["state"]] += 1
        last += found["state"] == "after"
    return {"kills": kills, "batches": last + 1, "cut_short": noted, **states}


def _names(directory: str) -> list[str]:
    return os.listdir(directory) if os.path.isdir(directory) else []


def last_acknowledged(path: str, known: int) -> int:
    with open(path, "rb") as file:
        lines = file.read().split(b"\n")[:-1]
    return int(lines[-1]) if lines else known


# --- concurrent processes ---


async def write_concurrently(root: str, who: int, times: int) -> int:
    """Write to this writer's own session and to the shared one."""
    store = FileStore(root)
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


def touch_session(known: Session) -> Session:
    return replace(known, time=replace(known.time, updated=known.time.updated + 1))


async def read_concurrently(root: str, stop: str) -> dict[str, int]:
    """Read until the stop file exists, and count inconsistent reads."""
    store, reads, halves, fewer, seen = FileStore(root), 0, 0, 0, 0
    while not await asyncio.to_thread(os.path.exists, stop):
        messages = await store.list_messages(SESSION)
        halves += sum(len(each.parts) != 2 for each in messages)
        fewer += len(messages) < seen
        seen, reads = len(messages), reads + 1
        await store.get_session(SESSION)
    return {"halves": halves, "fewer": fewer, "read_something": reads > 0}


async def read_outcome(root: str, writers: int) -> dict[str, Any]:
    store = FileStore(root)
    own = [SessionID(f"ses_own{who}") for who in range(writers)]
    counts = [await store.find_value(("counts", f"of{who}")) for who in range(writers)]
    edits = {each.id: each.time.updated - each.time.created for each in await store.list_sessions()}
    return {
        "shared": [len(await store.list_messages(SESSION)), edits[SESSION]],
        "own": [[len(await store.list_messages(id)), edits[id]] for id in own],
        "counts": counts,
        "damage": [str(each) for each in await store.damage()],
    }


def write_in_parallel(root: str, writers: int, times: int) -> dict[str, Any]:
    stop = f"{os.path.dirname(root)}/stop"
    wait_for_answer(*fork_child(partial(FileStore(root).apply, SessionCreated(info=session()))))
    reading = [fork_child(partial(read_concurrently, root, stop)) for _ in range(2)]
    writing = [fork_child(partial(write_concurrently, root, who, times)) for who in range(writers)]
    wrote = [wait_for_answer(*each) for each in writing]
    open(stop, "wb").close()
    return {
        "wrote": wrote,
        "read": [wait_for_answer(*each) for each in reading],
        "found": wait_for_answer(*fork_child(partial(read_outcome, root, writers))),
    }


if __name__ == "__main__":
    kind, root, *given = sys.argv[1:]
    what = {"kill": kill_repeatedly, "beside": write_in_parallel}[kind]
    sys.stdout.write(json.dumps(what(root, *map(int, given))))

"""Stress test of a long session: processes that fork and remove it are killed. Run as a script.

It forks, so it starts no threads: only children open a store. A child answers with one JSON line.
"""

import json
import os
import signal
import sys
import time
from functools import partial
from random import Random
from typing import Any

from msgspec.structs import replace

from given.store_stress import fork_child, wait_for_answer
from weft.local.offline import OfflineSessions, open_offline_sessions
from weft.model.event import MessageUpdated, PartUpdated, SessionCreated
from weft.model.ids import SessionID
from weft.model.message import UserMessage
from weft.model.part import Moment, TextPart
from weft.session.fork import fork
from weft.session.remove import remove
from weft.store.contract import Store
from weft.testing.ids import seeded_mint
from weft.testing.store_samples import NOW, session

SOURCE = SessionID("ses_1e10b972bffeAbCdEfGhIjKlMn")
CHILD = SessionID("ses_1e10b972bffdAbCdEfGhIjKlMn")


async def create_sessions(store: Store, messages: int) -> None:
    """Create a session with that many `messages` of one part each, and a child with one message."""
    mint = seeded_mint(lambda: NOW)
    for id, many in ((SOURCE, messages), (CHILD, 1)):
        info = session(id, project="global")
        events: list[Any] = [SessionCreated(info=info)]
        for number in range(many):
            said = UserMessage(id=mint.message(), session_id=id, time=Moment(created=NOW + number))
            part = TextPart(id=mint.part(), session_id=id, message_id=said.id, text=f"word {number}")
            events += [MessageUpdated(info=said), PartUpdated(part=part)]
        await store.apply(*events)
    await store.edit(CHILD, lambda it: replace(it, parent_id=SOURCE))


def open_sessions(root: str) -> Any:
    return open_offline_sessions(os.path.dirname(root), os.environ, store=f"file:{root}")


async def create_store(root: str, messages: int) -> None:
    async with open_sessions(root) as offline:
        await create_sessions(offline.store, messages)


async def change_forever(root: str) -> None:
    """Fork the session, then remove it with its child and restore both, again and again."""
    async with open_sessions(root) as offline:
        while True:
            await run_round(offline)


async def run_round(offline: OfflineSessions) -> None:
    source = await offline.store.get_session(SOURCE)
    made = await fork(await offline.maker(), offline.store, source)
    await remove(offline.remover(), made.id, trash=False)
    await remove(offline.remover(), SOURCE)
    await offline.journal.restore((await offline.store.list_trash())[-1].id)


async def inspect_store(root: str, messages: int) -> dict[str, Any]:
    """Report what is wrong: a session without all its messages, or a parent without its child."""
    wrong: list[str] = []
    async with open_sessions(root) as offline:
        store = offline.store
        found = {each.id: each for each in await store.list_sessions()}
        bundles = await store.list_trash()
        for id in found:
            many = [len(each.parts) for each in await store.list_messages(id)]
            if many != [1] * (1 if id == CHILD else messages):
                wrong.append(f"{id} has {len(many)} messages, {sum(many)} parts")
        if (SOURCE in found) != (CHILD in found) or (SOURCE in found) == bool(bundles):
            wrong.append(f"half a family: {sorted(found)}, {len(bundles)} bundles")
        for bundle in bundles:
            await offline.journal.restore(bundle.id)
        state = "gone" if bundles else "forked" if len(found) > 2 else "alone"
        for id in found:
            if id not in (SOURCE, CHILD):
                await remove(offline.remover(), id, trash=False)
        damage = [str(each) for each in await store.damage()]
        strays = len(os.listdir(f"{root}/message")) - 2 + len(os.listdir(f"{root}/part")) - messages - 1
    left = [name for place in ("redo", "temp") for name in os.listdir(f"{root}/.weft/{place}")]
    return {"state": state, "wrong": [*wrong, *damage, *left, *(["strays"] if strays else [])]}


def kill_repeatedly(root: str, messages: int, kills: int, longest_ms: int) -> dict[str, Any]:
    random, states = Random(messages), {"gone": 0, "forked": 0, "alone": 0}
    wait_for_answer(*fork_child(partial(create_store, root, messages)))
    for kill in range(kills):
        pid, reading = fork_child(partial(change_forever, root))
        time.sleep(random.uniform(0, longest_ms / 1000))
        os.kill(pid, signal.SIGKILL)
        os.close(reading)
        os.waitpid(pid, 0)
        found = wait_for_answer(*fork_child(partial(inspect_store, root, messages)))
        if not isinstance(found, dict) or found["wrong"]:
            return {"kill": kill, "found": found}
        states[found["state"]] += 1
    return {"kills": kills, **states}


if __name__ == "__main__":
    place, *numbers = sys.argv[1:]
    sys.stdout.write(json.dumps(kill_repeatedly(place, *map(int, numbers))))

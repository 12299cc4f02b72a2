"""Processes that append to one session: side by side, and killed in the middle. Run as a script.

It forks, so it must not have threads: stores are opened in child processes only.
"""

import asyncio
import json
import os
import signal
import sys
import time
from random import Random

from weft.agent.sessions import Session, open_store
from weft.model.message import MessageWithParts
from weft.model.part import TextPart
from weft.session.append import NewReasoning, NewToolCall, assistant_message

NAME = "shared"
LONGEST = 0.02


async def append(session: Session, writer: int, number: int) -> None:
    word = f"{writer}.{number}"
    await session.append(
        f"{word} asked", assistant_message(NewReasoning(word), NewToolCall("f", {"n": number}, output="x"), f"{word} said")
    )  # fmt: skip


async def write(root: str, writer: int, times: int, told: int) -> None:
    """Append `times` messages. Write the number of each append that has returned to `told`."""
    async with open_store(root) as store:
        session = await store.session(NAME)
        for number in range(times):
            await append(session, writer, number)
            os.write(told, b"%d\n" % number)


def start(root: str, writer: int, times: int) -> tuple[int, int]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    try:
        asyncio.run(write(root, writer, times, writing))
        os._exit(0)
    finally:
        os._exit(1)


def read_reported(reading: int) -> list[int]:
    with os.fdopen(reading, "rb") as pipe:
        return [int(line) for line in pipe.read().split()]


def to_words(message: MessageWithParts) -> str:
    return " ".join(part.text for part in message.parts if isinstance(part, TextPart))


async def load(root: str) -> list[tuple[str, int]]:
    """Return the text of each message and the number of its parts."""
    async with open_store(root) as store:
        return [(to_words(each), len(each.parts)) for each in await (await store.session(NAME)).load()]


def append_concurrently(root: str, writers: int, times: int) -> object:
    """Let processes append at the same time. Return what each reported, and what is stored."""
    started = [start(root, writer, times) for writer in range(writers)]
    told = [read_reported(reading) for _, reading in started]
    ends = [os.waitpid(pid, 0)[1] for pid, _ in started]
    return {"told": told, "ends": ends, "stored": asyncio.run(load(root))}


def kill(root: str, seed: int, times: int) -> object:
    """Kill process after process while it appends. Return for each the appends that had returned, and what is stored."""
    random, told = Random(seed), []
    for writer in range(times):
        pid, reading = start(root, writer, 1_000)
        first = os.read(reading, 4096)  # it appends; the next one is under way, or about to be
        time.sleep(random.random() * LONGEST)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        told.append([*map(int, first.split()), *read_reported(reading)])
    pid, reading = start(root, times, 1)  # the next writer finishes what was left undone
    told.append(read_reported(reading))
    os.waitpid(pid, 0)
    return {"told": told, "stored": asyncio.run(load(root))}


if __name__ == "__main__":
    way, root, *numbers = sys.argv[1:]
    sys.stdout.write(json.dumps({"beside": append_concurrently, "kill": kill}[way](root, *map(int, numbers))))

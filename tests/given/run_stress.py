"""Stress test of runs with tools: processes that are killed, or two processes on one session. Run as a script.

It forks, so it starts no threads: only children open a store. A child answers with one JSON line. What it observes before
it is killed, it writes to a log, one line at a time.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from given.store_stress import fork_child, wait_for_answer
from given.unfinished import list_unfinished
from weft.errors import SessionBusyError
from weft.host.clock import SystemClock
from weft.local.api import LocalApi
from weft.local.open import OpenOptions, open_directory
from weft.model.event import Event, MessageUpdated, PartGrew, PartUpdated
from weft.model.ids import SessionID
from weft.model.input import PromptInput, SessionInput, TextInput
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import ReasoningPart, TextPart
from weft.provider.catalog.offers import make_scripted_model
from weft.provider.chunk import AnyChunk
from weft.provider.contract import ModelRequest
from weft.provider.registry import ServedModel
from weft.provider.scripted import AnyMove, Say, ScriptedProvider, Think, UseTool

LONGEST = 1.5
PACE = 0.004
KILLS_A_SESSION = 8
BUSY = 0.01
MODEL = make_scripted_model("storm")
# Text published earlier than this before the kill is on disk: the flush interval, plus the delay of a busy machine.
LATE_MS = 2_000


class StressModel:
    """A model that answers with text, or runs a command that leaves a mark, and stops after a few steps."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._seed = seed
        self.asked = 0

    def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        self.asked += 1
        return ScriptedProvider([self._draw_moves()], SystemClock(), pace=PACE).stream(request)

    def _draw_moves(self) -> list[AnyMove]:
        said: list[AnyMove] = [Say(text="word " * self._random.randint(0, 60))]
        thought: list[AnyMove] = [Think(text="hm " * self._random.randint(1, 20))]
        calls = [self._call(number) for number in range(self._random.choice((0, 1, 1, 2)))]
        return [*(thought if self._random.random() < 0.5 else []), *said, *calls]

    def _call(self, number: int) -> AnyMove:
        mark = f"{self._seed}.{self.asked}.{number}"
        lasting = self._random.choice(("0", "0.05", "0.2", "600"))
        command = f"echo {mark} >> ran.txt; sleep {lasting}"
        return UseTool(tool="bash", input={"command": command, "description": "Leave a mark"})


class MarkingModel:
    """A model that answers each prompt in one sentence, sometimes after a command that leaves a mark."""

    def __init__(self, who: int) -> None:
        self._who = who
        self.asked = 0

    def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        self.asked += 1
        called = type(request.messages[-1]).__name__ == "ToolModelMessage"
        command = f"echo {self._who}.{self.asked} >> ran.txt"
        marked: list[AnyMove] = [
            UseTool(tool="bash", input={"command": command, "description": "Leave a mark"})
        ]
        moves = marked if self.asked % 5 == 0 and not called else [Say(text="So it is.")]
        return ScriptedProvider([moves], SystemClock()).stream(request)


@asynccontextmanager
async def open_stress_engine(directory: str, model: Any) -> AsyncIterator[LocalApi]:
    name = f"{MODEL.provider_id}/{MODEL.id}"
    env = {**os.environ, "OPENCODE_CONFIG_CONTENT": json.dumps({"model": name})}
    async with open_directory(
        OpenOptions(directory=directory, env=env, models=(ServedModel(MODEL, model),))
    ) as api:
        yield api


async def begin(directory: str) -> str:
    async with open_stress_engine(directory, StressModel(0)) as api:
        return (await api.create_session(SessionInput(title="storm"))).id


# --- killed processes ---


class Log:
    """A log of what was observed. What was written to it survives a kill."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._grown: dict[str, int] = {}

    def write(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())

    def see(self, event: Event) -> None:
        match event:
            case MessageUpdated(info=UserMessage(id=id)):
                self.write("asked", id)
            case PartUpdated(part=TextPart(id=id, text=text) | ReasoningPart(id=id, text=text)):
                self._grow(id, len(text))
            case PartGrew(part_id=id, offset=offset, delta=delta):
                self._grow(id, offset + len(delta))
            case _:
                pass

    def _grow(self, id: str, length: int) -> None:
        self.write("grew", id, length, time.monotonic())


async def work_forever(directory: str, session: str, seed: int, seen: str) -> None:
    random, log = Random(seed), Log(seen)
    async with open_stress_engine(directory, StressModel(seed)) as api:
        api.bus.watch(log.see)
        log.write("begun")
        for number in range(1_000):
            said = TextInput(text=f"prompt {seed}.{number}")
            quiet = PromptInput(parts=(said,), no_reply=random.random() < 0.2)
            asking = asyncio.ensure_future(api.prompt(SessionID(session), quiet))
            await asyncio.wait([asking], timeout=random.uniform(0.1, 2))
            if not asking.done():
                await api.abort(SessionID(session))
            log.write("answered", (await asking).info.id)


async def inspect_directory(
    directory: str, session: str, seen: list[list[str]], killed: float
) -> dict[str, Any]:
    """Open the directory again: report what is missing, what is unfinished, and whether the next prompt is answered once."""
    model, began = StressModel(-1), time.perf_counter()
    model._draw_moves = lambda: [Say(text="Here again.")]  # type: ignore[method-assign]
    async with open_stress_engine(directory, model) as api:
        opening_ms = (time.perf_counter() - began) * 1000
        busy = await api.list_status()
        left = await api.list_messages(SessionID(session))
        answer = await api.prompt(SessionID(session), PromptInput(parts=(TextInput(text="and now?"),)))
        after = await api.list_messages(SessionID(session))
    parts = {part.id: part for message in left for part in message.parts}
    asked = [line[1] for line in seen if line[0] == "asked"]
    found = {message.info.id for message in left}
    new = after[len(left) :]
    return {
        "opening_ms": opening_ms,
        "busy": len(busy),
        "missing": [id for id in asked if id not in found],
        "open": list_unfinished(left),
        "lost_ms": max((killed - grown_at for grown_at in list_lost_times(seen, parts)), default=0.0) * 1000,
        "processes": still_running(directory),
        "unanswered": not is_whole(new, answer, model.asked),
        "unfinished": sum(isinstance(m.info, AssistantMessage) and m.info.error is not None for m in left),
    }


def list_lost_times(seen: list[list[str]], parts: dict[Any, Any]) -> list[float]:
    """Return when each lost piece of text was published. White space at the end of a text is trimmed and does not count."""
    return [
        float(grown_at)
        for _, id, length, grown_at in (line for line in seen if line[0] == "grew")
        if int(length) > len(parts[id].text if id in parts else "") + 1
    ]


def is_whole(new: list[MessageWithParts], answer: MessageWithParts, asked: int) -> bool:
    """Return True for a prompt and one answer to it, for which the model was asked once."""
    kinds = [type(message.info) for message in new]
    return kinds == [UserMessage, AssistantMessage] and new[1] == answer and asked == 1


def kill_repeatedly(directory: str, kills: int, seed: int) -> dict[str, Any]:
    random, session, wrong = Random(seed), "", []
    slowest, oldest, cut = 0.0, 0.0, 0
    for kill in range(kills):
        if kill % KILLS_A_SESSION == 0:
            session = wait_for_answer(*fork_child(partial(begin, directory)))
        log = f"{directory}.seen.{kill}"
        Path(log).unlink(missing_ok=True)
        pid, reading = fork_child(partial(work_forever, directory, session, seed * 10_000 + kill, log))
        while not lines_of(log):
            if os.waitpid(pid, os.WNOHANG) != (0, 0):
                return {"kill": kill, "died": os.read(reading, 10_000).decode()}
            time.sleep(0.005)
        time.sleep(random.uniform(0, LONGEST))
        killed = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        os.close(reading)
        os.waitpid(pid, 0)
        found = wait_for_answer(
            *fork_child(partial(inspect_directory, directory, session, lines_of(log), killed))
        )
        if not isinstance(found, dict):
            return {"kill": kill, "found": found}
        slowest, oldest = max(slowest, found.pop("opening_ms")), max(oldest, lost_ms := found.pop("lost_ms"))
        cut += found.pop("unfinished") > 0
        if any(found.values()) or lost_ms > LATE_MS:
            wrong.append({"kill": kill, "session": session, "lost_ms": lost_ms, **found})
    return {
        "kills": kills,
        "wrong": wrong,
        "made_twice": list_repeated_marks(directory),
        "cut_short": cut,
        "marks": len(marks_of(directory)),
        "slowest_opening_ms": round(slowest),
        "oldest_lost_ms": round(oldest),
    }


def lines_of(log: str) -> list[list[str]]:
    path = Path(log)
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def marks_of(directory: str) -> list[str]:
    path = Path(directory, "ran.txt")
    return path.read_text().split() if path.exists() else []


def list_repeated_marks(directory: str) -> list[str]:
    return [mark for mark, times in Counter(marks_of(directory)).items() if times > 1]


def still_running(directory: str) -> list[str]:
    """Return the commands that still run in a directory, without those that only inspect it."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if int(pid) != os.getpid() and os.readlink(f"/proc/{pid}/cwd") == os.path.realpath(directory):
                found.append(Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return [each for each in found if "sleep" in each]


# --- concurrent processes ---


async def prompt_concurrently(directory: str, session: str, who: int, times: int) -> dict[str, Any]:
    """Send `times` prompts, and repeat each while another process runs the session."""
    random, refused = Random(who), 0
    async with open_stress_engine(directory, MarkingModel(who)) as api:
        for number in range(times):
            said = PromptInput(parts=(TextInput(text=f"prompt {who}.{number}"),))
            while True:
                try:
                    await api.prompt(SessionID(session), said)
                    break
                except SessionBusyError:
                    refused += 1
                    await asyncio.sleep(random.uniform(0, BUSY))
    return {"refused": refused}


async def read_outcome(directory: str, session: str) -> dict[str, Any]:
    async with open_stress_engine(directory, MarkingModel(0)) as api:
        history = await api.list_messages(SessionID(session))
    said = [text_of(message) for message in history if isinstance(message.info, UserMessage)]
    asked, torn = None, []
    for message in history:
        if isinstance(message.info, UserMessage):
            asked = message.info.id
        elif message.info.parent_id != asked:
            torn.append(message.info.id)
    unanswered = [
        text_of(message)
        for message, after in zip(history, [*history[1:], None], strict=True)
        if isinstance(message.info, UserMessage)
        and (after is None or not isinstance(after.info, AssistantMessage) or after.info.error is not None)
    ]
    return {
        "prompts": len(said),
        "twice": len(said) - len(set(said)),
        "torn": torn,
        "unanswered": unanswered,
        "open": list_unfinished(history),
    }


def text_of(message: MessageWithParts) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, TextPart) and not part.synthetic)


def prompt_in_parallel(directory: str, prompts: int, processes: int) -> dict[str, Any]:
    session = wait_for_answer(*fork_child(partial(begin, directory)))
    asking = [
        fork_child(partial(prompt_concurrently, directory, session, who, prompts // processes))
        for who in range(processes)
    ]
    asked = [wait_for_answer(*each) for each in asking]
    found = wait_for_answer(*fork_child(partial(read_outcome, directory, session)))
    return {
        "asked": asked,
        "found": found,
        "made_twice": list_repeated_marks(directory),
        "marks": len(marks_of(directory)),
    }


if __name__ == "__main__":
    kind, place, *given = sys.argv[1:]
    what = {"kill": kill_repeatedly, "beside": prompt_in_parallel}[kind]
    sys.stdout.write(json.dumps(what(place, *map(int, given))))

"""What a run costs: CPU for each streamed token, from the wire to the store and the bus, and for each step with a call.

    python bench/running.py [tokens|steps]

Tokens come over the loopback from another process, in the words of a real API, and go to files. Steps are taken by a
scripted model in sessions of different length on files, without snapshots; opening the session is not counted. Of a step
it is also told how much of the CPU is not the disk's: what a thread takes that writes files, the kernel takes for them.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from statistics import median

from msgspec.structs import replace

from weft.host.clock import SystemClock
from weft.host.git import Git
from weft.local.api import LocalApi
from weft.local.open import OpenOptions, open_directory
from weft.model.catalog import Limit
from weft.model.event import Event, MessageUpdated, PartUpdated
from weft.model.ids import Mint, SessionID
from weft.model.input import SessionInput, prompt
from weft.model.message import AssistantMessage, AssistantTime, UserMessage
from weft.model.part import (
    CallTime,
    CompletedState,
    ModelRef,
    Moment,
    StepFinishPart,
    StepStartPart,
    TextPart,
    Tokens,
    ToolPart,
)
from weft.provider.catalog.offers import make_scripted_model
from weft.provider.chunk import AnyChunk, Usage
from weft.provider.contract import ModelRequest
from weft.provider.registry import ServedModel
from weft.provider.scripted import End, Say, ScriptedProvider, UseTool

TOKENS = (200, 2_000, 20_000)
HISTORY = (10, 1_000, 5_000)
STEPS = 40
ROUNDS = 3
BYTES = 100_000
SERVER = Path(__file__).with_name("token_server.py")
MODEL = replace(make_scripted_model("steps"), limit=Limit(context=100_000_000, output=8_000))
REF = ModelRef(provider_id=MODEL.provider_id, model_id=MODEL.id)


@contextmanager
def place() -> Iterator[tuple[str, dict[str, str]]]:
    """A repository with a file in it, and an environment in which nothing of anybody's is found."""
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as scratch:
        repository = Path(scratch, "repository")
        repository.mkdir()
        (repository / "loom.txt").write_text("warp\nweft\n")
        Git(os.environ).start(str(repository), message="start")
        homes = {f"XDG_{kind}_HOME": f"{scratch}/{kind}" for kind in ("DATA", "CONFIG", "STATE", "CACHE")}
        yield str(repository), {**os.environ, **homes, "HOME": scratch}


def written() -> int:
    """Bytes this process has written so far."""
    lines = Path("/proc/self/io").read_text().split("\n")
    return int(next(line.split()[1] for line in lines if line.startswith("wchar")))


# --- tokens ---


@contextmanager
def served(tokens: int) -> Iterator[str]:
    with subprocess.Popen(
        [sys.executable, str(SERVER), str(tokens)], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
        finally:
            server.terminate()


@asynccontextmanager
async def opened(
    directory: str, env: dict[str, str], url: str = "", *models: ServedModel
) -> AsyncIterator[LocalApi]:
    options = {"baseURL": url, "apiKey": "none"}
    provider = {"npm": "@ai-sdk/anthropic", "options": options, "models": {"m": {"name": "m"}}}
    config = {"model": "bench/m", "snapshot": False, "provider": {"bench": provider}}
    env = {**env, "OPENCODE_CONFIG_CONTENT": json.dumps(config), "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    async with open_directory(OpenOptions(directory=directory, env=env, models=models)) as api:
        yield api


async def streamed(directory: str, env: dict[str, str], url: str) -> tuple[float, int, int]:
    """Seconds of CPU for one answer, the bytes written for it, and the letters of it that came back."""
    async with opened(directory, env, url) as api, asyncio.TaskGroup() as tasks:
        listening = tasks.create_task(heard(api))
        session = (await api.create_session(SessionInput(title="bench"))).id
        best, wrote, letters = float("inf"), 0, 0
        for _ in range(ROUNDS + 1):  # the first one opens what stays open
            before, cpu = written(), time.process_time()
            answer = await api.prompt(session, prompt("go"))
            best, wrote = min(best, time.process_time() - cpu), written() - before
            letters = sum(len(part.text) for part in answer.parts if isinstance(part, TextPart))
        listening.cancel()
    return best, wrote, letters


async def heard(api: LocalApi) -> None:
    async for _ in api.events():
        pass


def measure_tokens() -> None:
    print("CPU per streamed token, from the wire to the store and the bus")
    for manner in ("lumps", "single"):
        with served(1) as url, place() as (directory, env):
            alone, _, _ = asyncio.run(streamed(directory, env, f"{url}/{manner}/anthropic"))
        for tokens in TOKENS:
            with served(tokens) as url, place() as (directory, env):
                cpu, wrote, letters = asyncio.run(streamed(directory, env, f"{url}/{manner}/anthropic"))
            each = (cpu - alone) / tokens * 1e6
            share = wrote / max(letters, 1) * BYTES / 1e6
            print(
                f"  {manner:<8}{tokens:>7} tokens {each:8.1f} µs each   {share:6.2f} MB written for 100 KB of text"
            )


# --- steps ---


class Stepping:
    """A model that makes one call in each of some steps, and notes the CPU time at each request."""

    def __init__(self) -> None:
        self.spent: list[tuple[float, float]] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        self.spent.append((time.process_time(), time.thread_time()))
        number = len(self.spent)
        call = UseTool(tool="read", input={"filePath": "loom.txt", "offset": number % 2, "limit": 1 + number})
        end = End(reason="tool-calls", usage=Usage(input=1_000, output=20))
        moves = [call, end] if number <= STEPS else [Say(text="Done."), End(usage=Usage(input=1_000))]
        async with aclosing(ScriptedProvider([moves], SystemClock()).stream(request)) as chunks:
            async for chunk in chunks:
                yield chunk


def history(session: SessionID, messages: int) -> Iterator[Event]:
    """Yield a conversation with that many `messages`, half of them answers with a call in each."""
    now = [1_780_000_000_000]
    mint = Mint(lambda: now[0], os.urandom)
    for number in range(messages // 2):
        now[0] += 1_000
        asked = UserMessage(
            id=mint.message(), session_id=session, time=Moment(created=now[0]), agent="build", model=REF
        )
        here = {"session_id": session, "message_id": asked.id}
        yield MessageUpdated(info=asked)
        yield PartUpdated(part=TextPart(id=mint.part(), **here, text=f"Prompt {number}: mend the loom."))
        now[0] += 1_000
        answer = AssistantMessage(
            id=mint.message(),
            session_id=session,
            time=AssistantTime(created=now[0], completed=now[0] + 500),
            parent_id=asked.id,
            model_id=REF.model_id,
            provider_id=REF.provider_id,
            agent="build",
            mode="build",
            finish="stop",
            tokens=Tokens(input=1_000, output=20),
        )
        here = {"session_id": session, "message_id": answer.id}
        state = CompletedState(
            input={"filePath": "loom.txt"},
            output="warp and weft " * 30,
            title="loom.txt",
            metadata={},
            time=CallTime(start=now[0], end=now[0] + 1),
        )
        yield MessageUpdated(info=answer)
        yield PartUpdated(part=StepStartPart(id=mint.part(), **here))
        yield PartUpdated(part=TextPart(id=mint.part(), **here, text="It carries the weft. " * 10))
        yield PartUpdated(
            part=ToolPart(id=mint.part(), **here, call_id=f"call_{number}", tool="read", state=state)
        )
        yield PartUpdated(
            part=StepFinishPart(id=mint.part(), **here, reason="stop", cost=Decimal(0), tokens=Tokens())
        )


async def stepped(messages: int) -> tuple[float, float]:
    """Seconds of CPU from one request to the next, in the middle of a turn: in all, and in the thread of the loop."""
    model = Stepping()
    with place() as (directory, env):
        async with opened(directory, env, "", ServedModel(MODEL, model)) as api:
            session = (await api.create_session(SessionInput(title="bench"))).id
            events = list(history(session, messages))
            for start in range(0, len(events), 500):
                await api.runtime.store.apply(*events[start : start + 500])
            # Else the index is made of it beside the steps that are measured.
            await api.touch_session(session)
            await api.search("loom")
            asked = replace(prompt("go"), model=REF)
            answer = await api.prompt(session, asked)
            assert any(isinstance(part, TextPart) for part in answer.parts), answer
    whole, own = ([after[kind] - before[kind] for before, after in pairwise(model.spent)] for kind in (0, 1))
    return median(whole), median(own)


def measure_steps() -> None:
    print("CPU of a step with one call, by the length of the history")
    for messages in HISTORY:
        whole, own = asyncio.run(stepped(messages))
        print(f"  {messages:>7} messages {whole * 1000:8.2f} ms, {own * 1000:.2f} ms of it not for files")


if __name__ == "__main__":
    wanted = sys.argv[1:] or ["tokens", "steps"]
    if "tokens" in wanted:
        measure_tokens()
    if "steps" in wanted:
        measure_steps()

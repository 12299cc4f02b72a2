"""What undo costs a turn, through the whole of weft: from prompt to request, a step that changes nothing, back and forth.

python bench/undo.py [files ...]
"""

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from snapshot import CHANGED, best, cpu, git, plant, tell

from weft.local.api import LocalApi
from weft.local.open import OpenOptions, open_directory
from weft.model.ids import SessionID
from weft.model.input import SessionInput, prompt
from weft.provider.catalog.offers import make_scripted_model
from weft.provider.chunk import AnyChunk, Finished, Started, ToolCall, Usage
from weft.provider.contract import ModelRequest
from weft.provider.registry import ServedModel

SIZES = (5_000, 100_000)
MODEL = make_scripted_model("bench")
TRIES = 5


class Stopwatch:
    """A model that notes when it is asked, and runs one command for every prompt that it is told of."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.commands: list[str] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        del request
        self.asked.append(time.perf_counter())
        yield Started()
        call = self.commands.pop(0) if self.commands else ""
        if call:
            raw = msgspec.json.encode({"command": call, "description": "works"}).decode()
            yield ToolCall(call_id=f"call_{len(self.asked)}", tool="bash", raw=raw)
        yield Finished(reason="tool-calls" if call else "stop", usage=Usage())

    async def aclose(self) -> None:
        pass


async def first_request(api: LocalApi, watch: Stopwatch, session: SessionID) -> float:
    watch.asked.clear()
    began = time.perf_counter()
    await api.prompt(session, prompt("go"))
    return watch.asked[0] - began


async def step(api: LocalApi, watch: Stopwatch, session: SessionID, command: str) -> None:
    watch.commands = [command]
    await api.prompt(session, prompt("go"))


def opening(root: Path, home: Path, watch: Stopwatch, *, snapshots: bool) -> OpenOptions:
    config: dict[str, Any] = {
        "model": f"{MODEL.provider_id}/{MODEL.id}",
        "permission": "allow",
        "snapshot": snapshots,
        "experimental": {"weft": {"snapshots": {"waitSeconds": 600}}},
    }
    places = {f"XDG_{kind}_HOME": str(home / kind.lower()) for kind in ("DATA", "CONFIG", "STATE", "CACHE")}
    env = {**os.environ, **places, "HOME": str(home), "OPENCODE_CONFIG_CONTENT": json.dumps(config)}
    return OpenOptions(directory=str(root), env=env, models=(ServedModel(MODEL, watch),))


async def warm_up(root: Path, home: Path) -> None:
    """Take one turn that is not measured: the first one in a process also loads modules, and the first after git reads files again."""
    watch = Stopwatch()
    async with open_directory(opening(root, home, watch, snapshots=False)) as api:
        await first_request(api, watch, (await api.create_session(SessionInput(title="warm"))).id)


async def turn(root: Path, home: Path, planted: Sequence[Path], *, snapshots: bool) -> None:
    watch, kind = Stopwatch(), "with snapshots" if snapshots else "without"
    async with open_directory(opening(root, home, watch, snapshots=snapshots)) as api:
        session = (await api.create_session(SessionInput(title="bench"))).id
        times = [await first_request(api, watch, session) for _ in range(TRIES)]
        print(
            f"  {f'prompt to request, {kind}':<44}{times[0] * 1000:8.1f} ms first, {min(times[1:]) * 1000:.1f} ms then"
        )
        await step(api, watch, session, "true")  # waits for the first look
        await asyncio.sleep(2)
        tell(f"a step with a command, {kind}", await best(lambda: step(api, watch, session, "true")))
        if snapshots:
            await back_and_forth(api, watch, session, planted)


async def back_and_forth(
    api: LocalApi, watch: Stopwatch, session: SessionID, planted: Sequence[Path]
) -> None:
    named = " ".join(f"'{path}'" for path in planted[:CHANGED])
    await step(api, watch, session, f"for f in {named}; do echo agent > $f; done")
    last = [each.info.id for each in await api.list_messages(session)][-3]
    for _ in range(2):
        tell(f"revert {CHANGED} files", await best(lambda: api.revert(session, last), 1))
        tell(f"unrevert {CHANGED} files", await best(lambda: api.unrevert(session), 1))


async def measure(files: int) -> None:
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as place:
        root, home = Path(place) / "tree", Path(place) / "home"
        planted = plant(root, files)
        home.mkdir()
        print(f"{files} files, a repository")
        git(root, "init", "-q")
        git(root, "config", "gc.auto", "0")
        git(root, "add", "-A")
        git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one")
        git(root, "gc", "-q")
        await asyncio.sleep(2)  # git looks twice at files as young as its index

        async def status() -> None:
            await asyncio.to_thread(git, root, "status", "--porcelain")

        tell("git status", await best(status))
        await warm_up(root, home)
        await turn(root, home, planted, snapshots=False)
        await turn(root, home, planted, snapshots=True)


if __name__ == "__main__":
    began = cpu()
    for size in [int(word) for word in sys.argv[1:]] or SIZES:
        asyncio.run(measure(size))
    print(f"{cpu() - began:.1f} s of CPU in all")

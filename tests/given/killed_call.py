"""A run that dies at a given point of a tool call: `python killed_call.py DIRECTORY POINT TOOL INPUT [CONFIGURATION]`.

It prints its session. The points are `started`, `noted`, `result` and `patched` (right after that was stored), `rename-N` (before the
Nth file of the directory is renamed), and `never`: then the call ends or stops the process itself. `{pid}` in the input is its id.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from weft.host.clock import SystemClock
from weft.local.open import OpenOptions, open_directory
from weft.model.event import Event, PartUpdated
from weft.model.input import SessionInput, prompt
from weft.model.part import PatchPart, RunningState, ToolPart
from weft.model.verdict import find_evidence
from weft.provider.catalog.offers import SCRIPTED_PROVIDER
from weft.provider.demo import serve_script


def choose_model(tool: str) -> str:
    """Return the name of a model that is offered a tool: by their names, some are offered patches."""
    return "gpt-doomed" if tool == "apply_patch" else "doomed"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_on_event(point: str, tool: str) -> Callable[[Event], None]:
    """Return a watcher that kills the process when the event of a point was stored, and before anything else happens."""

    def watch(event: Event) -> None:
        match event:
            case PartUpdated(part=PatchPart()) if point == "patched":
                die()
            case PartUpdated(part=ToolPart(tool=called, state=RunningState(metadata=metadata))):
                evidence = find_evidence(metadata)
                if called != tool or evidence is None:
                    return
                begun = bool(evidence.files or evidence.command or evidence.server)
                if (
                    (point == "started" and not begun)
                    or (point == "noted" and begun)
                    or (point == "result" and not evidence.files and evidence.result is not None)
                ):
                    die()
            case _:
                pass

    return watch


def die_on_rename(directory: str, number: int) -> Callable[[str, tuple[Any, ...]], None]:
    """Return an audit hook that kills the process before it renames a file of the directory for the Nth time."""
    renamed = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal renamed
        if event != "os.rename" or not arguments[1:]:
            return
        parent = arguments[3] if len(arguments) > 3 else -1
        place = os.readlink(f"/proc/self/fd/{parent}") if isinstance(parent, int) and parent >= 0 else ""
        if os.path.dirname(os.path.join(place, os.fsdecode(arguments[1]))) == directory:
            renamed += 1
            if renamed == number:
                die()

    return hook


async def main(directory: str, point: str, tool: str, input: str, configuration: str = "{}") -> None:
    arguments = json.loads(input.replace("{pid}", str(os.getpid())))
    read = [
        {"do": "call", "tool": "read", "input": {"filePath": os.path.join(directory, name)}}
        for name in sorted(os.listdir(directory))
        if name.endswith(".txt")
    ]
    script = [*([read] if read else []), [{"do": "call", "tool": tool, "input": arguments}]]
    model = choose_model(tool)
    served = serve_script(model, json.dumps(script).encode(), SystemClock(), where="script")
    config = {"model": f"{SCRIPTED_PROVIDER}/{model}", **json.loads(configuration)}
    env = {**os.environ, "OPENCODE_CONFIG_CONTENT": json.dumps(config)}
    async with open_directory(OpenOptions(directory=directory, env=env, models=(served,))) as api:
        session = (await api.create_session(SessionInput(title="Doomed"))).id
        print(session, flush=True)
        if point.startswith("rename-"):
            sys.addaudithook(die_on_rename(directory, int(point.removeprefix("rename-"))))
        api.bus.watch(die_on_event(point, tool))
        await api.prompt(session, prompt("go"))
        print("survived", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

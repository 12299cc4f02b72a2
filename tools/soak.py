"""Work one server for a long time, and see whether it grows.

    python tools/soak.py --minutes 10 [--store sqlite:PATH] [--picture docs/soak.svg]

Clients prompt, let tools edit files, fork, undo, redo, abort, reconnect and remove what they made, over and over. Meanwhile the memory, open files,
threads and store of the server are sampled. It fails if one of them is higher at the end than in the beginning.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import weft  # noqa: E402
from given.model_server import open_model_server  # noqa: E402
from given.serve_process import ServeProcess, start_serve  # noqa: E402
from weft.api import Api  # noqa: E402
from weft.model.ids import SessionID  # noqa: E402
from weft.model.input import SessionInput, prompt  # noqa: E402
from weft.provider.scripted import Say, UseTool, Wait  # noqa: E402

WORKERS = 4
SAMPLE_SECONDS = 2.0
# The first part of a run fills caches; it is left out of the comparison.
WARM_UP = 0.2
# How many times more the last part may have than the first one after the warm-up. Logs of decisions keep 150,000 records, and snapshots
# of removed sessions stay until the next `weft storage gc`: both grow for longer than this takes, by what each round adds.
ALLOWED_GROWTH = {
    "memory (MB)": 1.10,
    "open files": 1.10,
    "threads": 1.10,
    "sessions (MB)": 1.25,
    "logs and snapshots (MB)": None,
}
# A store with next to nothing in it may have twice as much.
SMALLEST = {"sessions (MB)": 1.0}
KEPT_BYTES_PER_ROUND = 5_000
COLOURS = ("#3b6fd4", "#c2553a", "#3a8f5c", "#8a5bc2", "#7a7a7a")
PASSWORD = "soak"


class Sample(NamedTuple):
    seconds: float
    values: tuple[float, ...]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="how long to work (default: 10)")
    parser.add_argument("--store", default="", help="URL of the store; the default is the tree of files")
    parser.add_argument("--picture", type=Path, help="write what was measured as an SVG file")
    args = parser.parse_args()
    scripts = {
        "Edit it.": (
            (UseTool(tool="read", input={"filePath": "notes.txt"}),),
            (
                UseTool(
                    tool="bash", input={"command": "date +%N > notes.txt", "description": "Writes the time"}
                ),
            ),
            (Say(text="Written. " * 40),),
        ),
        "Wait.": ((Say(text="Let me think."), Wait(seconds=60)),),
    }
    with tempfile.TemporaryDirectory() as scratch, open_model_server(scripts) as model:
        here = Path(scratch)
        env = prepare(here, model.config)
        store = ["--store", args.store] if args.store else []
        with start_serve(here / "project", *store, **env) as server:
            samples, cycles = asyncio.run(soak(server, here, args.minutes * 60))
            code = server.end(signal.SIGTERM)
    growth, kept = measure_growth(samples), samples[-1].values[-1] * 1e6 / cycles
    report(samples, cycles, growth, code)
    sys.stdout.write(f"logs and snapshots: {kept:.0f} bytes a round (at most {KEPT_BYTES_PER_ROUND})\n")
    if args.picture:
        args.picture.write_text(draw(samples))
    too_much = any(growth[name] > allowed for name, allowed in ALLOWED_GROWTH.items() if allowed is not None)
    return 1 if code or too_much or kept > KEPT_BYTES_PER_ROUND else 0


def prepare(here: Path, config: dict[str, object]) -> dict[str, str]:
    """Make a project and a home, and return the environment of the server."""
    for name in ("project", "home", "data", "config/opencode"):
        (here / name).mkdir(parents=True)
    (here / "project" / "notes.txt").write_text("one\n")
    (here / "config" / "opencode" / "opencode.json").write_text(json.dumps(config))
    return {
        "HOME": str(here / "home"),
        "XDG_DATA_HOME": str(here / "data"),
        "XDG_CONFIG_HOME": str(here / "config"),
        "OPENCODE_SERVER_PASSWORD": PASSWORD,
    }


async def soak(server: ServeProcess, here: Path, seconds: float) -> tuple[list[Sample], int]:
    """Let the workers work for some `seconds`. Return the samples, and how many rounds were done."""
    started = time.monotonic()
    samples: list[Sample] = []
    rounds = [0] * WORKERS

    async def work(number: int) -> None:
        while time.monotonic() - started < seconds:
            # A new connection for each round: listeners come and go.
            async with weft.connect(server.url, password=PASSWORD) as agent:
                await do_round(agent.api, number)
            rounds[number] += 1

    async def watch() -> None:
        while True:
            samples.append(Sample(time.monotonic() - started, await asyncio.to_thread(measure, server, here)))
            sys.stderr.write(f"\r{samples[-1].seconds:5.0f} s, {sum(rounds)} rounds")
            await asyncio.sleep(SAMPLE_SECONDS)

    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(watch())
        await asyncio.gather(*(work(number) for number in range(WORKERS)))
        watching.cancel()
    sys.stderr.write("\n")
    return samples, sum(rounds)


async def do_round(api: Api, number: int) -> None:
    session = await api.create_session(SessionInput(title=f"Worker {number}"))
    first = await api.prompt(session.id, prompt("Edit it."))
    fork = await api.fork_session(session.id)
    await api.prompt(fork.id, prompt("Edit it."))
    asked = (await api.list_messages(session.id))[0].info.id
    assert first.info.id != asked
    await api.revert(session.id, asked)
    await api.unrevert(session.id)
    await abort_one(api, session.id)
    for id in (fork.id, session.id):
        await api.remove_session(id, trash=False)


async def abort_one(api: Api, session: SessionID) -> None:
    await api.submit(session, prompt("Wait."))
    for _ in range(1000):
        if await api.abort(session):
            return
        await asyncio.sleep(0.01)
    raise TimeoutError("a prompt did not begin to run")


def measure(server: ServeProcess, here: Path) -> tuple[float, ...]:
    """Return what the server has now, in the order of ALLOWED_GROWTH."""
    process = Path(f"/proc/{server.process.pid}")
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    kept, sessions = 0, 0
    for place, _, names in os.walk(here / "data"):
        size = sum(measure_file(f"{place}/{name}") for name in names)
        if "/.weft/log/" in place or "/snapshot/" in place:
            kept += size
        else:
            sessions += size
    return (
        int(status["VmRSS"].split()[0]) / 1024,
        float(len(os.listdir(process / "fd"))),
        float(status["Threads"]),
        sessions / 1e6,
        kept / 1e6,
    )


def measure_file(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return 0  # removed since it was listed


def measure_growth(samples: list[Sample]) -> dict[str, float]:
    """Return how many times more the last fifth has than the first fifth after the warm-up.

    They are compared by their means: a median of few open files or threads is a whole number, and one more is a step of several percent.
    """
    rest = samples[int(len(samples) * WARM_UP) :]
    fifth = max(1, len(rest) // 5)
    found: dict[str, float] = {}
    for at, name in enumerate(ALLOWED_GROWTH):
        first, last = (fmean(each.values[at] for each in part) for part in (rest[:fifth], rest[-fifth:]))
        smallest = SMALLEST.get(name, 0.0)
        found[name] = max(last, smallest) / max(first, smallest)
    return found


def report(samples: list[Sample], cycles: int, growth: dict[str, float], code: int) -> None:
    lines = [f"{cycles} rounds in {samples[-1].seconds:.0f} s; the server ended with {code}"]
    for at, (name, allowed) in enumerate(ALLOWED_GROWTH.items()):
        values = [each.values[at] for each in samples]
        limit = "" if allowed is None else f" (at most {allowed:.2f})"
        lines.append(
            f"{name:23} first {values[0]:8.1f}  highest {max(values):8.1f}  last {values[-1]:8.1f}"
            f"  growth {growth[name]:.2f}{limit}"
        )
    sys.stdout.write("\n".join(lines) + "\n")


def draw(samples: list[Sample]) -> str:
    """Return a picture: one curve for each measure, with its highest value."""
    width, height, left = 720, 110, 20
    panels: list[str] = []
    for at, name in enumerate(ALLOWED_GROWTH):
        values = [each.values[at] for each in samples]
        highest, longest = max(values) or 1.0, samples[-1].seconds or 1.0
        top = at * (height + 40) + 30
        points = " ".join(
            f"{left + each.seconds / longest * (width - 2 * left):.1f},{top + height - each.values[at] / highest * height:.1f}"
            for each in samples
        )
        panels.append(
            f'<text x="{left}" y="{top - 8}">{name}: {values[-1]:.0f} at the end, {highest:.0f} at most</text>'
            f'<line x1="{left}" y1="{top + height}" x2="{width - left}" y2="{top + height}" stroke="#999"/>'
            f'<polyline points="{points}" fill="none" stroke="{COLOURS[at]}" stroke-width="1.5"/>'
        )
    tall = len(ALLOWED_GROWTH) * (height + 40) + 10
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {tall}" font-family="sans-serif" font-size="13">'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(panels)}</svg>\n'
    )


if __name__ == "__main__":
    sys.exit(main())

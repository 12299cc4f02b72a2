"""Measure the terminal in both modes: CPU for streamed Markdown, per KB with a long history, memory, start, echo of a key.

python bench/terminal.py
"""

import asyncio
import os
import pty
import resource
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from weft.model.event import Event, MessageUpdated, PartGrew, PartUpdated
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import AssistantMessage, AssistantTime
from weft.model.part import Span, TextPart
from weft.model.session import SessionInfo, SessionTime
from weft.tui.chat import Chat, ChatSetup
from weft.tui.live import LiveOutput
from weft.tui.render import LiveContext, RenderOptions, render_item, render_live
from weft.tui.view import SessionView

SESSION, MESSAGE, PART = SessionID("ses_bench"), MessageID("msg_bench"), PartID("prt_bench")
DELTA = 80
STARTS = 3
SAMPLE = """## A heading

A paragraph with **bold** words, `code`, and a [link](https://weft.test/some/where) that is long enough to be wrapped
at the width of a common terminal, twice if need be, as most answers of models are.

- an item of a list
- another item with *emphasis*

| name | what |
|---|---|
| warp | the threads that are held |
| weft | the threads that are drawn through |

```python
def weave(warp: list[str], weft: str) -> str:
    return weft.join(warp)  # over and under
```

"""


def list_events(text: str, part: PartID) -> list[Event]:
    """Return the events of an answer that is streamed in pieces."""
    place = {"session_id": SESSION, "message_id": MESSAGE}
    return [
        MessageUpdated(info=AssistantMessage(id=MESSAGE, session_id=SESSION, time=AssistantTime(created=1))),
        PartUpdated(part=TextPart(id=part, **place, text="", time=Span(start=1))),
        *(
            PartGrew(**place, part_id=part, field="text", delta=text[at : at + DELTA], offset=at)
            for at in range(0, len(text), DELTA)
        ),
        PartUpdated(part=TextPart(id=part, **place, text=text, time=Span(start=1, end=2))),
    ]


def stream(text: str, view: SessionView, output: LiveOutput, *, part: PartID = PART) -> None:
    """Feed a text in pieces, and draw after each, as fast as it can be done."""
    options = RenderOptions(width=100)
    for event in list_events(text, part):
        view.feed(event)
        lines = [line for item in view.take_settled() for line in render_item(item, options)]
        output.update(lines, render_live(view, LiveContext(width=100, height=15, now=1)))


def measure_stream(kilobytes: int) -> float:
    text = (SAMPLE * (kilobytes * 1024 // len(SAMPLE) + 1))[: kilobytes * 1024]
    output = LiveOutput(lambda _: None, lambda: os.terminal_size((100, 30)), colour=True)
    before = time.process_time()
    stream(text, SessionView(SESSION), output)
    return time.process_time() - before


def find_per_kb(taken: list[float]) -> str:
    """Return the CPU per KB at three lengths of history, of the best of three rounds of 50 KB: others use the machine, too."""
    at = {"100 KB": taken[1:4], "500 KB": taken[8:11], "1 MB": taken[-3:]}
    return ", ".join(f"{min(rounds) / 50 * 1000:.1f} ms at {length}" for length, rounds in at.items())


def measure_long_history() -> list[float]:
    """Return the CPU of each 50 KB up to 1 MB, in one session."""
    view, text = SessionView(SESSION), (SAMPLE * 200)[: 50 * 1024]
    output = LiveOutput(lambda _: None, lambda: os.terminal_size((100, 30)), colour=True)
    taken = []
    for number in range(21):
        before = time.process_time()
        stream(text, view, output, part=PartID(f"prt_{number}"))
        taken.append(time.process_time() - before)
    return taken


async def measure_full_screen(rounds: int) -> list[float]:
    """Stream 50 KB into the full screen, several times. Return the CPU of each, with one drawing for each piece."""
    from weft.tui.full.app import FullSettings  # noqa: PLC0415  after inline mode was measured
    from weft.tui.full.screen import FullScreen  # noqa: PLC0415  as above

    async def refuse(*_: object) -> bool:
        return False

    async def edit(_: str) -> None:
        return None

    setup = ChatSetup(now=lambda: 1, run_command=refuse, to_parts=no_parts, to_resume=str)
    screen = FullScreen(FullSettings(run_editor=edit, run_program=refuse))
    api: Any = None  # nothing is asked
    chat = Chat(api, screen, setup)
    chat.session = SessionInfo(id=SESSION, time=SessionTime(created=1, updated=1), title="Bench")
    view = chat.view = SessionView(SESSION)
    taken = []
    app = screen.make_app(chat)
    async with app.run_test(size=(120, 40)) as pilot:
        for number in range(rounds):
            before = time.process_time()
            for event in list_events((SAMPLE * 200)[: 50 * 1024], PartID(f"prt_{number}")):
                view.feed(event)
                chat.items += view.take_settled()
                app.sync()
                await asyncio.sleep(0.001)  # so that each piece is drawn
            await pilot.pause()
            taken.append(time.process_time() - before)
    return taken


async def no_parts(*_: object) -> tuple[()]:
    return ()


class ProgramFigures(NamedTuple):
    """CPU until the prompt (s), memory there (MB), and for a key while text is streamed: CPU (ms) and time until its echo (ms)."""

    cpu: float
    memory: float
    key_cpu: float
    echo: float


def measure_program(*command: str) -> ProgramFigures:
    """Start `weft` in a terminal, and type into it while it streams."""
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("home", "project"):
            (Path(scratch) / name).mkdir()
        env = {"HOME": f"{scratch}/home", "PATH": os.environ["PATH"], "TERM": "xterm-256color"}
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "weft", *command, "-m", "scripted/demo"],
            cwd=f"{scratch}/project", env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        )  # fmt: skip
        try:
            read_until(ours, b"ready")
            cpu = get_cpu(process.pid)
            status = Path(f"/proc/{process.pid}/status").read_text()
            memory = int(status.partition("VmRSS:")[2].split()[0]) / 1024
            os.write(ours, b"hello\r")
            read_until(ours, b"first")
            used, echoes = [], []
            for key in b"#%&=+":
                before, begin = get_cpu(process.pid), time.perf_counter()
                os.write(ours, bytes([key]))
                read_until(ours, bytes([key]))
                echoes.append((time.perf_counter() - begin) * 1000)
                used.append((get_cpu(process.pid) - before) * 1000)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
            os.close(ours)
            os.close(theirs)
    return ProgramFigures(cpu, memory, statistics.median(used), statistics.median(echoes))


def get_cpu(process: int) -> float:
    """Return the CPU that all threads of a process have used, in seconds."""
    # In nanoseconds; `stat` counts in hundredths of a second.
    threads = Path(f"/proc/{process}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def read_until(terminal: int, words: bytes) -> None:
    seen = b""
    while words not in seen:
        ready, _, _ = select.select([terminal], [], [], 60)
        assert ready, seen[-500:]
        seen += os.read(terminal, 65_536)


def main() -> None:
    measure_stream(1)  # loads what is loaded once
    print("inline mode")
    for kilobytes in (10, 100):
        print(
            f"  {kilobytes:>4} KB of Markdown in pieces of {DELTA}: {measure_stream(kilobytes):.2f} s CPU (100 KB: 3)"
        )
    print(f"  per KB: {find_per_kb(measure_long_history())}")
    print(f"  memory after 1 MB: {get_memory():.0f} MB (90)")
    print("full screen")
    taken = asyncio.run(measure_full_screen(21))
    print(f"   100 KB of Markdown in pieces of {DELTA}, each drawn: {taken[1] + taken[2]:.2f} s CPU (4)")
    print(f"  per KB: {find_per_kb(taken)}")
    print(f"  memory after 1 MB, with all of the above: {get_memory():.0f} MB (90)")
    for command in ("chat", "ui"):
        measure_program(command)  # compiles what was never imported before
        starts = [measure_program(command) for _ in range(STARTS)]
        best = min(starts)
        print(f"weft {command} to its prompt: {best.cpu:.2f} s CPU (0.5), {best.memory:.0f} MB")
        key_cpu, echo = min(each.key_cpu for each in starts), min(each.echo for each in starts)
        print(
            f"  a key while text is streamed: {key_cpu:.0f} ms CPU until its echo, {echo:.0f} ms in all (50)"
        )


def get_memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()

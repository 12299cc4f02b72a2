"""`weft serve` as a process: what it printed, and how it exited."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WEFT = str(Path(sys.executable).with_name("weft"))
DEMO = {"providerID": "scripted", "modelID": "demo"}


class ServeProcess:
    """A running server, and what it printed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.printed: list[str] = []
        self.noted: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=(process.stdout, self.printed), daemon=True),
            threading.Thread(target=self._read, args=(process.stderr, self.noted), daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        self.url = self._find_url()

    def _read(self, stream: Any, into: list[str]) -> None:
        into.extend(line.rstrip("\n") for line in stream)

    def _find_url(self) -> str:
        for _ in range(6000):
            start_serve = next((line for line in self.noted if '"serving"' in line), None)
            if start_serve:  # printed for programs, as a line of the log
                return str(json.loads(start_serve)["url"])
            found = re.search(r"http://\S+", " ".join(self.printed))
            if found and "" in self.printed[2:]:
                return found[0]
            assert self.process.poll() is None, self.noted
            threading.Event().wait(0.01)
        raise AssertionError((self.printed, self.noted))

    def end(self, how: int) -> int:
        self.process.send_signal(how)
        code = self.process.wait(60)
        for reader in self._readers:
            reader.join(60)
        return code

    def wait_for_note(self, words: str) -> None:
        for _ in range(6000):
            if any(words in line for line in self.noted):
                return
            threading.Event().wait(0.01)
        raise AssertionError(self.noted)


@contextmanager
def start_serve(
    project: Path, *arguments: str, under: Sequence[str] = (), **env: str
) -> Iterator[ServeProcess]:
    """Start a server. `under` is a command that starts it, with its command line as the last arguments."""
    process = subprocess.Popen(
        [*under, WEFT, "serve", "--port", "0", *arguments],
        cwd=project,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield ServeProcess(process)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()

"""Another process that changes files as it is told: what it did is complete when `do` returns."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


class OtherProcess:
    """Runs this file as a program. Each operation is a function of `os` or of this module, with its arguments."""

    def __init__(self) -> None:
        command = [sys.executable, __file__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def do(self, name: str, *arguments: str | int | Path) -> None:
        self.begin(name, *arguments)
        self.wait()

    def begin(self, name: str, *arguments: str | int | Path) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, *map(str, arguments)]) + "\n")
        self._process.stdin.flush()

    def wait(self) -> str:
        """Return the next line that the process writes: "done" at the end of an operation."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, "the other process ended"
        return line

    def close(self) -> None:
        self._process.communicate()


def write(path: str, text: str) -> None:
    """Overwrite a document in place, as OpenCode does."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def count_up(path: str, text: str, times: str) -> None:
    """Overwrite a document many times with a number that rises. Write each number to standard output when it is in the document."""
    for number in range(int(times)):
        write(path, text.replace("NUMBER", str(number)))
        print(number, flush=True)


def replace(path: str, text: str) -> None:
    write(f"{path}.new", text)
    os.rename(f"{path}.new", path)


def remove(path: str) -> None:
    if os.path.exists(path):
        os.unlink(path)


def main() -> None:
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        operation: Any = globals().get(name) or getattr(os, name)
        operation(*arguments)
        print("done", flush=True)


if __name__ == "__main__":
    main()

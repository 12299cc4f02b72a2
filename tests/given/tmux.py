"""A real terminal for tests: a program in a tmux of its own, keys for it, and what its screen shows."""

import os
import select
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

PATIENCE = 60


class TmuxTerminal:
    """A program in a terminal. `wait_for` returns the screen as soon as it shows the words."""

    def __init__(self, directory: Path, output: int) -> None:
        self._socket = str(directory / "tmux")
        self._output = output

    def tmux(self, *arguments: str) -> str:
        command = ["tmux", "-S", self._socket, "-f", "/dev/null", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout

    def type(self, text: str) -> None:
        self.tmux("send-keys", "-t", "t", "-l", text)

    def press(self, *keys: str) -> None:
        """Press keys by their names in tmux, such as `Enter`, `Escape`, `C-r` and `M-Enter`."""
        self.tmux("send-keys", "-t", "t", *keys)

    def enter(self, text: str) -> None:
        self.type(text)
        self.press("Enter")

    def paste(self, text: str) -> None:
        """Paste with brackets, as a terminal does."""
        self.tmux("set-buffer", "-b", "b", text)
        self.tmux("paste-buffer", "-p", "-r", "-b", "b", "-t", "t")

    def resize(self, columns: int, rows: int) -> None:
        self.tmux("resize-window", "-t", "t", "-x", str(columns), "-y", str(rows))

    def get_screen(self) -> str:
        return self.tmux("capture-pane", "-p", "-t", "t")

    def get_history(self, *, colours: bool = False) -> str:
        """Return everything that was printed, with what has scrolled away."""
        return self.tmux("capture-pane", "-p", "-J", *(["-e"] if colours else []), "-S", "-", "-t", "t")

    def wait_for(self, words: str, *, gone: str = "") -> str:
        """Wait until the screen shows `words`, and does not show `gone`."""
        return self.wait_until(lambda screen: words in screen and not (gone and gone in screen), words)

    def wait_until(self, is_shown: Callable[[str], bool], what: str) -> str:
        until = time.monotonic() + PATIENCE
        while not is_shown(screen := self.get_screen()):
            left = until - time.monotonic()
            # Look again after output. Without output, look now and then as well.
            ready, _, _ = select.select([self._output], [], [], min(max(left, 0), 2))
            if ready:
                os.read(self._output, 1 << 20)
            assert left > 0, f"{what!r} was not shown:\n{screen}"
        return screen


@contextmanager
def open_terminal(
    directory: Path,
    command: Sequence[str],
    *,
    size: tuple[int, int] = (90, 30),
    cwd: Path | None = None,
    term: str = "tmux-256color",
    **env: str,
) -> Iterator[TmuxTerminal]:
    """Run a command in a new terminal until the end of the block. When it ends, the terminal shows `ended` and its code."""
    pipe = directory / "output"
    os.mkfifo(pipe)
    output = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    terminal = TmuxTerminal(directory, output)
    settings = {"TERM": term, "PYTHONUNBUFFERED": "1", **env}
    assigned = " ".join(f"{name}={shlex.quote(value)}" for name, value in settings.items())
    line = f"read _; env {assigned} {shlex.join(command)}; echo ended $?; read _"
    columns, rows = size
    try:
        terminal.tmux(
            *("start-server", ";", "set-option", "-g", "history-limit", "50000", ";"),
            "new-session",
            "-d",
            "-s",
            "t",
            "-x",
            str(columns),
            "-y",
            str(rows),
            "-c",
            str(cwd or directory),
            line,
        )
        terminal.tmux("pipe-pane", "-O", "-t", "t", f"cat > {shlex.quote(str(pipe))}")
        terminal.press("Enter")
        yield terminal
    finally:
        subprocess.run(
            ["tmux", "-S", str(directory / "tmux"), "kill-server"], check=False, capture_output=True
        )
        os.close(output)


def weft(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "weft", *arguments]

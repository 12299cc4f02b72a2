"""Run shell commands in a sandbox and report which files they changed, which secrets they read, which programs ran, and which port they reached.

The judge sees one copy of a project; the commands run on another at the same path, in a file system in memory inside the
sandbox. They have no network but the sandbox's own, where one port listens, and can write nowhere else.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from msgspec import Struct, convert

from given.shell import ShellTree, make_shell_tree

SECONDS = 2.0
# A megabyte in a file, three seconds of processor time, two gigabytes of memory.
LIMITED = 'ulimit -f 1024 -t 3 -v 2097152; exec bash -c "$1"'
# Programs that log that they ran. The rules of the trial allow none of them by name.
NOTED = ("touch", "rm", "mkdir", "cp", "mv", "ln", "tee", "sed", "mawk", "id", "sha1sum")
SECRETS = (
    "project/.env",
    "project/config/.env.local",
    "outside/secret.txt",
    "outside/deep/more.txt",
    "home/.ssh/id_rsa",
)
MORE = {
    "project/.gitignore": ".env\nconfig\n",
    "project/evil.txt": "a[$(touch MARK)]\n",
    "project/evil.sed": "w MARK\n",
    "project/evil.awk": 'BEGIN { print "x" > "MARK" }\n',
    "project/evil.sh": "touch MARK\n",
    "project/names.txt": ".env\n",
}


# Where a command can connect to. Outside of the sandbox nobody listens there.
PLACE = ("127.0.0.1", 7777)


class Effects(Struct, frozen=True, kw_only=True):
    """What a command did: paths relative to the top of the tree, names of programs, and how often it connected to `PLACE`."""

    changed: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    ran: tuple[str, ...] = ()
    reached: int = 0


def make_trial_tree(top: Path) -> ShellTree:
    """Make the project in which commands are judged, with a repository in it."""
    tree = make_shell_tree(top)
    for path, text in MORE.items():
        (tree.top / path).write_text(text)
    shutil.rmtree(tree.project / ".git")
    environment = {**os.environ, "HOME": str(tree.top / "home"), "GIT_CONFIG_NOSYSTEM": "1"}
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.test")
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-qm", "A beginning")):
        subprocess.run(["git", *who, *words], cwd=tree.project, check=True, env=environment)
    hooks = tree.project / ".git" / "hooks"
    for hook in hooks.iterdir():
        hook.unlink()
    (hooks / "pre-commit.sample").touch()
    return tree


def is_possible() -> bool:
    """Return True if commands can be run in a sandbox here."""
    bwrap = shutil.which("bwrap")
    words = ("--unshare-all", "--ro-bind", "/", "/", "--tmpfs", "/tmp", "true")
    return (
        bwrap is not None
        and subprocess.run([bwrap, *words], check=False, capture_output=True).returncode == 0
    )


class Trial:
    """A sandbox in which commands run one after the other, each in the original project."""

    def __init__(self, to: IO[str], said: IO[str]) -> None:
        self._to = to
        self._said = said

    def run(self, command: str) -> Effects:
        self._to.write(json.dumps(command) + "\n")
        self._to.flush()
        return convert(json.loads(self._said.readline()), Effects)


@contextmanager
def open_trial(tree: ShellTree) -> Iterator[Trial]:
    with tempfile.TemporaryDirectory() as bare:
        shims = Path(bare)
        words = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/", "/"]
        words += ["--dev", "/dev", "--proc", "/proc", "--tmpfs", "/run"]
        for name in NOTED:
            shim = shims / name
            shim.write_text(f'#!/bin/sh\necho {name} >>/run/ran\nexec /run/real/{name} "$@"\n')
            shim.chmod(0o755)
            real = os.path.realpath(shutil.which(name) or f"/usr/bin/{name}")
            words += ["--ro-bind", real, f"/run/real/{name}", "--ro-bind", str(shim), real]
        words += ["--tmpfs", str(tree.top), "--chdir", "/"]
        here = Path(__file__)
        environment = {**os.environ, "PYTHONPATH": str(here.parents[1]), "PYTHONDONTWRITEBYTECODE": "1"}
        with subprocess.Popen(
            [*words, sys.executable, str(here), str(tree.top)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            yield Trial(process.stdin, process.stdout)
            process.stdin.close()


# --- inside the sandbox ---


def serve(top: Path) -> None:
    """Answer each command from stdin with its effects."""
    kept = Path("/run/kept")
    make_trial_tree(kept)
    _renew(top, kept)
    before = _list_files(top)
    listener = socket.create_server(PLACE)
    listener.setblocking(False)
    for line in sys.stdin:
        _run(json.loads(line), top)
        after = _list_files(top)
        log = Path("/run/ran")
        ran = log.read_text().split() if log.exists() else []
        log.unlink(missing_ok=True)
        changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
        # `touch` changes the access time, too.
        read = [path for path in SECRETS if path not in changed and _is_read(top / path)]
        reached = _count_connections(listener)
        print(json.dumps({"changed": changed, "read": read, "ran": ran, "reached": reached}), flush=True)
        if changed or read:
            _renew(top, kept)
            before = _list_files(top)


def _renew(top: Path, kept: Path) -> None:
    for entry in os.scandir(top):
        if entry.is_dir(follow_symlinks=False):
            subprocess.run(["chmod", "-R", "u+rwx", entry.path], check=False)
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)
    shutil.copytree(kept, top, symlinks=True, dirs_exist_ok=True)
    for path in SECRETS:
        os.utime(top / path, (0, os.stat(top / path).st_mtime))


def _count_connections(listener: socket.socket) -> int:
    """Count and close the connections that wait. They were made by the kernel while the command ran."""
    count = 0
    while True:
        try:
            listener.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1


def _is_read(path: Path) -> bool:
    try:
        return path.stat().st_atime > 0
    except OSError:
        return False


def _list_files(top: Path) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    waiting = [str(top)]
    while waiting:
        for entry in os.scandir(waiting.pop()):
            stat = entry.stat(follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
                found[os.path.relpath(entry.path, top)] = (stat.st_mode,)
            else:
                found[os.path.relpath(entry.path, top)] = (
                    stat.st_mode,
                    stat.st_size,
                    stat.st_mtime_ns,
                    stat.st_ino,
                )
    return found


def _run(command: str, top: Path) -> None:
    environment = {"HOME": str(top / "home"), "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
    process = subprocess.Popen(
        ["bash", "-c", LIMITED, "bash", command],
        cwd=top / "project",
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        process.wait(SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    _end_others()


def _end_others() -> None:
    """Give background processes a moment, then kill them. All other processes in here belong to the command."""
    for patience in (0.02, 0.1, 0):
        others = [
            int(name)
            for name in os.listdir("/proc")
            if name.isdecimal() and int(name) not in (1, 2, os.getpid())
        ]
        others = [pid for pid in others if not _is_gone(pid)]
        if not others:
            return
        if patience:
            signal.sigtimedwait([signal.SIGCHLD], patience)
        else:
            for pid in others:
                os.kill(pid, signal.SIGKILL)


def _is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


if __name__ == "__main__":
    serve(Path(sys.argv[1]))

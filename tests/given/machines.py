"""Machines: homes of their own, each with a checkout of the same repository and a `weft serve` process."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from given.cluster import Node
from given.http_server import make_project
from given.model_server import ModelServer, Scripts, open_model_server
from given.serve_process import start_serve


class Machine:
    """One machine: its home, its checkout, and its server once it was started."""

    def __init__(self, stack: ExitStack, home: Path, project: Path, model: ModelServer) -> None:
        self._stack = stack
        self.home = home
        self.project = project
        self.env = {
            "HOME": str(home),
            "XDG_DATA_HOME": str(home / "data"),
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_STATE_HOME": str(home / "state"),
            "XDG_CACHE_HOME": str(home / "cache"),
            # Commands in a sandbox may write to it, and the homes of all machines are in that of the tests.
            "TMPDIR": str(home.parent / "temporary"),
        }
        (home.parent / "temporary").mkdir()
        (home / "config" / "opencode").mkdir(parents=True)
        (home / "config" / "opencode" / "opencode.json").write_text(
            json.dumps({**model.config, "permission": "allow"})
        )

    def serve(self, *arguments: str, under: Sequence[str] = ()) -> Node:
        process = self._stack.enter_context(
            start_serve(self.project, "--auth", "none", *arguments, under=under, **self.env)
        )
        node = Node(process)
        self._stack.callback(node.client.close)
        return node

    def run(self, *arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
        """Run a command of weft on this machine."""
        return subprocess.run(
            [sys.executable, "-m", "weft", *arguments],
            cwd=self.project,
            env={**os.environ, **self.env, **env},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start a command of weft on this machine, to be killed."""
        return subprocess.Popen(
            [sys.executable, "-m", "weft", *arguments],
            cwd=self.project,
            env={**os.environ, **self.env},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def git(self, *arguments: str) -> str:
        command = ["git", *arguments]
        return subprocess.run(command, cwd=self.project, check=True, capture_output=True, text=True).stdout

    def read_files(self) -> dict[str, tuple[str, bytes]]:
        return read_files(self.project)


def read_files(top: Path) -> dict[str, tuple[str, bytes]]:
    """Return every file of a checkout: what it is, and its content."""
    return {
        str(path.relative_to(top)): _read(path)
        for path in sorted(top.rglob("*"))
        if ".git" not in path.relative_to(top).parts and (path.is_symlink() or not path.is_dir())
    }


def _read(path: Path) -> tuple[str, bytes]:
    if path.is_symlink():
        return "link", os.fsencode(os.readlink(path))
    return oct(stat.S_IMODE(path.stat().st_mode)), path.read_bytes()


@contextmanager
def open_machines(tmp_path: Path, scripts: Scripts, *names: str) -> Iterator[tuple[Any, ...]]:
    """Open machines. The first one has a new repository, the others have clones of it."""
    with open_model_server(scripts) as model, ExitStack() as stack:
        machines: list[Machine] = []
        for name in names:
            project = tmp_path / name / "project"
            if not machines:
                make_project(project)
                (project / "gone.txt").write_text("soon gone\n")
                (project / "run.sh").write_text("#!/bin/sh\n")
                for command in (["add", "-A"], ["commit", "-qm", "two"]):
                    subprocess.run(["git", *command], cwd=project, check=True)
            else:
                subprocess.run(["git", "clone", "-q", str(machines[0].project), str(project)], check=True)
            machines.append(Machine(stack, tmp_path / name / "home", project, model))
        yield (model, *machines)

"""A sandbox for the real OpenCode and for weft: one home, one data directory, one repository, one fake model."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

MODEL = {
    "name": "Fake Model",
    "tool_call": True,
    "reasoning": True,
    "limit": {"context": 100_000, "output": 8_000},
    "cost": {"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75},
}
# Without these OpenCode asks the network for updates, plugins, language servers and its catalogue of models.
FLAGS = (
    "OPENCODE_DISABLE_AUTOUPDATE",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS",
    "OPENCODE_DISABLE_LSP_DOWNLOAD",
    "OPENCODE_DISABLE_MODELS_FETCH",
    "OPENCODE_EXPERIMENTAL_DISABLE_FILEWATCHER",
)
# How many seconds a command or a request may take: enough on a busy machine, too.
PATIENCE = 180


class Sandbox(Struct, frozen=True, kw_only=True):
    root: Path
    binary: Path
    env: Mapping[str, str]

    @property
    def project(self) -> Path:
        return self.root / "project"

    @property
    def storage(self) -> Path:
        return self.root / "data" / "opencode" / "storage"

    def opencode(self, *arguments: str) -> str:
        """Run the real OpenCode, and return its output."""
        return self._run([str(self.binary), *arguments])

    def weft(self, *arguments: str) -> str:
        """Run weft, and return its output."""
        return self._run([sys.executable, "-m", "weft", *arguments])

    @contextmanager
    def run_opencode(self, *arguments: str) -> Generator["subprocess.Popen[str]"]:
        """Run the real OpenCode until the end of the block."""
        opencode = subprocess.Popen(
            [str(self.binary), *arguments],
            cwd=self.project,
            env=dict(self.env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            yield opencode
        finally:
            if opencode.poll() is None:
                os.killpg(opencode.pid, signal.SIGKILL)
            opencode.communicate()

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(
            command,
            cwd=self.project,
            env=dict(self.env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout


def make_sandbox(root: Path, binary: Path, model_url: str) -> Sandbox:
    sandbox = Sandbox(root=root, binary=binary, env=_environment(root, model_url))
    for name in ("home", "tmp", "cache", "state", "bin", "data"):
        (root / name).mkdir(parents=True)
    _configure(root / "config" / "opencode", model_url)
    _replace_ripgrep(root / "bin" / "rg")
    _make_repository(sandbox)
    return sandbox


def _environment(root: Path, model_url: str) -> dict[str, str]:
    """Return the environment of programs in the sandbox: only PATH comes from the environment of the tests."""
    return {
        "PATH": f"{root / 'bin'}:{os.environ['PATH']}",
        "HOME": str(root / "home"),
        "TMPDIR": str(root / "tmp"),
        "BUN_TMPDIR": str(
            root / "tmp"
        ),  # OpenCode unpacks itself there, and does not look at TMPDIR for that
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "GIT_CONFIG_NOSYSTEM": "1",
        "OPENCODE_MODELS_URL": model_url,
        # Requests to other hosts go to this port, where nothing answers them.
        "BUN_CONFIG_REGISTRY": model_url,
        "HTTP_PROXY": model_url,
        "HTTPS_PROXY": model_url,
        "NO_PROXY": "127.0.0.1",
        **{f"XDG_{kind}_HOME": str(root / kind.lower()) for kind in ("DATA", "CONFIG", "STATE", "CACHE")},
        **dict.fromkeys(FLAGS, "1"),
    }


def _configure(directory: Path, model_url: str) -> None:
    # OpenCode fetches a package into a configuration directory that has no `node_modules`, and waits for it.
    (directory / "node_modules").mkdir(parents=True)
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Fake",
        "options": {"baseURL": f"{model_url}/v1", "apiKey": "none"},
        "models": {"fake-model": MODEL},
    }
    config = {
        "$schema": "https://opencode.ai/config.json",
        "model": "fake/fake-model",
        "small_model": "fake/fake-model",
        "enabled_providers": ["fake"],
        "share": "disabled",
        "permission": "allow",
        "lsp": False,
        "formatter": False,
        "provider": {"fake": provider},
    }
    (directory / "opencode.json").write_text(json.dumps(config, indent=2))


def _replace_ripgrep(path: Path) -> None:
    # OpenCode lists files with ripgrep, and downloads one where there is none.
    path.write_text("#!/bin/sh\nexit 1\n")
    path.chmod(0o755)


def _make_repository(sandbox: Sandbox) -> None:
    sandbox.project.mkdir()
    (sandbox.project / "hello.txt").write_text("hello\nfrom the sandbox\n")
    who = ["-c", "user.name=Ada Loom", "-c", "user.email=ada@example.test"]
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "A beginning"]):
        subprocess.run(["git", *who, *command], cwd=sandbox.project, env=dict(sandbox.env), check=True)

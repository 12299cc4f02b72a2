"""Real clients against `weft serve`: OpenCode's terminal UI, `run --attach` and SDKs, each with a server of its own.

    python tools/clients.py --drivers DIR --cache DIR [--only NAME] [--patience 3]

The drivers (`drive_tui.py`, `drive_run.py`, `sdk_js.mjs`, `sdk_py.py`, `fake_llm.py`, `oc_env.py`) judge what the clients
do; the clients are installed below the cache. Nothing but loopback is talked to once they are there.
"""

import argparse
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

OLD, NEW = "1.1.34", "1.18.33"
PYTHON_PACKAGE = "opencode-ai==0.1.0a36"
NEEDED = ("drive_tui.py", "drive_run.py", "sdk_js.mjs", "sdk_py.py", "fake_llm.py", "oc_env.py")
LONGEST = 2400.0
START = 60.0
PASSED = re.compile(r"^PASS\b", re.MULTILINE)
FAILED = re.compile(r"^FAIL\b.*", re.MULTILINE)
MISSING = """the drivers for real clients are not in {where}: {names}
They are kept apart from this repository. Name the folder that has them: make test-clients WEFT_DRIVERS=PATH"""


@dataclass(frozen=True)
class Suite:
    """One client's turn: its name, and the driver's command; `{url}` is where the server is, `{root}` a folder for it."""

    name: str
    command: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """How it went: steps that passed, the lines of those that did not, and whether the driver was content."""

    name: str
    passed: int
    failed: tuple[str, ...]
    content: bool
    seconds: float


def list_suites(drivers: Path, cache: Path, patience: str) -> list[Suite]:
    python, suites = str(cache / "python" / "bin" / "python"), []
    for version in (OLD, NEW):
        modules = cache / f"opencode-{version}" / "node_modules"
        sdk = str(modules / "@opencode-ai" / "sdk")
        node = (
            "node",
            "--experimental-websocket",
            str(drivers / "sdk_js.mjs"),
            "--sdk",
            sdk,
            "--url",
            "{url}",
        )
        suites += [
            Suite(f"js-sdk-{version}-v1", (*node, "--api", "v1")),
            Suite(f"js-sdk-{version}-v2", (*node, "--api", "v2")),
        ]
    suites.append(Suite("python-sdk", (python, str(drivers / "sdk_py.py"), "--url", "{url}")))
    for driver, more in (("run", ()), ("tui", ("--trace", "{root}/trace.jsonl", "--patience", patience))):
        for version in (OLD, NEW):
            binary = (
                cache / f"opencode-{version}" / "node_modules" / "opencode-linux-x64" / "bin" / "opencode"
            )
            script = str(drivers / f"drive_{driver}.py")
            command = (sys.executable, script, "--binary", str(binary), "--url", "{url}", *more)
            suites.append(Suite(f"{driver}-{version}", command))
    return suites


def install(cache: Path) -> None:
    """What is not there yet."""
    for version in (OLD, NEW):
        prefix = cache / f"opencode-{version}"
        packages = [f"opencode-ai@{version}", f"@opencode-ai/sdk@{version}"]
        if not (prefix / "node_modules" / "@opencode-ai" / "sdk").exists():
            quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
            subprocess.run(["npm", "install", "--prefix", str(prefix), *quiet, *packages], check=True)
    environment = cache / "python"
    if not (environment / "bin" / "pip").exists():
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        subprocess.run([str(environment / "bin" / "pip"), "install", "-q", PYTHON_PACKAGE], check=True)


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


@contextmanager
def started(command: list[str], url: str, log: Path, **more: object) -> Iterator[None]:
    """A server that answers, until the end of the block."""
    with log.open("ab") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL, **more)  # type: ignore[call-overload]
        try:
            wait_for(url, process, log)
            yield
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_for(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.2)
    raise SystemExit(f"{url} does not answer:\n{log.read_text()[-2000:]}")


@contextmanager
def serving(drivers: Path, weft: str, root: Path) -> Iterator[str]:
    """A scripted model, a project, and `weft serve` about it with OpenCode's configuration for that model."""
    model_url = f"http://127.0.0.1:{free_port()}"
    url = f"http://127.0.0.1:{free_port()}"
    environment = prepare(drivers, root, model_url)
    model = [sys.executable, str(drivers / "fake_llm.py"), "--port", model_url.rpartition(":")[2]]
    server = [weft, "serve", "--port", url.rpartition(":")[2], "--auth", "none", "--access-log"]
    with ExitStack() as stack:
        stack.enter_context(started(model, f"{model_url}/v1/models", root / "model.log", env=environment))
        project = root / "project"
        at = {"cwd": project, "env": environment}
        stack.enter_context(started(server, f"{url}/global/health", root / "serve.log", **at))
        yield url


def prepare(drivers: Path, root: Path, model_url: str) -> dict[str, str]:
    """A home of its own, and the environment that leads there."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("OPENCODE", "XDG_", "WEFT"))
    }
    homes = {
        "HOME": "home",
        "XDG_DATA_HOME": "data",
        "XDG_CACHE_HOME": "cache",
        "XDG_CONFIG_HOME": "config",
        "XDG_STATE_HOME": "state",
        "TMPDIR": "tmp",
    }
    environment = kept | {name: str(root / where) for name, where in homes.items()}
    for where in (*homes.values(), "project", "config/opencode"):
        (root / where).mkdir(parents=True, exist_ok=True)
    told = [sys.executable, str(drivers / "oc_env.py"), "config", "--llm", model_url]
    config = subprocess.run(told, check=True, capture_output=True, text=True).stdout
    json.loads(config)
    (root / "config" / "opencode" / "opencode.json").write_text(config)
    (root / "project" / "README.md").write_text("# a project\n")
    (root / "project" / "hello.txt").write_text("hello from the sandbox\n")
    who = ["-c", "user.name=t", "-c", "user.email=t@example.com"]
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "init"]):
        subprocess.run(["git", *who, *command], cwd=root / "project", check=True, env=environment)
    return environment


def run_suite(suite: Suite, drivers: Path, weft: str, logs: Path) -> Outcome:
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="weft-clients-") as name,
        serving(drivers, weft, Path(name)) as url,
    ):
        command = [word.format(url=url, root=name) for word in suite.command]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("OPENCODE")}
        try:
            ended = subprocess.run(
                command, capture_output=True, text=True, timeout=LONGEST, check=False, env=kept
            )
            said, content = ended.stdout + ended.stderr, ended.returncode == 0
        except subprocess.TimeoutExpired as error:
            said, content = f"{error.stdout!r}\nFAIL it took longer than {LONGEST:g} s", False
        (logs / f"{suite.name}.txt").write_text(said)
        shutil.copy(Path(name) / "serve.log", logs / f"{suite.name}.server.log")
    return Outcome(
        name=suite.name,
        passed=len(PASSED.findall(said)),
        failed=tuple(FAILED.findall(said)),
        content=content,
        seconds=time.monotonic() - began,
    )


def to_table(outcomes: list[Outcome]) -> str:
    lines = [f"{'client':<22} {'passed':>7} {'failed':>7} {'seconds':>8}"]
    for each in outcomes:
        mark = "" if each.content and not each.failed else "  <-"
        lines.append(f"{each.name:<22} {each.passed:>7} {len(each.failed):>7} {each.seconds:>8.0f}{mark}")
        lines += [f"    {line.strip()[:160]}" for line in each.failed]
    return "\n".join(lines)


def say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--drivers", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--weft", default=str(Path(sys.executable).parent / "weft"))
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="a part of a client's name"
    )
    parser.add_argument("--patience", default="2", help="how many times longer to wait for the terminal UI")
    parser.add_argument("--logs", type=Path, help="where to leave what clients and servers said")
    chosen = parser.parse_args()
    missing = [name for name in NEEDED if not (chosen.drivers / name).exists()]
    if missing:
        sys.stderr.write(MISSING.format(where=chosen.drivers, names=", ".join(missing)) + "\n")
        return 2
    drivers, cache = chosen.drivers.resolve(), chosen.cache.resolve()
    logs = chosen.logs or cache / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    install(cache)
    outcomes: list[Outcome] = []
    for suite in list_suites(drivers, cache, chosen.patience):
        if not chosen.only or any(part in suite.name for part in chosen.only):
            say(f"{suite.name} ...")
            outcomes.append(run_suite(suite, drivers, chosen.weft, logs))
            say(to_table(outcomes[-1:]).partition("\n")[2])
    say(f"\n{to_table(outcomes)}\n\nwhat they said: {logs}")
    return 0 if outcomes and all(each.content and not each.failed for each in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())

"""What starting costs: CPU of whole commands beside a bare `python -c pass`, as ratios in one run.

    make bench

Bytecode is compiled first. The best of several runs counts: CPU time is inflated by whatever else the machine does. The
runs of all commands take turns, so that each gets its share of quiet moments. A run asks a model on the loopback for one
word; its CPU is not counted, that of git is. A server is counted until its first answer, and embedding until the answer
to the first prompt.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.request import urlopen

from running import served
from trees import Forest

from weft.host.git import Git
from weft.model.ids import ProjectID

SESSIONS = 2_000
ROUNDS = 15
SERVER = "weft serve, to its first answer"
EMBEDDED = Path(__file__).parent / "first_hour" / "weft" / "agent.py"


def cpu_of(command: list[str], where: Path, env: dict[str, str]) -> float:
    """User and system milliseconds of a command and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    quiet = subprocess.DEVNULL
    subprocess.run(command, cwd=where, env=env, stdout=quiet, stderr=quiet, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def cpu_of_server(command: list[str], where: Path, env: dict[str, str]) -> float:
    """Milliseconds of all threads of a server until it has answered the first request."""
    with subprocess.Popen(command, cwd=where, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:  # fmt: skip
        try:
            assert server.stdout is not None
            line = next(line for line in server.stdout if "http://" in line)
            urlopen(f"http://{line.partition('http://')[2].split()[0]}/session").read()
            threads = Path(f"/proc/{server.pid}/task").iterdir()
            return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e6
        finally:
            server.send_signal(signal.SIGINT)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as scratch:
        repository, data = Path(scratch, "repository"), Path(scratch, "data")
        repository.mkdir()
        (repository / "README").write_text("x")
        git = Git(os.environ)
        git.start(str(repository), message="start")
        env = {**os.environ, "XDG_DATA_HOME": str(data)}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        weft = str(Path(sys.executable).with_name("weft"))
        (root,) = git.root_commits(str(repository))
        storage = data / "opencode" / "storage"
        Forest(storage, ProjectID(root), str(repository)).plant(SESSIONS)
        # One run settles the place, as any user's first run does; a list writes nothing.
        subprocess.run([weft, "run", "-m", "scripted/demo", "--format", "json", "hi"], cwd=repository, env=env,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)  # fmt: skip
        list_sessions = [weft, "session", "list"]
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "python -c 'import weft'": [sys.executable, "-c", "import weft"],
            "weft --version": [weft, "--version"],
            f"weft session list ({SESSIONS:,} sessions)": list_sessions,
            "weft session list -n 20 --format json": [*list_sessions, "-n", "20", "--format", "json"],
            "weft run of one word": [weft, "run", "-m", "bench/m", "go"],
            "embedding: the first prompt": [sys.executable, str(EMBEDDED)],
        }
        spent: dict[str, list[float]] = {name: [] for name in [*commands, SERVER]}
        with served(1) as url:
            provider = {"npm": "@ai-sdk/anthropic", "options": {"baseURL": f"{url}/lumps/anthropic", "apiKey": "none"}, "models": {"m": {}}}  # fmt: skip
            env["OPENCODE_CONFIG_CONTENT"] = json.dumps({"provider": {"bench": provider}})
            for _ in range(ROUNDS):
                for name, command in commands.items():
                    spent[name].append(cpu_of(command, repository, env))
                serve = [weft, "serve", "--port", "0", "--auth", "none"]
                spent[SERVER].append(cpu_of_server(serve, repository, env))
        best = {name: min(rounds) for name, rounds in spent.items()}
        bare = best["python -c pass"]
        for name, least in best.items():
            print(f"{least:8.1f} ms  {least / bare:5.2f}x  {name}")


if __name__ == "__main__":
    main()

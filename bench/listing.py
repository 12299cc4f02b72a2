"""What finding sessions costs among many: list, search and figures, beside OpenCode 1.1.34 on the same tree.

    python bench/listing.py [SESSIONS [MESSAGES]]

CPU of whole commands, children included, the best of some rounds. With WEFT_OPENCODE naming its binary, OpenCode runs
too, shut in: a home of its own, and nothing to reach on the network. What starting costs either is told beside it. Then
lists in a running process: each after the first two, and after another program changed a document.
"""

import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace
from trees import Forest

from weft.host.git import Git
from weft.model.ids import ProjectID
from weft.model.session_query import SessionQuery
from weft.store.contract import Store
from weft.store.url import open_store

ROUNDS = 5
NOWHERE = "http://127.0.0.1:9"
FLAGS = (
    "OPENCODE_DISABLE_AUTOUPDATE",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS",
    "OPENCODE_DISABLE_LSP_DOWNLOAD",
    "OPENCODE_DISABLE_MODELS_FETCH",
    "OPENCODE_EXPERIMENTAL_DISABLE_FILEWATCHER",
)


class Place(NamedTuple):
    root: Path
    env: dict[str, str]

    @property
    def repository(self) -> Path:
        return self.root / "repository"

    @property
    def storage(self) -> Path:
        return self.root / "data" / "opencode" / "storage"


def main() -> None:
    sessions, messages = (*(int(word) for word in sys.argv[1:3]), *(10_000, 20)[len(sys.argv[1:3]) :])
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as scratch:
        place = prepare(Path(scratch))
        git = Git(os.environ)
        git.start(str(place.repository), message="start")
        (first,) = git.root_commits(str(place.repository))
        told = time.perf_counter()
        Forest(place.storage, ProjectID(first), str(place.repository)).plant(sessions, messages=messages)
        print(f"{sessions:,} sessions of {messages} messages, planted in {time.perf_counter() - told:.0f} s")
        of_weft(place)
        asyncio.run(of_running_weft(place, ProjectID(first), sessions))
        if binary := os.environ.get("WEFT_OPENCODE"):
            of_opencode(place, binary)


def of_weft(place: Place) -> None:
    weft = str(Path(sys.executable).with_name("weft"))
    # One run settles the place, as any user's first run does; a list writes nothing.
    run([weft, "run", "-m", "scripted/demo", "--format", "json", "hi"], place)
    show("weft --version", [weft, "--version"], place)
    show("weft session list, no index", [weft, "session", "list"], place)
    show("weft session list -n 100, no index", [weft, "session", "list", "-n", "100"], place)
    show("weft session search, the first one", [weft, "session", "search", "4321"], place, rounds=1)
    show("weft session list", [weft, "session", "list"], place)
    show("weft session list -n 100", [weft, "session", "list", "-n", "100"], place)
    show("weft session search, a rare word", [weft, "session", "search", "4321"], place)
    show("weft session search, in every message", [weft, "session", "search", "shuttle"], place)
    show("weft stats", [weft, "stats"], place)


async def of_running_weft(place: Place, project: ProjectID, sessions: int) -> None:
    page = SessionQuery(project_id=project, roots=True, archived=False, order="updated", limit=100)
    title = SessionQuery(project_id=project, search=f"number {sessions * 3 // 7}:", limit=100)
    (one, *_) = (place.storage / "session" / project).glob("*.json")
    async with open_store(f"file:{place.storage}") as store:
        for name, query in (
            ("page of 100 by update", page),
            ("the same in all projects", replace(page, project_id=None)),
            ("one session by its title", title),
        ):
            await show_list(f"in a running weft: {name}", store, query)
            await show_list("  … one document changed", store, query, change=one)


async def show_list(name: str, store: Store, query: SessionQuery, *, change: Path | None = None) -> None:
    """Show what a list costs, the best of many rounds. The first two are not counted: the second begins to watch."""
    best = (float("inf"), float("inf"))
    for number in range(4 * ROUNDS):
        if change is not None:
            overwrite(change)
        spent, began = time.process_time(), time.perf_counter()
        await store.query_sessions(query)
        took = (1000 * (time.process_time() - spent), 1000 * (time.perf_counter() - began))
        best = min(best, took) if number > 1 else best
    print(f"{best[0]:10,.1f} ms CPU  {best[1]:10,.1f} ms   {name}", flush=True)


def overwrite(path: Path) -> None:
    """Write a document in place, as OpenCode does."""
    path.write_bytes(path.read_bytes())


def of_opencode(place: Place, binary: str) -> None:
    show("opencode --version", [binary, "--version"], place)
    show("opencode session list", [binary, "session", "list"], place)
    show("opencode session list -n 100", [binary, "session", "list", "-n", "100"], place)
    show("opencode stats", [binary, "stats"], place, rounds=1)


def prepare(root: Path) -> Place:
    for name in (
        "repository",
        "home",
        "tmp",
        "cache",
        "state",
        "data",
        "bin",
        "config/opencode/node_modules",
    ):
        (root / name).mkdir(parents=True)
    (root / "repository" / "README").write_text("x")
    (root / "bin" / "rg").write_text("#!/bin/sh\nexit 1\n")
    (root / "bin" / "rg").chmod(0o755)
    env = {
        "PATH": f"{root / 'bin'}:{os.environ['PATH']}",
        "HOME": str(root / "home"),
        "TMPDIR": str(root / "tmp"),
        "LANG": "C.UTF-8",
        "OPENCODE_MODELS_URL": NOWHERE,
        "BUN_CONFIG_REGISTRY": NOWHERE,
        "HTTP_PROXY": NOWHERE,
        "HTTPS_PROXY": NOWHERE,
        **{f"XDG_{kind}_HOME": str(root / kind.lower()) for kind in ("DATA", "CONFIG", "STATE", "CACHE")},
        **dict.fromkeys(FLAGS, "1"),
    }
    return Place(root, env)


def show(name: str, command: list[str], place: Place, *, rounds: int = ROUNDS) -> None:
    spent, took = min(run(command, place) for _ in range(rounds))
    print(f"{spent:10,.0f} ms CPU  {took:10,.0f} ms   {name}", flush=True)


def run(command: list[str], place: Place) -> tuple[float, float]:
    """CPU of a command and its children, and how long it took, both in milliseconds."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, cwd=place.repository, env=place.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return 1000 * cpu, 1000 * (time.perf_counter() - began)


if __name__ == "__main__":
    main()

"""Add stores to the museum in tests/museum: an archive, and a manifest of what whoever opens it must find.

    python tools/museum.py weft 0.1.0                       # the three stores of this version
    python tools/museum.py opencode 1.1.34 PATH/TO/opencode # what OpenCode writes

Run it once for every release that changed a format, and commit what it writes. tests/integration/test_museum.py opens every exhibit with
the present code.
"""

import argparse
import asyncio
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MUSEUM = ROOT / "tests" / "museum"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("maker", choices=("weft", "opencode"), help="who writes the stores")
    parser.add_argument("version", help="the version that the exhibits are named for")
    parser.add_argument("program", nargs="?", type=Path, help="the program of OpenCode")
    args = parser.parse_args()
    if args.maker == "opencode" and (args.program is None or not args.program.exists()):
        parser.error("name the program of OpenCode, such as node_modules/.bin/opencode")
    sys.path.insert(0, str(ROOT / "tests"))
    with tempfile.TemporaryDirectory() as scratch:
        if args.maker == "opencode":
            save_opencode(args.version, args.program, Path(scratch))
        else:
            save_weft(args.version, Path(scratch))


def save_weft(version: str, here: Path) -> None:
    (here / "tree").mkdir()
    manifest = asyncio.run(fill(f"file:{here}/tree/storage", here))
    save(f"files-{version}", pack(here / "tree"), manifest)
    (here / "database").mkdir()
    manifest = asyncio.run(fill(f"sqlite:{here}/database/sessions.db", here))
    save(f"sqlite-{version}", pack(here / "database"), manifest)
    save_postgres(version, here)


def save_opencode(version: str, program: Path, here: Path) -> None:
    """Run the real OpenCode with a scripted model, and save its data without logs and snapshots."""
    from opencode.fake_model import answer_call, answer_text, open_fake_model  # noqa: PLC0415  of the tests
    from opencode.sandbox import make_sandbox  # noqa: PLC0415

    with open_fake_model() as (model, url):
        sandbox = make_sandbox(here / "sandbox", program, url)
        hello = str(sandbox.project / "hello.txt")
        model.plays(
            answer_call("edit", filePath=hello, oldString="hello", newString="ahoj"),
            answer_call("bash", command="echo said; exit 3", description="Says something and fails"),
            answer_text("Příliš žluťoučký kůň 🐎 says ahoj."),
        )
        sandbox.opencode("run", "--format", "json", "--title", "Greetings", "Greet in Czech.")
        model.plays(answer_text("Second."))
        sandbox.opencode("run", "--format", "json", "--title", "A second one", "A second one.")
    data = sandbox.root / "data" / "opencode"
    for name in ("log", "bin", "snapshot", "repos", "tool-output"):
        shutil.rmtree(data / name, ignore_errors=True)
    # `opencode run` puts a prompt of several words into quotes.
    texts = ['"Greet in Czech."', "Příliš žluťoučký kůň 🐎 says ahoj.", '"A second one."', "Second."]
    save(f"opencode-{version}", pack(data), {"texts": texts})


def save_postgres(version: str, here: Path) -> None:
    from given.postgres import find_program, get_server  # noqa: PLC0415  of the tests

    url = get_server().get_url()
    manifest = asyncio.run(fill(f"{url}?schema=museum", here))
    command = [find_program("pg_dump"), "--inserts", "--schema=museum", "--no-owner", "--no-privileges", url]
    dump = subprocess.run(command, check=True, capture_output=True)
    save(f"postgres-{version}", gzip.compress(dump.stdout, mtime=0), manifest, suffix="sql.gz")


async def fill(store: str, here: Path) -> dict[str, Any]:
    """Run a few sessions in a store. Return what whoever opens it must find."""
    import weft  # noqa: PLC0415  from the path that PYTHONPATH names, which may be an older version's
    from given.museum import MUSEUM_PROJECT, describe  # noqa: PLC0415  of the tests
    from weft.testing import Script  # noqa: PLC0415

    shutil.rmtree(MUSEUM_PROJECT, ignore_errors=True)
    MUSEUM_PROJECT.mkdir(parents=True)
    (MUSEUM_PROJECT / "greet.py").write_text("print('hello')\n")
    script = (
        Script("Greet in Czech.")
        .thinks("Ahoj is short.").calls("read", filePath="greet.py").uses(input=1000, output=100)
        .calls("edit", filePath="greet.py", oldString="hello", newString="ahoj").uses(input=1100, output=90)
        .says("Příliš žluťoučký kůň 🐎 says ahoj.").uses(input=1200, output=80)
        .asked("Edit what is not there.")
        .calls("edit", filePath="greet.py", oldString="nowhere", newString="x").says("That failed.").uses(input=1300, output=20)
        .asked("Plan it.")
        .calls("todowrite", todos=[{"id": "1", "content": "sleep", "status": "pending", "priority": "low"}])
        .says("Planned.")
        .asked("Break.").fails("bad-request")
        .asked("Throw this away.").says("Gone.")
    )  # fmt: skip
    env = {
        **os.environ,
        "HOME": str(here),
        "XDG_DATA_HOME": str(here / "data"),
        "XDG_CONFIG_HOME": str(here / "config"),
    }
    async with weft.open(str(MUSEUM_PROJECT), model=script, store=store, env=env) as agent:
        talk = await agent.converse(title="Greetings")
        for prompt in ("Greet in Czech.", "Edit what is not there.", "Plan it."):
            await talk.ask(prompt, check=False)
        fork = await agent.api.fork_session(talk.session)
        await agent.api.rename_session(fork.id, "A fork of greetings")
        await agent.api.tag_session(fork.id, "old", "kept")
        broken = await agent.converse(title="Broken")
        await broken.ask("Break.", check=False)
        await agent.api.archive_session(broken.session)
        gone = await agent.converse(title="In the trash")
        await gone.ask("Throw this away.")
        await agent.api.remove_session(gone.session)
        sessions = [await describe(agent.api, id) for id in (talk.session, fork.id, broken.session)]
    return {"sessions": sessions, "trash": [gone.session]}


def pack(directory: Path) -> bytes:
    """Return a directory as an archive that is the same for the same files."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.add(directory, arcname=".", filter=_forget_who_and_when)
    return gzip.compress(raw.getvalue(), mtime=0)


def _forget_who_and_when(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def save(name: str, archive: bytes, manifest: dict[str, Any], suffix: str = "tar.gz") -> None:
    MUSEUM.mkdir(exist_ok=True)
    (MUSEUM / f"{name}.{suffix}").write_bytes(archive)
    described = manifest | {"sha256": hashlib.sha256(archive).hexdigest()}
    text = json.dumps(described, indent=1, ensure_ascii=False, sort_keys=True)
    (MUSEUM / f"{name}.json").write_text(f"{text}\n")
    sys.stdout.write(f"{name}: {len(archive)} bytes\n")


if __name__ == "__main__":
    main()

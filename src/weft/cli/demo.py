"""`weft demo`: a real session in a scratch repository, with a scripted model: offline, without a key, always the same."""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from shutil import which

from weft.cli.paint import Paint
from weft.cli.running.follow import follow
from weft.cli.screen import Terminal
from weft.cli.sessions import print_table
from weft.host.git import Git
from weft.local.open import Opening, open_app
from weft.model.input import PromptInput, SessionInput, TextInput
from weft.model.part import ModelRef

PROMPT = "Let greet.py greet a name given on the command line, and show me that it works."
GREETING = 'def main():\n    print("Hello, world!")\n\n\nif __name__ == "__main__":\n    main()\n'


def demo(_: argparse.Namespace) -> int:
    scratch = Path(tempfile.mkdtemp(prefix="weft-demo-"))
    repository = scratch / "greeter"
    make_repository(repository)
    places = {
        f"XDG_{kind.upper()}_HOME": str(scratch / kind) for kind in ("data", "config", "cache", "state")
    }
    env = {**os.environ, **places}
    return asyncio.run(_demo(repository, env))


def make_repository(path: Path) -> None:
    path.mkdir()
    (path / "greet.py").write_text(GREETING)
    Git(os.environ).start(str(path), message="A greeting")


async def _demo(repository: Path, env: Mapping[str, str]) -> int:
    paint = Paint(sys.stderr)

    def say(text: str = "") -> None:
        print(text, file=sys.stderr, flush=True)

    say(paint.bold("A scripted model at work in a scratch repository, offline."))
    say(paint.dim(f"{repository}"))
    say(f"\n{paint.green('>')} {PROMPT}\n")
    async with open_app(Opening(directory=str(repository), env=env)) as api:
        session = await api.create_session(SessionInput(title="Greet by name"))
        model = ModelRef(provider_id="scripted", model_id="demo")
        code = await follow(
            api, session.id, PromptInput(parts=(TextInput(text=PROMPT),), model=model), Terminal()
        )
        say(f"\n{paint.bold('The session is kept')} (weft session list):")
        print_table(await api.list_sessions(), now=session.time.updated)
    for line in what_next(repository, env["XDG_DATA_HOME"], paint):
        say(line)
    return code


def what_next(repository: Path, data: str, paint: Paint) -> Iterable[str]:
    weft = "weft" if which("weft") else os.path.abspath(sys.argv[0])
    yield f"\n{paint.bold('What next')}"
    yield f"  see it again      cd {repository} && XDG_DATA_HOME={data} {weft} session show last"
    yield f"  on a real model   {weft} auth login anthropic"
    yield f'                    then, in a repository of yours: {weft} run "explain this repository"'
    yield f"  which models      {weft} models --all"
    yield f"  all commands      {weft} --help"

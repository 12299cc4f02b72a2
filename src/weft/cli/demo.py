"""`weft demo`: run a real session with a scripted model in a scratch repository, offline and without a key."""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from shutil import which

from weft.cli.follow import follow
from weft.cli.output import Paint
from weft.cli.run_screen import make_screen
from weft.cli.session import print_sessions
from weft.host.clock import SystemClock
from weft.host.git import Git
from weft.local.open import OpenOptions, open_directory
from weft.model.input import PromptInput, SessionInput, TextInput
from weft.model.part import ModelRef

PROMPT = "Let greet.py greet a name given on the command line, and show me that it works."
GREETING = 'def main():\n    print("Hello, world!")\n\n\nif __name__ == "__main__":\n    main()\n'


def add_demo_arguments(_: argparse.ArgumentParser) -> None:
    """Add nothing: the command takes no arguments."""


def demo_command(_: argparse.Namespace) -> int:
    scratch = Path(tempfile.mkdtemp(prefix="weft-demo-"))
    repository = scratch / "greeter"
    make_repository(repository)
    directories = {
        f"XDG_{kind.upper()}_HOME": str(scratch / kind) for kind in ("data", "config", "cache", "state")
    }
    env = {**os.environ, **directories}
    return asyncio.run(_demo(repository, env))


def make_repository(path: Path) -> None:
    path.mkdir()
    (path / "greet.py").write_text(GREETING)
    Git(os.environ).start(str(path), message="A greeting")


async def _demo(repository: Path, env: Mapping[str, str]) -> int:
    paint = Paint(sys.stderr)

    def print_note(text: str = "") -> None:
        print(text, file=sys.stderr, flush=True)

    print_note(paint.bold("A scripted model at work in a scratch repository, offline."))
    print_note(paint.dim(f"{repository}"))
    print_note(f"\n{paint.green('>')} {PROMPT}\n")
    async with open_directory(OpenOptions(directory=str(repository), env=env)) as api:
        session = await api.create_session(SessionInput(title="Greet by name"))
        model = ModelRef(provider_id="scripted", model_id="demo")
        prompt = PromptInput(parts=(TextInput(text=PROMPT),), model=model)
        code = await follow(api, session, prompt, make_screen(session, SystemClock(), undo=False))
        print_note(f"\n{paint.bold('The session is kept')} (weft session list):")
        print_sessions(await api.list_sessions(), now=session.time.updated)
    for line in list_next_steps(repository, env["XDG_DATA_HOME"], paint):
        print_note(line)
    return code


def list_next_steps(repository: Path, data: str, paint: Paint) -> Iterable[str]:
    weft = "weft" if which("weft") else os.path.abspath(sys.argv[0])
    yield f"\n{paint.bold('What next')}"
    yield f"  see it again      cd {repository} && XDG_DATA_HOME={data} {weft} session show last"
    yield f"  use a real model  {weft} auth login anthropic"
    yield f'                    then, in a repository of yours: {weft} run "explain this repository"'
    yield f"  which models      {weft} models --all"
    yield f"  all commands      {weft} --help"

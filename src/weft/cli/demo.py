"""`weft demo`: a real session in a scratch repository, with a scripted model: offline, without a key, always the same."""

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from weft.app.open import Opening, open_app
from weft.cli.paint import Paint
from weft.cli.run import follow
from weft.cli.screen import Terminal
from weft.cli.sessions import print_table
from weft.host.git import Git
from weft.model.input import PromptInput, SessionInput, TextInput
from weft.model.part import ModelRef

PROMPT = "Let greet.py greet a name given on the command line, and show me that it works."
GREETING = 'def main():\n    print("Hello, world!")\n\n\nif __name__ == "__main__":\n    main()\n'


def demo(_: argparse.Namespace) -> int:
    scratch = Path(tempfile.mkdtemp(prefix="weft-demo-"))
    repository = scratch / "greeter"
    make_repository(repository)
    env = {**os.environ, "XDG_DATA_HOME": str(scratch / "data"), "XDG_CONFIG_HOME": str(scratch / "config")}
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
    say(f"\n{paint.bold('What next')}")
    say(
        f"  see it again      cd {repository} && XDG_DATA_HOME={env['XDG_DATA_HOME']} weft session show {session.id}"
    )
    say('  on a real model   set "model" in opencode.json and run: weft run "explain this repository"')
    say("  all commands      weft --help")
    return code

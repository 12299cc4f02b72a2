"""`weft run --attach URL`: one prompt from the shell, to a server."""

import argparse
import base64
import os
import sys
from collections.abc import Iterable
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace

from weft.cli.paint import Paint, plain
from weft.cli.run import hold, is_watched, make_input, run_to_its_end, to_command, to_input, words_of
from weft.cli.running.follow import Company
from weft.cli.running.stop import Stop
from weft.client.address import is_loopback
from weft.client.api import open_remote
from weft.client.http import Terms
from weft.errors import InvalidInputError
from weft.model.input import AnyPartInput, CommandInput, FileInput, PromptInput

HERE_ONLY = {
    "worktree": "a worktree is made where the work is done",
    "record": "what models say is heard by the server",
    "replay": "models are asked by the server",
    "store": "the server has its own",
    "port": "the server is there already",
}
MOST_BYTES = 20 * 1024 * 1024

P = TypeVar("P", bound=AnyPartInput)


def run_attached(chosen: argparse.Namespace) -> int:
    for flag, why in HERE_ONLY.items():
        if getattr(chosen, flag, None) not in (None, False):
            raise InvalidInputError(f"--{flag}", f"not with --attach: {why}", hint="run without it")
    words = words_of(chosen)
    return run_to_its_end(lambda stop: _prompt(chosen, words, stop), alone=chosen.alone)


async def _prompt(chosen: argparse.Namespace, words: str, stop: Stop) -> int:
    terms = Terms(directory=directory_there(chosen), notice=notice)
    async with open_remote(chosen.attach, terms) as api:
        if is_here(chosen.attach):
            input = await make_input(api, chosen, words)
        else:
            input = carried(to_command(chosen, words) if chosen.command else to_input(chosen, words))
        company = Company(person=is_watched(), stop=stop, attached=True)
        code = await hold(api, chosen, words, input, company)
        stop.done(code)
        return code


def directory_there(chosen: argparse.Namespace) -> str | None:
    """The directory that was named, as the server has to be told it; none is the server's own, as with OpenCode."""
    named: str = chosen.dir
    if named == ".":
        return None
    if not is_here(chosen.attach) and not os.path.isabs(named):
        raise InvalidInputError("--dir", "on another machine it is an absolute path", hint="as it is there")
    return os.path.abspath(os.path.expanduser(named))


def is_here(url: str) -> bool:
    """Whether the server sees the same files as we do."""
    return is_loopback(urlsplit(url if "://" in url else f"http://{url}").hostname or "")


def carried(input: PromptInput | CommandInput) -> PromptInput | CommandInput:
    """With what is attached inside: another machine cannot open our files."""
    match input:
        case PromptInput(parts=parts):
            return replace(input, parts=tuple(_carry(parts)))
        case CommandInput(parts=files):
            return replace(input, parts=tuple(_carry(files)))


def _carry(parts: Iterable[P]) -> Iterable[P]:
    for part in parts:
        if isinstance(part, FileInput) and part.url.startswith("file:"):
            yield replace(part, url=_inside(part))
        else:
            yield part


def _inside(file: FileInput) -> str:
    path = unquote(urlsplit(file.url).path)
    if os.path.isdir(path):
        raise InvalidInputError("--file", f"{path!r} is a directory, and the server is on another machine")
    if os.path.getsize(path) > MOST_BYTES:
        raise InvalidInputError("--file", f"{path!r} is larger than {MOST_BYTES >> 20} MB")
    with open(path, "rb") as opened:
        content = opened.read()
    return f"data:{file.mime};base64,{base64.b64encode(content).decode()}"


def notice(line: str) -> None:
    print(Paint(sys.stderr).yellow(plain(line)), file=sys.stderr, flush=True)

"""What a server says when it is ready: where it is, and a line to paste for each client."""

import json
import shlex
from collections.abc import Iterator

from weft.cli.serving.door import PASSWORD, Entrance


def to_welcome(url: str, directory: str, entrance: Entrance) -> Iterator[str]:
    yield f"weft serves {directory} at {url}"
    # Word for word: OpenCode's SDK and other programs that start a server wait for this line.
    yield f"opencode server listening on {url}"
    yield ""
    yield from (f"  {line}" for line in _commands(from_here(url), entrance))
    yield ""
    if entrance.door.password is None:
        yield "anybody on this machine may use it: there is no password"
    elif entrance.file is not None:
        yield f"the password is in {entrance.file}"
        yield "the terminal UI of OpenCode 1.1.34 cannot send one: for it, start with --auth none"


def _commands(url: str, entrance: Entrance) -> Iterator[str]:
    door = entrance.door
    before, login = "", ""
    if door.password is not None:
        secret = f"$(cat {shlex.quote(entrance.file)})" if entrance.file else f"${PASSWORD}"
        before = f'{PASSWORD}="{secret}" ' if entrance.file else ""
        login = f'-u {shlex.quote(door.username)}:"{secret}" '
    yield f"weft attach {url}"  # ours find the password themselves
    yield f'weft run --attach {url} "hello"'
    yield f"{before}opencode attach {url}"
    yield f'{before}opencode run --attach {url} "hello"'
    yield f"curl {login}{url}/session"
    yield f"{before}python -c {shlex.quote(_python(url, door.username if door.password else ''))}"


def _python(url: str, username: str) -> str:
    """A few words with the package `opencode-ai`. Quoted twice: a shell's quotes stand around the whole of it."""
    if not username:
        return f'from opencode_ai import Opencode; print(Opencode(base_url="{url}").session.list())'
    login = f'b64encode(({quoted(f"{username}:")} + os.environ["{PASSWORD}"]).encode()).decode()'
    client = f'Opencode(base_url="{url}", default_headers={{"Authorization": "Basic " + {login}}})'
    return f"import os; from base64 import b64encode; from opencode_ai import Opencode; print({client}.session.list())"


def from_here(url: str) -> str:
    """The address to use on this machine: one that means every address is no name, and is turned away at the door."""
    return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def quoted(text: str) -> str:
    """A string of Python's in double quotes, whatever is in it."""
    return json.dumps(text)

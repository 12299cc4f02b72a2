"""What the words of a task mention with an `@`: files and directories, which the child is shown (spec 8.12).

The words may be a model's. OpenCode reads whatever they name, unasked, wherever it lies; here only what lies in the
project and what the child may read without asking. All else stays a word, and the child can go and ask for it.
"""

import asyncio
import re
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from weft.model.agent import Agent
from weft.model.input import AgentInput, AnyPartInput, FileInput, TextInput
from weft.model.permission import Limits
from weft.model.project import Place
from weft.permission.limits import judge
from weft.tool.paths import locate

MENTION = re.compile(r"(?<![\w`])@(\.?[^\s`,.]*(?:\.[^\s`,.]+)*)")
# As OpenCode's terminal writes lines of a file: `src/main.py#10-20`, or one of them.
LINES = re.compile(r"(?P<file>.+)#(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?", re.ASCII)
DIRECTORY = "application/x-directory"
TEXT = "text/plain"


class Reader(Struct, frozen=True, kw_only=True):
    """Who is to read the words: where they stand, under which rules, and whom they could turn to."""

    place: Place
    limits: Limits
    agents: dict[str, Agent]


def names_in(text: str) -> list[str]:
    """What is mentioned, each name once, in the order of the words."""
    return list(dict.fromkeys(name for name in MENTION.findall(text) if name))


async def resolve(text: str, reader: Reader) -> tuple[AnyPartInput, ...]:
    """The words, and behind them what they mention."""
    found = await asyncio.to_thread(lambda: [_find(name, reader) for name in names_in(text)])
    return (TextInput(text=text), *(part for part in found if part is not None))


def _find(name: str, reader: Reader) -> AnyPartInput | None:
    found = _find_named(name, reader)
    lines = LINES.fullmatch(name)
    if found is not None or lines is None:
        return found
    file = _find_named(lines["file"], reader)
    if not isinstance(file, FileInput) or file.mime != TEXT:
        return None
    first, last = lines["first"], lines["last"] or lines["first"]
    return replace(file, filename=name, url=f"{file.url}?start={first}&end={last}")


def _find_named(name: str, reader: Reader) -> AnyPartInput | None:
    top = reader.place.worktree if reader.place.worktree != "/" else reader.place.directory
    try:
        place, inside = locate(name, top, reader.place.worktree)
    except ValueError:  # a NUL in it, or half a character
        return None
    if place.is_directory or place.is_file:
        permission = "list" if place.is_directory else "read"
        paths = dict.fromkeys((place.path, place.real))
        if not inside or any(not _allows(reader, permission, path) for path in paths):
            return None
        mime = DIRECTORY if place.is_directory else TEXT
        return FileInput(mime=mime, filename=name, url=Path(place.path).as_uri())
    usable = name in reader.agents and _allows(reader, "task", name)
    return AgentInput(name=name) if usable else None


def _allows(reader: Reader, permission: str, pattern: str) -> bool:
    return judge(permission, pattern, reader.limits).action == "allow"

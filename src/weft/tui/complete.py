"""Complete what is typed at the prompt: slash commands and their arguments, mentions of files and agents, paths."""

import asyncio
import os
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from weft.errors import WeftError
from weft.model.session_query import SessionQuery
from weft.tui.chat import Chat
from weft.tui.commands import ChatCommand, list_variants

MAX_FILES: Final = 12
MAX_PATHS: Final = 50
MAX_ABOUT: Final = 60
_MENTION: Final = re.compile(r"(?:^|\s)@([^\s@]*)$")
_PATH: Final = re.compile(r"(?:^|\s)([^\s@/]*/[^\s]*)$")


class Suggestion(NamedTuple):
    """A text that takes the place of the last `length` characters before the cursor."""

    text: str
    length: int
    about: str = ""


class Suggester:
    """Asks the `Api` for names. An error means that there is nothing to suggest."""

    def __init__(self, chat: Chat, commands: Mapping[str, ChatCommand]) -> None:
        self._chat = chat
        self._commands = commands

    async def find(self, text: str, *, requested: bool) -> list[Suggestion]:
        """Return what can follow the text before the cursor. Paths are suggested only if that is `requested`."""
        if self._chat.request is not None:
            return []
        try:
            return await self._find(text, requested=requested)
        except WeftError:
            return []

    async def _find(self, text: str, *, requested: bool) -> list[Suggestion]:
        if text.startswith("/") and "\n" not in text:
            name, space, words = text[1:].partition(" ")
            if space:
                return _match(await self._list_arguments(name), words)
            if "/" not in name:
                return _match(await self._list_commands(), name)
        mention = _MENTION.search(text)
        if mention is not None:
            return await self._find_mentions(mention[1])
        path = _PATH.search(text)
        if path is not None and requested and not self._chat.setup.is_remote:
            directory = (await self._chat.api.workspace.get_paths()).directory
            return await asyncio.to_thread(_list_paths, path[1], directory)
        return []

    async def _list_commands(self) -> dict[str, str]:
        names = {name: command.about for name, command in self._commands.items()}
        own = await self._chat.api.list_commands()
        return names | {each.name: each.description or "" for each in own if each.name not in names}

    async def _list_arguments(self, command: str) -> dict[str, str]:
        api = self._chat.api
        match command:
            case "model":
                providers = await api.configuration.list_providers()
                return {
                    f"{provider.id}/{model.id}": model.name
                    for provider in providers.all
                    if provider.id in providers.connected
                    for model in provider.models.values()
                }
            case "agent":
                agents = await api.workspace.list_agents()
                return {each.name: each.description or "" for each in agents if each.mode != "subagent"}
            case "variant":
                return dict.fromkeys(await list_variants(self._chat), "")
            case "resume":
                sessions = await api.list_sessions(SessionQuery(roots=True, archived=False))
                return {each.id: each.title for each in sessions}
            case _:
                return {}

    async def _find_mentions(self, word: str) -> list[Suggestion]:
        agents = await self._chat.api.workspace.list_agents()
        offered = {
            each.name: each.description or "" for each in agents if each.mode != "primary" and not each.hidden
        }
        files = await self._chat.api.files.find_files(word, limit=MAX_FILES)
        return [*_match(offered, word), *(Suggestion(file, len(word)) for file in files)]


def _match(names: Mapping[str, str], word: str) -> list[Suggestion]:
    """Return the names that begin with a word, then those that contain it."""
    low = word.lower()
    starting = [name for name in names if name.lower().startswith(low)]
    containing = [name for name in names if low in name.lower() and name not in starting]
    return [Suggestion(name, len(word), names[name][:MAX_ABOUT]) for name in (*starting, *containing)]


def _list_paths(word: str, below: str) -> list[Suggestion]:
    """Return the files and directories whose path, from a directory, begins with a word."""
    parent, _, start = word.rpartition("/")
    try:
        with os.scandir(os.path.join(below, os.path.expanduser(f"{parent}/"))) as entries:
            names = sorted(
                f"{each.name}{'/' if each.is_dir() else ''}"
                for each in entries
                if each.name.startswith(start)
            )
    except OSError:
        return []
    return [Suggestion(name, len(start)) for name in names[:MAX_PATHS]]

"""What can follow the words of a command line: commands, options, sessions, models, agents."""

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from weft.api import Api
from weft.cli.commands import COMMANDS, GROUPS, build_parser, normalise
from weft.cli.output import sanitize
from weft.errors import WeftError
from weft.model.session import SessionInfo
from weft.model.session_query import SessionQuery

MAX_NAMES = 100
SERVER_SECONDS = 5.0  # whoever pressed Tab waits for it
HIDDEN = ("words", "bash-line")  # only the scripts of `weft completion` say these
LAST = ("last", "the last session of this checkout or directory")

Candidate = tuple[str, str]
Reader = Callable[[Api, str], Awaitable[list[Candidate]]]


class TypedWords(NamedTuple):
    """The words of a command so far: their values by argument, and the argument that takes the next word, if there is one."""

    values: dict[str, str]
    next: argparse.Action | None
    takes_options: bool


def find_completions(words: Sequence[str], start: str, topics: Iterable[str] = ()) -> list[Candidate]:
    """Return what can follow these words of a command line, with a description of each in one line. `topics` are those of `weft help`."""
    # A name with a line break or an escape sequence would be several names for the shell, or a command to the terminal.
    return [
        (name, sanitize(" ".join(about.split())))
        for name, about in _list_candidates(normalise(words), start, topics)
        if name.startswith(start) and name.isprintable()
    ]


def _list_candidates(words: Sequence[str], start: str, topics: Iterable[str]) -> Iterable[Candidate]:
    entry = next((each for each in COMMANDS if tuple(words[: len(each.words)]) == each.words), None)
    if entry is None:
        below = list_next_words(words)
        return list_flags(find_parser(words)) if below and start.startswith("-") else below
    parser = find_parser(entry.words)
    typed = read_typed(parser, words[len(entry.words) :])
    option, equals, _ = start.partition("=")
    if typed.takes_options and equals and start.startswith("--"):
        action = parser._option_string_actions.get(option)  # noqa: SLF001  argparse has no other way to find them
        found = list_values(entry.words, action, start[len(option) + 1 :], typed.values) if action else ()
        return [(f"{option}={name}", about) for name, about in found]
    if typed.takes_options and start.startswith("-"):
        return list_flags(parser)
    if entry.words == ("help",):
        under = words[1:]
        return [*list_next_words(under), *((each, "a topic") for each in topics if not under)]
    return list_values(entry.words, typed.next, start, typed.values) if typed.next else ()


def list_next_words(words: Sequence[str]) -> list[Candidate]:
    """Return the words that continue the name of a command."""
    depth = len(words)
    below = [each for each in COMMANDS if each.words[:depth] == tuple(words) and len(each.words) > depth]
    abouts = {each.words[depth]: GROUPS.get(each.words[: depth + 1]) or each.about for each in below}
    return list(abouts.items())


def find_parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser of a command or of a group of commands."""
    parser: argparse.ArgumentParser = build_parser(words)
    for word in words:
        branches = next(each for each in parser._actions if isinstance(each, argparse._SubParsersAction))  # noqa: SLF001  argparse has no other way to list them
        parser = branches.choices[word]
    return parser


def list_flags(parser: argparse.ArgumentParser) -> list[Candidate]:
    """Return the options of a command."""
    return [
        (option, action.help or "")
        for action in parser._actions  # noqa: SLF001  argparse has no other way to list them
        if action.help != argparse.SUPPRESS
        for option in action.option_strings
    ]


def read_typed(parser: argparse.ArgumentParser, words: Sequence[str]) -> TypedWords:
    """Return what the words of a command that is still being typed say, and what the next one is for."""
    actions = parser._actions  # noqa: SLF001  argparse has no other way to list them
    values = {each.dest: each.default for each in actions if isinstance(each.default, str)}
    pending: argparse.Action | None = None
    takes_options = True
    positional = [each for each in actions if not each.option_strings]
    for word in words:
        option, equals, value = word.partition("=")
        action = parser._option_string_actions.get(option) if takes_options else None  # noqa: SLF001  argparse has no other way to find them
        if pending is not None and not (pending.nargs == "?" and word.startswith("-")):
            values[pending.dest], pending = word, None
        elif word == "--":
            takes_options = False
        elif action is not None:
            pending = None if equals or action.nargs == 0 else action
            if equals:
                values[action.dest] = value
        elif positional:
            values[positional[0].dest] = word
            if positional[0].nargs not in ("*", "+"):
                positional.pop(0)
    # After an option whose value may be left out, the next option or argument is as likely as its value.
    is_option_next = takes_options and (pending is None or pending.nargs == "?")
    return TypedWords(values, pending or next(iter(positional), None), is_option_next)


# --- values of arguments ---


def list_values(
    words: Sequence[str], action: argparse.Action, start: str, typed: dict[str, str]
) -> Sequence[Candidate]:
    """Return the values that an argument of a command can have, as far as they are known."""
    if action.choices is not None:
        return [(str(each), "") for each in action.choices if each not in HIDDEN]
    read = _choose_reader(words, action.dest)
    url = typed.get("url") or typed.get("attach")
    place = argparse.Namespace(dir=typed.get("dir", "."), store=typed.get("store"))
    with suppress(WeftError, TimeoutError):
        if read is not None and url is not None:
            return asyncio.run(_ask_server(read, url, place, start))
        if read is list_sessions:
            return _list_stored_sessions(place, start, trashed=words == ("session", "restore"))
        if read is list_models:
            return _list_offered_models(place)
        if read is not None:
            return asyncio.run(_ask_here(read, place, start))
    return ()


def _choose_reader(words: Sequence[str], argument: str) -> Reader | None:
    match argument, *words:
        case "session" | "sessions" | "picks" | "share", *_:
            return list_sessions
        case "model" | "judge", *_:
            return list_models
        case ("agent", *_) | ("name", "agent", "show"):
            return list_agents
        case ("command", "run") | ("name", "command", "show"):
            return list_commands
        case _:
            return None


async def list_sessions(api: Api, start: str) -> list[Candidate]:
    return _to_candidates(await api.list_sessions(_select(start)))


async def list_models(api: Api, _: str) -> list[Candidate]:
    providers = await api.configuration.list_providers()
    return [
        (f"{provider.id}/{name}", model.name)
        for provider in providers.all
        if provider.id in providers.connected
        for name, model in provider.models.items()
    ]


async def list_agents(api: Api, _: str) -> list[Candidate]:
    agents = await api.workspace.list_agents()
    return [(each.name, each.description or "") for each in agents if not each.hidden]


async def list_commands(api: Api, _: str) -> list[Candidate]:
    return [(each.name, each.description or "") for each in await api.list_commands()]


def _select(start: str) -> SessionQuery:
    """Return a query for sessions by the start of their ids, the last used first. Without a start, leave out child sessions."""
    return SessionQuery(id_prefix=start or None, roots=not start, order="updated", limit=MAX_NAMES)


def _to_candidates(sessions: Iterable[SessionInfo]) -> list[Candidate]:
    return [LAST, *((each.id, each.title) for each in sessions)]


async def _ask_server(read: Reader, url: str, place: argparse.Namespace, start: str) -> list[Candidate]:
    from weft.cli.attach import find_remote_directory  # noqa: PLC0415  only a completion for a server connects to one
    from weft.client.api import open_remote  # noqa: PLC0415  only a completion for a server connects to one
    from weft.client.http import ConnectionOptions  # noqa: PLC0415  only a completion for a server connects to one

    options = ConnectionOptions(directory=find_remote_directory(url, place.dir), patience=0)
    async with asyncio.timeout(SERVER_SECONDS), open_remote(url, options) as api:
        return await read(api, start)


async def _ask_here(read: Reader, place: argparse.Namespace, start: str) -> list[Candidate]:
    from weft.local.open import OpenOptions, open_directory  # noqa: PLC0415  few completions need it

    options = OpenOptions(directory=place.dir, env=os.environ, one_shot=True)
    async with open_directory(options) as api:
        return await read(api, start)


def _list_stored_sessions(place: argparse.Namespace, start: str, *, trashed: bool) -> list[Candidate]:
    from weft.cli.session import make_reader  # noqa: PLC0415  only a completion of sessions reads them

    reader = make_reader(place)
    if trashed:
        return _to_candidates(bundle.sessions[0] for bundle in reader.store.list_trash()[::-1])
    return _to_candidates(reader.query_sessions(_select(start)))


def _list_offered_models(place: argparse.Namespace) -> list[Candidate]:
    from weft.cli.models import find_models, load_offers  # noqa: PLC0415  only a completion of models reads them

    offers, _ = load_offers(place.dir, os.environ)
    models = find_models(offers, None, os.environ, everything=False)
    return [(f"{each.provider_id}/{each.id}", each.name) for each in models]

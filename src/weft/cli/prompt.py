"""Turn the arguments of `weft run` and `weft attach` into a session and a prompt."""

from __future__ import annotations

import argparse
import mimetypes
import os
import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from msgspec.structs import replace

from weft.errors import DocumentError, InvalidInputError
from weft.local.place import list_sessions_here
from weft.model.agent import Agent
from weft.model.catalog import parse_ref
from weft.model.ids import SessionID
from weft.model.input import CommandInput, FileInput, PromptInput, SessionInput, TextInput
from weft.model.message import AssistantMessage, JsonFormat
from weft.model.part import ModelRef, ToolPart
from weft.model.project import Place, Project, get_root
from weft.model.session import Session, SessionQuery
from weft.model.spending import UNLIMITED, Budget
from weft.model.wire import parse
from weft.permission.rules import narrow
from weft.run.attachments import MentionScope, list_mentions, resolve_mentions
from weft.run.compaction import CONTINUE_PROMPT
from weft.session.tree import choose_last_session

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.api import Api

TITLE_LENGTH = 50
SCHEMA_FLAG = "--json-schema"


# --- the words of the prompt ---


def read_words(chosen: argparse.Namespace) -> str:
    """Return the prompt from the command line and standard input.

    Raise `InvalidInputError` if there are no words and no session that could continue without them.
    """
    words = join_message(chosen.message, read_piped(sys.stdin))
    check_fork(chosen)
    if not words.strip() and not (chosen.session or chosen.go_on or chosen.command):
        raise InvalidInputError("message", "there is none", hint='type one: weft run "fix the failing test"')
    return words


def join_message(arguments: list[str], piped: str) -> str:
    """Join the words of the command line, and append what was piped in.

    A single argument is taken as it is. OpenCode puts quotes around every argument that contains a space; we do so only
    if there are several, because only then do the quotes tell anything.
    """
    quoted = [f'"{word.replace(chr(34), chr(92) + chr(34))}"' if " " in word else word for word in arguments]
    typed = arguments[0] if len(arguments) == 1 else " ".join(quoted)
    return "\n".join(part for part in (typed, piped) if part)


def read_piped(stdin: TextIO | None) -> str:
    return "" if stdin is None or stdin.isatty() else stdin.read()


def check_fork(chosen: argparse.Namespace) -> None:
    """Raise `InvalidInputError` if `--fork` was passed without a session to copy."""
    if chosen.fork and not (chosen.session or chosen.go_on):
        raise InvalidInputError(
            "--fork", "there is no session to copy", hint="name it with -s, or pass -c for the last one"
        )


# --- the session ---


async def open_session(api: Api, chosen: argparse.Namespace, words: str) -> Session:
    """Return the session that `-s` or `-c` names, or a copy of it with `--fork`; else create one."""
    if chosen.session or chosen.go_on:
        found = await (
            api.get_session(SessionID(chosen.session)) if chosen.session else get_last_session(api)
        )
        return await api.fork_session(found.id) if chosen.fork else found
    return await api.create_session(SessionInput(title=to_title(chosen.title, words)))


async def get_last_session(api: Api) -> Session:
    """Return the last session of this checkout or, if it has none, of this directory."""
    at = await api.workspace.get_paths()
    place = Place(project=await api.current_project(), directory=at.directory, worktree=at.worktree)
    sessions = await api.list_sessions(SessionQuery(roots=True, archived=False))
    return choose_last_session(
        list_sessions_here(sessions, place), sessions, get_root(place), hint='start one: weft run "…"'
    )


def to_title(given: str | None, words: str) -> str | None:
    """Return the title for `--title`: the start of the prompt if the flag has no value."""
    if given == "":
        return words[:TITLE_LENGTH] + ("..." if len(words) > TITLE_LENGTH else "")
    return given


async def check_unfinished(api: Api, session: Session) -> None:
    """Raise `InvalidInputError` unless the session can continue without a prompt.

    It can if its last prompt or tool results were not answered, or if the last answer failed.
    """
    last = await api.list_messages(session.id, limit=1)
    finished = [
        message
        for message in last
        if isinstance(message.info, AssistantMessage)
        and message.info.error is None
        and not any(isinstance(part, ToolPart) for part in message.parts)
    ]
    if finished or not last:
        raise InvalidInputError(
            "message",
            f"there is none, and session {session.id} has nothing left to do",
            hint='say what to do: weft run --continue "…"',
        )


# --- the input ---


async def build_input(api: Api, chosen: argparse.Namespace, words: str) -> PromptInput | CommandInput:
    """Return the prompt or the slash command, with the files and agents that the words mention."""
    if chosen.command:
        return to_command_input(chosen, words)
    return await add_mentions(api, chosen, to_prompt_input(chosen, words))


def to_command_input(chosen: argparse.Namespace, words: str) -> CommandInput:
    return CommandInput(
        command=chosen.command,
        arguments=words,
        agent=chosen.agent,
        model=chosen.model,
        variant=chosen.variant,
        budget=to_budget(chosen),
        format=read_schema(chosen.json_schema),
        parts=tuple(to_attachment(path) for path in chosen.file),
    )


def to_prompt_input(chosen: argparse.Namespace, words: str) -> PromptInput:
    said = TextInput(text=words) if words.strip() else TextInput(text=CONTINUE_PROMPT, synthetic=True)
    return PromptInput(
        parts=(*(to_attachment(path) for path in chosen.file), said),
        model=parse_model(chosen.model),
        agent=chosen.agent,
        variant=chosen.variant,
        budget=to_budget(chosen),
        format=read_schema(chosen.json_schema),
    )


def to_budget(chosen: argparse.Namespace) -> Budget | None:
    cost = Decimal(chosen.max_cost) if chosen.max_cost else None
    budget = Budget(cost=cost, tokens=chosen.max_tokens, steps=chosen.max_steps, seconds=chosen.max_seconds)
    return None if budget == UNLIMITED else budget


def parse_model(text: str | None) -> ModelRef | None:
    """Return the model that `--model` names. Raise `InvalidInputError` if it is not `provider/model`."""
    if text is None:
        return None
    ref = parse_ref(text)
    if ref is None:
        raise InvalidInputError(
            "--model", f"{text!r} does not name a model", hint="write it as provider/model"
        )
    return ref


def to_attachment(path: str) -> FileInput:
    found = Path(path)
    if not found.exists():
        raise InvalidInputError("--file", f"there is no file {path!r}")
    kind = mimetypes.guess_type(path)[0] or ""
    # Pictures and PDF documents are sent as they are; every other file is read as text.
    mime = kind if kind.startswith("image/") or kind == "application/pdf" else "text/plain"
    shown = "application/x-directory" if found.is_dir() else mime
    return FileInput(mime=shown, filename=found.name, url=found.absolute().as_uri())


async def check_input(api: Api, input: PromptInput | CommandInput) -> None:
    """Raise an error if the model, the agent or the command of the input does not exist."""
    match input:
        case PromptInput():
            await api.check_prompt(input)
        case CommandInput(agent=agent, model=model):
            await api.get_command(input.command)
            if agent or model:
                await api.check_prompt(PromptInput(agent=agent, model=parse_model(model), parts=()))


# --- mentions: @file, @directory/, @agent ---


async def add_mentions(api: Api, chosen: argparse.Namespace, input: PromptInput) -> PromptInput:
    """Add the files, directories and agents that the person mentioned with an `@`.

    Text that was piped in mentions nothing, because it may come from somebody else. OpenCode's `run` ignores mentions.
    """
    typed = " ".join(chosen.message)
    if not list_mentions(typed):
        return input
    agents = await api.workspace.list_agents()
    answering = next((each for each in agents if each.name == chosen.agent or not chosen.agent), None)
    if answering is None:
        return input  # the check of the prompt reports the unknown agent
    place = _place_here(chosen.dir, await api.current_project())
    _, *found = await resolve_mentions(typed, _make_reader(place, answering, agents))
    return replace(input, parts=(*input.parts, *found))


def _place_here(directory: str, project: Project) -> Place:
    """Return the place in which mentions are looked up: the person's directory, not that of the session."""
    return Place(project=project, directory=os.path.abspath(os.path.expanduser(directory)), worktree="/")


def _make_reader(place: Place, answering: Agent, agents: list[Agent]) -> MentionScope:
    helping = {each.name: each for each in agents if each.mode != "primary" and not each.hidden}
    return MentionScope(
        place=place, limits=narrow((answering.permission, *answering.limits), ()), agents=helping
    )


# --- --json-schema ---


def read_schema(given: str | None) -> JsonFormat | None:
    """Return the schema that was passed, either literally or as the path of a file."""
    if given is None:
        return None
    schema = parse_schema(given.encode() if given.lstrip().startswith("{") else _read_schema_file(given))
    if not isinstance(schema, dict):
        raise InvalidInputError(SCHEMA_FLAG, "a JSON schema is an object")
    return JsonFormat(schema=schema)


def parse_schema(raw: bytes) -> Any:
    try:
        return parse(raw, where=SCHEMA_FLAG)
    except DocumentError as error:
        raise InvalidInputError(SCHEMA_FLAG, error.reason) from error


def _read_schema_file(path: str) -> bytes:
    try:
        with open(os.path.expanduser(path), "rb") as file:
            return file.read()
    except OSError as error:
        raise InvalidInputError(
            SCHEMA_FLAG,
            f"cannot read {path!r}: {error.strerror}",
            hint="name a file, or write the schema itself",
        ) from error

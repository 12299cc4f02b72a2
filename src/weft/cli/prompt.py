"""Turn the arguments of `weft run` and `weft attach` into a session and a prompt."""

from __future__ import annotations

import argparse
import os
import sys
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TextIO

from msgspec.structs import replace

from weft.errors import DocumentError, InvalidIdError, InvalidInputError, NotFoundError, SessionBusyError
from weft.local.place import is_here
from weft.model.agent import AgentInfo
from weft.model.catalog import parse_ref
from weft.model.ids import SessionID
from weft.model.input import CommandInput, FileInput, PromptInput, SessionInput, TextInput
from weft.model.message import AssistantMessage, JsonFormat
from weft.model.part import ModelRef, ToolPart
from weft.model.project import Place, Project, get_root
from weft.model.session import Idle, SessionInfo
from weft.model.session_query import SessionQuery, to_next_page
from weft.model.spending import UNLIMITED, Budget
from weft.model.wire import parse
from weft.permission.rules import narrow
from weft.run.attachments import MentionScope, list_mentions, resolve_mentions
from weft.run.compaction import CONTINUE_PROMPT
from weft.session.selection import ID_START, LAST, LAST_USED, choose_session, to_no_last_session

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.api import Api

MAX_TITLE_LENGTH = 50
SCHEMA_FLAG = "--json-schema"
SCHEMA_HINT = (
    'write it like \'{"type": "object", "properties": {"answer": {"type": "string"}}}\', or name a file'
)


# --- the text of the prompt ---


def read_prompt(args: argparse.Namespace) -> str:
    """Return the prompt from the command line and standard input.

    Raise `InvalidInputError` if there is no text and no session that could continue without it.
    """
    text = join_message(args.message, read_piped(sys.stdin))
    check_session_options(args)
    if not text.strip() and not (args.session or args.continue_last or args.command):
        raise InvalidInputError("prompt", "it is missing", hint=_explain_missing_prompt(args))
    return text


def _explain_missing_prompt(args: argparse.Namespace) -> str:
    import shlex  # noqa: PLC0415  only a mistake needs it

    for option in ("worktree", "title"):
        taken = getattr(args, option, None)
        if taken:
            return f"--{option} took {taken!r} as its value; write the prompt before it: weft run {shlex.quote(taken)} --{option}"
    if sys.stdin is None or sys.stdin.isatty():
        return 'type one: weft run "fix the failing test"; or talk with an agent: weft'
    return 'nothing was piped in either; type one: weft run "fix the failing test"'


def join_message(arguments: list[str], piped: str) -> str:
    """Join the arguments of the command line, and append what was piped in.

    A single argument is taken as it is. OpenCode puts quotes around every argument that contains a space; we do so only
    if there are several, because only then do the quotes carry information.
    """
    quoted = [f'"{word.replace(chr(34), chr(92) + chr(34))}"' if " " in word else word for word in arguments]
    typed = arguments[0] if len(arguments) == 1 else " ".join(quoted)
    return "\n".join(part for part in (typed, piped) if part)


def read_piped(stdin: TextIO | None) -> str:
    return "" if stdin is None or stdin.isatty() else stdin.read()


def check_session_options(args: argparse.Namespace) -> None:
    """Raise `InvalidInputError` if two sessions were named, or if `--fork` was passed without one to copy."""
    if args.session and args.continue_last:
        raise InvalidInputError(
            "-c", "-s names the session to continue already", hint="leave out one of the two"
        )
    if args.fork and not (args.session or args.continue_last):
        raise InvalidInputError(
            "--fork", "there is no session to copy", hint="name it with -s, or pass -c for the last one"
        )


# --- the session ---


async def choose_or_create_session(api: Api, args: argparse.Namespace, text: str) -> SessionInfo:
    """Return the session that `-s` or `-c` names, or a copy of it with `--fork`; else create one."""
    if args.session or args.continue_last:
        session = await (find_typed_session(api, args.session) if args.session else get_last_session(api))
        return await api.fork_session(session.id) if args.fork else session
    return await api.create_session(SessionInput(title=to_title(args.title, text)))


async def find_typed_session(api: Api, typed: str) -> SessionInfo:
    """Return the session that an id, the start of an id or `last` names. Raise `AmbiguousError` or `NotFoundError`."""
    if typed == LAST:
        return await get_last_session(api)
    try:
        return await api.get_session(SessionID(typed))
    except (InvalidIdError, NotFoundError):
        prefix = typed if typed.startswith(ID_START) else f"{ID_START}{typed}"
        found = await api.list_sessions(SessionQuery(id_prefix=prefix))
        return choose_session(typed, (), found, hint="/sessions in weft attach lists those of the server")


async def get_last_session(api: Api) -> SessionInfo:
    """Return the last session of this checkout or, if it has none, of this directory."""
    paths = await api.workspace.get_paths()
    place = Place(project=await api.current_project(), directory=paths.directory, worktree=paths.worktree)
    query: SessionQuery | None = LAST_USED
    last: SessionInfo | None = None
    while query is not None:
        page = await api.list_sessions(query)
        last = last or next(iter(page), None)
        for session in page:
            if is_here(session, place):
                return session
        query = to_next_page(query, page)
    raise to_no_last_session(last, get_root(place), hint='start one: weft run "…"')


def to_title(title: str | None, text: str) -> str | None:
    """Return the title for `--title`: the start of the prompt if the flag has no value."""
    if title == "":
        return text[:MAX_TITLE_LENGTH] + ("..." if len(text) > MAX_TITLE_LENGTH else "")
    return title


async def require_unfinished(api: Api, session: SessionInfo) -> None:
    """Raise `InvalidInputError` unless the session can continue without a prompt.

    It can if its last prompt or tool results were not answered, or if the last answer failed or has no end. Raise
    `SessionBusyError` if the process behind `api` is just making the answer. If another process is, sending the prompt raises it.
    """
    if not isinstance(await api.get_status(session.id), Idle):
        raise SessionBusyError(session.id, hint="it is being answered; wait until that is done")
    last = await api.list_messages(session.id, limit=1)
    finished = [
        message
        for message in last
        if isinstance(message.info, AssistantMessage)
        and message.info.error is None
        and (message.info.finish is not None or message.info.time.completed is not None)
        and not any(isinstance(part, ToolPart) for part in message.parts)
    ]
    if finished or not last:
        raise InvalidInputError(
            "prompt",
            f"it is missing, and session {session.id} has nothing left to do",
            hint='say what to do: weft run --continue "…"',
        )


# --- the input ---


async def build_input(api: Api, args: argparse.Namespace, text: str) -> PromptInput | CommandInput:
    """Return the prompt or the slash command, with the files and agents that the text mentions."""
    if args.command:
        return make_command_input(args, text)
    return await add_mentions(api, args, make_prompt_input(args, text))


def make_command_input(args: argparse.Namespace, text: str) -> CommandInput:
    return CommandInput(
        command=args.command,
        arguments=text,
        agent=args.agent,
        model=args.model,
        variant=args.variant,
        budget=to_budget(args),
        format=read_schema(args.json_schema),
        parts=tuple(read_attachment(path) for path in args.file),
    )


def make_prompt_input(args: argparse.Namespace, text: str) -> PromptInput:
    text_part = TextInput(text=text) if text.strip() else TextInput(text=CONTINUE_PROMPT, synthetic=True)
    return PromptInput(
        parts=(*(read_attachment(path) for path in args.file), text_part),
        model=parse_model(args.model),
        agent=args.agent,
        variant=args.variant,
        budget=to_budget(args),
        format=read_schema(args.json_schema),
    )


def to_budget(args: argparse.Namespace) -> Budget | None:
    cost = Decimal(args.max_cost) if args.max_cost else None
    budget = Budget(cost=cost, tokens=args.max_tokens, steps=args.max_steps, seconds=args.max_seconds)
    return None if budget == UNLIMITED else budget


def parse_model(text: str | None) -> ModelRef | None:
    """Return the model that `--model` names. Raise `InvalidInputError` if it is not `provider/model`."""
    if text is None:
        return None
    ref = parse_ref(text)
    if ref is None:
        raise InvalidInputError(
            "--model",
            f"{text!r} does not name a model",
            hint="write it as provider/model; weft models lists them",
        )
    return ref


def read_attachment(path: str) -> FileInput:
    from mimetypes import guess_type  # noqa: PLC0415  few prompts have attachments
    from pathlib import Path  # noqa: PLC0415  as above

    file = Path(path)
    if not os.path.exists(path):  # pathlib raises an error for a name that is too long
        raise InvalidInputError(
            "--file", f"there is no file {path!r}", hint=f"paths are relative to {os.getcwd()}"
        )
    guess = guess_type(path)[0] or ""
    # Pictures and PDF documents are sent as they are; every other file is read as text.
    mime = guess if guess.startswith("image/") or guess == "application/pdf" else "text/plain"
    if file.is_dir():
        mime = "application/x-directory"
    return FileInput(mime=mime, filename=file.name, url=file.absolute().as_uri())


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


async def add_mentions(api: Api, args: argparse.Namespace, input: PromptInput) -> PromptInput:
    """Add the files, directories and agents that the person mentioned with an `@`.

    Text that was piped in mentions nothing, because it may come from somebody else. OpenCode's `run` ignores mentions.
    """
    typed = " ".join(args.message)
    if not list_mentions(typed):
        return input
    agents = await api.workspace.list_agents()
    agent = next((candidate for candidate in agents if candidate.name == args.agent or not args.agent), None)
    if agent is None:
        return input  # the check of the prompt reports the unknown agent
    # Mentions are looked up in the person's directory, not that of the session.
    scope = make_mention_scope(args.dir, await api.current_project(), agent, agents)
    _, *mentions = await resolve_mentions(typed, scope)
    return replace(input, parts=(*input.parts, *mentions))


def make_mention_scope(
    directory: str, project: Project, agent: AgentInfo, agents: list[AgentInfo]
) -> MentionScope:
    """Return where mentions are looked up, which agents can be mentioned, and what the agent may read."""
    place = Place(project=project, directory=os.path.abspath(os.path.expanduser(directory)), worktree="/")
    subagents = {each.name: each for each in agents if each.mode != "primary" and not each.hidden}
    return MentionScope(place=place, rulesets=narrow((agent.permission, *agent.limits), ()), agents=subagents)


# --- --json-schema ---


def read_schema(source: str | None) -> JsonFormat | None:
    """Return the schema that was passed, either literally or as the path of a file."""
    if source is None:
        return None
    schema = parse_schema(source.encode() if source.lstrip().startswith("{") else _read_schema_file(source))
    if not isinstance(schema, dict):
        raise InvalidInputError(SCHEMA_FLAG, "a JSON schema is an object", hint=SCHEMA_HINT)
    from weft.run.json_schema import check_schema  # noqa: PLC0415  few prompts ask for a value

    try:
        check_schema(schema, where=SCHEMA_FLAG)
    except InvalidInputError as error:
        error.hint = SCHEMA_HINT
        raise
    return JsonFormat(schema=schema)


def parse_schema(raw: bytes) -> Any:
    try:
        return parse(raw, where=SCHEMA_FLAG)
    except DocumentError as error:
        raise InvalidInputError(SCHEMA_FLAG, error.reason, hint=SCHEMA_HINT) from error


def _read_schema_file(path: str) -> bytes:
    try:
        with open(os.path.expanduser(path), "rb") as file:
            return file.read()
    except OSError as error:
        raise InvalidInputError(
            SCHEMA_FLAG,
            f"cannot read {path!r}: {error.strerror}",
            hint=SCHEMA_HINT,
        ) from error

"""`weft run`: one prompt from the shell."""

import argparse
import asyncio
import mimetypes
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import TextIO

from msgspec.structs import replace

from weft.api import Api
from weft.cli.exit import Exit
from weft.cli.paint import Paint
from weft.cli.running.follow import Company, follow
from weft.cli.running.mentioned import with_mentioned
from weft.cli.running.sharing import find_pages, share_first, tell_shared
from weft.cli.running.stop import Stop
from weft.cli.screen import JsonLines, Screen, Terminal
from weft.cli.trust.asking import offer_trust
from weft.cli.wanted import read_format
from weft.cli.worktree.workplace import take_words_back, workplace
from weft.errors import InvalidInputError, WeftError
from weft.host.clock import SystemClock
from weft.host.exit import LastResort
from weft.local.open import Opening, open_app
from weft.local.place import list_here
from weft.local.reader import Reading
from weft.model.catalog import parse_ref
from weft.model.failure import ApiFailure, AuthFailure
from weft.model.ids import SessionID
from weft.model.input import CommandInput, FileInput, PromptInput, SessionInput, TextInput
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import ModelRef, TextPart, ToolPart
from weft.model.project import Place, root_of
from weft.model.session import Session, SessionQuery
from weft.model.spending import UNLIMITED, Budget
from weft.provider.tape import Recording, Replay, Tape
from weft.run.compaction import CONTINUE
from weft.session.tree import choose_last

TITLE_LENGTH = 50
KEY_REFUSED = frozenset({401, 403})


def run_prompt(chosen: argparse.Namespace) -> int:
    take_words_back(chosen)
    words = words_of(chosen)
    if chosen.port is not None:
        # OpenCode starts a server for each run, and its callers may say where.
        print(
            f"{Paint(sys.stderr).yellow('warning:')} --port does nothing: a run needs no server",
            file=sys.stderr,
        )
    if chosen.session:
        chosen.session = Reading(chosen.dir, os.environ, store=chosen.store).get_session(chosen.session).id
    with workplace(chosen, os.environ) as where:
        code = _run_to_its_end(chosen, words)
        where.leave(code)
    return code


def check_fork(chosen: argparse.Namespace) -> None:
    """Raise `InvalidInputError` if a copy is asked for, and of nothing."""
    if chosen.fork and not (chosen.session or chosen.go_on):
        raise InvalidInputError(
            "--fork", "there is no session to copy", hint="name it by -s, or -c for the last"
        )


def words_of(chosen: argparse.Namespace) -> str:
    words = message_of(chosen.message, piped(sys.stdin))
    check_fork(chosen)
    if not words.strip() and not (chosen.session or chosen.go_on or chosen.command):
        raise InvalidInputError("message", "there is none", hint='type one: weft run "fix the failing test"')
    return words


def _run_to_its_end(chosen: argparse.Namespace, words: str) -> int:
    if is_watched():
        offer_trust(chosen.dir, os.environ)
    return run_to_its_end(lambda stop: _prompt(chosen, words, os.environ, stop), alone=chosen.alone)


def run_to_its_end(prompt: Callable[[Stop], Awaitable[int]], *, alone: bool) -> int:
    """The exit code, whatever ends it: the run itself, a signal, or nobody who reads on."""
    last_resort = LastResort(alone=alone)
    try:
        return asyncio.run(_run(prompt, last_resort))
    except BrokenPipeError:
        # Unlike a list that `head` has seen enough of, this was work, and it was cut short.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.UNREAD
    finally:
        last_resort.rest()


def message_of(arguments: list[str], piped: str) -> str:
    """The words on the command line, and under them what was piped in.

    A single argument is taken as it is. OpenCode puts quotes around every argument with a space in it; we do so only
    where there are several, since only then do they tell something.
    """
    quoted = [f'"{word.replace(chr(34), chr(92) + chr(34))}"' if " " in word else word for word in arguments]
    typed = arguments[0] if len(arguments) == 1 else " ".join(quoted)
    return "\n".join(part for part in (typed, piped) if part)


def piped(stdin: TextIO | None) -> str:
    return "" if stdin is None or stdin.isatty() else stdin.read()


async def _run(prompt: Callable[[Stop], Awaitable[int]], last_resort: LastResort) -> int:
    stop = Stop(last_resort)
    try:
        with stop.listening():
            code = await prompt(stop)
    except asyncio.CancelledError:
        if stop.signal is None:
            raise
        return 128 + stop.signal
    return code


async def _prompt(chosen: argparse.Namespace, words: str, env: Mapping[str, str], stop: Stop) -> int:
    answered = is_watched()
    opening = Opening(directory=chosen.dir, env=env, store=chosen.store, answered=answered, warn=warn)
    opening = replace(opening, one_shot=True, tape=tape_of(chosen), pages=await find_pages(chosen, env))
    async with open_app(opening) as api:
        input = await make_input(api, chosen, words)
        code = await hold(api, chosen, words, input, Company(person=answered, stop=stop))
        # All that is stored is stored. Whatever hangs from here on must not keep a script waiting.
        stop.done(code)
        return code


async def hold(
    api: Api, chosen: argparse.Namespace, words: str, input: PromptInput | CommandInput, company: Company
) -> int:
    """Find the session and send the prompt, whoever keeps it; the exit code."""
    if not (chosen.session or chosen.go_on):
        await check(api, input)  # a mistake must not leave an empty session behind
    session = await find_session(api, chosen, words)
    if not words.strip() and not chosen.command:
        await check_left_open(api, session)
    await share_first(api, chosen, session)
    screen: Screen = (
        JsonLines(session.id, SystemClock(), thinking=chosen.thinking)
        if chosen.format == "json"
        else Terminal(aside=input.format is not None)
    )
    code = await follow(api, session.id, input, screen, company)
    await tell_shared(api, chosen, session)
    if code == Exit.FAILED and not (chosen.session or chosen.go_on or chosen.share):
        await put_away_unanswered(api, session.id)
    return code


async def put_away_unanswered(api: Api, session: SessionID) -> None:
    """Move a session to the trash in which no model said a word because the key was missing or refused.

    Else it would be the last one, which whoever has mended the key and goes on does not mean.
    """
    for message in await api.list_messages(session):
        if isinstance(message.info, AssistantMessage) and not is_key_refused(message):
            return
    await api.remove_session(session)
    said = f"nothing was answered, so the session is in the trash: weft session restore {session}"
    print(Paint(sys.stderr).dim(said), file=sys.stderr)


def is_key_refused(answer: MessageWithParts) -> bool:
    """Whether an answer holds nothing but the failure that the key was missing or refused."""
    assert isinstance(answer.info, AssistantMessage)
    match answer.info.error:
        case AuthFailure():
            refused = True
        case ApiFailure(data=data):
            refused = data.status_code in KEY_REFUSED
        case _:
            refused = False
    return refused and not any(isinstance(part, TextPart | ToolPart) for part in answer.parts)


def is_watched() -> bool:
    """Whether somebody sits at a terminal, and can be asked."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


async def check(api: Api, input: PromptInput | CommandInput) -> None:
    match input:
        case PromptInput():
            await api.check_prompt(input)
        case CommandInput(agent=agent, model=model):
            await api.get_command(input.command)
            if agent or model:
                await api.check_prompt(PromptInput(agent=agent, model=model_of(model), parts=()))


async def make_input(api: Api, chosen: argparse.Namespace, words: str) -> PromptInput | CommandInput:
    if chosen.command:
        return to_command(chosen, words)
    return await with_mentioned(api, chosen, to_input(chosen, words))


def to_command(chosen: argparse.Namespace, words: str) -> CommandInput:
    files = [attachment(path) for path in chosen.file]
    return CommandInput(
        command=chosen.command,
        arguments=words,
        agent=chosen.agent,
        model=chosen.model,
        variant=chosen.variant,
        budget=budget_of(chosen),
        format=read_format(chosen.json_schema),
        parts=tuple(files),
    )


def to_input(chosen: argparse.Namespace, words: str) -> PromptInput:
    said = TextInput(text=words) if words.strip() else TextInput(text=CONTINUE, synthetic=True)
    return PromptInput(
        parts=(*(attachment(path) for path in chosen.file), said),
        model=model_of(chosen.model),
        agent=chosen.agent,
        variant=chosen.variant,
        budget=budget_of(chosen),
        format=read_format(chosen.json_schema),
    )


def budget_of(chosen: argparse.Namespace) -> Budget | None:
    cost = Decimal(chosen.max_cost) if chosen.max_cost else None
    budget = Budget(cost=cost, tokens=chosen.max_tokens, steps=chosen.max_steps, seconds=chosen.max_seconds)
    return None if budget == UNLIMITED else budget


async def check_left_open(api: Api, session: Session) -> None:
    """Without words there has to be something to go on with: a prompt or results that nobody answered, or a failure."""
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
            f"there is none, and session {session.id} is not in the middle of anything",
            hint='say what to do: weft run --continue "…"',
        )


def tape_of(chosen: argparse.Namespace) -> Tape | None:
    if chosen.record:
        return Recording(chosen.record)
    return Replay(chosen.replay) if chosen.replay else None


def warn(warning: WeftError) -> None:
    hint = f" ({warning.hint})" if warning.hint else ""
    print(f"{Paint(sys.stderr).yellow('warning:')} {warning}{hint}", file=sys.stderr)


async def find_session(api: Api, chosen: argparse.Namespace, words: str) -> Session:
    if chosen.session or chosen.go_on:
        found = await (api.get_session(SessionID(chosen.session)) if chosen.session else get_last(api))
        return await api.fork_session(found.id) if chosen.fork else found
    return await api.create_session(SessionInput(title=title_of(chosen.title, words)))


async def get_last(api: Api) -> Session:
    """The session to go on with: the last one of this checkout or, where there is none, of this directory."""
    at = await api.surroundings.get_whereabouts()
    place = Place(project=await api.current_project(), directory=at.directory, worktree=at.worktree)
    sessions = await api.list_sessions(SessionQuery(roots=True, archived=False))
    return choose_last(list_here(sessions, place), sessions, root_of(place), hint='start one: weft run "…"')


def title_of(given: str | None, words: str) -> str | None:
    if given == "":
        return words[:TITLE_LENGTH] + ("..." if len(words) > TITLE_LENGTH else "")
    return given


def model_of(text: str | None) -> ModelRef | None:
    if text is None:
        return None
    ref = parse_ref(text)
    if ref is None:
        raise InvalidInputError(
            "--model", f"{text!r} does not name a model", hint="write it as provider/model"
        )
    return ref


def attachment(path: str) -> FileInput:
    found = Path(path)
    if not found.exists():
        raise InvalidInputError("--file", f"there is no file {path!r}")
    kind = mimetypes.guess_type(path)[0] or ""
    # Pictures and documents go as they are; all else is read as text.
    mime = kind if kind.startswith("image/") or kind == "application/pdf" else "text/plain"
    shown = "application/x-directory" if found.is_dir() else mime
    return FileInput(mime=shown, filename=found.name, url=found.absolute().as_uri())

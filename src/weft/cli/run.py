"""`weft run`: one prompt from the shell."""

import argparse
import asyncio
import mimetypes
import os
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TextIO

from msgspec.structs import replace

from weft.api import Api
from weft.app.open import Opening, open_app
from weft.app.reading import Reading
from weft.cli.exit import Exit
from weft.cli.paint import Paint
from weft.cli.screen import JsonLines, Screen, Terminal
from weft.errors import ConfigError, InvalidInputError, NotFoundError
from weft.host.clock import SystemClock
from weft.host.tasks import open_tasks
from weft.model.catalog import parse_ref
from weft.model.event import PermissionAsked, PermissionReplied, SessionRested, Told, session_of
from weft.model.failure import AbortedFailure
from weft.model.ids import SessionID
from weft.model.input import AnyPartInput, FileInput, PromptInput, SessionInput, TextInput
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import ModelRef
from weft.model.permission import PermissionRequest, Reply
from weft.model.session import Session, SessionQuery
from weft.provider.tape import Recording, Replay, Tape

TITLE_LENGTH = 50
NOT_YET = {
    "command": "slash commands",
    "share": "sharing",
    "attach": "running on a server",
    "port": "running on a server",
}


def run_prompt(chosen: argparse.Namespace) -> int:
    refuse_what_is_not_here_yet(chosen)
    words = message_of(chosen.message, piped(sys.stdin))
    if not words.strip():
        raise InvalidInputError("message", "there is none", hint='type one: weft run "fix the failing test"')
    if chosen.session:
        chosen.session = Reading(chosen.dir, os.environ, store=chosen.store).get_session(chosen.session).id
    return asyncio.run(_run(chosen, words, os.environ))


def refuse_what_is_not_here_yet(chosen: argparse.Namespace) -> None:
    for flag, what in NOT_YET.items():
        if getattr(chosen, flag) not in (None, False):
            raise InvalidInputError(f"--{flag}", f"weft does not know {what} yet", hint="run without it")


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


async def _run(chosen: argparse.Namespace, words: str, env: Mapping[str, str]) -> int:
    answered = sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
    opening = Opening(directory=chosen.dir, env=env, store=chosen.store, answered=answered, warn=warn)
    async with open_app(replace(opening, tape=tape_of(chosen))) as api:
        input = PromptInput(
            parts=(*(attachment(path) for path in chosen.file), TextInput(text=words)),
            model=model_of(chosen.model),
            agent=chosen.agent,
            variant=chosen.variant,
        )
        if not (chosen.session or chosen.go_on):
            await api.check_prompt(input)  # a mistake must not leave an empty session behind
        session = await find_session(api, chosen, words)
        screen: Screen = JsonLines(session.id, SystemClock()) if chosen.format == "json" else Terminal()
        return await follow(api, session.id, input, screen)


def tape_of(chosen: argparse.Namespace) -> Tape | None:
    if chosen.record:
        return Recording(chosen.record)
    return Replay(chosen.replay) if chosen.replay else None


def warn(warning: ConfigError) -> None:
    hint = f" ({warning.hint})" if warning.hint else ""
    print(f"{Paint(sys.stderr).yellow('warning:')} {warning}{hint}", file=sys.stderr)


async def follow(api: Api, session: SessionID, input: PromptInput, screen: Screen) -> int:
    """Send the prompt and show what happens until the session rests."""
    events = api.events()
    async with open_tasks() as tasks:
        showing = tasks.create_task(show(api, events, session, screen))
        try:
            answer = await api.prompt(session, input)
            refused = await showing
        finally:
            showing.cancel()
    screen.end()
    return code_for(answer, refused=refused)


async def show(api: Api, events: AsyncIterator[Told], session: SessionID, screen: Screen) -> bool:
    """Whether a permission was refused on the way."""
    refused = False
    async for told in events:
        if session_of(told.event) != session:
            continue
        screen.feed(told.event)
        match told.event:
            case PermissionAsked(request=request) if sys.stdin.isatty():
                await api.reply_permission(request.id, await ask_person(request))
            case PermissionReplied(reply="reject"):
                refused = True
            case SessionRested():
                return refused
            case _:
                pass
    return refused


async def ask_person(request: PermissionRequest) -> Reply:
    wanted = ", ".join(request.patterns)
    question = f"? {request.permission}: {wanted}\n  allow [o]nce, [a]lways, or [r]eject? "
    answer = (await asyncio.to_thread(input_on_stderr, question)).strip().lower()
    replies: dict[str, Reply] = {"o": "once", "once": "once", "y": "once", "a": "always", "always": "always"}
    return replies.get(answer, "reject")


def input_on_stderr(question: str) -> str:
    sys.stderr.write(question)
    sys.stderr.flush()
    return sys.stdin.readline()


def code_for(answer: MessageWithParts, *, refused: bool) -> int:
    error = answer.info.error if isinstance(answer.info, AssistantMessage) else None
    if isinstance(error, AbortedFailure):
        return Exit.INTERRUPTED
    if error is not None:
        return Exit.FAILED
    return Exit.REFUSED if refused else Exit.DONE


async def find_session(api: Api, chosen: argparse.Namespace, words: str) -> Session:
    if chosen.session:
        return await api.get_session(SessionID(chosen.session))
    if chosen.go_on:
        roots = await api.list_sessions(SessionQuery(roots=True, order="updated", limit=1))
        if not roots:
            raise NotFoundError("session", "to go on with", hint='start one: weft run "…"')
        return roots[0]
    return await api.create_session(SessionInput(title=title_of(chosen.title, words)))


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


def attachment(path: str) -> AnyPartInput:
    found = Path(path)
    if not found.exists():
        raise InvalidInputError("--file", f"there is no file {path!r}")
    kind = mimetypes.guess_type(path)[0] or ""
    # Pictures and documents go as they are; all else is read as text.
    mime = kind if kind.startswith("image/") or kind == "application/pdf" else "text/plain"
    shown = "application/x-directory" if found.is_dir() else mime
    return FileInput(mime=shown, filename=found.name, url=found.absolute().as_uri())

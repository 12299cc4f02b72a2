"""`weft run`: send one prompt from the shell, to the engine in this process or to a server."""

from __future__ import annotations

import argparse
import asyncio
import base64
import os
import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace

from weft.cli.arguments import add_place, parse_dollars, parse_positive
from weft.cli.exit import EXIT_CODES, ExitCode
from weft.cli.follow import StopSignals, follow
from weft.cli.output import Paint, is_interactive, warn
from weft.cli.prompt import (
    build_input,
    check_input,
    check_unfinished,
    open_session,
    read_words,
    to_command_input,
    to_prompt_input,
)
from weft.cli.screen import JsonScreen, RunScreen, TerminalScreen
from weft.errors import InvalidInputError, WeftError
from weft.host.clock import SystemClock
from weft.host.exit import ExitTimer
from weft.local.open import OpenOptions, open_directory
from weft.model.failure import ApiFailure, AuthFailure
from weft.model.ids import SessionID
from weft.model.input import AnyPartInput, CommandInput, FileInput, PromptInput
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import TextPart, ToolPart
from weft.model.session import Session

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.api import Api
    from weft.provider.tape import Tape

KEY_REFUSED = frozenset({401, 403})
LOCAL_ONLY = {
    "worktree": "a worktree is made where the work is done",
    "record": "only the server hears what models say",
    "replay": "only the server asks models",
    "store": "the server has its own",
    "port": "the server is running already",
}
MAX_FILE_BYTES = 20 * 1024 * 1024

P = TypeVar("P", bound=AnyPartInput)


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("message", nargs="*", help="the prompt; @path attaches a file, and piped text is appended")
    add(
        "-c",
        "--continue",
        dest="go_on",
        action="store_true",
        help="continue the last session of this checkout or directory",
    )
    add("-s", "--session", metavar="ID", help="continue this session")
    add("--fork", action="store_true", help="with -c or -s: continue a copy of the session")
    add("-m", "--model", metavar="PROVIDER/MODEL", help="the model to use")
    add("--agent", help="the agent to use")
    add("--variant", help="the variant of the model, such as its thinking effort")
    add("-f", "--file", action="append", default=[], metavar="PATH", help="attach this file (repeatable)")
    add(
        "--title",
        nargs="?",
        const="",
        help="the title of the session; without a value, the start of the prompt",
    )
    add("--format", choices=("default", "json"), default="default", help="json: one object per line")
    add("--thinking", action="store_true", help="with --format json: print what the model thinks, too")
    add("--json-schema", metavar="FILE|JSON", help="answer with a value that matches this schema")
    add("--max-cost", type=parse_dollars, metavar="USD", help="spend at most this much on this prompt")
    add("--max-tokens", type=parse_positive, metavar="N", help="use at most N tokens, including cached ones")
    add("--max-steps", type=parse_positive, metavar="N", help="stop after N answers of the model")
    add("--max-seconds", type=parse_positive, metavar="N", help="stop after N seconds")
    tape = parser.add_mutually_exclusive_group()
    tape.add_argument("--record", metavar="FILE", help="record the answers of the model in a new file")
    tape.add_argument(
        "--replay", metavar="FILE", help="take the answers from a recording, without key or network"
    )
    add("--command", metavar="NAME", help="run this slash command; the message is its argument")
    add(
        "--worktree",
        nargs="?",
        const="",
        metavar="NAME",
        help="work in a separate checkout, new or of this name; weft worktree merge brings the work back",
    )
    add("--share", action="store_true", help="share the session and print its address")
    add("--attach", metavar="URL", help="run the prompt on this server of weft or OpenCode")
    add("--port", type=int, help=argparse.SUPPRESS)
    add_place(parser, memory=True)
    parser.epilog = EXIT_CODES


def run_prompt(chosen: argparse.Namespace) -> int:
    """Run a prompt to its end and return the exit code."""
    if chosen.attach is not None:
        return _run_on_server(chosen)
    take_prompt_from_worktree(chosen)
    words = read_words(chosen)
    if chosen.port is not None:
        # OpenCode starts a server for each run, and its callers may choose the port.
        print(
            f"{Paint(sys.stderr).yellow('warning:')} --port does nothing: a run needs no server",
            file=sys.stderr,
        )
    if chosen.session:
        from weft.cli.session import open_reading  # noqa: PLC0415  a new session has no id yet

        chosen.session = open_reading(chosen).get_session(chosen.session).id
    if chosen.worktree is None and not (chosen.session or chosen.go_on):
        return _run_here(chosen, words)
    from weft.cli.worktree import open_run_directory  # noqa: PLC0415  a new session runs where it is started

    with open_run_directory(chosen, os.environ) as directory:
        code = _run_here(chosen, words)
        directory.leave(code)
    return code


def take_prompt_from_worktree(chosen: argparse.Namespace) -> None:
    """Treat several words after `--worktree` as the prompt: no worktree has such a name."""
    if chosen.worktree and not chosen.message and " " in chosen.worktree.strip():
        chosen.message, chosen.worktree = [chosen.worktree], ""


def _run_here(chosen: argparse.Namespace, words: str) -> int:
    if is_interactive():
        from weft.cli.trust import offer_trust  # noqa: PLC0415  only a person can trust a project

        offer_trust(chosen.dir, os.environ)
    return run_to_end(lambda stop: _prompt_here(chosen, words, stop), alone=chosen.alone)


async def _prompt_here(chosen: argparse.Namespace, words: str, stop: StopSignals) -> int:
    person = is_interactive()
    opening = OpenOptions(
        directory=chosen.dir, env=os.environ, store=chosen.store, answered=person, warn=warn
    )
    opening = replace(opening, one_shot=True, tape=to_tape(chosen), pages=await find_pages(chosen))
    async with open_directory(opening) as api:
        input = await build_input(api, chosen, words)
        code = await send_prompt(api, chosen, words, input, person=person, stop=stop)
        # Everything is stored. If closing hangs, a script must not wait for it.
        stop.done(code)
        return code


def to_tape(chosen: argparse.Namespace) -> Tape | None:
    if not (chosen.record or chosen.replay):
        return None
    from weft.provider.tape import Recording, Replay  # noqa: PLC0415  few runs are recorded

    if chosen.record:
        return Recording(chosen.record)
    return Replay(chosen.replay)


def run_to_end(prompt: Callable[[StopSignals], Awaitable[int]], *, alone: bool) -> int:
    """Run a coroutine that heeds signals and return the exit code, also after a signal or a closed pipe."""
    last_resort = ExitTimer(alone=alone)
    try:
        return asyncio.run(_run_until_signal(prompt, last_resort))
    except BrokenPipeError:
        # Unlike a list of which `head` has seen enough, this was work, and it was cut short.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.UNREAD
    finally:
        last_resort.disarm_if_idle()


async def _run_until_signal(prompt: Callable[[StopSignals], Awaitable[int]], last_resort: ExitTimer) -> int:
    stop = StopSignals(last_resort)
    try:
        with stop.listening():
            return await prompt(stop)
    except asyncio.CancelledError:
        if stop.signal is None:
            raise
        return 128 + stop.signal


async def send_prompt(
    api: Api,
    chosen: argparse.Namespace,
    words: str,
    input: PromptInput | CommandInput,
    *,
    person: bool,
    stop: StopSignals,
    attached: bool = False,
) -> int:
    """Find or create the session, send the prompt, show the run, and return the exit code."""
    if not (chosen.session or chosen.go_on):
        await check_input(api, input)  # a mistake must not leave an empty session behind
    session = await open_session(api, chosen, words)
    if not words.strip() and not chosen.command:
        await check_unfinished(api, session)
    await share_before_run(api, chosen, session)
    screen: RunScreen = (
        JsonScreen(session.id, SystemClock(), thinking=chosen.thinking)
        if chosen.format == "json"
        else TerminalScreen(aside=input.format is not None)
    )
    code = await follow(api, session.id, input, screen, person=person, stop=stop, attached=attached)
    await print_shared(api, chosen, session)
    if code == ExitCode.FAILED and not (chosen.session or chosen.go_on or chosen.share):
        await trash_unanswered(api, session.id)
    return code


async def trash_unanswered(api: Api, session: SessionID) -> None:
    """Move a session to the trash if no model answered because the key was missing or refused.

    Otherwise `--continue` would find this empty session as soon as the key works.
    """
    for message in await api.list_messages(session):
        if isinstance(message.info, AssistantMessage) and not is_key_refused(message):
            return
    await api.remove_session(session)
    said = f"nothing was answered, so the session is in the trash: weft session restore {session}"
    print(Paint(sys.stderr).dim(said), file=sys.stderr)


def is_key_refused(answer: MessageWithParts) -> bool:
    """Return True if an answer has no content and failed because the key was missing or refused."""
    assert isinstance(answer.info, AssistantMessage)
    match answer.info.error:
        case AuthFailure():
            refused = True
        case ApiFailure(data=data):
            refused = data.status_code in KEY_REFUSED
        case _:
            refused = False
    return refused and not any(isinstance(part, TextPart | ToolPart) for part in answer.parts)


# --- run --share ---


async def find_pages(chosen: argparse.Namespace) -> str:
    """Return the address at which a running server shows shared sessions; empty without `--share` or server."""
    if not chosen.share:
        return ""
    from weft.cli.serve_access import find_page_server  # noqa: PLC0415  few runs are shared

    server = await find_page_server(os.environ, chosen.store)
    return server.pages if server else ""


async def share_before_run(api: Api, chosen: argparse.Namespace, session: Session) -> None:
    """Share the session before the run if `--share` asks for it. If that fails, remove a session that is new."""
    if not chosen.share:
        return
    try:
        print_address(await api.sharing.share(session.id))
    except WeftError:
        if not (chosen.session or chosen.go_on):
            await api.remove_session(session.id, trash=False)
        raise


async def print_shared(api: Api, chosen: argparse.Namespace, session: Session) -> None:
    """Wait until shares are up to date, and print the address of a session that was shared automatically."""
    await api.sharing.catch_up()
    if not chosen.share and session.share is None:
        print_address(await api.get_session(session.id))


def print_address(session: Session) -> None:
    if session.share is not None:
        print(f"~  {session.share.url}", file=sys.stderr)


# --- run --attach ---


def _run_on_server(chosen: argparse.Namespace) -> int:
    for flag, why in LOCAL_ONLY.items():
        if getattr(chosen, flag, None) not in (None, False):
            raise InvalidInputError(f"--{flag}", f"not with --attach: {why}", hint="leave it out")
    words = read_words(chosen)
    return run_to_end(lambda stop: _prompt_there(chosen, words, stop), alone=chosen.alone)


async def _prompt_there(chosen: argparse.Namespace, words: str, stop: StopSignals) -> int:
    from weft.cli.attach import (  # noqa: PLC0415  only --attach needs it
        get_remote_directory,
        is_local_server,
        print_notice,
    )
    from weft.client.api import open_remote  # noqa: PLC0415  only --attach needs it
    from weft.client.http import ConnectionOptions  # noqa: PLC0415  only --attach needs it

    terms = ConnectionOptions(directory=get_remote_directory(chosen.attach, chosen.dir), notice=print_notice)
    async with open_remote(chosen.attach, terms) as api:
        if is_local_server(chosen.attach):
            input = await build_input(api, chosen, words)
        elif chosen.command:
            input = embed_files(to_command_input(chosen, words))
        else:
            input = embed_files(to_prompt_input(chosen, words))
        code = await send_prompt(api, chosen, words, input, person=is_interactive(), stop=stop, attached=True)
        stop.done(code)
        return code


def embed_files(input: PromptInput | CommandInput) -> PromptInput | CommandInput:
    """Replace the paths of attached files with their content: another machine cannot open our files."""
    match input:
        case PromptInput(parts=parts):
            return replace(input, parts=tuple(_embed(parts)))
        case CommandInput(parts=files):
            return replace(input, parts=tuple(_embed(files)))


def _embed(parts: Iterable[P]) -> Iterable[P]:
    for part in parts:
        if isinstance(part, FileInput) and part.url.startswith("file:"):
            yield replace(part, url=_to_data_url(part))
        else:
            yield part


def _to_data_url(file: FileInput) -> str:
    path = unquote(urlsplit(file.url).path)
    if os.path.isdir(path):
        raise InvalidInputError("--file", f"{path!r} is a directory, and the server is on another machine")
    if os.path.getsize(path) > MAX_FILE_BYTES:
        raise InvalidInputError("--file", f"{path!r} is larger than {MAX_FILE_BYTES >> 20} MB")
    with open(path, "rb") as opened:
        content = opened.read()
    return f"data:{file.mime};base64,{base64.b64encode(content).decode()}"

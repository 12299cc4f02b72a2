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

from weft.cli.arguments import add_continuation, add_place, parse_dollars, parse_positive
from weft.cli.exit import EXIT_CODES, ExitCode
from weft.cli.follow import StopSignals, follow
from weft.cli.output import Paint, is_interactive, warn
from weft.cli.prompt import (
    build_input,
    check_input,
    choose_or_create_session,
    make_command_input,
    make_prompt_input,
    read_prompt,
    require_unfinished,
)
from weft.cli.run_screen import JsonScreen, RunScreen, TextScreen, make_screen
from weft.errors import InvalidInputError, WeftError
from weft.host.clock import SystemClock
from weft.host.exit import ExitTimer
from weft.local.open import OpenOptions, open_directory
from weft.model.failure import ApiFailure, AuthFailure
from weft.model.ids import SessionID
from weft.model.input import AnyPartInput, CommandInput, FileInput, PromptInput
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import TextPart, ToolPart
from weft.model.session import SessionInfo

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.api import Api
    from weft.provider.tape import Tape

KEY_REFUSED_STATUSES = frozenset({401, 403})
# Options that cannot be used with --attach, and why.
LOCAL_OPTIONS = {
    "worktree": "the server could not work in a worktree that is made here",
    "record": "the server receives the answers of the model, not this process",
    "replay": "the server sends the requests to the model, not this process",
    "store": "the server has its own",
    "port": "the server is running already",
}
MAX_FILE_BYTES = 20 * 1024 * 1024

P = TypeVar("P", bound=AnyPartInput)


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("message", nargs="*", help="the prompt; @path attaches a file, and piped text is appended")
    add_continuation(parser)
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
    add("--ax", action="store_true", help="print plain lines for a screen reader, and redraw nothing")
    add("--share", action="store_true", help="share the session and print its address")
    add("--attach", metavar="URL", help="run the prompt on this server of weft or OpenCode")
    add("--port", type=int, help=argparse.SUPPRESS)
    add_place(parser, memory=True)
    parser.epilog = EXIT_CODES


def run_prompt(args: argparse.Namespace) -> int:
    """Run a prompt to its end and return the exit code."""
    if args.attach is not None:
        return _run_on_server(args)
    take_prompt_from_worktree(args)
    text = read_prompt(args)
    if args.port is not None:
        # OpenCode starts a server for each run, and its callers may choose the port.
        print(
            f"{Paint(sys.stderr).yellow('warning:')} --port does nothing: a run needs no server",
            file=sys.stderr,
        )
    if args.session:
        from weft.cli.session import make_reader  # noqa: PLC0415  a new session has no id yet

        args.session = make_reader(args).get_session(args.session).id
    if args.worktree is None and not (args.session or args.continue_last):
        return _run_locally(args, text)
    from weft.cli.worktree import open_run_directory  # noqa: PLC0415  a new session runs where it is started

    with open_run_directory(args, os.environ) as directory:
        code = _run_locally(args, text)
        directory.leave(code)
    return code


def take_prompt_from_worktree(args: argparse.Namespace) -> None:
    """Treat several words after `--worktree` as the prompt: no worktree has such a name."""
    if args.worktree and not args.message and " " in args.worktree.strip():
        args.message, args.worktree = [args.worktree], ""


def _run_locally(args: argparse.Namespace, text: str) -> int:
    if is_interactive():
        from weft.cli.trust import offer_trust  # noqa: PLC0415  only a person can trust a project

        offer_trust(args.dir, os.environ)
    return run_to_end(lambda stop: _prompt_locally(args, text, stop), own_process=args.own_process)


async def _prompt_locally(args: argparse.Namespace, text: str, stop: StopSignals) -> int:
    interactive = is_interactive()
    options = OpenOptions(
        directory=args.dir,
        env=os.environ,
        store=args.store,
        can_ask=interactive,
        one_shot=True,
        tape=to_tape(args),
        share_url=await find_share_url(args),
        warn=warn,
    )
    async with open_directory(options) as api:
        input = await build_input(api, args, text)
        code = await send_prompt(api, args, text, input, interactive=interactive, stop=stop)
        # Everything is stored. If closing hangs, a script must not wait for it.
        stop.exit_soon(code)
        return code


def to_tape(args: argparse.Namespace) -> Tape | None:
    if not (args.record or args.replay):
        return None
    from weft.provider.tape import Recording, Replay  # noqa: PLC0415  few runs are recorded

    if args.record:
        return Recording(args.record)
    return Replay(args.replay)


def run_to_end(prompt: Callable[[StopSignals], Awaitable[int]], *, own_process: bool) -> int:
    """Run a coroutine until it ends or a signal stops it, and return the exit code. A closed pipe has its own code."""
    exit_timer = ExitTimer(own_process=own_process)
    try:
        return asyncio.run(_run_until_signal(prompt, exit_timer))
    except BrokenPipeError:
        # Unlike a list that is piped into `head`, this was work, and it was cut short.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.BROKEN_PIPE
    finally:
        exit_timer.disarm_if_idle()


async def _run_until_signal(prompt: Callable[[StopSignals], Awaitable[int]], exit_timer: ExitTimer) -> int:
    stop = StopSignals(exit_timer)
    try:
        with stop.listening():
            return await prompt(stop)
    except asyncio.CancelledError:
        if stop.signal is None:
            raise
        return 128 + stop.signal


async def send_prompt(
    api: Api,
    args: argparse.Namespace,
    text: str,
    input: PromptInput | CommandInput,
    *,
    interactive: bool,
    stop: StopSignals,
    attached: bool = False,
) -> int:
    """Find or create the session, send the prompt, show the run, and return the exit code."""
    if not (args.session or args.continue_last):
        await check_input(api, input)  # a mistake must not leave an empty session behind
    session = await choose_or_create_session(api, args, text)
    if not text.strip() and not args.command:
        await require_unfinished(api, session)
    await share_before_run(api, args, session)
    screen = choose_screen(args, session, to_value=input.format is not None, attached=attached)
    code = await follow(api, session, input, screen, interactive=interactive, stop=stop, attached=attached)
    await finish_sharing(api, args, session)
    if code == ExitCode.FAILED and not (args.session or args.continue_last or args.share):
        await trash_unanswered(api, session.id)
    return code


def choose_screen(
    args: argparse.Namespace, session: SessionInfo, *, to_value: bool, attached: bool
) -> RunScreen:
    """Return the screen that the arguments ask for. If the answer is a value, stdout is for that alone."""
    if args.format == "json":
        return JsonScreen(session.id, SystemClock(), thinking=args.thinking)
    if to_value:
        return TextScreen(text_to_stderr=True)
    return make_screen(session, SystemClock(), plain=args.ax, undo=not attached)


async def trash_unanswered(api: Api, session: SessionID) -> None:
    """Move a session to the trash if no model answered because the key was missing or refused.

    Otherwise `--continue` would find this empty session as soon as the key works.
    """
    messages = await api.list_messages(session)
    answers = [message for message in messages if isinstance(message.info, AssistantMessage)]
    # A prompt without any answer failed for another reason, such as a full disk, and can be continued.
    if not answers or not all(map(is_key_refused, answers)):
        return
    await api.remove_session(session)
    note = f"nothing was answered, so the session is in the trash: weft session restore {session}"
    print(Paint(sys.stderr).dim(note), file=sys.stderr)


def is_key_refused(answer: MessageWithParts) -> bool:
    """Return True if an answer has no content and failed because the key was missing or refused."""
    assert isinstance(answer.info, AssistantMessage)
    match answer.info.error:
        case AuthFailure():
            refused = True
        case ApiFailure(data=data):
            refused = data.status_code in KEY_REFUSED_STATUSES
        case _:
            refused = False
    return refused and not any(isinstance(part, TextPart | ToolPart) for part in answer.parts)


# --- run --share ---


async def find_share_url(args: argparse.Namespace) -> str:
    """Return the address at which a running server shows shared sessions; empty without `--share` or server."""
    if not args.share:
        return ""
    from weft.cli.serve_access import find_page_server  # noqa: PLC0415  few runs are shared

    server = await find_page_server(os.environ, args.store)
    return server.share_url if server else ""


async def share_before_run(api: Api, args: argparse.Namespace, session: SessionInfo) -> None:
    """Share the session before the run if `--share` was passed. If that fails, remove the session if it is new."""
    if not args.share:
        return
    try:
        print_address(await api.sharing.share(session.id))
    except WeftError:
        if not (args.session or args.continue_last):
            await api.remove_session(session.id, trash=False)
        raise


async def finish_sharing(api: Api, args: argparse.Namespace, session: SessionInfo) -> None:
    """Wait until all shares are up to date, and print the address of a session that was shared automatically."""
    await api.sharing.catch_up()
    if not args.share and session.share is None:
        print_address(await api.get_session(session.id))


def print_address(session: SessionInfo) -> None:
    if session.share is not None:
        print(f"~  {session.share.url}", file=sys.stderr)


# --- run --attach ---


def _run_on_server(args: argparse.Namespace) -> int:
    for flag, reason in LOCAL_OPTIONS.items():
        if getattr(args, flag, None) not in (None, False):
            raise InvalidInputError(f"--{flag}", f"not with --attach: {reason}", hint="leave it out")
    text = read_prompt(args)
    return run_to_end(lambda stop: _prompt_on_server(args, text, stop), own_process=args.own_process)


async def _prompt_on_server(args: argparse.Namespace, text: str, stop: StopSignals) -> int:
    from weft.cli.attach import (  # noqa: PLC0415  only --attach needs it
        find_remote_directory,
        is_local_server,
        print_notice,
    )
    from weft.client.api import open_remote  # noqa: PLC0415  only --attach needs it
    from weft.client.http import ConnectionOptions  # noqa: PLC0415  only --attach needs it

    options = ConnectionOptions(directory=find_remote_directory(args.attach, args.dir), notice=print_notice)
    async with open_remote(args.attach, options) as api:
        if is_local_server(args.attach):
            input = await build_input(api, args, text)
        elif args.command:
            input = embed_files(make_command_input(args, text))
        else:
            input = embed_files(make_prompt_input(args, text))
        code = await send_prompt(
            api, args, text, input, interactive=is_interactive(), stop=stop, attached=True
        )
        stop.exit_soon(code)
        return code


def embed_files(input: PromptInput | CommandInput) -> PromptInput | CommandInput:
    """Replace the paths of attached files with their content: another machine cannot open our files."""
    match input:
        case PromptInput(parts=parts):
            return replace(input, parts=tuple(_embed(parts)))
        case CommandInput(parts=attachments):
            return replace(input, parts=tuple(_embed(attachments)))


def _embed(parts: Iterable[P]) -> Iterable[P]:
    for part in parts:
        if isinstance(part, FileInput) and part.url.startswith("file:"):
            yield replace(part, url=_read_data_url(part))
        else:
            yield part


def _read_data_url(file: FileInput) -> str:
    path = unquote(urlsplit(file.url).path)
    if os.path.isdir(path):
        raise InvalidInputError(
            "--file", f"{path!r} is a directory, and the server is on another machine", hint="name files"
        )
    if os.path.getsize(path) > MAX_FILE_BYTES:
        raise InvalidInputError(
            "--file", f"{path!r} is larger than {MAX_FILE_BYTES >> 20} MB", hint="send a part of it"
        )
    with open(path, "rb") as stream:
        content = stream.read()
    return f"data:{file.mime};base64,{base64.b64encode(content).decode()}"

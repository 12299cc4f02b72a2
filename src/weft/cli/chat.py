"""`weft` and `weft chat`: talk to an agent in the terminal, in this directory or on a server."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from weft.cli.arguments import add_choice, add_continuation, add_full, add_place
from weft.cli.chat_screen import check_full_screen, hold_input, is_dumb, make_chat_screen
from weft.cli.exit import ExitCode
from weft.cli.output import Paint, sanitize
from weft.cli.prompt import check_session_options, choose_or_create_session, make_mention_scope, parse_model
from weft.errors import InvalidInputError, NoModelError, WeftError
from weft.host.now import now
from weft.local.open import OpenOptions, open_directory
from weft.model.ids import SessionID
from weft.model.input import AnyPartInput, PromptInput, TextInput
from weft.run.attachments import list_mentions, resolve_mentions
from weft.tui.chat import Chat, ChatScreen, ChatSetup
from weft.tui.commands import run_command
from weft.tui.live import get_columns
from weft.tui.render import render_item
from weft.tui.text import to_ansi, to_plain_text, wrap

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.api import Api


class Notices:
    """Where notices about the connection and the configuration go: to stderr, and into the conversation once there is one."""

    def __init__(self) -> None:
        self.show: Callable[[str], None] = print_notice

    def __call__(self, line: str) -> None:
        self.show(line)

    def warn(self, warning: WeftError) -> None:
        hint = f" ({warning.hint})" if warning.hint else ""
        self.show(f"warning: {warning}{hint}")


def print_notice(line: str) -> None:
    print(Paint(sys.stderr).yellow(sanitize(line)), file=sys.stderr, flush=True)


def add_chat_arguments(parser: argparse.ArgumentParser) -> None:
    add_continuation(parser)
    add_full(parser)
    add_choice(parser)
    add_place(parser, memory=True)


def add_ui_arguments(parser: argparse.ArgumentParser) -> None:
    add_chat_arguments(parser)
    parser.set_defaults(full=True)


def chat_command(args: argparse.Namespace) -> int:
    """Talk in this directory until the person leaves."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidInputError(
            args.command_parser.prog,
            "it needs a terminal",
            hint='weft run "…" sends one prompt from a script',
        )
    check_session_options(args)
    if args.full:
        check_full_screen(args)
    from weft.cli.trust import offer_trust  # noqa: PLC0415  a script trusts nothing

    offer_trust(args.dir, os.environ)
    if args.session:
        from weft.cli.session import make_reader  # noqa: PLC0415  a new session has no id yet

        args.session = make_reader(args).get_session(args.session).id
    return asyncio.run(_chat_here(args))


async def _chat_here(args: argparse.Namespace) -> int:
    notices = Notices()
    options = OpenOptions(
        directory=args.dir, env=os.environ, store=args.store, can_ask=True, warn=notices.warn
    )
    async with open_directory(options) as api:
        await choose_first_model(api, args)
        paths = await api.workspace.get_paths()
        print_line(f"weft in {paths.directory}; /help says more, Ctrl-D leaves")
        return await talk(
            api, args, lambda session: f"weft {'ui' if args.full else 'chat'} -s {session}", notices=notices
        )


async def choose_first_model(api: Api, args: argparse.Namespace) -> None:
    """Let the person choose a model if none can be used yet."""
    try:
        await api.check_prompt(PromptInput(parts=(), agent=args.agent, model=parse_model(args.model)))
    except NoModelError as error:
        from weft.cli.first_start import offer_models  # noqa: PLC0415  only the first start needs it

        args.model = offer_models(os.environ, error)


async def talk(
    api: Api,
    args: argparse.Namespace,
    to_resume: Callable[[SessionID], str],
    *,
    notices: Notices,
    is_remote: bool = False,
    is_weft: bool = True,
) -> int:
    """Talk over an `Api` until the person leaves, and say what was done and how to continue."""
    parse_model(args.model)
    args.title = None
    session = await choose_or_create_session(api, args, "") if args.session or args.continue_last else None

    def make_screen(full: bool) -> Awaitable[ChatScreen]:
        return make_chat_screen(api, args.dir, full=full, plain=args.ax, warn=notices.warn)

    setup = ChatSetup(
        now=now,
        run_command=run_command,
        to_parts=lambda text, agent: _to_parts(api, args, text, agent, is_remote=is_remote),
        to_resume=to_resume,
        is_remote=is_remote,
        scopes=is_weft,
        trust=None if is_remote else lambda yes: _trust(args.dir, yes=yes),
        describe_context=None if is_remote else partial(_describe_context, args),
        agent=args.agent,
        model=args.model,
        variant=args.variant,
        make_screen=None if args.ax or is_dumb() else make_screen,
    )
    with hold_input(sys.stdin.fileno(), plain=setup.make_screen is None) as typed:
        chat = Chat(api, await make_screen(args.full), setup)
        *chat.early, chat.draft = typed.split("\n")
        notices.show = chat.note
        await chat.run(session)
    notices.show = print_notice
    if chat.is_full:
        print_last_answer(chat)
    *about, resume = chat.format_farewell() or [""]
    for line in about:
        print_line(line)
    if resume:
        # In one piece, so that it can be copied.
        print(Paint(sys.stderr).dim(sanitize(resume)), file=sys.stderr, flush=True)
    return ExitCode.DONE


def print_last_answer(chat: Chat) -> None:
    """Print the last answer to the normal screen, because the full screen is gone."""
    width = get_columns()
    for item in chat.list_last_answer():
        for line in render_item(item, chat.get_options(width)):
            print(to_ansi(line, colour=Paint(sys.stdout).on))
    print(flush=True)


async def _to_parts(
    api: Api, args: argparse.Namespace, text: str, agent: str | None, *, is_remote: bool
) -> tuple[AnyPartInput, ...]:
    """Return the parts of a prompt: its text, and the files and agents that it mentions."""
    # The files of another machine are read by its agent, by their names.
    if not list_mentions(text) or (is_remote and not args.is_local_server):
        return (TextInput(text=text),)
    agents = await api.workspace.list_agents()
    chosen = next((each for each in agents if each.name == agent or not agent), None)
    if chosen is None:
        return (TextInput(text=text),)
    directory = (await api.workspace.get_paths()).directory
    scope = make_mention_scope(directory, await api.current_project(), chosen, agents)
    return await resolve_mentions(text, scope)


def _trust(directory: str, *, yes: bool) -> list[str]:
    """Return whether the project is trusted and what it brings along. With `yes`, trust it as it is now."""
    from weft.cli.trust import to_lines  # noqa: PLC0415  few conversations need it
    from weft.trust.decision import get_trust  # noqa: PLC0415  few conversations need it

    project = get_trust(directory, os.environ)
    fingerprint = project.take_fingerprint()
    plain = Paint(sys.stdout)
    plain.on = False
    lines = list(
        to_lines(project.root, project.list_held_back(), project.list_looser(), project.get_status(), plain)
    )
    if yes:
        project.trust(now(), fingerprint)
        return [
            *lines,
            "the project is trusted as it is now; what it brings along is used from the next start on",
        ]
    return [*lines, "/trust yes trusts it as it is now"]


def _describe_context(args: argparse.Namespace, session: SessionID) -> list[str]:
    """Return a table of what the next request of a session would send."""
    from weft.cli.session import make_reader  # noqa: PLC0415  few conversations need it
    from weft.cli.session_context import to_sizes  # noqa: PLC0415  few conversations need it
    from weft.context.pieces import to_pieces  # noqa: PLC0415  few conversations need it
    from weft.local.offline_preview import preview  # noqa: PLC0415  few conversations need it

    reader = make_reader(args)
    found = preview(reader, reader.get_session(session), os.environ)
    plain = Paint(sys.stdout)
    plain.on = False
    return list(to_sizes(found, list(to_pieces(found.request)), plain))


def print_line(line: str) -> None:
    """Print a line about the conversation, broken between words if the terminal is narrower."""
    for row in wrap([("", sanitize(line))], get_columns()):
        print(Paint(sys.stderr).dim(to_plain_text([row])), file=sys.stderr, flush=True)

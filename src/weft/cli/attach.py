"""`weft attach`: work with an agent on a server, in the terminal, or line by line if input or output is piped."""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Coroutine
from typing import Any
from urllib.parse import urlsplit

from weft.cli.arguments import add_choice, add_continuation, add_full
from weft.cli.exit import EXIT_CODES, ExitCode, to_exit_code
from weft.cli.outcome import RunOutcome, RunTally, to_failure_code
from weft.cli.output import Paint, sanitize
from weft.cli.prompt import check_session_options, choose_or_create_session, parse_model
from weft.cli.questions import PendingQuestions, read_line
from weft.cli.run_screen import TextScreen
from weft.client.api import RemoteApi, open_remote
from weft.client.http import ConnectionOptions
from weft.errors import InvalidInputError, WeftError
from weft.host.tasks import open_tasks
from weft.model.event import Event, PartUpdated, PublishedEvent, SessionIdled, StatusChanged
from weft.model.event_wire import RESYNC, UnknownEvent
from weft.model.ids import SessionID
from weft.model.input import CommandInput, PromptInput, SessionInput, ShellInput, TextInput
from weft.model.message import MessageWithParts, UserMessage
from weft.model.part import ModelRef, TextPart
from weft.model.session import Idle, SessionInfo
from weft.model.transcript import SessionDescendants, Transcript
from weft.model.url import is_loopback_host

MAX_RECENT_MESSAGES = 6
HELP = """/new            start another session
/exit, Ctrl-D   leave; a run on the server continues
/NAME words     run a slash command of the server
!command        run a shell command and add it to the session
anything else   a prompt; during a run it joins the run"""


def add_attach_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "url",
        nargs="?",
        default="http://127.0.0.1:4096",
        help="the address of the server (default: http://127.0.0.1:4096)",
    )
    add_continuation(parser)
    add_full(parser)
    add_choice(parser)
    add(
        "--dir",
        metavar="PATH",
        default=".",
        help="work in this directory instead of where the server was started",
    )
    add(
        "--workspace",
        metavar="NAME",
        help="begin a session in this git workspace of the nodes, with a checkout of its own",
    )
    parser.epilog = f"With piped input, the code is that of the first line that failed.\n\n{EXIT_CODES}"


def attach(args: argparse.Namespace) -> int:
    check_session_options(args)
    if args.workspace and (args.session or args.continue_last or args.dir != "."):
        raise InvalidInputError(
            "--workspace", "it begins a session in a directory of its own", hint="leave out -s, -c and --dir"
        )
    args.title = None
    return asyncio.run(_talk(args))


async def _talk(args: argparse.Namespace) -> int:
    """Talk to the server until the person leaves, and return the exit code. If the connection is lost, wait for the server: it may be restarting."""
    if args.workspace:
        args.session, directory = await _begin_in_workspace(args)
    else:
        directory = find_remote_directory(args.url, args.dir)
    model = parse_model(args.model)
    if sys.stdin.isatty() and sys.stdout.isatty():
        return await _talk_in_terminal(args, directory)
    options = ConnectionOptions(directory=directory, patience=None, notice=print_notice)
    async with open_remote(args.url, options) as api:
        session = (
            await choose_or_create_session(api, args, "") if args.session or args.continue_last else None
        )
        console = AttachConsole(api, model=model, agent=args.agent, variant=args.variant)
        print(f"{_describe_server(api)}; Ctrl-C interrupts, Ctrl-D leaves, /help says more", file=sys.stderr)
        return await console.talk(session)


async def _begin_in_workspace(args: argparse.Namespace) -> tuple[str, str | None]:
    """Create a session in a git workspace. Return its id, and its directory on the server."""
    async with open_remote(args.url, ConnectionOptions(notice=print_notice)) as api:
        session = await api.create_session(SessionInput(workspace=args.workspace))
    return session.id, session.directory


async def _talk_in_terminal(args: argparse.Namespace, directory: str | None) -> int:
    from weft.cli.chat import Notices, print_line, talk  # noqa: PLC0415  piped input needs no screen
    from weft.cli.chat_screen import check_full_screen  # noqa: PLC0415  piped input needs no screen

    if args.full:
        check_full_screen(args)

    args.is_local_server = is_local_server(args.url)
    notices = Notices()
    options = ConnectionOptions(directory=directory, patience=None, notice=notices)
    async with open_remote(args.url, options) as api:
        print_line(f"{_describe_server(api)}; /help says more, Ctrl-D leaves")
        return await talk(
            api,
            args,
            lambda session: f"weft attach {api.url} -s {session}",
            notices=notices,
            is_remote=True,
            is_weft=api.is_weft,
        )


def _describe_server(api: RemoteApi) -> str:
    return f"{'weft' if api.is_weft else 'OpenCode'} at {api.url}"


def find_remote_directory(url: str, directory: str) -> str | None:
    """Return the path of the directory to work in on the server; None for the server's own directory, as in OpenCode.

    Raise `InvalidInputError` for a relative path if the server is on another machine.
    """
    if directory == ".":
        return None
    if not is_local_server(url) and not os.path.isabs(directory):
        raise InvalidInputError(
            "--dir",
            "the server is on another machine, so the path must be absolute",
            hint="write the path that the server knows",
        )
    return os.path.abspath(os.path.expanduser(directory))


def is_local_server(url: str) -> bool:
    """Return True if the server is on this machine, and so sees the same files."""
    return is_loopback_host(urlsplit(url if "://" in url else f"http://{url}").hostname or "")


def print_notice(line: str) -> None:
    print(Paint(sys.stderr).yellow(sanitize(line)), file=sys.stderr, flush=True)


class AttachConsole:
    """A conversation without a screen, for when input or output is piped: sends each line to a session of the server, and prints what happens."""

    def __init__(
        self,
        api: RemoteApi,
        *,
        model: ModelRef | None = None,
        agent: str | None = None,
        variant: str | None = None,
    ) -> None:
        self._api = api
        self._model = model
        self._agent = agent
        self._variant = variant
        self._code: int = ExitCode.DONE
        self._awaited = ""  # "shell" or "prompt", while a run that was begun here is not over
        self._has_ended = self._has_left = False
        self._paint = Paint(sys.stderr)
        self._session: SessionID | None = None
        self._descendants = SessionDescendants(SessionID(""))
        self._transcript = Transcript()
        self._screen = TextScreen()
        self._tally = RunTally()
        self._pending = PendingQuestions(api)
        self._sent_prompts: list[str] = []
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks: asyncio.TaskGroup | None = None

    async def talk(self, session: SessionInfo | None) -> int:
        """Talk to a session, or to a new one, until the input ends. Return the exit code of the first line that failed.

        It is `REFUSED` if an agent still waits for an answer then.
        """
        events = self._api.events()
        if session is not None:
            await self._show_session(session)
        loop = asyncio.get_running_loop()
        async with open_tasks() as tasks:
            self._tasks = tasks
            loop.add_signal_handler(signal.SIGINT, self._interrupt)
            show_task = tasks.create_task(self._show(events))
            try:
                await self._read_lines()
            finally:
                loop.remove_signal_handler(signal.SIGINT)
                show_task.cancel()
        return self._code

    # --- input ---

    async def _read_lines(self) -> None:
        while True:
            self._print_prompt()
            typed = await _read_input()
            if not typed:
                break
            try:
                if not await self._handle(typed.strip()):
                    return
            except WeftError as error:
                self._fail(error)
        self._has_ended = True
        self._leave_if_asked()
        await self._idle.wait()  # piped input is answered before we leave

    def _leave_if_asked(self) -> None:
        """Leave if the agent asks something and no line can answer it any more. The request waits on the server."""
        request = self._pending.first_id
        if not self._has_ended or request is None or self._has_left:
            return
        self._has_left = True
        self._keep_code(ExitCode.REFUSED)
        self._print("\nnobody is here to answer; the agent waits on the server")
        self._print(f"  continue: weft attach {self._api.url} -s {self._session}")
        self._idle.set()

    async def _handle(self, typed: str) -> bool:
        """Handle one line. Return False to leave."""
        match typed.split(maxsplit=1):
            case ["/exit" | "/quit"]:
                return False
            case _ if await self._pending.answer(typed):
                pass
            case []:
                pass
            case ["/help"]:
                self._print(HELP)
            case ["/new"]:
                self._session = None
                self._print("the next prompt begins another session")
            case _:
                await self._send(typed)
        return True

    async def _send(self, typed: str) -> None:
        name, _, words = typed[1:].partition(" ")
        is_command, is_shell = typed.startswith("/"), typed.startswith("!")
        prompt = PromptInput(
            parts=(TextInput(text=typed),), model=self._model, agent=self._agent, variant=self._variant
        )
        # A mistake must not leave an empty session behind.
        if is_command:
            await self._api.get_command(name)
        await self._api.check_prompt(prompt)
        session = self._session or await self._create_session()
        self._idle.clear()
        self._awaited = "shell" if is_shell else "prompt"
        try:
            if is_command:
                model = f"{self._model.provider_id}/{self._model.model_id}" if self._model else None
                command = CommandInput(
                    command=name, arguments=words, model=model, agent=self._agent, variant=self._variant
                )
                self._start(self._api.command(session, command))
            elif is_shell:
                command_line = typed[1:].strip()
                shell = ShellInput(command=command_line, model=self._model, agent=self._agent)
                self._start(self._api.shell(session, shell))
            else:
                self._sent_prompts.append(typed)
                await self._api.submit(session, prompt)
        except BaseException:
            self._idle.set()
            raise

    async def _create_session(self) -> SessionID:
        session = await self._api.create_session(SessionInput())
        await self._show_session(session)
        return session.id

    def _start(self, work: Coroutine[Any, Any, MessageWithParts]) -> None:
        """Run a request that returns when the run is over, while the person continues typing."""

        async def run() -> None:
            try:
                await work
            except WeftError as error:
                self._idle.set()
                self._fail(error)

        assert self._tasks is not None, "it is set before anything is typed"
        self._tasks.create_task(run())

    def _interrupt(self) -> None:
        if self._session is None or self._idle.is_set() or self._tasks is None:
            self._print("nothing is running; Ctrl-D leaves")
            return
        self._tasks.create_task(self._abort(self._session))

    async def _abort(self, session: SessionID) -> None:
        try:
            await self._api.abort(session)
        except WeftError as error:
            self._print_error(error)

    # --- events ---

    async def _show_session(self, session: SessionInfo) -> None:
        """Print the last messages of a session, and find out whether it is running and what it asks."""
        self._session, self._descendants = session.id, SessionDescendants(session.id)
        messages = await self._api.list_messages(session.id)
        self._transcript, self._tally = Transcript(messages), RunTally(session)
        self._print(self._paint.dim(f"{sanitize(session.title)} · {session.id} · {session.directory}"))
        for message in messages[-MAX_RECENT_MESSAGES:]:
            self._print_message(message)
        if not isinstance(await self._api.get_status(session.id), Idle):
            self._idle.clear()
        for permission in await self._api.list_permissions():
            if permission.session_id == session.id:
                self._pending.add(permission)
        for question in await self._api.list_questions():
            if question.session_id == session.id:
                self._pending.add(question)

    def _print_message(self, message: MessageWithParts) -> None:
        text = "\n".join(
            part.text
            for part in message.parts
            if isinstance(part, TextPart) and not part.synthetic and not part.ignored
        )
        if not text:
            return
        if isinstance(message.info, UserMessage):
            self._print(self._paint.dim(f"> {sanitize(text)}"))
        else:
            print(sanitize(text) if sys.stdout.isatty() else text, flush=True)

    async def _show(self, events: AsyncIterator[PublishedEvent]) -> None:
        async for published in events:
            event = published.event
            if isinstance(event, UnknownEvent) and event.named == RESYNC:
                self._print(self._paint.dim("some events were missed; what has changed since is shown now"))
                self._print_prompt()
            place = self._descendants.classify(event)
            if place == "own":
                self._feed(event)
            elif place == "below":
                self._tally.feed_child(event)
                self._screen.feed_child(event)
            if place is not None:
                self._pending.feed(event)
                self._leave_if_asked()

    def _feed(self, event: Event) -> None:
        self._transcript.feed(event)
        self._tally.feed(event)
        self._screen.feed(event)
        match event:
            case PartUpdated(part=TextPart(synthetic=False) as part):
                self._print_foreign_prompt(part)
            case StatusChanged(status=status) if not isinstance(status, Idle):
                self._idle.clear()
            case SessionIdled():
                self._finish_run()
            case _:
                pass

    def _print_foreign_prompt(self, part: TextPart) -> None:
        """Print a prompt that somebody else sent to this session; our own is on the screen already."""
        message = self._transcript.find(part.message_id)
        if message is None or not isinstance(message.info, UserMessage):
            return
        if part.text in self._sent_prompts:
            self._sent_prompts.remove(part.text)
        else:
            self._print(self._paint.dim(f"> {sanitize(part.text)}"))

    def _finish_run(self) -> None:
        answer = self._transcript.newest_answer()
        message = self._transcript.find(answer.id) if answer else None
        failure = self._tally.failure
        if message is not None:
            outcome = RunOutcome(answer=message, tally=self._tally)
            self._screen.end(outcome)
            failure = failure or outcome.error
            if self._awaited == "prompt":  # a shell command ends with a call, which says nothing
                self._keep_code(outcome.code)
        if self._awaited and failure is not None:
            self._keep_code(to_failure_code(failure))
        self._awaited = ""
        # The screen stays: it knows what it has printed, which a server may send again after a restart.
        self._tally = RunTally(self._tally.session)
        self._idle.set()
        self._print_prompt()

    def _keep_code(self, code: int) -> None:
        """Remember how the first line that failed ended."""
        self._code = self._code or code

    # --- output ---

    def _fail(self, error: WeftError) -> None:
        self._keep_code(to_exit_code(error))
        self._print_error(error)

    def _print_prompt(self) -> None:
        if self._idle.is_set() and sys.stdin.isatty():
            sys.stderr.write("> ")
            sys.stderr.flush()

    def _print(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def _print_error(self, error: WeftError) -> None:
        hint = f" ({error.hint})" if error.hint else ""
        self._print(f"{self._paint.red('error:')} {sanitize(str(error))}{sanitize(hint)}")


async def _read_input() -> str:
    """Read a line; return an empty string at the end of the input."""
    # A thread that waits for a key could not be ended. Piped input ends by itself.
    return await (read_line() if sys.stdin.isatty() else asyncio.to_thread(sys.stdin.readline))

"""Run a person's own shell command in a session, so that the model knows of it."""

import os
from typing import Any, Final

from msgspec.structs import replace

from weft.errors import InvalidInputError, NoModelError, ToolError
from weft.host.processes import Command, Exit, Output
from weft.model.event import Event, MessageUpdated, PartUpdated
from weft.model.ids import MessageID
from weft.model.input import ShellInput
from weft.model.message import AssistantMessage, AssistantTime, MessagePath, UserMessage
from weft.model.part import ModelRef, Moment, TextPart
from weft.model.permission import CallRef
from weft.model.session import Session
from weft.model.transcript import Transcript
from weft.run.admit import get_agent
from weft.run.calls import Caller, context_for, unasked
from weft.run.decide import RUN_BY_HAND, newest_prompt
from weft.run.kit import Kit
from weft.run.processor import CallDone, CallFailed, CallReported, CallStarted, Processor
from weft.tool.contract import ToolContext
from weft.tool.shell.bash import follow, keep, list_notes, shell_of, to_metadata
from weft.tool.truncate import MAX_BYTES

TOOL: Final = "bash"
ABORTED: Final = "User aborted the command"

# A person means their aliases and functions, too. What their files say while they are read is not output.
_BASH: Final = """shopt -s expand_aliases
[ -f ~/.bashrc ] && . ~/.bashrc >/dev/null 2>&1
_weft_typed=$1; shift
eval "$_weft_typed"
"""
_ZSH: Final = """[ -f ~/.zshenv ] && . ~/.zshenv >/dev/null 2>&1
[ -f "${ZDOTDIR:-$HOME}/.zshrc" ] && . "${ZDOTDIR:-$HOME}/.zshrc" >/dev/null 2>&1
_weft_typed=$1; shift
eval "$_weft_typed"
"""


class ByHand:
    """A command in an answer of its own: `begin` stores it, and after `run` or `call_off` nothing of it is open."""

    def __init__(self, kit: Kit, session: Session, transcript: Transcript, input: ShellInput) -> None:
        self._kit = kit
        self._session = session
        self._transcript = transcript
        self._typed = input.command
        if not self._typed.strip():
            raise InvalidInputError("command", "there is none")
        agent = input.agent or kit.default_agent
        model = input.model or get_agent(kit, agent).model or self._last_model()
        prompt = self._prompt(agent, model)
        self._said = self._to_said(prompt)
        self._processor = Processor(self._answer(prompt), kit.mint, kit.clock.now)
        self._call = kit.mint.part()
        self._context = self._make_context()
        self._output = Output(self._context.desk.spill.new_path, memory=MAX_BYTES)
        self._ended = False

    @property
    def answer(self) -> MessageID:
        return self._processor.message.id

    async def begin(self) -> None:
        started = CallStarted(call_id=self._call, tool=TOOL, input={"command": self._typed})
        message = MessageUpdated(info=self._processor.message)
        await self._commit([*self._said, message, *self._processor.feed(started)])

    async def run(self) -> None:
        try:
            exit = await follow(self._command(), self._output, "", self._context)
        except OSError as error:
            await self._end(CallFailed(call_id=self._call, error=f"The command could not be run: {error}"))
        else:
            await self._end(await self._done(exit))

    async def call_off(self) -> None:
        """Settle what was not run to its end: what it had said so far is kept."""
        if not self._ended:
            await self._end(await self._done(None))

    def _command(self) -> Command:
        environment = {**self._context.desk.environment, "TERM": "dumb"}
        shell = environment.get("SHELL", "")
        usable = bool(shell) and os.access(shell, os.X_OK)
        return Command(
            argv=to_argv(shell if usable else shell_of(environment), self._typed),
            directory=self._kit.place.directory,
            environment=environment,
        )

    async def _done(self, exit: Exit | None) -> CallDone | CallFailed:
        """What came of it; without an exit it was aborted."""
        self._output.close()
        try:
            text, path = await keep(self._output, self._context)
        except ToolError as error:
            return CallFailed(call_id=self._call, error=str(error))
        notes = [ABORTED] if exit is None else list_notes(exit, self._output.lost)
        more = "\n".join(["\n\n<metadata>", *notes, "</metadata>"]) if notes else ""
        kept: dict[str, Any] = {"truncated": True, "outputPath": path} if path else {"truncated": False}
        metadata = to_metadata(self._output, "", more) | kept | ({} if exit is None else {"exit": exit.code})
        return CallDone(call_id=self._call, title="", output=text + more, metadata=metadata)

    async def _end(self, outcome: CallDone | CallFailed) -> None:
        message = self._processor.message
        time = replace(message.time, completed=self._kit.clock.now())
        # Without a finish word, as OpenCode has it: no model said anything.
        ended = MessageUpdated(info=replace(message, time=time))
        self._ended = True
        await self._commit([*self._processor.feed(outcome), ended])

    def _make_context(self) -> ToolContext:
        async def report(*, title: str | None = None, metadata: dict[str, Any] | None = None) -> None:
            said = CallReported(call_id=self._call, title=title, metadata=metadata)
            await self._commit(self._processor.feed(said))

        message = self._processor.message
        call = CallRef(message_id=message.id, call_id=self._call)
        caller = Caller(session=message.session_id, agent=message.agent, call=call)
        return context_for(self._kit, caller, ask=unasked, report=report)

    async def _commit(self, events: list[Event]) -> None:
        await self._kit.journal.commit(*events, into=self._transcript)

    # --- its messages ---

    def _last_model(self) -> ModelRef | None:
        last = newest_prompt(self._transcript.messages())
        if last is not None and last.model is not None:
            return last.model
        try:
            return self._kit.models.default()
        except NoModelError:
            return None  # none is asked for this

    def _prompt(self, agent: str, model: ModelRef | None) -> UserMessage:
        return UserMessage(
            id=self._kit.mint.message(),
            session_id=self._session.id,
            time=Moment(created=self._transcript.next_time(self._kit.clock.now())),
            agent=agent,
            model=model,
        )

    def _to_said(self, prompt: UserMessage) -> list[Event]:
        words = TextPart(
            id=self._kit.mint.part(),
            session_id=prompt.session_id,
            message_id=prompt.id,
            text=RUN_BY_HAND,
            synthetic=True,
        )
        return [MessageUpdated(info=prompt), PartUpdated(part=words)]

    def _answer(self, prompt: UserMessage) -> AssistantMessage:
        place, model = self._kit.place, prompt.model
        return AssistantMessage(
            id=self._kit.mint.message(),
            session_id=prompt.session_id,
            time=AssistantTime(created=self._transcript.next_time(self._kit.clock.now())),
            parent_id=prompt.id,
            model_id=model.model_id if model else "",
            provider_id=model.provider_id if model else "",
            mode=prompt.agent,
            agent=prompt.agent,
            path=MessagePath(cwd=place.directory, root=place.worktree),
        )


def to_argv(shell: str, typed: str) -> tuple[str, ...]:
    """The words with which a shell runs what was typed, as if it had been typed there.

    It goes in as an argument. OpenCode quotes it as JSON, and the shell finds other things in it than were typed.
    """
    match os.path.basename(shell):
        case "bash":
            return (shell, "-l", "-c", _BASH, "weft", typed)
        case "zsh":
            return (shell, "-l", "-c", _ZSH, "weft", typed)
        case _:
            return (shell, "-c", typed)

"""Run a person's own shell command in a session, so that the model knows of it."""

import os
from typing import Any, Final

from msgspec.structs import replace

from weft.context.history import USER_RAN_TOOL
from weft.errors import InvalidInputError, NoModelError, ToolError
from weft.host.processes import ProcessCommand, ProcessExit, ProcessOutput
from weft.model.event import Event, MessageUpdated, PartUpdated
from weft.model.ids import MessageID
from weft.model.input import ShellInput
from weft.model.message import AssistantMessage, AssistantTime, MessagePath, UserMessage
from weft.model.part import ModelRef, Moment, TextPart
from weft.model.permission import CallRef
from weft.model.session import SessionInfo
from weft.model.transcript import Transcript
from weft.run.admit import get_agent
from weft.run.calls import allow_all, make_tool_context
from weft.run.decide import find_newest_prompt
from weft.run.processor import CallDone, CallFailed, CallReported, CallStarted, Processor
from weft.run.runtime import Runtime
from weft.tool.contract import ToolContext
from weft.tool.shell.bash import choose_shell, list_notes, run_reporting, to_metadata, truncate_output
from weft.tool.truncate import MAX_BYTES

SHELL_TOOL: Final = "bash"
ABORTED: Final = "User aborted the command"

# A person expects their aliases and functions. What their startup files print is not output of the command.
_BASH_SCRIPT: Final = """shopt -s expand_aliases
[ -f ~/.bashrc ] && . ~/.bashrc >/dev/null 2>&1
_weft_typed=$1; shift
eval "$_weft_typed"
"""
_ZSH_SCRIPT: Final = """[ -f ~/.zshenv ] && . ~/.zshenv >/dev/null 2>&1
[ -f "${ZDOTDIR:-$HOME}/.zshrc" ] && . "${ZDOTDIR:-$HOME}/.zshrc" >/dev/null 2>&1
_weft_typed=$1; shift
eval "$_weft_typed"
"""


class ManualCommand:
    """A shell command, stored as an answer of its own. `begin` stores the answer; `run` or `cancel` completes it."""

    def __init__(
        self, runtime: Runtime, session: SessionInfo, transcript: Transcript, input: ShellInput
    ) -> None:
        self._runtime = runtime
        self._session = session
        self._transcript = transcript
        self._command = input.command
        if not self._command.strip():
            raise InvalidInputError("command", "it is empty")
        agent = input.agent or runtime.default_agent
        model = input.model or get_agent(runtime, agent).model or self._find_last_model()
        prompt = self._make_prompt(agent, model)
        self._events = self._make_prompt_events(prompt)
        self._processor = Processor(self._make_answer(prompt), runtime.mint, runtime.clock.now)
        self._call_id = runtime.mint.part()
        self._context = self._make_context()
        self._output = ProcessOutput(self._context.resources.spill.new_path, memory=MAX_BYTES)
        self._ended = False

    @property
    def answer(self) -> MessageID:
        return self._processor.message.id

    async def begin(self) -> None:
        started = CallStarted(call_id=self._call_id, tool=SHELL_TOOL, input={"command": self._command})
        message = MessageUpdated(info=self._processor.message)
        await self._commit([*self._events, message, *self._processor.feed(started)])

    async def run(self) -> None:
        try:
            exit = await run_reporting(self._make_command(), self._output, "", self._context)
        except OSError as error:
            await self._end(CallFailed(call_id=self._call_id, error=f"The command could not be run: {error}"))
        else:
            await self._end(await self._make_result(exit))

    async def cancel(self) -> None:
        """Complete the answer of a command that did not end, with its output so far."""
        if not self._ended:
            await self._end(await self._make_result(None))

    def _make_command(self) -> ProcessCommand:
        environment = {**self._context.resources.environment, "TERM": "dumb"}
        shell = environment.get("SHELL", "")
        usable = bool(shell) and os.access(shell, os.X_OK)
        return ProcessCommand(
            argv=to_argv(shell if usable else choose_shell(environment), self._command),
            directory=self._runtime.place.directory,
            environment=environment,
        )

    async def _make_result(self, exit: ProcessExit | None) -> CallDone | CallFailed:
        """Return the result of the call. Without an exit the command was aborted."""
        self._output.close()
        try:
            text, path = await truncate_output(self._output, self._context)
        except ToolError as error:
            return CallFailed(call_id=self._call_id, error=str(error))
        notes = [ABORTED] if exit is None else list_notes(exit, self._output.lost)
        suffix = "\n".join(["\n\n<metadata>", *notes, "</metadata>"]) if notes else ""
        truncation: dict[str, Any] = {"truncated": True, "outputPath": path} if path else {"truncated": False}
        metadata = (
            to_metadata(self._output, "", suffix) | truncation | ({} if exit is None else {"exit": exit.code})
        )
        return CallDone(call_id=self._call_id, title="", output=text + suffix, metadata=metadata)

    async def _end(self, outcome: CallDone | CallFailed) -> None:
        message = self._processor.message
        completed = max(self._runtime.clock.now(), message.time.created)
        time = replace(message.time, completed=completed)
        # As in OpenCode, without a finish reason: no model answered.
        ended = MessageUpdated(info=replace(message, time=time))
        self._ended = True
        await self._commit([*self._processor.feed(outcome), ended])

    def _make_context(self) -> ToolContext:
        async def report(*, title: str | None = None, metadata: dict[str, Any] | None = None) -> None:
            reported = CallReported(call_id=self._call_id, title=title, metadata=metadata)
            await self._commit(self._processor.feed(reported))

        message = self._processor.message
        call = CallRef(message_id=message.id, call_id=self._call_id)
        return make_tool_context(
            self._runtime, message.session_id, agent=message.agent, call=call, ask=allow_all, report=report
        )

    async def _commit(self, events: list[Event]) -> None:
        await self._runtime.journal.commit(*events, into=self._transcript)

    # --- messages ---

    def _find_last_model(self) -> ModelRef | None:
        last = find_newest_prompt(self._transcript.messages())
        if last is not None and last.model is not None:
            return last.model
        try:
            return self._runtime.models.get_default()
        except NoModelError:
            return None  # no model is needed

    def _make_prompt(self, agent: str, model: ModelRef | None) -> UserMessage:
        return UserMessage(
            id=self._runtime.mint.message(),
            session_id=self._session.id,
            time=Moment(created=self._transcript.next_time(self._runtime.clock.now())),
            agent=agent,
            model=model,
        )

    def _make_prompt_events(self, prompt: UserMessage) -> list[Event]:
        text = TextPart(
            id=self._runtime.mint.part(),
            session_id=prompt.session_id,
            message_id=prompt.id,
            text=USER_RAN_TOOL,
            synthetic=True,
        )
        return [MessageUpdated(info=prompt), PartUpdated(part=text)]

    def _make_answer(self, prompt: UserMessage) -> AssistantMessage:
        place, model = self._runtime.place, prompt.model
        return AssistantMessage(
            id=self._runtime.mint.message(),
            session_id=prompt.session_id,
            time=AssistantTime(created=self._transcript.next_time(self._runtime.clock.now())),
            parent_id=prompt.id,
            model_id=model.model_id if model else "",
            provider_id=model.provider_id if model else "",
            mode=prompt.agent,
            agent=prompt.agent,
            path=MessagePath(cwd=place.directory, root=place.worktree),
        )


def to_argv(shell: str, command: str) -> tuple[str, ...]:
    """Return the arguments with which a shell runs a command as if it had been typed there.

    The command is passed as an argument. OpenCode quotes it as JSON, which the shell may read differently.
    """
    match os.path.basename(shell):
        case "bash":
            return (shell, "-l", "-c", _BASH_SCRIPT, "weft", command)
        case "zsh":
            return (shell, "-l", "-c", _ZSH_SCRIPT, "weft", command)
        case _:
            return (shell, "-c", command)

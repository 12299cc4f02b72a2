"""Run slash commands: fill in the template, run its shell insertions, and send the result as a prompt."""

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from weft.config.commands import (
    INIT,
    TemplatePiece,
    bind_arguments,
    fill_template,
    get_command,
    list_insertions,
    parse_template,
)
from weft.errors import DismissedError, InvalidInputError, NobodyError, NotFoundError, ToolError
from weft.host.tasks import open_tasks
from weft.model.agent import AgentInfo, Command, CommandArgument
from weft.model.catalog import parse_ref
from weft.model.event import CommandExecuted, ProjectUpdated
from weft.model.ids import MessageID, SessionID
from weft.model.input import AnyPartInput, CommandInput, PromptInput, SubtaskInput, TextInput
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import ModelRef
from weft.model.permission import CallRef, Question, QuestionRequest
from weft.model.session import SessionInfo
from weft.permission.rules import to_rulesets
from weft.plugin.hooks import COMMAND_BEFORE, CallHookInput, CommandHookInput, CommandParts
from weft.run.admit import choose_models, get_agent
from weft.run.attachments import MentionScope, resolve_mentions
from weft.run.calls import ignore_report, make_ask, make_tool_context
from weft.run.hooks import apply_after_hooks, apply_before_hooks
from weft.run.questions import Prompter
from weft.run.runtime import Runtime
from weft.tool.contract import to_input
from weft.tool.truncate import truncate_result

SHELL_TOOL = "bash"
INSERTION_TIMEOUT_MS = 60_000
MAX_CONCURRENT_INSERTIONS = 4
ARGUMENTS_NOT_INSERTED = (
    "[not run: the arguments of a command are not inserted into the shell commands of its template]"
)


async def run_insertions(
    runtime: Runtime, session: SessionInfo, agent: AgentInfo, commands: Sequence[str]
) -> list[str]:
    """Run the shell commands that a template inserts, and return their outputs in order; that of a failed one is its error.

    Raise `NotPermittedError` if one is denied.
    """
    slots = asyncio.Semaphore(MAX_CONCURRENT_INSERTIONS)

    async def run_one(command: str) -> str:
        async with slots:
            return await _run_insertion(runtime, session, agent, command)

    async with open_tasks() as tasks:
        running = [tasks.create_task(run_one(command)) for command in commands]
    return [task.result() for task in running]


async def _run_insertion(runtime: Runtime, session: SessionInfo, agent: AgentInfo, command: str) -> str:
    if "$ARGUMENTS" in command:
        return ARGUMENTS_NOT_INSERTED
    tool = runtime.tools.get(SHELL_TOOL)
    if tool is None:
        raise NotFoundError("tool", SHELL_TOOL)
    context = make_tool_context(
        runtime,
        session.id,
        agent=agent.name,
        call=CallRef(message_id=MessageID(""), call_id=""),
        ask=make_ask(runtime, session, agent, None),
        report=ignore_report,
    )
    arguments = {"command": command, "description": "Insert into a command", "timeout": INSERTION_TIMEOUT_MS}
    call = await apply_before_hooks(
        runtime.hooks,
        CallHookInput(tool=SHELL_TOOL, session_id=session.id, call_id=context.call_id, args=arguments),
    )
    try:
        raw_result = await tool.run(to_input(tool, call.args), context)
        result = await truncate_result(
            await apply_after_hooks(runtime.hooks, call, raw_result), context.resources.spill
        )
    except ToolError as error:
        return f"Error executing command: {error}"
    return result.output.removesuffix("\n")


async def execute_command(
    runtime: Runtime, runs: Prompter, session: SessionID, input: CommandInput
) -> MessageWithParts:
    """Run a command and return the answer. Its agent and model are checked before any of its insertions run."""
    command = await resolve_command(runtime, input.command)
    answer = await runs.prompt(session, await _CommandExpansion(runtime, command, input).expand(session))
    executed = CommandExecuted(
        name=command.name, session_id=session, arguments=input.arguments, message_id=answer.info.id
    )
    await runtime.journal.commit(executed)
    if command.name == INIT and isinstance(answer.info, AssistantMessage) and answer.info.error is None:
        await _store_initialized(runtime)
    return answer


async def resolve_command(runtime: Runtime, name: str) -> Command:
    """Return a configured command, or a prompt of an MCP server. Raise `NotFoundError` if there is neither."""
    word = name.removeprefix("/")
    found = None if word in runtime.commands else await runtime.mcp().find_command(word)
    return found or get_command({**runtime.mcp().list_commands(), **runtime.commands}, name)


async def _store_initialized(runtime: Runtime) -> None:
    # The record may have changed since this directory was opened: another checkout writes it too.
    project = await runtime.store.find_project(runtime.place.project.id) or runtime.place.project
    time = replace(project.time, initialized=runtime.clock.now())
    await runtime.journal.commit(ProjectUpdated(info=replace(project, time=time)))


class _CommandExpansion:
    """Turns a command into a prompt."""

    def __init__(self, runtime: Runtime, command: Command, input: CommandInput) -> None:
        self._runtime = runtime
        self._command = command
        self._input = input
        self._agent_name = command.agent or input.agent or runtime.default_agent
        self._agent = get_agent(runtime, self._agent_name)

    async def expand(self, session: SessionID) -> PromptInput:
        """Check the agent and the models, run the insertions and the hooks, and return the prompt to send."""
        stored, prompt = await self._runtime.store.get_session(session), self._to_prompt(())
        if prompt.message_id and await self._runtime.store.find_message(session, prompt.message_id):
            return prompt  # the client sent it before: no insertion runs again
        self._check(prompt)
        return replace(prompt, parts=await self._apply_hooks(stored, await self._make_parts(stored)))

    async def _apply_hooks(
        self, session: SessionInfo, parts: tuple[AnyPartInput, ...]
    ) -> tuple[AnyPartInput, ...]:
        """Let plugins change the parts. They are checked like any other prompt when they are admitted."""
        hooks, input = self._runtime.hooks, self._input
        if not hooks.any(COMMAND_BEFORE):
            return parts
        command = CommandHookInput(
            command=self._command.name, session_id=session.id, arguments=input.arguments
        )
        return tuple((await hooks.ask(COMMAND_BEFORE, command, CommandParts(parts=parts))).parts)

    def _check(self, prompt: PromptInput) -> None:
        """Raise if the agent or a model does not exist, except the model of the session, which is checked later."""
        if self._is_subtask and (model := self._to_subtask("").model) is not None:
            self._runtime.models.get(model)
        agent = get_agent(self._runtime, prompt.agent or self._runtime.default_agent)
        if prompt.model is not None or agent.model is not None:
            choose_models(self._runtime, prompt, ())

    @property
    def _is_subtask(self) -> bool:
        setting = self._command.subtask
        if self._command.mcp:
            return False  # a child would resolve mentions in its task, but a server's text must not mention anything
        return setting is True or (setting is None and self._agent.mode == "subagent")

    def _to_prompt(self, parts: tuple[AnyPartInput, ...]) -> PromptInput:
        input = self._input
        # The command's agent runs the subtask. The session's own agent sees the result, and reports it.
        agent, model = (
            (input.agent, _to_ref("model", input.model))
            if self._is_subtask
            else (self._agent_name, self._choose_model())
        )
        return PromptInput(
            message_id=input.message_id,
            agent=agent,
            model=model,
            variant=input.variant,
            budget=input.budget,
            format=input.format,
            parts=parts,
        )

    def _choose_model(self) -> ModelRef | None:
        """Return the command's model, else the model of the input.

        Return None if the command's agent has a model: that one is chosen later, together with its fallbacks.
        """
        if self._command.model:
            return _to_ref(f"command.{self._command.name}.model", self._command.model)
        has_own_model = self._command.agent is not None and self._agent.model is not None
        return None if has_own_model else _to_ref("model", self._input.model)

    async def _make_parts(self, session: SessionInfo) -> tuple[AnyPartInput, ...]:
        if self._command.mcp:
            text = await self._render_mcp(session)
            return (TextInput(text=text), *await self._list_mentioned((), session), *self._input.parts)
        pieces = parse_template(self._command.template)
        outputs = await run_insertions(self._runtime, session, self._agent, list_insertions(pieces))
        text = fill_template(pieces, self._input.arguments, outputs)
        if self._is_subtask:
            return (self._to_subtask(text), *self._input.parts)
        return (TextInput(text=text), *await self._list_mentioned(pieces, session), *self._input.parts)

    async def _render_mcp(self, session: SessionInfo) -> str:
        """Return the text of an MCP server's prompt. The server fills in the arguments; surplus ones are appended."""
        names = [argument.name for argument in self._command.arguments]
        arguments, rest = bind_arguments(self._input.arguments, names)
        missing = [
            argument
            for argument in self._command.arguments
            if argument.required and not arguments.get(argument.name)
        ]
        if missing:
            arguments |= await self._ask_for_arguments(missing, session)
        text = await self._runtime.mcp().render(self._command.name, arguments)
        return "\n\n".join(piece for piece in (text.strip(), rest) if piece)

    async def _ask_for_arguments(
        self, missing: Sequence[CommandArgument], session: SessionInfo
    ) -> dict[str, str]:
        """Ask the person for missing arguments. Raise `InvalidInputError` if nobody is there, or an answer is empty."""
        names = [argument.name for argument in missing]
        missing_error = InvalidInputError(
            "arguments",
            f"{self._command.name} needs {', '.join(names)}",
            hint=f"name {'them' if len(names) > 1 else 'it'}: {' '.join(f'{name}=…' for name in names)}",
        )
        request = QuestionRequest(
            id=self._runtime.mint.question(),
            session_id=session.id,
            questions=tuple(_to_question(self._command.name, argument) for argument in missing),
        )
        try:
            answers = await self._runtime.questions.ask(request, agent=self._agent_name)
        except (NobodyError, DismissedError) as error:
            raise missing_error from error
        arguments = {name: ", ".join(answer) for name, answer in zip(names, answers, strict=True)}
        if not all(arguments.values()):
            raise missing_error
        return arguments

    async def _list_mentioned(
        self, pieces: tuple[TemplatePiece, ...], session: SessionInfo
    ) -> tuple[AnyPartInput, ...]:
        """Return what the template and its arguments mention. Command output and the text of MCP servers mention nothing."""
        scope = MentionScope(
            place=self._runtime.place,
            rulesets=to_rulesets(self._agent, session),
            agents=dict(self._runtime.agents),
        )
        arguments = self._input.arguments
        _, *mentioned = await resolve_mentions(
            arguments if self._command.mcp else fill_template(pieces, arguments), scope
        )
        return tuple(mentioned)

    def _to_subtask(self, text: str) -> SubtaskInput:
        command = self._command
        return SubtaskInput(
            agent=self._agent_name,
            description=command.description or "",
            command=command.name,
            model=self._choose_model() or self._agent.model,
            prompt=text,
        )


def _to_question(command: str, argument: CommandArgument) -> Question:
    text = argument.description or f"{argument.name}?"
    return Question(question=f"{command}: {text}", header=argument.name, options=())


def _to_ref(field: str, name: str | None) -> ModelRef | None:
    if not name:
        return None
    ref = parse_ref(name)
    if ref is None:
        raise InvalidInputError(field, f"{name!r} does not name a model", hint="write it as provider/model")
    return ref


async def initialize(
    runtime: Runtime,
    runs: Prompter,
    session: SessionID,
    *,
    model: ModelRef | None,
    message_id: MessageID | None,
) -> MessageWithParts:
    """Run the `init` command, store its time in the project's record, and return the answer."""
    name = None if model is None else f"{model.provider_id}/{model.model_id}"
    input = CommandInput(command=INIT, model=name, message_id=message_id)
    return await execute_command(runtime, runs, session, input)

"""Carry out slash commands: fill in the template, run its shell insertions, and prompt."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

from msgspec.structs import replace

from weft.config.commands import INIT, Piece, bind_arguments, fill, get_command, list_insertions, parse
from weft.errors import DismissedError, InvalidInputError, NobodyError, NotFoundError, ToolError
from weft.host.tasks import open_tasks
from weft.model.agent import Agent, Command, CommandArgument
from weft.model.catalog import parse_ref
from weft.model.event import CommandExecuted, ProjectUpdated
from weft.model.ids import MessageID, SessionID
from weft.model.input import AnyPartInput, CommandInput, PromptInput, SubtaskInput, TextInput
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import ModelRef
from weft.model.permission import CallRef, PermissionRequest, Question, QuestionRequest
from weft.model.session import Session
from weft.permission.gate import Standing, Whereabouts
from weft.permission.rules import limits_for
from weft.plugin.hooks import COMMAND_BEFORE, CallTold, CommandParts, CommandTold
from weft.run.admit import choose, get_agent
from weft.run.attachments import Reader, resolve
from weft.run.calls import Caller, context_for, unreported
from weft.run.hooks import after, before
from weft.run.kit import Kit
from weft.run.questions import find_root
from weft.tool.contract import Ask, to_input
from weft.tool.truncate import bound

TOOL = "bash"
TIMEOUT_MS = 60_000
TOGETHER = 4
NOT_FILLED_IN = "[not run: what is typed behind a command is not put into the shell commands of its template]"


async def run_all(kit: Kit, session: Session, agent: Agent, commands: Sequence[str]) -> list[str]:
    """What each of them says, in order. Raises `NotPermittedError` if one may not be run.

    One that fails says so in its place.
    """
    places = asyncio.Semaphore(TOGETHER)

    async def one(command: str) -> str:
        async with places:
            return await _run(kit, session, agent, command)

    async with open_tasks() as tasks:
        running = [tasks.create_task(one(command)) for command in commands]
    return [task.result() for task in running]


async def _run(kit: Kit, session: Session, agent: Agent, command: str) -> str:
    if "$ARGUMENTS" in command:
        return NOT_FILLED_IN
    tool = kit.tools.get(TOOL)
    if tool is None:
        raise NotFoundError("tool", TOOL)
    caller = Caller(session=session.id, agent=agent.name, call=CallRef(message_id=MessageID(""), call_id=""))
    context = context_for(kit, caller, ask=_ask_for(kit, session, agent), report=unreported)
    wanted = {"command": command, "description": "Insert into a command", "timeout": TIMEOUT_MS}
    call = await before(
        kit.hooks, CallTold(tool=TOOL, session_id=session.id, call_id=context.call_id, args=wanted)
    )
    try:
        made = await tool.run(to_input(tool, call.args), context)
        result = await bound(await after(kit.hooks, call, made), context.desk.spill)
    except ToolError as error:
        return f"Error executing command: {error}"
    return result.output.removesuffix("\n")


def _ask_for(kit: Kit, session: Session, agent: Agent) -> Ask:
    """The gate, for what is asked before there is a prompt."""
    standing = Standing(
        limits=limits_for(agent, session), agent=agent.name, find=partial(_find_whereabouts, kit, session)
    )

    async def ask(
        permission: str,
        *patterns: str,
        always: tuple[str, ...] = (),
        metadata: dict[str, Any] | None = None,
    ) -> None:
        request = PermissionRequest(
            id=kit.mint.permission(),
            session_id=session.id,
            permission=permission,
            patterns=patterns,
            metadata=metadata or {},
            always=always,
        )
        await kit.gate.let_pass(request, standing)

    return ask


async def _find_whereabouts(kit: Kit, session: Session) -> Whereabouts:
    return Whereabouts(root_id=await find_root(kit.store, session))


class Runs(Protocol):
    """What it takes to have a session run."""

    async def prompt(self, session: SessionID, input: PromptInput) -> MessageWithParts: ...


async def execute(kit: Kit, runs: Runs, session: SessionID, input: CommandInput) -> MessageWithParts:
    """See a command done; gives the answer. What it names is checked before anything of it is run."""
    command = await find_command(kit, input.command)
    answer = await runs.prompt(session, await _Expansion(kit, command, input).to_prompt(session))
    executed = CommandExecuted(
        name=command.name, session_id=session, arguments=input.arguments, message_id=answer.info.id
    )
    await kit.journal.commit(executed)
    if command.name == INIT and isinstance(answer.info, AssistantMessage) and answer.info.error is None:
        await _note_initialized(kit)
    return answer


async def find_command(kit: Kit, name: str) -> Command:
    """A command of our own, or a prompt of an MCP server's. Raises `NotFoundError`."""
    word = name.removeprefix("/")
    found = None if word in kit.commands else await kit.guests.find_command(word)
    return found or get_command({**kit.guests.list_commands(), **kit.commands}, name)


async def _note_initialized(kit: Kit) -> None:
    # The record may have changed since this directory was opened: another checkout writes it too.
    project = await kit.store.find_project(kit.place.project.id) or kit.place.project
    time = replace(project.time, initialized=kit.clock.now())
    await kit.journal.commit(ProjectUpdated(info=replace(project, time=time)))


class _Expansion:
    """A command on its way to being a prompt."""

    def __init__(self, kit: Kit, command: Command, input: CommandInput) -> None:
        self._kit = kit
        self._command = command
        self._input = input
        self._name = command.agent or input.agent or kit.default_agent
        self._agent = get_agent(kit, self._name)

    async def to_prompt(self, session: SessionID) -> PromptInput:
        found, prompt = await self._kit.store.get_session(session), self._to_prompt(())
        if prompt.message_id and await self._kit.store.find_message(session, prompt.message_id):
            return prompt  # sent before: it stands there, and nothing of it is run again
        self._check(prompt)
        return replace(prompt, parts=await self._hooked(found, await self._parts(found)))

    async def _hooked(self, session: Session, parts: tuple[AnyPartInput, ...]) -> tuple[AnyPartInput, ...]:
        """What plugins make of it; it is checked like any other prompt when it comes in."""
        hooks, input = self._kit.hooks, self._input
        if not hooks.any(COMMAND_BEFORE):
            return parts
        told = CommandTold(command=self._command.name, session_id=session.id, arguments=input.arguments)
        return tuple((await hooks.ask(COMMAND_BEFORE, told, CommandParts(parts=parts))).parts)

    def _check(self, prompt: PromptInput) -> None:
        """What can be wrong with it, but for the model that a session goes on with."""
        if self._is_subtask and (model := self._to_subtask("").model) is not None:
            self._kit.models.get(model)
        answering = get_agent(self._kit, prompt.agent or self._kit.default_agent)
        if prompt.model is not None or answering.model is not None:
            choose(self._kit, prompt, ())

    @property
    def _is_subtask(self) -> bool:
        asked = self._command.subtask
        if self._command.mcp:
            return False  # a child looks for mentions in its task, and a server's words mention nothing
        return asked is True or (asked is None and self._agent.mode == "subagent")

    def _to_prompt(self, parts: tuple[AnyPartInput, ...]) -> PromptInput:
        input = self._input
        # A subtask is its agent's; whoever asked for it hears of it, and says what came of it.
        agent, model = (
            (input.agent, _to_ref("model", input.model)) if self._is_subtask else (self._name, self._model())
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

    def _model(self) -> ModelRef | None:
        """The command's, else its agent's (which is left to be chosen with those it falls back on), else the one asked
        for."""
        if self._command.model:
            return _to_ref(f"command.{self._command.name}.model", self._command.model)
        own = self._command.agent is not None and self._agent.model is not None
        return None if own else _to_ref("model", self._input.model)

    async def _parts(self, session: Session) -> tuple[AnyPartInput, ...]:
        if self._command.mcp:
            text = await self._rendered(session)
            return (TextInput(text=text), *await self._mentioned((), session), *self._input.parts)
        pieces = parse(self._command.template)
        outputs = await run_all(self._kit, session, self._agent, list_insertions(pieces))
        text = fill(pieces, self._input.arguments, outputs)
        if self._is_subtask:
            return (self._to_subtask(text), *self._input.parts)
        return (TextInput(text=text), *await self._mentioned(pieces, session), *self._input.parts)

    async def _rendered(self, session: Session) -> str:
        """The words of an MCP server's prompt. It fills in the arguments itself; what none of them took stands below."""
        names = [each.name for each in self._command.arguments]
        given, rest = bind_arguments(self._input.arguments, names)
        missing = [each for each in self._command.arguments if each.required and not given.get(each.name)]
        if missing:
            given |= await self._ask_for(missing, session)
        words = await self._kit.guests.render(self._command.name, given)
        return "\n\n".join(each for each in (words.strip(), rest) if each)

    async def _ask_for(self, missing: Sequence[CommandArgument], session: Session) -> dict[str, str]:
        """What the person says for each. Raises `InvalidInputError` if nobody is there, or they say nothing."""
        names = [each.name for each in missing]
        refusal = InvalidInputError(
            "arguments",
            f"{self._command.name} needs {', '.join(names)}",
            hint=f"name {'them' if len(names) > 1 else 'it'}: {' '.join(f'{name}=…' for name in names)}",
        )
        request = QuestionRequest(
            id=self._kit.mint.question(),
            session_id=session.id,
            questions=tuple(_to_question(self._command.name, each) for each in missing),
        )
        try:
            answers = await self._kit.questions.ask(request, agent=self._name)
        except (NobodyError, DismissedError) as error:
            raise refusal from error
        given = {name: ", ".join(answer) for name, answer in zip(names, answers, strict=True)}
        if not all(given.values()):
            raise refusal
        return given

    async def _mentioned(self, pieces: tuple[Piece, ...], session: Session) -> tuple[AnyPartInput, ...]:
        """What the template and its arguments mention; what a command said, or an MCP server, mentions nothing."""
        reader = Reader(
            place=self._kit.place, limits=limits_for(self._agent, session), agents=dict(self._kit.agents)
        )
        arguments = self._input.arguments
        _, *found = await resolve(arguments if self._command.mcp else fill(pieces, arguments), reader)
        return tuple(found)

    def _to_subtask(self, text: str) -> SubtaskInput:
        command = self._command
        return SubtaskInput(
            agent=self._name,
            description=command.description or "",
            command=command.name,
            model=self._model() or self._agent.model,
            prompt=text,
        )


def _to_question(command: str, argument: CommandArgument) -> Question:
    asked = argument.description or f"{argument.name}?"
    return Question(question=f"{command}: {asked}", header=argument.name, options=())


def _to_ref(field: str, name: str | None) -> ModelRef | None:
    if not name:
        return None
    ref = parse_ref(name)
    if ref is None:
        raise InvalidInputError(field, f"{name!r} does not name a model", hint="write it as provider/model")
    return ref


async def initialize(
    kit: Kit, runs: Runs, session: SessionID, *, model: ModelRef | None, message_id: MessageID | None
) -> MessageWithParts:
    """Carry out the command for it; once it is answered, the project's record says when."""
    named = None if model is None else f"{model.provider_id}/{model.model_id}"
    asked = CommandInput(command=INIT, model=named, message_id=message_id)
    return await execute(kit, runs, session, asked)

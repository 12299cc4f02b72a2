"""Replay a stored session in a scratch checkout, and find where it differs from what was recorded.

With recorded answers, only the tools run again: the model's words and calls are those of the recording. Such a replay costs nothing and
is kept in memory only. With a model, the model answers again, and calls run again or get their recorded results. Such a replay is stored.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import ConflictError, InvalidInputError, RejectedError, ToolError
from weft.local.comparison import compare_sessions, find_outcome
from weft.local.step_checkout import (
    RecordedSession,
    StepCheckout,
    check_project,
    list_session_steps,
    open_step_checkout,
)
from weft.local.workspace_sources import WorkspaceSources
from weft.model.ids import MessageID, SessionID
from weft.model.input import (
    AgentInput,
    AnyPartInput,
    FileInput,
    PromptInput,
    SessionInput,
    SubtaskInput,
    TextInput,
)
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage, is_human_prompt
from weft.model.part import AgentPart, CompletedState, ErrorState, FilePart, SubtaskPart, TextPart, ToolPart
from weft.model.session import SessionChange, SessionInfo
from weft.model.session_query import SessionQuery
from weft.model.spending import UNLIMITED, Spent, add_spent
from weft.model.trial import Comparison, Divergence, ReplayInput, ReplayReport
from weft.model.wire import encode_sorted
from weft.provider.session_tape import SessionTape, rename_paths
from weft.run.admit import choose_models
from weft.run.runtime import Runtime
from weft.session.divergence import NO_OUTCOMES, ROOT_NAME, StepOutcomes, find_divergence
from weft.session.fork import fork
from weft.session.revert_point import choose_message
from weft.session.steps import SessionStep
from weft.snapshot.entry import FileEntry, is_same
from weft.store.url import is_persistent
from weft.tool.contract import AnyTool, RawArguments, ToolContext, ToolResult, schema_of
from weft.undo.step_files import StepFiles, read_step_files

if TYPE_CHECKING:  # for types alone: they have no value when the program runs
    from weft.local.workspace_sources import Engine

MEMORY: Final = "memory:"
NO_RESULT: Final = "the recording has no result for this call, and the replay ends here"


class ReplayRange(Struct, frozen=True, kw_only=True):
    """The prompts to replay, the recorded steps that answered them, and the message before which the replay starts."""

    prompts: tuple[MessageWithParts, ...]
    steps: tuple[SessionStep, ...]
    start: MessageID


def choose_range(
    recorded: RecordedSession, history: Sequence[MessageWithParts], input: ReplayInput
) -> ReplayRange:
    """Return what is replayed. Raise `NotFoundError` or `InvalidInputError` if the messages do not name a range."""
    ids = [message.info.id for message in history]
    first = 0 if input.start is None else ids.index(choose_message(history, input.start))
    last = (
        len(ids) - 1
        if input.end is None
        else _find_last(history, ids.index(choose_message(history, input.end)))
    )
    if last < first:
        raise InvalidInputError(
            "--until",
            "that message comes before the first one to replay",
            hint="name a later one; weft session show lists the messages",
        )
    in_range = set(ids[first : last + 1])
    prompts = [message for message in history if message.info.id in in_range and is_human_prompt(message)]
    if not prompts:
        raise InvalidInputError(
            "--from",
            "there is no prompt in that part of the session",
            hint="weft session show lists the messages",
        )
    start = ids.index(prompts[0].info.id)
    steps = tuple(step for step in recorded.steps if step.info.id in set(ids[start : last + 1]))
    return ReplayRange(prompts=tuple(prompts), steps=steps, start=prompts[0].info.id)


def _find_last(history: Sequence[MessageWithParts], index: int) -> int:
    """Return the index of the last message to replay: a prompt is replayed with all answers to it."""
    if not isinstance(history[index].info, UserMessage):
        return index
    following = (later for later in range(index + 1, len(history)) if is_human_prompt(history[later]))
    return next(following, len(history)) - 1


async def replay_session(
    runtime: Runtime, sources: WorkspaceSources, session: SessionInfo, input: ReplayInput
) -> ReplayReport:
    """Replay a session in a scratch checkout, which is removed at the end."""
    check_project(runtime, session)
    if input.model is not None:
        choose_models(runtime, PromptInput(model=input.model, parts=()), ())
    elif input.tools == "recorded":
        raise InvalidInputError(
            "--tools",
            "recorded answers with recorded results would compare the recording with itself",
            hint="name a model with --model, or run the tools again",
        )
    async with open_step_checkout(runtime, sources, session) as checkout:
        await checkout.prepare(runtime.place, sources)
        history = await runtime.store.list_messages(session.id)
        chosen = choose_range(checkout.recorded, history, input)
        if not chosen.steps:
            raise ConflictError(
                "session",
                session.id,
                "has no answer in that part, so there is nothing to replay",
                hint=f"weft session show {session.id} shows which prompts have one",
            )
        await checkout.fill(checkout.recorded.files.find_last_place(chosen.steps[0].number - 1))
        replay = _Replay(runtime, sources, checkout, chosen, input)
        async with replay.open() as api:
            replayed = await replay.run(api)
            return await replay.report(api, replayed)


class _Replay:
    """One replay in a scratch checkout."""

    def __init__(
        self,
        runtime: Runtime,
        sources: WorkspaceSources,
        checkout: StepCheckout,
        chosen: ReplayRange,
        input: ReplayInput,
    ) -> None:
        self._runtime = runtime
        self._sources = sources
        self._checkout = checkout
        self._session = checkout.recorded.session
        self._chosen = chosen
        self._input = input
        self._stored = input.model is not None and is_persistent(sources.store)
        self._results = RecordedResults(chosen.steps)
        # The scratch checkout stands in for the one where the session worked.
        self._renamed = {checkout.recorded.root: checkout.root}

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Engine]:
        """Open the engine in the scratch checkout."""
        tape = None
        if self._input.model is None:
            children = [
                [
                    message
                    for message in await self._runtime.store.list_messages(child.id)
                    if _is_answer(message)
                ]
                for child in await self._list_children()
            ]
            tape = SessionTape([step.message for step in self._chosen.steps], children, renamed=self._renamed)
        # `tuple` returns the tools as they are.
        change_tools = self._results.replace_tools if self._input.tools == "recorded" else tuple
        store = self._sources.store if self._stored else MEMORY
        async with self._sources.open_engine(
            self._checkout.directory, store, tape=tape, change_tools=change_tools
        ) as api:
            yield api

    async def _list_children(self) -> list[SessionInfo]:
        found = await self._runtime.store.query_sessions(SessionQuery(parent_id=self._session.id))
        return sorted(found, key=lambda child: child.time.created)

    async def run(self, api: Engine) -> SessionID:
        """Send the recorded prompts, and return the session that answered them."""
        replayed = await self._begin(api)
        # Each prompt has a budget, if only an unlimited one: then no title is generated, which would be one more request.
        budget = self._input.budget or UNLIMITED
        for prompt in self._chosen.prompts:
            input = to_prompt_input(rename_paths(prompt, self._renamed))
            info = prompt.info
            assert isinstance(info, UserMessage)
            model = self._input.model or info.model
            answer = await api.prompt(
                replayed, replace(input, agent=info.agent or None, model=model, budget=budget)
            )
            if isinstance(answer.info, AssistantMessage) and answer.info.error is not None:
                break
        return replayed

    async def _begin(self, api: Engine) -> SessionID:
        title = f"{self._session.title} (replay)"
        history = await self._runtime.store.list_messages(self._session.id)
        if not self._stored or history[0].info.id == self._chosen.start:
            session = await api.create_session(SessionInput(title=title, permission=self._session.permission))
        else:
            session = await fork(
                api.runtime.maker,
                api.runtime.store,
                self._session,
                at=self._chosen.start,
                edit=lambda made, messages: (made, [rename_paths(each, self._renamed) for each in messages]),
            )
        if self._stored:
            # Archived: it is no work to continue, but what it cost counts.
            await api.update_session(session.id, SessionChange(title=title, archived=True))
        return session.id

    async def report(self, api: Engine, replayed: SessionID) -> ReplayReport:
        session = await api.get_session(replayed)
        steps = [
            step
            for step in await list_session_steps(api.runtime, session)
            if step.info.time.created >= session.time.created
        ]
        if self._input.end is not None:  # the answer to a prompt may go on after the last message to replay
            steps = steps[: len(self._chosen.steps)]
        files = await read_step_files(api.runtime.undo_context.snapshots, steps)
        recorded = self._checkout.recorded
        # Calls that get their recorded results change no files, so there is nothing to compare the recorded files with.
        recorded_outcomes = to_outcomes(recorded.files) if self._input.tools == "real" else NO_OUTCOMES
        divergence = find_divergence(
            self._chosen.steps,
            steps,
            results=self._input.model is None,
            files_of_one=recorded_outcomes,
            files_of_other=to_outcomes(files),
        )
        original = await compare_sessions(self._runtime, self._sources, [self._session])
        compared = await compare_sessions(api.runtime, self._sources, [session])
        replayed_row = replace(compared.sessions[0], divergence=divergence)
        if self._input.model is None:  # nobody was paid for answers that were there already
            replayed_row = replace(replayed_row, spent=Spent(steps=len(steps)))
        rows = (original.sessions[0], replayed_row)
        outcome, detail = find_outcome(steps, running=False)
        notes = [*self._checkout.notes]
        if outcome not in ("finished", "running") and detail:
            notes.append(f"the replay ended early: {detail}")
        return ReplayReport(
            steps=len(steps),
            recorded_steps=len(self._chosen.steps),
            divergence=_count_from_start(divergence, self._chosen.steps[0].number),
            comparison=Comparison(sessions=rows, spent=add_spent(row.spent for row in rows[1:])),
            session=replayed if self._stored else None,
            notes=tuple(notes),
        )


def _count_from_start(divergence: Divergence | None, first: int) -> Divergence | None:
    """Return the divergence with the number of the step in the whole session."""
    return None if divergence is None else replace(divergence, step=divergence.step + first - 1)


def _is_answer(message: MessageWithParts) -> bool:
    return isinstance(message.info, AssistantMessage)


def to_outcomes(files: StepFiles) -> StepOutcomes:
    """Return the files that each step changed, each with the id of its content. Changes that were reverted within the step are left out."""
    first: dict[tuple[int, bytes], FileEntry | None] = {}
    last: dict[tuple[int, bytes], FileEntry | None] = {}
    for change in files.changes:
        first.setdefault((change.step, change.path), change.before)
        last[change.step, change.path] = change.after
    outcomes: defaultdict[int, set[tuple[str, str]]] = defaultdict(set)
    for (step, path), after in last.items():
        if not is_same(first[step, path], after):
            outcomes[step].add((path.decode(errors="replace"), after.oid if after else ""))
    return {step: frozenset(changed) for step, changed in outcomes.items()}


def to_prompt_input(message: MessageWithParts) -> PromptInput:
    """Return a stored prompt as it was sent: without what weft added to it."""
    parts: list[AnyPartInput] = []
    for part in message.parts:
        match part:
            case TextPart(synthetic=False, text=text, ignored=ignored):
                parts.append(TextInput(text=text, ignored=ignored))
            case FilePart(mime=mime, filename=filename, url=url, source=source):
                parts.append(FileInput(mime=mime, filename=filename, url=url, source=source))
            case AgentPart(name=name, source=source):
                parts.append(AgentInput(name=name, source=source))
            case SubtaskPart(
                prompt=prompt, description=description, agent=agent, model=model, command=command
            ):
                parts.append(
                    SubtaskInput(
                        prompt=prompt, description=description, agent=agent, model=model, command=command
                    )
                )
            case _:
                pass
    info = message.info
    assert isinstance(info, UserMessage)
    return PromptInput(
        parts=tuple(parts), system=info.system, tools=info.tools, variant=info.variant, format=info.format
    )


class RecordedResults:
    """Gives calls the results that the same calls had in a recording, each once and in order."""

    def __init__(self, steps: Sequence[SessionStep]) -> None:
        self._results: defaultdict[tuple[str, str], list[ToolPart]] = defaultdict(list)
        for step in steps:
            root = step.info.path.root if step.info.path is not None else ROOT_NAME
            for call in step.calls:
                self._results[call.tool, to_key(call.state.input, root)].append(call)

    def replace_tools(self, tools: tuple[AnyTool, ...]) -> tuple[AnyTool, ...]:
        return tuple(
            replace(
                tool,
                run=self._make_run(tool.name),
                takes=RawArguments,
                schema=schema_of(tool),
                watch_all=False,
            )
            for tool in tools
        )

    def _make_run(self, name: str) -> Callable[[RawArguments, ToolContext], Awaitable[ToolResult]]:
        async def run(arguments: RawArguments, context: ToolContext) -> ToolResult:
            waiting = self._results.get((name, to_key(arguments.arguments, context.worktree)))
            state = waiting.pop(0).state if waiting else None
            match state:
                case CompletedState(output=output, title=title, metadata=metadata):
                    return ToolResult(title=title, output=output, metadata=metadata)
                case ErrorState(error=error):
                    raise ToolError(error)
                case _:
                    # Refused, because that ends the run: the model would only guess from here on.
                    raise RejectedError(NO_RESULT)

        return run


def to_key(arguments: dict[str, Any], root: str) -> str:
    """Return the arguments of a call as text that is the same in every checkout."""
    return encode_sorted(arguments).decode().replace(root, ROOT_NAME)

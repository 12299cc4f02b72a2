"""`Agent`: ask questions in a directory, in this process or on a server, and receive typed answers."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from types import AsyncGeneratorType, TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, TypedDict, TypeVar, Unpack, overload
from weakref import WeakSet

from weft.agent.answer import Answer
from weft.agent.events import AnswerEvent, AnyStreamEvent
from weft.agent.options import (
    AnyBudget,
    AnyModel,
    ModelSource,
    Permissions,
    QuestionOptions,
    ToolFunction,
    describe_type,
    override,
    read_options,
    read_text,
    to_model_ref,
)
from weft.agent.question import AnyFile, QuestionRun, apply_rules, to_parts
from weft.agent.schema import Json
from weft.agent.tools import serve_tools, to_custom_tools, to_tools
from weft.api import Api
from weft.errors import (
    ClosedError,
    InvalidInputError,
    NoModelError,
    NotFoundError,
    UnreadableError,
    UnsupportedError,
    WeftError,
)
from weft.model.ids import SessionID
from weft.model.input import AnyPartInput, PromptInput, SessionInput
from weft.model.message import JsonFormat, MessageWithParts
from weft.model.part import ModelRef
from weft.model.permission import Ruleset
from weft.model.session import SessionChange, SessionInfo
from weft.model.transcript import Transcript
from weft.provider.registry import ServedModel

if TYPE_CHECKING:  # an agent on a server needs nothing of the engine
    from weft.local.api import LocalApi

T = TypeVar("T")
V = TypeVar("V")

NO_MODEL_HINT = (
    'pass model="provider/model", or set "model" in opencode.json; weft models lists what there is'
)
SESSION_HINT = "pass the id of a session, such as answer.session, or nothing for a new one"


class QuestionArguments(TypedDict, total=False):
    """Options for `open`, for a conversation, and for one question. The nearest one wins.

    `budget` limits one question with its child sessions. `permissions` are rules, or a function that answers requests;
    without one, every request is rejected.
    """

    model: AnyModel | None
    agent: str | None
    system: str | None
    tools: Sequence[ToolFunction] | None
    permissions: Permissions | None
    budget: AnyBudget | None


class Stream(Generic[T]):
    """The events of one question, as an async iterator. The last event is an `AnswerEvent`.

    Leaving an `async with` around it, or closing it, ends the run if it has not ended. A question that fails raises its
    error at the end, unless `check` is False.
    """

    def __init__(self, events: AsyncGenerator[AnyStreamEvent | AnswerEvent[T]]) -> None:
        self._events = events
        self._answer: Answer[T] | None = None

    def __aiter__(self) -> Self:
        return self

    def __repr__(self) -> str:
        return "Stream()  # iterate over it with `async for`, or await its answer()"

    if not TYPE_CHECKING:

        def __iter__(self) -> NoReturn:
            raise TypeError(
                "a Stream is iterated over with `async for`; `with weft.open(…)` gives one for `for`"
            )

    async def __anext__(self) -> AnyStreamEvent | AnswerEvent[T]:
        try:
            event = await anext(self._events)
        except WeftError as error:
            raise to_caller(error) from error.__cause__
        if isinstance(event, AnswerEvent):
            self._answer = event.answer
        return event

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the run if it has not ended."""
        await self._events.aclose()

    async def answer(self) -> Answer[T]:
        """Wait for the end, and return the answer."""
        async for _ in self:
            pass
        if self._answer is None:
            raise InvalidInputError("stream", "it was closed before its end", hint="ask again")
        return self._answer


def to_caller(error: WeftError) -> WeftError:
    """Return an error as the caller of an agent reads it: with a hint for Python, and without frames of ours."""
    if isinstance(error, NoModelError):
        error.hint = NO_MODEL_HINT
    return error.with_traceback(None)


class Host:
    """What an agent works on: an `Api`, and the parts of it that only this process has. `named` is how it was opened."""

    def __init__(self, api: Api, local: "LocalApi | None", named: str) -> None:
        self.api = api
        self.named = named
        self.closed = False
        # Whoever opens the agent may drop everything but the agent: the garbage collector would then close it in use.
        self.context: object = None
        self.running: WeakSet[AsyncGenerator[object]] = WeakSet()
        self._local = local
        self._served: dict[ModelSource, ServedModel] = {}
        self._checked: set[tuple[ModelRef | None, str | None]] = set()
        self._asked: list[SessionID] = []
        self._loop = asyncio.get_running_loop()

    def check_open(self) -> None:
        if self.closed:
            raise ClosedError("the agent is closed", hint="ask inside the `with` block, or open it again")

    def check(self) -> None:
        """Raise an error if the agent cannot be used here."""
        self.check_open()
        if asyncio.get_running_loop() is not self._loop:
            raise InvalidInputError(
                "event loop",
                "this agent was opened in another one",
                hint="open one agent per event loop, or use `with weft.open(…)` and blocking calls",
            )

    async def prepare(self, options: QuestionOptions) -> None:
        """Raise the error that the first question would raise because of its model, agent or tools."""
        model = self.find_model(options.model)
        if options.tools:
            to_custom_tools(options.tools)
            if self._local is None:
                await self.api.list_tool_requests()  # an OpenCode server raises `UnsupportedError`
        if model is not None or options.agent is not None:
            await self.check_choice(model, options.agent)

    async def check_choice(self, model: ModelRef | None, agent: str | None) -> None:
        """Raise the error that a prompt with this model and agent would raise. Check each choice once."""
        if (model, agent) not in self._checked:
            await self.api.check_prompt(PromptInput(parts=(), model=model, agent=agent))
            self._checked.add((model, agent))

    def find_model(self, model: AnyModel | None) -> ModelRef | None:
        match model:
            case None:
                return None
            case str():
                return to_model_ref(model)
            case ModelSource():
                if self._local is None:
                    raise UnsupportedError(
                        "a scripted model over HTTP: the model runs on the server",
                        hint='pass the script to weft.open, or name a model of the server: model="provider/model"',
                    )
                if model not in self._served:
                    self._served[model] = served = model.serve(self._local.runtime.clock)
                    self._local.runtime.models.add(served)
                chosen = self._served[model].model
                return ModelRef(provider_id=chosen.provider_id, model_id=chosen.id)

    @asynccontextmanager
    async def offer_tools(
        self, session: SessionID, functions: tuple[ToolFunction, ...]
    ) -> AsyncIterator[None]:
        """Offer functions to a session for one question. They run in this process, also if the model is elsewhere."""
        if self._local is not None:
            offered, tools = self._local.runtime.session_tools, to_tools(functions)
            offered[session] = tools
            try:
                yield
            finally:
                if offered.get(session) is tools:  # else another question has replaced them
                    del offered[session]
        elif functions:
            async with serve_tools(self.api, session, functions):
                yield
        else:
            yield

    @asynccontextmanager
    async def asking(self, session: SessionID) -> AsyncIterator[None]:
        """Remember that a question is asked in this session until the end of the block."""
        self._asked.append(session)
        try:
            yield
        finally:
            self._asked.remove(session)

    async def close(self) -> None:
        self.closed = True
        for events in list(self.running):
            if not (isinstance(events, AsyncGeneratorType) and events.ag_running):
                await events.aclose()
        # Other tasks wait for what is left: their generators cannot be closed, but their runs can be ended.
        for session in list(self._asked):
            with suppress(WeftError):
                await self.api.abort(session)


class Asker(ABC, Generic[T]):
    """Asks questions with the same options."""

    def __init__(self, host: Host, options: QuestionOptions) -> None:
        self._host = host
        self._options = options

    @property
    def api(self) -> Api:
        """All operations of weft: sessions, events, undo, files, sharing."""
        self._host.check_open()
        return self._host.api

    @abstractmethod
    async def _enter_session(
        self, options: QuestionOptions, model: ModelRef | None
    ) -> tuple[SessionID, Transcript]:
        """Return the session to ask in, which may be a new one, and what was said in it before."""

    @overload
    async def ask(
        self,
        prompt: str,
        *,
        schema: None = None,
        files: Sequence[AnyFile] = (),
        check: bool = True,
        **options: Unpack[QuestionArguments],
    ) -> Answer[T]: ...

    @overload
    async def ask(
        self,
        prompt: str,
        *,
        schema: type[V],
        files: Sequence[AnyFile] = (),
        check: bool = True,
        **options: Unpack[QuestionArguments],
    ) -> Answer[V]: ...

    @overload
    async def ask(
        self,
        prompt: str,
        *,
        schema: Mapping[str, object],
        files: Sequence[AnyFile] = (),
        check: bool = True,
        **options: Unpack[QuestionArguments],
    ) -> Answer[Json]: ...

    async def ask(
        self,
        prompt: str,
        *,
        schema: object = None,
        files: Sequence[AnyFile] = (),
        check: bool = True,
        **options: Unpack[QuestionArguments],
    ) -> Answer[object]:
        """Ask a question and return the answer. With a `schema`, its `value` has that type.

        Raise `RunFailedError` if there is no answer; with `check=False`, return an answer with this `error` instead.
        """
        return await self._start(prompt, read_options(schema=schema, **options), files, check=check).answer()

    @overload
    def stream(
        self,
        prompt: str,
        *,
        schema: None = None,
        files: Sequence[AnyFile] = (),
        check: bool = True,
        **options: Unpack[QuestionArguments],
    ) -> Stream[T]: ...

    @overload
    def stream(
        self,
        prompt: str,
        *,
        schema: type[V],
        files: Sequence[AnyFile] = (),
        check: bool = True,
        **options: Unpack[QuestionArguments],
    ) -> Stream[V]: ...

    @overload
    def stream(
        self,
        prompt: str,
        *,
        schema: Mapping[str, object],
        files: Sequence[AnyFile] = (),
        check: bool = True,
        **options: Unpack[QuestionArguments],
    ) -> Stream[Json]: ...

    def stream(
        self,
        prompt: str,
        *,
        schema: object = None,
        files: Sequence[AnyFile] = (),
        check: bool = True,
        **options: Unpack[QuestionArguments],
    ) -> Stream[Any]:
        """Ask a question and iterate over what happens: `event.text` is the answer as it grows."""
        return self._start(prompt, read_options(schema=schema, **options), files, check=check)

    def _start(
        self, prompt: str, own: QuestionOptions, files: Sequence[AnyFile], *, check: bool
    ) -> Stream[object]:
        self._host.check()
        text = read_text("prompt", prompt)
        if not text or not text.strip():
            raise InvalidInputError("prompt", "it is empty", hint="say what the agent should do")
        if own.tools:
            to_custom_tools(own.tools)  # so that a mistake leaves no empty session
        options = override(self._options, own)
        events = self._answer(to_parts(text, files), options, own.rules, check=check)
        self._host.running.add(events)
        return Stream(events)

    async def _answer(
        self,
        parts: tuple[AnyPartInput, ...],
        options: QuestionOptions,
        own_rules: Ruleset | None,
        *,
        check: bool,
    ) -> AsyncGenerator[AnyStreamEvent | AnswerEvent[object]]:
        host = self._host
        model = host.find_model(options.model)
        session, transcript = await self._enter_session(options, model)
        async with (
            host.asking(session),
            host.offer_tools(session, options.tools or ()),
            apply_rules(host.api, session, own_rules),
        ):
            question = QuestionRun(host.api, session, transcript, options)
            events = question.events(
                PromptInput(
                    parts=parts,
                    model=model,
                    agent=options.agent,
                    system=options.system,
                    budget=options.budget,
                    format=None if options.type is None else JsonFormat(schema=options.type.schema),
                )
            )
            async with aclosing(events):
                async for event in events:
                    yield event
        answer = await question.make_answer()
        yield AnswerEvent(answer=answer)
        if check and answer.error is not None:
            raise answer.error


class Agent(Asker[T]):
    """Answers questions in one directory. Every question has a session of its own; `converse` keeps one."""

    def __repr__(self) -> str:
        return f"Agent({self._host.named})"

    async def _enter_session(
        self, options: QuestionOptions, model: ModelRef | None
    ) -> tuple[SessionID, Transcript]:
        await self._host.check_choice(model, options.agent)  # so that a mistake leaves no empty session
        return (await self.api.create_session(SessionInput(permission=options.rules))).id, Transcript()

    @overload
    async def converse(
        self,
        session: SessionID | str | None = None,
        *,
        title: str | None = None,
        schema: None = None,
        **options: Unpack[QuestionArguments],
    ) -> "Conversation[T]": ...

    @overload
    async def converse(
        self,
        session: SessionID | str | None = None,
        *,
        title: str | None = None,
        schema: type[V],
        **options: Unpack[QuestionArguments],
    ) -> "Conversation[V]": ...

    @overload
    async def converse(
        self,
        session: SessionID | str | None = None,
        *,
        title: str | None = None,
        schema: Mapping[str, object],
        **options: Unpack[QuestionArguments],
    ) -> "Conversation[Json]": ...

    async def converse(
        self,
        session: SessionID | str | None = None,
        *,
        title: str | None = None,
        schema: object = None,
        **options: Unpack[QuestionArguments],
    ) -> "Conversation[Any]":
        """Start a conversation, or continue the one in `session`. Raise `NotFoundError` if there is no such session."""
        self._host.check()
        own = read_options(schema=schema, **options)
        merged = override(self._options, own)
        if session is not None and not isinstance(session, str):
            raise InvalidInputError("session", f"it is {describe_type(session)}", hint=SESSION_HINT)
        if session is None:
            info = await self.api.create_session(SessionInput(title=title, permission=merged.rules))
        else:
            info = await self._get_session(session)
            if own.rules is not None:
                info = await self.api.update_session(info.id, SessionChange(permission=own.rules))
        return Conversation(self._host, merged, info)

    async def _get_session(self, session: str) -> SessionInfo:
        try:
            return await self.api.get_session(SessionID(session))
        except UnreadableError:
            raise
        except NotFoundError:
            raise NotFoundError("session", session, hint=SESSION_HINT) from None


class Conversation(Asker[T]):
    """Questions in one session: each one knows what was said before."""

    def __init__(self, host: Host, options: QuestionOptions, session: SessionInfo) -> None:
        super().__init__(host, options)
        self.session = session.id

    def __repr__(self) -> str:
        return f"Conversation({self.session!r})"

    async def _enter_session(
        self, options: QuestionOptions, model: ModelRef | None
    ) -> tuple[SessionID, Transcript]:
        del options, model  # the rules are set on the session already
        return self.session, Transcript(await self.api.list_messages(self.session))

    async def messages(self) -> list[MessageWithParts]:
        """Return all messages of the session, oldest first."""
        self._host.check()
        return await self.api.list_messages(self.session)

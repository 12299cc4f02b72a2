"""`Agent`: ask questions in a directory, in this process or on a server, and receive typed answers."""

import asyncio
import inspect
import mimetypes
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypedDict, TypeVar, Unpack, overload
from weakref import WeakSet

import msgspec
from msgspec import UNSET

from weft.agent.answer import (
    ERRORS,
    Answer,
    InvalidAnswerError,
    RunFailedError,
    classify,
    describe_failure,
    find_hint,
    list_steps,
    subtract,
    text_of,
    to_tokens,
)
from weft.agent.events import AnswerEvent, AnyStreamEvent, EventFold
from weft.agent.options import (
    AnyBudget,
    AnyModel,
    ModelSource,
    Permissions,
    QuestionOptions,
    ToolFunction,
    override,
    read_options,
    read_text,
    to_model_ref,
)
from weft.agent.schema import Json
from weft.agent.tools import serve_tools, to_custom_tools, to_tools
from weft.api import Api
from weft.client.prompt_run import PromptRun
from weft.errors import ClosedError, InvalidInputError, NotFoundError, UnsupportedError
from weft.model.event import Event, MessageUpdated, PermissionAsked, QuestionAsked, SessionFailed
from weft.model.event_wire import RESYNC, UnknownEvent
from weft.model.failure import AnyFailure, StructureFailure
from weft.model.ids import SessionID
from weft.model.input import AnyPartInput, FileInput, PromptInput, SessionInput, TextInput
from weft.model.message import AssistantMessage, JsonFormat, MessageWithParts
from weft.model.part import ModelRef
from weft.model.permission import PermissionRequest, Ruleset
from weft.model.session import Session, SessionChange
from weft.model.spending import Spent, total_spent
from weft.model.transcript import Transcript
from weft.provider.registry import ServedModel
from weft.session.totals import count_messages, get_ledger

if TYPE_CHECKING:  # an agent on a server needs nothing of the engine
    from weft.local.api import LocalApi

T = TypeVar("T")
V = TypeVar("V")

AnyFile = str | os.PathLike[str]


class QuestionArguments(TypedDict, total=False):
    """What can be set on `open`, on a conversation, and on one question. The nearest setting wins.

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

    async def __anext__(self) -> AnyStreamEvent | AnswerEvent[T]:
        event = await anext(self._events)
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


class Host:
    """What an agent works on: an `Api`, and the parts of it that only this process has."""

    def __init__(self, api: Api, local: "LocalApi | None") -> None:
        self.api = api
        self.closed = False
        self.running: WeakSet[AsyncGenerator[object]] = WeakSet()
        self._local = local
        self._served: dict[ModelSource, ServedModel] = {}
        self._loop = asyncio.get_running_loop()

    def check(self) -> None:
        """Raise an error if the agent cannot be used here."""
        if self.closed:
            raise ClosedError("the agent is closed", hint="ask inside the `with` block, or open it again")
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
            await self.api.check_prompt(PromptInput(parts=(), model=model, agent=options.agent))

    def find_model(self, model: AnyModel | None) -> ModelRef | None:
        match model:
            case None:
                return None
            case str():
                return to_model_ref(model)
            case ModelSource():
                if self._local is None:
                    raise UnsupportedError("a scripted model over HTTP (model=)", hint="use weft.open")
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
            self._local.runtime.session_tools[session] = to_tools(functions)
            yield
        elif functions:
            async with serve_tools(self.api, session, functions):
                yield
        else:
            yield

    async def close(self) -> None:
        self.closed = True
        for events in list(self.running):
            await events.aclose()


class Asker(ABC, Generic[T]):
    """Asks questions with the same options."""

    def __init__(self, host: Host, options: QuestionOptions) -> None:
        self._host = host
        self._options = options

    @property
    def api(self) -> Api:
        """All operations of weft: sessions, events, undo, files, sharing."""
        return self._host.api

    @abstractmethod
    async def _find_session(self, rules: Ruleset | None) -> SessionID:
        """Return the session for a question with these rules."""

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
            raise InvalidInputError("prompt", "it is empty")
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
        session = await self._find_session(options.rules)
        async with (
            host.offer_tools(session, options.tools or ()),
            apply_rules(host.api, session, own_rules),
        ):
            question = QuestionRun(host.api, session, options)
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
        answer = await question.to_answer()
        yield AnswerEvent(answer=answer)
        if check and answer.error is not None:
            raise answer.error


class Agent(Asker[T]):
    """Answers questions in one directory. Every question has a session of its own; `converse` keeps one."""

    async def _find_session(self, rules: Ruleset | None) -> SessionID:
        return (await self.api.create_session(SessionInput(permission=rules))).id

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
        if session is None:
            info = await self.api.create_session(SessionInput(title=title, permission=merged.rules))
        else:
            info = await self.api.get_session(SessionID(session))
            if own.rules is not None:
                info = await self.api.update_session(info.id, SessionChange(permission=own.rules))
        return Conversation(self._host, merged, info)


class Conversation(Asker[T]):
    """Questions in one session: each one knows what was said before."""

    def __init__(self, host: Host, options: QuestionOptions, session: Session) -> None:
        super().__init__(host, options)
        self.session = session.id

    def __repr__(self) -> str:
        return f"Conversation({self.session!r})"

    async def _find_session(self, rules: Ruleset | None) -> SessionID:
        del rules  # they are set on the session already
        return self.session

    async def messages(self) -> list[MessageWithParts]:
        """Return all messages of the session, oldest first."""
        self._host.check()
        return await self.api.list_messages(self.session)


class QuestionRun:
    """One prompt: its events, the requests it made, and what it cost."""

    def __init__(self, api: Api, session: SessionID, options: QuestionOptions) -> None:
        self._api = api
        self._session = session
        self._options = options
        self._transcript = Transcript()
        self._refused: list[str] = []
        self._failure: AnyFailure | None = None
        self._last: MessageWithParts | None = None
        self._before = Spent()

    async def events(self, input: PromptInput) -> AsyncGenerator[AnyStreamEvent]:
        """Send the prompt and yield events until the session is idle. Closing the generator ends the run."""
        await self._refresh()
        self._before = await self._measure()
        fold = EventFold(self._session, self._transcript)
        run = PromptRun(self._api, self._session, input)
        try:
            async for event in run.events():
                self._transcript.feed(event)
                if isinstance(event, UnknownEvent) and event.named == RESYNC:
                    await self._refresh()
                self._note(event)
                for each in fold.feed(event):
                    yield each
                await self._reply(event)
            self._last = await run.answer()
            if run.missed:
                await self._refresh()
        finally:
            await run.close()

    async def to_answer(self) -> Answer[object]:
        """Return the answer, with its error if the run failed."""
        assert self._last is not None, "the run has ended"
        info = self._last.info
        prompt = info.parent_id if isinstance(info, AssistantMessage) else info.id
        steps = list_steps(self._transcript.messages(), prompt)
        spent = subtract(await self._measure(), self._before, steps)
        text = text_of(self._last) if isinstance(info, AssistantMessage) else ""
        error: RunFailedError | None = None
        try:
            outcome = self._get_value(text)
        except RunFailedError as failed:
            outcome = error = failed
        answer = Answer(
            text=text,
            outcome=outcome,
            cost=spent.cost if spent.priced else None,
            tokens=to_tokens(spent),
            files=tuple(await self._api.list_diff(self._session, message=prompt)),
            steps=steps,
            session=self._session,
        )
        if error is not None:
            error.answer = answer
        return answer

    def _get_value(self, text: str) -> object:
        """Return the value of the answer. Raise `RunFailedError` if there is none."""
        assert self._last is not None, "the run has ended"
        info = self._last.info
        failure = (info.error if isinstance(info, AssistantMessage) else None) or self._failure
        ending = classify(self._last, self._failure)
        if ending != "done":
            kind = InvalidAnswerError if isinstance(failure, StructureFailure) else ERRORS[ending]
            raise kind(
                describe_failure(failure) if failure is not None else MESSAGES[ending],
                failure=failure,
                hint=find_hint(failure, self._refused),
            )
        if self._options.type is None:
            return text
        value = info.structured if isinstance(info, AssistantMessage) else UNSET
        if value is UNSET:
            raise InvalidAnswerError("the model answered with text and not with a value")
        try:
            return self._options.type.convert(value)
        except (msgspec.ValidationError, ValueError) as error:
            raise InvalidAnswerError(f"the value is not of the requested type: {error}") from error

    def _note(self, event: Event) -> None:
        match event:
            case MessageUpdated(info=AssistantMessage(session_id=self._session, time=time)) if (
                time.completed is None
            ):
                self._failure = None  # the run went on, so it recovered from the failure before
            case SessionFailed(session_id=self._session, error=error) if error is not None:
                self._failure = error
            case _:
                pass

    async def _reply(self, event: Event) -> None:
        """Answer a request of the agent. Nobody else may be there to do it, and the run must not wait for ever."""
        with suppress(NotFoundError):  # another client answered first
            match event:
                case PermissionAsked(request=request):
                    await self._reply_permission(request)
                case QuestionAsked(request=questions):
                    await self._api.reject_question(questions.id)
                case _:
                    pass

    async def _reply_permission(self, request: PermissionRequest) -> None:
        if self._options.permit is None:
            self._refused.append(f"{request.permission} {', '.join(request.patterns)}".strip())
            await self._api.reply_permission(request.id, "reject")
            return
        reply = self._options.permit(request)
        if inspect.isawaitable(reply):
            reply = await reply
        if reply is None:
            return
        if reply not in ("once", "always", "reject"):
            await self._api.reply_permission(request.id, "reject")
            raise InvalidInputError(
                "permissions", f"the function returned {reply!r}", hint='return "once", "always" or "reject"'
            )
        await self._api.reply_permission(request.id, reply)

    async def _measure(self) -> Spent:
        return measure(await self._api.get_session(self._session), self._transcript.messages())

    async def _refresh(self) -> None:
        self._transcript = Transcript(await self._api.list_messages(self._session))


MESSAGES = {
    "failed": "no model answered",
    "refused": "the agent stopped because a permission was refused",
    "loop": "the agent repeated itself and was stopped",
}


def to_parts(prompt: str, files: Sequence[AnyFile]) -> tuple[AnyPartInput, ...]:
    """Return a prompt with its attachments. Raise `InvalidInputError` if a file does not exist."""
    attachments: list[AnyPartInput] = []
    for each in files:
        path = Path(each).absolute()
        if not path.is_file():
            raise InvalidInputError("files", f"there is no file {str(each)!r}")
        mime = mimetypes.guess_type(path.name)[0] or "text/plain"
        attachments.append(FileInput(mime=mime, filename=path.name, url=path.as_uri()))
    return (TextInput(text=prompt), *attachments)


def measure(session: Session, messages: Sequence[MessageWithParts]) -> Spent:
    """Return what a session and its descendants have spent."""
    return total_spent(count_messages(get_ledger(session), [message.info for message in messages]))


@asynccontextmanager
async def apply_rules(api: Api, session: SessionID, rules: Ruleset | None) -> AsyncIterator[None]:
    """Give a session rules for one question, and then those that it had."""
    if rules is None:
        yield
        return
    before = (await api.get_session(session)).permission or ()
    await api.update_session(session, SessionChange(permission=rules))
    try:
        yield
    finally:
        await api.update_session(session, SessionChange(permission=before))

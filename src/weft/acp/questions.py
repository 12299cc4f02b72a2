"""Ask the person at the editor for permissions and answers, one question at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

from acp import RequestError
from acp.interfaces import Client
from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    ElicitationFormSessionMode,
    ElicitationMultiSelectPropertySchema,
    ElicitationSchema,
    ElicitationStringPropertySchema,
    EnumOption,
    PermissionOption,
    TitledMultiSelectItems,
    ToolCallUpdate,
)
from msgspec import Struct
from pydantic import ValidationError

from weft.acp.tool_calls import CallContent, changes_in, cut, shortened, to_diff, told
from weft.acp.updates import Teller
from weft.api import Api
from weft.errors import NotFoundError, WeftError
from weft.model.event import (
    Event,
    PermissionAsked,
    PermissionReplied,
    QuestionAsked,
    QuestionRejected,
    QuestionReplied,
)
from weft.model.ids import SessionID
from weft.model.permission import PermissionRequest, Question, QuestionRequest, Reply

REPLIES: Final[dict[str, Reply]] = {"once": "once", "always": "always"}
DISMISS: Final = "dismiss"
LONGEST_NAME: Final = 120
LONGEST_DIFF: Final = 16_000

Answers = tuple[tuple[str, ...], ...]


class Editor(Struct, frozen=True, kw_only=True):
    """Who is asked: the client, and whether it has forms to fill in, and lets us read and write what it has open. `note`
    takes lines for the log."""

    client: Client
    note: Callable[[str], None]
    forms: bool = False
    reads: bool = False
    writes: bool = False
    terminals: bool = False


class Asker:
    """Asks for one session and those below it. What is answered elsewhere, or withdrawn, is asked no more."""

    def __init__(self, session: SessionID, api: Api, editor: Editor, tasks: asyncio.TaskGroup) -> None:
        self._session = session
        self._api = api
        self._editor = editor
        self._tasks = tasks
        self._turn = asyncio.Lock()
        self._asking: dict[str, asyncio.Task[None]] = {}

    def feed(self, event: Event, teller: Teller) -> None:
        match event:
            case PermissionAsked(request=request) if request.id not in self._asking:
                self._asking[request.id] = self._tasks.create_task(self._permission(request, teller))
            case QuestionAsked(request=questions) if questions.id not in self._asking:
                self._asking[questions.id] = self._tasks.create_task(
                    self._questions(questions, shown_id(questions, teller))
                )
            case PermissionReplied() | QuestionReplied() | QuestionRejected():
                self._forget(event.request_id)
            case _:
                pass

    def leave(self) -> None:
        """The run is over, and with it all that was to be asked."""
        for id in list(self._asking):
            self._forget(id)

    def _forget(self, id: str) -> None:
        asking = self._asking.pop(id, None)
        if asking is not None and asking is not asyncio.current_task():
            asking.cancel()

    async def _answered(self, answering: Awaitable[None]) -> None:
        try:
            await answering
        except NotFoundError:
            pass  # somebody else was faster
        except WeftError as error:
            self._editor.note(f"an answer could not be given: {error}")

    # --- what may be done ---

    async def _permission(self, request: PermissionRequest, teller: Teller) -> None:
        async with self._turn:
            chosen = await self._choose(await self._shown(request, teller), list(options_for(request)))
        if chosen is None:
            return  # nobody is there any more; the run ends with them
        self._asking.pop(request.id, None)
        await self._answered(self._api.reply_permission(request.id, REPLIES.get(chosen, "reject")))

    async def _choose(self, call: ToolCallUpdate, options: list[PermissionOption]) -> str | None:
        """What is chosen, nothing if it is dismissed or cannot be shown; None if nobody is there."""
        try:
            answer = await self._editor.client.request_permission(
                session_id=self._session, tool_call=call, options=options
            )
        except (RequestError, ValidationError):
            return ""  # an editor that cannot ask has nobody to say yes
        except ConnectionError:
            return None
        return answer.outcome.option_id if isinstance(answer.outcome, AllowedOutcome) else ""

    async def _shown(self, request: PermissionRequest, teller: Teller) -> ToolCallUpdate:
        call = teller.find_call(request.tool) if request.tool else None
        wanted = f"{request.permission} {', '.join(request.patterns)}".strip()
        if call is None:
            return ToolCallUpdate(
                tool_call_id=shown_id(request, teller),
                title=cut(wanted, LONGEST_NAME),
                status="pending",
                content=list(told_of(request)) or None,
                raw_input=shortened(request.metadata),
            )
        content: list[CallContent] = [*call.wished()]
        if call.part.tool == "write":
            content = [
                to_diff(path, await self._held(path), call.input.get("content", ""))
                for path in call.paths()[:1]
            ]
        return ToolCallUpdate(
            tool_call_id=call.part.id,
            title=call.title(),
            kind=call.kind,
            status="pending",
            content=content or list(told_of(request)) or None,
            locations=call.locations() or None,
            raw_input=shortened(call.input),
        )

    async def _held(self, path: str) -> str | None:
        """What a file holds while the call that would write over it waits."""
        try:
            found = await self._api.files.read_file(path)
        except WeftError:
            return None
        return found.content if found.encoding is None else None

    # --- what is wanted ---

    async def _questions(self, request: QuestionRequest, call: str) -> None:
        async with self._turn:
            ask = self._by_form if self._editor.forms else self._by_choice
            answers = await ask(request, call)
        if answers is None:
            return
        self._asking.pop(request.id, None)
        if any(answers):
            await self._answered(self._api.reply_question(request.id, answers))
        else:
            await self._answered(self._api.reject_question(request.id))

    async def _by_form(self, request: QuestionRequest, call: str) -> Answers | None:
        message = "\n".join(question.question for question in request.questions)
        mode = ElicitationFormSessionMode(
            session_id=self._session,
            tool_call_id=call,
            requested_schema=to_form(request.questions),
        )
        try:
            answer = await self._editor.client.create_elicitation(message, mode)
        except (RequestError, ValidationError):
            return await self._by_choice(request, call)
        except ConnectionError:
            return None
        given = answer.content if isinstance(answer, AcceptElicitationResponse) else None
        return from_form(request.questions, given or {})

    async def _by_choice(self, request: QuestionRequest, call: str) -> Answers | None:
        """As a choice among options, which every editor can show. Own words cannot be typed there."""
        answers: list[tuple[str, ...]] = []
        for question in request.questions:
            shown = ToolCallUpdate(
                tool_call_id=call,
                title=question.question,
                kind="other",
                status="pending",
                content=[told(f"{each.label}: {each.description}") for each in question.options] or None,
            )
            chosen = await self._choose(shown, list(options_of(question)))
            if chosen is None:
                return None
            labels = {str(number): each.label for number, each in enumerate(question.options)}
            answers.append((labels[chosen],) if chosen in labels else ())
        return tuple(answers)


def shown_id(request: PermissionRequest | QuestionRequest, teller: Teller) -> str:
    """The id by which the editor was told of the call that asks; one of its own for what no call asks, or one that the
    editor was not told of: those of child sessions."""
    call = teller.find_call(request.tool) if request.tool else None
    if call is not None:
        return call.part.id
    return request.tool.call_id if request.tool else request.id


def options_for(request: PermissionRequest) -> Iterator[PermissionOption]:
    yield PermissionOption(option_id="once", kind="allow_once", name="Allow once")
    if request.always:
        reach = cut(", ".join(request.always), LONGEST_NAME)
        yield PermissionOption(
            option_id="always", kind="allow_always", name=f"Always allow {request.permission} {reach}"
        )
    yield PermissionOption(option_id="reject", kind="reject_once", name="Reject")


def told_of(request: PermissionRequest) -> Iterator[CallContent]:
    """What the question itself says of the change it is about."""
    for change in changes_in(request.metadata):
        path, before, after = change.get("filePath"), change.get("before"), change.get("after")
        if isinstance(path, str) and isinstance(before, str) and isinstance(after, str):
            yield to_diff(path, None if change.get("type") == "add" else before, after)
    if not changes_in(request.metadata) and isinstance(diff := request.metadata.get("diff"), str):
        yield told(cut(diff, LONGEST_DIFF))


def options_of(question: Question) -> Iterator[PermissionOption]:
    for number, option in enumerate(question.options):
        yield PermissionOption(option_id=str(number), kind="allow_once", name=option.label)
    yield PermissionOption(option_id=DISMISS, kind="reject_once", name="Dismiss")


def to_form(questions: tuple[Question, ...]) -> ElicitationSchema:
    properties: dict[str, Any] = {}
    for number, question in enumerate(questions):
        choices = [
            EnumOption(const=each.label, title=each.label, description=each.description or None)
            for each in question.options
        ]
        title = question.header or question.question
        if choices and question.multiple:
            items = TitledMultiSelectItems(any_of=choices)
            properties[f"answer{number}"] = ElicitationMultiSelectPropertySchema(
                type="array", items=items, title=title, description=question.question
            )
        elif choices:
            properties[f"answer{number}"] = ElicitationStringPropertySchema(
                type="string", one_of=choices, title=title, description=question.question
            )
        if question.custom or not choices:
            properties[f"own{number}"] = ElicitationStringPropertySchema(
                type="string", title="In your own words", description=question.question
            )
    return ElicitationSchema(type="object", properties=properties)


def from_form(questions: tuple[Question, ...], given: dict[str, Any]) -> Answers:
    """One list of answers for each question. Own words go before what was chosen: they were typed."""
    return tuple(tuple(_filled_in(given, number)) for number in range(len(questions)))


def _filled_in(given: dict[str, Any], number: int) -> list[str]:
    own, chosen = given.get(f"own{number}"), given.get(f"answer{number}")
    if isinstance(own, str) and own.strip():
        return [own.strip()]
    if isinstance(chosen, list):
        return [each for each in chosen if isinstance(each, str)]
    return [chosen] if isinstance(chosen, str) and chosen else []

"""Ask the person at the editor for permissions and answers, one request at a time."""

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

from weft.acp.tool_calls import CallContent, list_changes, shorten, shorten_values, to_diff, to_text_content
from weft.acp.updates import UpdateStream
from weft.api import Api
from weft.errors import ConflictError, NotFoundError, WeftError
from weft.model.event import (
    Event,
    PermissionAsked,
    PermissionReplied,
    QuestionAsked,
    QuestionRejected,
    QuestionReplied,
)
from weft.model.ids import SessionID
from weft.model.permission import PermissionRequest, Question, QuestionRequest, Reply, list_request_facts

REPLIES: Final[dict[str, Reply]] = {"once": "once", "always": "always"}
DISMISS: Final = "dismiss"
MAX_NAME_LENGTH: Final = 120
MAX_DIFF_LENGTH: Final = 16_000

Answers = tuple[tuple[str, ...], ...]


class EditorClient(Struct, frozen=True, kw_only=True):
    """The editor, and what it supports: forms, reading and writing its buffers, terminals. `note` writes to the log."""

    client: Client
    note: Callable[[str], None]
    forms: bool = False
    reads: bool = False
    writes: bool = False
    terminals: bool = False


class EditorQuestions:
    """Asks for one session and its descendants. A request that is answered elsewhere, or withdrawn, is cancelled."""

    def __init__(self, session: SessionID, api: Api, editor: EditorClient, tasks: asyncio.TaskGroup) -> None:
        self._session = session
        self._api = api
        self._editor = editor
        self._tasks = tasks
        self._lock = asyncio.Lock()
        self._tasks_by_id: dict[str, asyncio.Task[None]] = {}

    def feed(self, event: Event, updates: UpdateStream) -> None:
        match event:
            case PermissionAsked(request=request) if request.id not in self._tasks_by_id:
                self._tasks_by_id[request.id] = self._tasks.create_task(
                    self._ask_permission(request, updates)
                )
            case QuestionAsked(request=questions) if questions.id not in self._tasks_by_id:
                self._tasks_by_id[questions.id] = self._tasks.create_task(
                    self._ask_questions(questions, to_call_id(questions, updates))
                )
            case PermissionReplied() | QuestionReplied() | QuestionRejected():
                self._withdraw(event.request_id)
            case _:
                pass

    def withdraw_all(self) -> None:
        """Cancel all requests: the run has ended."""
        for id in list(self._tasks_by_id):
            self._withdraw(id)

    def _withdraw(self, id: str) -> None:
        task = self._tasks_by_id.pop(id, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    async def _send_answer(self, answer: Awaitable[None]) -> None:
        try:
            await answer
        except (ConflictError, NotFoundError):
            pass  # it was answered elsewhere, or the run withdrew it
        except WeftError as error:
            self._editor.note(f"an answer was not accepted: {error}")

    # --- permissions ---

    async def _ask_permission(self, request: PermissionRequest, updates: UpdateStream) -> None:
        async with self._lock:
            option = await self._choose(
                await self._make_update(request, updates), list(list_permission_options(request))
            )
        if option is None:
            return  # the editor is gone, and the run ends with it
        self._tasks_by_id.pop(request.id, None)
        await self._send_answer(self._api.reply_permission(request.id, REPLIES.get(option, "reject")))

    async def _choose(self, call: ToolCallUpdate, options: list[PermissionOption]) -> str | None:
        """Return the chosen option, "" if the request was dismissed or cannot be shown, None if the editor is gone."""
        try:
            answer = await self._editor.client.request_permission(
                session_id=self._session, tool_call=call, options=options
            )
        except (RequestError, ValidationError):
            return ""  # an editor that cannot ask allows nothing
        except ConnectionError:
            return None
        return answer.outcome.option_id if isinstance(answer.outcome, AllowedOutcome) else ""

    async def _make_update(self, request: PermissionRequest, updates: UpdateStream) -> ToolCallUpdate:
        call = updates.find_call(request.tool) if request.tool else None
        subject = f"{request.permission} {', '.join(request.patterns)}".strip()
        if call is None:
            return ToolCallUpdate(
                tool_call_id=to_call_id(request, updates),
                title=shorten(subject, MAX_NAME_LENGTH),
                status="pending",
                content=[*describe_change(request), *describe_reason(request)] or None,
                raw_input=shorten_values(request.metadata),
            )
        content: list[CallContent] = [*call.requested_diffs()]
        # The arguments may not be checked yet: a call that the model repeats is asked about before.
        if call.part.tool == "write" and isinstance(text := call.input.get("content", ""), str):
            content = [to_diff(path, await self._read_file(path), text) for path in call.paths()[:1]]
        return ToolCallUpdate(
            tool_call_id=call.part.id,
            title=call.title(),
            kind=call.kind,
            status="pending",
            content=[*(content or describe_change(request)), *describe_reason(request)] or None,
            locations=call.locations() or None,
            raw_input=shorten_values(call.input),
        )

    async def _read_file(self, path: str) -> str | None:
        """Return the content of a file that a waiting call would overwrite, None if it is not text."""
        try:
            file = await self._api.files.read_file(path)
        except WeftError:
            return None
        return file.content if file.encoding is None else None

    # --- questions ---

    async def _ask_questions(self, request: QuestionRequest, call: str) -> None:
        async with self._lock:
            ask = self._ask_by_form if self._editor.forms else self._ask_by_choice
            answers = await ask(request, call)
        if answers is None:
            return
        self._tasks_by_id.pop(request.id, None)
        if any(answers):
            await self._send_answer(self._api.reply_question(request.id, answers))
        else:
            await self._send_answer(self._api.reject_question(request.id))

    async def _ask_by_form(self, request: QuestionRequest, call: str) -> Answers | None:
        message = "\n".join(question.question for question in request.questions)
        mode = ElicitationFormSessionMode(
            session_id=self._session,
            tool_call_id=call,
            requested_schema=to_form(request.questions),
        )
        try:
            answer = await self._editor.client.create_elicitation(message, mode)
        except (RequestError, ValidationError):
            return await self._ask_by_choice(request, call)
        except ConnectionError:
            return None
        content = answer.content if isinstance(answer, AcceptElicitationResponse) else None
        return from_form(request.questions, content or {})

    async def _ask_by_choice(self, request: QuestionRequest, call: str) -> Answers | None:
        """Ask with a choice of options, which every editor can show. Free text is not possible there."""
        answers: list[tuple[str, ...]] = []
        for question in request.questions:
            update = ToolCallUpdate(
                tool_call_id=call,
                title=question.question,
                kind="other",
                status="pending",
                content=[to_text_content(f"{each.label}: {each.description}") for each in question.options]
                or None,
            )
            option = await self._choose(update, list(list_question_options(question)))
            if option is None:
                return None
            labels = {str(number): each.label for number, each in enumerate(question.options)}
            answers.append((labels[option],) if option in labels else ())
        return tuple(answers)


def to_call_id(request: PermissionRequest | QuestionRequest, updates: UpdateStream) -> str:
    """Return the id under which the editor knows the call that a request is about.

    The editor does not know the calls of child sessions. Their requests, and those without a call, have an id of
    their own.
    """
    call = updates.find_call(request.tool) if request.tool else None
    if call is not None:
        return call.part.id
    return request.tool.call_id if request.tool else request.id


def list_permission_options(request: PermissionRequest) -> Iterator[PermissionOption]:
    yield PermissionOption(option_id="once", kind="allow_once", name="Allow once")
    if request.always:
        patterns = shorten(", ".join(request.always), MAX_NAME_LENGTH)
        yield PermissionOption(
            option_id="always", kind="allow_always", name=f"Always allow {request.permission} {patterns}"
        )
    yield PermissionOption(option_id="reject", kind="reject_once", name="Reject")


def describe_change(request: PermissionRequest) -> Iterator[CallContent]:
    """Yield the change that a request is about, as its metadata describes it."""
    for change in list_changes(request.metadata):
        path, before, after = change.get("filePath"), change.get("before"), change.get("after")
        if isinstance(path, str) and isinstance(before, str) and isinstance(after, str):
            yield to_diff(path, None if change.get("type") == "add" else before, after)
    if not list_changes(request.metadata) and isinstance(diff := request.metadata.get("diff"), str):
        yield to_text_content(shorten(diff, MAX_DIFF_LENGTH))


def describe_reason(request: PermissionRequest) -> Iterator[CallContent]:
    """Yield why the request is made, as one text, if its metadata says so."""
    if facts := list(list_request_facts(request.metadata)):
        yield to_text_content(shorten("\n".join(facts), MAX_DIFF_LENGTH))


def list_question_options(question: Question) -> Iterator[PermissionOption]:
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


def from_form(questions: tuple[Question, ...], content: dict[str, Any]) -> Answers:
    """Return one tuple of answers for each question. Typed text takes precedence over chosen options."""
    return tuple(tuple(_read_answer(content, number)) for number in range(len(questions)))


def _read_answer(content: dict[str, Any], number: int) -> list[str]:
    typed, choice = content.get(f"own{number}"), content.get(f"answer{number}")
    if isinstance(typed, str) and typed.strip():
        return [typed.strip()]
    if isinstance(choice, list):
        return [each for each in choice if isinstance(each, str)]
    return [choice] if isinstance(choice, str) and choice else []

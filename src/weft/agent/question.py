"""One question: send the prompt, answer the agent's requests, and build the answer from the events."""

import inspect
import mimetypes
import os
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import UNSET

from weft.agent.answer import (
    ERRORS,
    VALUE_HINT,
    Answer,
    InvalidAnswerError,
    RunFailedError,
    classify,
    explain_failure,
    find_hint,
    list_steps,
    subtract,
    text_of,
    to_tokens,
)
from weft.agent.events import AnyStreamEvent, EventFold
from weft.agent.options import QuestionOptions, describe_type
from weft.api import Api
from weft.client.prompt_run import PromptRun
from weft.errors import ConflictError, InvalidInputError, NotFoundError
from weft.model.event import Event, MessageUpdated, PermissionAsked, QuestionAsked, SessionFailed
from weft.model.event_wire import RESYNC, UnknownEvent
from weft.model.failure import AnyFailure, StructureFailure
from weft.model.ids import SessionID
from weft.model.input import AnyPartInput, FileInput, PromptInput, TextInput
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.permission import PermissionRequest, Ruleset
from weft.model.session import SessionChange, SessionInfo, get_ledger
from weft.model.spending import Spent, total_spent
from weft.model.transcript import Transcript
from weft.session.totals import count_messages

AnyFile = str | os.PathLike[str]


class QuestionRun:
    """One prompt: its events, the requests it made, and what it cost."""

    def __init__(
        self, api: Api, session: SessionID, transcript: Transcript, options: QuestionOptions
    ) -> None:
        self._api = api
        self._session = session
        self._options = options
        self._transcript = transcript
        self._refused: list[str] = []
        self._failure: AnyFailure | None = None
        self._last: MessageWithParts | None = None
        self._before = Spent()

    async def events(self, input: PromptInput) -> AsyncGenerator[AnyStreamEvent]:
        """Send the prompt and yield events until the session is idle. Closing the generator ends the run."""
        if self._transcript.messages():
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

    async def make_answer(self) -> Answer[object]:
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
                explain_failure(failure) if failure is not None else MESSAGES[ending],
                failure=failure,
                hint=find_hint(failure, self._refused),
            )
        if self._options.type is None:
            return text
        value = info.structured if isinstance(info, AssistantMessage) else UNSET
        if value is UNSET:
            raise InvalidAnswerError("the model answered with text and not with a value", hint=VALUE_HINT)
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
        with suppress(ConflictError, NotFoundError):  # another client answered first, or the run withdrew it
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
    if isinstance(files, str | os.PathLike):
        raise InvalidInputError("files", f"it is {describe_type(files)}", hint="pass a list of paths")
    attachments: list[AnyPartInput] = []
    for each in files:
        path = Path(each).absolute()
        if path.is_dir():
            raise InvalidInputError("files", f"{str(each)!r} is a directory", hint="pass the files in it")
        if not path.is_file():
            raise InvalidInputError(
                "files", f"there is no file {str(each)!r}", hint=f"paths are relative to {Path.cwd()}"
            )
        mime = mimetypes.guess_type(path.name)[0] or "text/plain"
        attachments.append(FileInput(mime=mime, filename=path.name, url=path.as_uri()))
    return (TextInput(text=prompt), *attachments)


def measure(session: SessionInfo, messages: Sequence[MessageWithParts]) -> Spent:
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

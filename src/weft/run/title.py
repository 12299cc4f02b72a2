"""Give titles to sessions and prompts: by the small model if there is one, else from the first words of the prompt.

Each title is made once, and never replaces a title that a person gave.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress

from msgspec.structs import replace

from weft.errors import NotFoundError, StoreError
from weft.host.tasks import open_tasks
from weft.model.catalog import Model
from weft.model.message import (
    AnyMessage,
    AssistantMessage,
    MessageWithParts,
    UserMessage,
    UserSummary,
    is_human_prompt,
)
from weft.model.part import SubtaskPart, TextPart
from weft.model.session import SessionInfo, get_weft_data, may_be_titled
from weft.model.spending import Spent, to_spent
from weft.model.transcript import Transcript
from weft.plugin.hooks import ChatRequest
from weft.provider.chunk import AnyChunk, Finished, TextDelta, Usage
from weft.provider.contract import ModelRequest, TextContent, UserModelMessage
from weft.run.hooks import apply_request_hooks
from weft.run.request import make_parameters
from weft.run.runtime import Runtime
from weft.run.usage import to_answer_usage
from weft.session.totals import add_own_spending

TITLE_AGENT = "title"
TITLE_REQUEST = "Generate a title for this conversation:\n"
TIMEOUT_SECONDS = 15.0
GRACE_SECONDS = 1.0
MAX_TITLE_LENGTH = 100
MAX_EXCERPT_LENGTH = 60
MAX_OUTPUT_TOKENS = 200
REASONING_START, REASONING_END = "<think>", "</think>"


class TitleReply:
    """The reply of the small model so far, and its cost. The cost of a stream that was cut off is unknown."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.spent = Spent()

    def feed(self, chunk: AnyChunk, model: Model) -> None:
        match chunk:
            case TextDelta(text=text):
                self.texts.append(text)
                self.spent = to_spent(to_answer_usage(Usage(), model, whole=False))
            case Finished(usage=usage):
                self.spent = to_spent(to_answer_usage(usage, model))
            case _:
                pass


class Titles:
    """The titles that one run makes: for its session, if that has none yet, and for the prompts that it answers.

    `give` runs next to the run, `finish` ends it. OpenCode asks the model twice for the first prompt, once for each title, and
    its two writers overwrite each other.
    """

    def __init__(self, runtime: Runtime, session: SessionInfo, transcript: Transcript) -> None:
        self._runtime = runtime
        self._session = session
        self._transcript = transcript
        history = transcript.messages()
        infos = [each.info for each in history]
        answered = {info.parent_id for info in infos if isinstance(info, AssistantMessage)}
        self._answered_before = answered.intersection([info.id for info in infos])
        needs_title = session.parent_id is None and may_be_titled(session)
        prompts = [message for message in history if is_human_prompt(message)] if needs_title else []
        self._naming_prompt = prompts[0].info.id if len(prompts) == 1 else None

    async def give(self) -> None:
        """Give titles to the prompts that wait for an answer."""
        for message in self._list_untitled():
            source = _get_title_source(message)
            reply = TitleReply()
            try:
                assert isinstance(message.info, UserMessage)
                if message.info.id == self._naming_prompt or not self._is_limited(message.info):
                    await _request_title(self._runtime, message.info, source, reply)
            finally:  # even if this is cancelled, the first words make a title
                title = to_title("".join(reply.texts)) or to_title(source, max_length=MAX_EXCERPT_LENGTH)
                await self._store(message, title, reply.spent)

    async def finish(self, task: asyncio.Task[None]) -> None:
        """End `give` when the answer is complete. Prompts that came in meanwhile get their first words as titles.

        Wait a moment if the session itself has no title yet, but not for the title of a prompt.
        """
        await asyncio.wait([task], timeout=GRACE_SECONDS if self._naming_prompt is not None else 0)
        task.cancel()
        await asyncio.wait([task])
        for message in self._list_untitled():
            await self._store(
                message, to_title(_get_title_source(message), max_length=MAX_EXCERPT_LENGTH), Spent()
            )

    def _list_untitled(self) -> list[MessageWithParts]:
        """Return the prompts of this run that have text and no title, and the one whose title becomes the session's."""
        return [
            message
            for message in self._transcript.messages()
            if isinstance(message.info, UserMessage)
            and message.info.id not in self._answered_before
            and (message.info.id == self._naming_prompt or _has_text(message))
            and (message.info.summary is None or message.info.summary.title is None)
        ]

    def _is_limited(self, prompt: UserMessage) -> bool:
        """Return True if a budget limits the run. Requests for titles would bypass it."""
        shared = get_weft_data(self._session).shared_budget
        return prompt.budget is not None or shared is not None or self._runtime.budgets.is_limited

    async def _store(self, message: MessageWithParts, title: str, spent: Spent) -> None:
        """Store the title, and add its cost to the session. OpenCode does not count that."""
        is_naming_prompt = message.info.id == self._naming_prompt

        def edit(session: SessionInfo) -> SessionInfo:
            titled = (
                replace(session, title=title)
                if is_naming_prompt and title and may_be_titled(session)
                else session
            )
            return titled if spent == Spent() else add_own_spending(titled, spent)

        self._naming_prompt = None if is_naming_prompt else self._naming_prompt
        # The session may be gone by now. On a full disk the run itself fails, not its title.
        with suppress(NotFoundError, StoreError):
            if title and _has_text(message):
                await self._runtime.journal.edit_message(
                    self._session.id,
                    message.info.id,
                    lambda stored: _with_title(stored, title),
                    into=self._transcript,
                    session_editor=edit,
                )
            else:
                await self._runtime.journal.edit(self._session.id, edit)


@asynccontextmanager
async def open_titles(runtime: Runtime, session: SessionInfo, transcript: Transcript) -> AsyncIterator[None]:
    """Give titles while the body runs, and finish after it."""
    async with open_tasks() as tasks:
        titles = Titles(runtime, session, transcript)
        task = tasks.create_task(titles.give())
        yield
        await titles.finish(task)


def _with_title(message: AnyMessage, title: str) -> AnyMessage:
    if not isinstance(message, UserMessage):
        return message
    summary = message.summary or UserSummary()
    return replace(message, summary=replace(summary, title=summary.title or title))


def _get_title_source(message: MessageWithParts) -> str:
    """Return the text that a title is made from: that of the person, else the prompts of the subtasks."""
    return _get_text(message) or "\n".join(
        part.prompt for part in message.parts if isinstance(part, SubtaskPart)
    )


def _get_text(message: MessageWithParts) -> str:
    """Return the text that a person wrote, without what weft added."""
    return "\n".join(
        part.text
        for part in message.parts
        if isinstance(part, TextPart) and not part.synthetic and not part.ignored
    )


def _has_text(message: MessageWithParts) -> bool:
    return bool(_get_text(message).strip())


def to_title(text: str, *, max_length: int = MAX_TITLE_LENGTH) -> str:
    """Return the first line with text in it, without reasoning, cut to a length."""
    lines = (line.strip() for line in _without_reasoning(text).splitlines())
    line = next((line for line in lines if line), "")
    return line if len(line) <= max_length else line[: max_length - 3] + "..."


def _without_reasoning(text: str) -> str:
    # Not by a pattern: it would look for the end anew at each start, which takes minutes in a long prompt.
    *ended, rest = text.split(REASONING_END)
    kept: list[str] = []
    for piece in ended:
        before, start, _ = piece.partition(REASONING_START)
        kept.append(before if start else f"{piece}{REASONING_END}")
    return "".join((*kept, rest))


async def _request_title(runtime: Runtime, prompt: UserMessage, source: str, reply: TitleReply) -> None:
    """Ask the small model for a title. Leave the text of the reply empty if there is no such model, or if it fails or takes too long."""
    agent = runtime.agents.get(TITLE_AGENT)
    if agent is None or prompt.model is None or not source.strip():
        return
    ref = agent.model or runtime.models.find_small(prompt.model)
    if ref is None:
        return
    try:
        served = runtime.models.get(ref)
        request = ModelRequest(
            model=served.model,
            system=(agent.prompt or "",),
            messages=tuple(
                UserModelMessage(content=(TextContent(text=text),)) for text in (TITLE_REQUEST, source)
            ),
            parameters=make_parameters(
                served.model, agent, prompt, output_limit=MAX_OUTPUT_TOKENS, small=True
            ),
            session=prompt.session_id,
        )
        hook_input = ChatRequest(
            session_id=prompt.session_id, agent=TITLE_AGENT, model=served.model, message=prompt
        )
        request = await apply_request_hooks(
            runtime.hooks, request, hook_input, output_limit=MAX_OUTPUT_TOKENS
        )
        async with asyncio.timeout(TIMEOUT_SECONDS), aclosing(served.provider.stream(request)) as chunks:
            async for chunk in chunks:
                reply.feed(chunk, served.model)
    except Exception:  # noqa: BLE001  providers are foreign code, and a title must not break a run
        reply.texts.clear()

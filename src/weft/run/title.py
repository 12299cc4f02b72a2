"""Titles of sessions and of prompts: made by the small model if there is one, else from the first words of the prompt.
Each is made once, and a session's never replaces a person's own."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress

from msgspec.structs import replace

from weft.errors import NotFoundError, StoreError
from weft.host.tasks import open_tasks
from weft.model.catalog import Model
from weft.model.message import AnyMessage, AssistantMessage, MessageWithParts, UserMessage, UserSummary
from weft.model.part import SubtaskPart, TextPart
from weft.model.session import Session, may_be_titled
from weft.model.spending import Spent
from weft.model.transcript import Transcript
from weft.plugin.hooks import Asked
from weft.provider.chunk import AnyChunk, Finished, TextDelta, Usage
from weft.provider.contract import ModelRequest, TextContent, UserTurn
from weft.run.hooks import Reviewing, tuned
from weft.run.kit import Kit
from weft.run.request import parameters
from weft.run.usage import to_bill
from weft.session.totals import also_spent, to_spent

AGENT = "title"
REQUEST = "Generate a title for this conversation:\n"
SECONDS = 15.0
GRACE = 1.0
LONGEST = 100
LONGEST_WORDS = 60
MOST_TOKENS = 200
_THOUGHT = re.compile(r"<think>.*?</think>\s*", re.DOTALL)


class Said:
    """What the small model has said so far, and what that took. A stream that is cut off was paid for, nobody knows how dear."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.spent = Spent()

    def hear(self, chunk: AnyChunk, model: Model) -> None:
        match chunk:
            case TextDelta(text=text):
                self.words.append(text)
                self.spent = to_spent(to_bill(Usage(), model, whole=False))
            case Finished(usage=usage):
                self.spent = to_spent(to_bill(usage, model))
            case _:
                pass


class Titles:
    """The titles that one run gives: to its session, if that has none yet, and to the prompts that it answers.

    `give` works beside a run, and `finish` is for when the answer is there. OpenCode asks the
    model twice for the first prompt, once for each title, and lets two writers overwrite one another.
    """

    def __init__(self, kit: Kit, session: Session, transcript: Transcript) -> None:
        self._kit = kit
        self._session = session
        self._transcript = transcript
        history = transcript.messages()
        answered = {each.info.parent_id for each in history if isinstance(each.info, AssistantMessage)}
        self._earlier = {each.info.id for each in history} & answered
        prompts = [message for message in history if _is_said(message)]
        nameless = session.parent_id is None and may_be_titled(session)
        self._first = prompts[0].info.id if nameless and len(prompts) == 1 else None

    async def give(self) -> None:
        """Name what waits for an answer: by the small model if there is one, else by its first words."""
        for message in self._untitled():
            words = _words_of(message)
            said = Said()
            try:
                assert isinstance(message.info, UserMessage)
                if message.info.id == self._first or not self._is_limited(message.info):
                    await _ask(self._kit, message.info, words, said)
            finally:  # also if there is no time left for the model
                title = to_title("".join(said.words)) or to_title(words, longest=LONGEST_WORDS)
                await self._store(message, title, said.spent)

    async def finish(self, giving: asyncio.Task[None]) -> None:
        """End `give`, since the work is done, and name by their words the prompts that came in meanwhile.

        Only a session is worth a short wait for its title: nobody waits for that of a prompt.
        """
        await asyncio.wait([giving], timeout=GRACE if self._first is not None else 0)
        giving.cancel()
        await asyncio.wait([giving])
        for message in self._untitled():
            await self._store(message, to_title(_words_of(message), longest=LONGEST_WORDS), Spent())

    def _untitled(self) -> list[MessageWithParts]:
        """List the prompts of this run that somebody wrote and that have no title yet, and the one that names the session."""
        return [
            message
            for message in self._transcript.messages()
            if isinstance(message.info, UserMessage)
            and message.info.id not in self._earlier
            and (message.info.id == self._first or _has_words(message))
            and (message.info.summary is None or message.info.summary.title is None)
        ]

    def _is_limited(self, prompt: UserMessage) -> bool:
        """Return whether a budget is in force: no call may be made then that it was not asked about."""
        return prompt.budget is not None or self._kit.purse.is_limited

    async def _store(self, message: MessageWithParts, title: str, spent: Spent) -> None:
        """Write the title, and count what it took: OpenCode leaves that out of what a session has cost."""
        names_session = message.info.id == self._first

        def edit(it: Session) -> Session:
            named = replace(it, title=title) if names_session and title and may_be_titled(it) else it
            return named if spent == Spent() else also_spent(named, spent)

        self._first = None if names_session else self._first
        # The session may be gone by now. And a full disk ends a run by what the run itself has to store, not by a title.
        with suppress(NotFoundError, StoreError):
            if names_session or spent != Spent():
                await self._kit.journal.edit(self._session.id, edit)
            if title and _has_words(message):
                await self._kit.journal.edit_message(
                    self._session.id, message.info.id, lambda it: _titled(it, title), into=self._transcript
                )


@asynccontextmanager
async def open_titles(kit: Kit, session: Session, transcript: Transcript) -> AsyncIterator[None]:
    """Give titles beside a run, and finish when it has come to its end."""
    async with open_tasks() as beside:
        titles = Titles(kit, session, transcript)
        giving = beside.create_task(titles.give())
        yield
        await titles.finish(giving)


def _titled(message: AnyMessage, title: str) -> AnyMessage:
    if not isinstance(message, UserMessage):
        return message
    summary = message.summary or UserSummary()
    return replace(message, summary=replace(summary, title=summary.title or title))


def _words_of(message: MessageWithParts) -> str:
    return _text_of(message) or "\n".join(
        part.prompt for part in message.parts if isinstance(part, SubtaskPart)
    )


def _text_of(message: MessageWithParts) -> str:
    """Return what somebody wrote, without what we added."""
    return "\n".join(
        part.text
        for part in message.parts
        if isinstance(part, TextPart) and not part.synthetic and not part.ignored
    )


def _has_words(message: MessageWithParts) -> bool:
    return bool(_text_of(message).strip())


def _is_said(message: MessageWithParts) -> bool:
    """Whether it is a prompt in which somebody but us had a word."""
    ours = all(isinstance(part, TextPart) and part.synthetic for part in message.parts)
    return isinstance(message.info, UserMessage) and not ours


def to_title(text: str, *, longest: int = LONGEST) -> str:
    """The first line that says something, without thoughts, cut to a length."""
    lines = (line.strip() for line in _THOUGHT.sub("", text).splitlines())
    line = next((line for line in lines if line), "")
    return line if len(line) <= longest else line[: longest - 3] + "..."


async def _ask(kit: Kit, prompt: UserMessage, words: str, said: Said) -> None:
    """Hear the small model out; say nothing if there is none, or if it fails or takes long: a title is not worth a wait."""
    agent = kit.agents.get(AGENT)
    if agent is None or prompt.model is None or not words.strip():
        return
    ref = agent.model or kit.models.small(prompt.model)
    if ref is None:
        return
    try:
        served = kit.models.get(ref)
        request = ModelRequest(
            model=served.model,
            system=(agent.prompt or "",),
            messages=tuple(UserTurn(content=(TextContent(text=text),)) for text in (REQUEST, words)),
            parameters=parameters(served.model, agent, prompt, most=MOST_TOKENS, small=True),
            session=prompt.session_id,
        )
        asked = Asked(session_id=prompt.session_id, agent=AGENT, model=served.model, message=prompt)
        request = await tuned(Reviewing(kit.hooks, MOST_TOKENS), request, asked)
        async with asyncio.timeout(SECONDS), aclosing(served.provider.stream(request)) as chunks:
            async for chunk in chunks:
                said.hear(chunk, served.model)
    except Exception:  # noqa: BLE001  a provider is a stranger's code, and a title not worth a run
        said.words.clear()

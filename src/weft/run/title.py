"""Name a session: by the small model if there is one, else by the first words of the prompt. Once, and never over a
person's own title."""

import asyncio
import re
from contextlib import aclosing, suppress
from decimal import Decimal

from msgspec.structs import replace

from weft.errors import NotFoundError
from weft.model.catalog import Model
from weft.model.message import MessageWithParts, UserMessage
from weft.model.part import SubtaskPart, TextPart
from weft.model.session import Session, may_be_titled
from weft.model.spent import Spent
from weft.model.transcript import Transcript
from weft.plugin.hooks import Asked
from weft.provider.chunk import AnyChunk, Finished, TextDelta
from weft.provider.contract import ModelRequest, TextContent, UserTurn
from weft.run.hooked.asked import Reviewing, tuned
from weft.run.kit import Kit
from weft.run.request import parameters
from weft.run.usage import cost_of, to_tokens
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
                self.spent = Spent(priced=False)
            case Finished(usage=usage):
                cost = cost_of(usage, model)
                self.spent = to_spent(to_tokens(usage), cost or Decimal(0), priced=cost is not None)
            case _:
                pass


async def name_session(kit: Kit, session: Session, transcript: Transcript) -> None:
    """Give the session a title, if it has none and this is its first prompt."""
    if session.parent_id is not None or not may_be_titled(session):
        return
    prompts = [message for message in transcript.messages() if _is_said(message)]
    if len(prompts) != 1:
        return
    (first,) = prompts
    words = "\n".join(
        part.text
        for part in first.parts
        if isinstance(part, TextPart) and not part.synthetic and not part.ignored
    ) or "\n".join(part.prompt for part in first.parts if isinstance(part, SubtaskPart))
    assert isinstance(first.info, UserMessage)
    said = Said()
    try:
        await _ask(kit, first.info, words, said)
    finally:  # also if there is no time left for the model
        title = to_title("".join(said.words)) or to_title(words, longest=LONGEST_WORDS)
        await _give(kit, session, title, said.spent)


async def hurry(naming: asyncio.Task[None]) -> None:
    """The work is done: a title that is not there soon is made without the model."""
    await asyncio.wait([naming], timeout=GRACE)
    naming.cancel()


async def _give(kit: Kit, session: Session, title: str, spent: Spent) -> None:
    """The title, and what it took: OpenCode leaves that out of what a session has cost."""

    def edit(it: Session) -> Session:
        titled = replace(it, title=title) if title and may_be_titled(it) else it
        return titled if spent == Spent() else also_spent(titled, spent)

    with suppress(NotFoundError):  # it was removed meanwhile
        await kit.journal.edit(session.id, edit)


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

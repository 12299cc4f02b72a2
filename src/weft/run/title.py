"""Name a session: by the small model if there is one, else by the first words of the prompt. Once, and never over a
person's own title."""

import asyncio
import re
from contextlib import aclosing, suppress

from msgspec.structs import replace

from weft.errors import NotFoundError
from weft.model.message import MessageWithParts, UserMessage
from weft.model.part import SubtaskPart, TextPart
from weft.model.session import Session, may_be_titled
from weft.model.transcript import Transcript
from weft.provider.chunk import TextDelta
from weft.provider.contract import ModelRequest, TextContent, UserTurn
from weft.run.kit import Kit
from weft.run.request import parameters

AGENT = "title"
REQUEST = "Generate a title for this conversation:\n"
SECONDS = 15.0
GRACE = 1.0
LONGEST = 100
LONGEST_WORDS = 60
MOST_TOKENS = 200
_THOUGHT = re.compile(r"<think>.*?</think>\s*", re.DOTALL)


async def name_session(kit: Kit, session: Session, transcript: Transcript) -> None:
    """Give the session a title, if it has none and this is its first prompt."""
    prompts = [message for message in transcript.messages() if _is_said(message)]
    if session.parent_id is not None or not may_be_titled(session) or len(prompts) != 1:
        return
    (first,) = prompts
    words = "\n".join(
        part.text
        for part in first.parts
        if isinstance(part, TextPart) and not part.synthetic and not part.ignored
    ) or "\n".join(part.prompt for part in first.parts if isinstance(part, SubtaskPart))
    assert isinstance(first.info, UserMessage)
    title = ""
    try:
        title = await _asked(kit, first.info, words)
    finally:  # also if there is no time left for the model
        await _give(kit, session, title or to_title(words, longest=LONGEST_WORDS))


async def hurry(naming: asyncio.Task[None]) -> None:
    """The work is done: a title that is not there soon is made without the model."""
    await asyncio.wait([naming], timeout=GRACE)
    naming.cancel()


async def _give(kit: Kit, session: Session, title: str) -> None:
    if title:
        with suppress(NotFoundError):  # it was removed meanwhile
            await kit.journal.edit(
                session.id, lambda it: replace(it, title=title) if may_be_titled(it) else it
            )


def _is_said(message: MessageWithParts) -> bool:
    """Whether it is a prompt in which somebody but us had a word."""
    ours = all(isinstance(part, TextPart) and part.synthetic for part in message.parts)
    return isinstance(message.info, UserMessage) and not ours


def to_title(text: str, *, longest: int = LONGEST) -> str:
    """The first line that says something, without thoughts, cut to a length."""
    lines = (line.strip() for line in _THOUGHT.sub("", text).splitlines())
    line = next((line for line in lines if line), "")
    return line if len(line) <= longest else line[: longest - 3] + "..."


async def _asked(kit: Kit, prompt: UserMessage, words: str) -> str:
    """What the small model says; nothing if there is none, or if it fails or takes long: a title is not worth a wait."""
    agent = kit.agents.get(AGENT)
    if agent is None or prompt.model is None or not words.strip():
        return ""
    ref = agent.model or kit.models.small(prompt.model)
    if ref is None:
        return ""
    try:
        served = kit.models.get(ref)
        request = ModelRequest(
            model=served.model,
            system=(agent.prompt or "",),
            messages=tuple(UserTurn(content=(TextContent(text=text),)) for text in (REQUEST, words)),
            parameters=parameters(served.model, agent, prompt, most=MOST_TOKENS, small=True),
            session=prompt.session_id,
        )
        async with asyncio.timeout(SECONDS), aclosing(served.provider.stream(request)) as chunks:
            said = [chunk.text async for chunk in chunks if isinstance(chunk, TextDelta)]
    except Exception:  # noqa: BLE001  a provider is a stranger's code, and a title not worth a run
        return ""
    return to_title("".join(said))

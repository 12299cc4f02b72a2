"""Name a session: by the small model if there is one, else by the first words of the prompt. Once, and never over a
person's own title."""

import asyncio
import re
from contextlib import aclosing

from msgspec.structs import replace

from weft.errors import WeftError
from weft.model.message import UserMessage
from weft.model.part import TextPart
from weft.model.session import Session, may_be_titled
from weft.model.transcript import Transcript
from weft.provider.chunk import TextDelta
from weft.provider.contract import ModelRequest, TextContent, UserTurn
from weft.run.kit import Kit
from weft.run.request import parameters

AGENT = "title"
REQUEST = "Generate a title for this conversation:\n"
SECONDS = 15.0
LONGEST = 100
LONGEST_WORDS = 60
MOST_TOKENS = 200
_THOUGHT = re.compile(r"<think>.*?</think>\s*", re.DOTALL)


async def name_session(kit: Kit, session: Session, transcript: Transcript) -> None:
    """Give the session a title, if it has none and this is its first prompt."""
    prompts = [message for message in transcript.messages() if isinstance(message.info, UserMessage)]
    if session.parent_id is not None or not may_be_titled(session) or len(prompts) != 1:
        return
    (first,) = prompts
    words = "\n".join(
        part.text
        for part in first.parts
        if isinstance(part, TextPart) and not part.synthetic and not part.ignored
    )
    assert isinstance(first.info, UserMessage)
    title = await _asked(kit, first.info, words) or to_title(words, longest=LONGEST_WORDS)
    if title:
        await kit.journal.edit(session.id, lambda it: replace(it, title=title) if may_be_titled(it) else it)


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
            messages=(UserTurn(content=(TextContent(text=REQUEST), TextContent(text=words))),),
            parameters=parameters(served.model, agent, prompt, most=MOST_TOKENS, small=True),
            session=prompt.session_id,
        )
        async with asyncio.timeout(SECONDS), aclosing(served.provider.stream(request)) as chunks:
            said = [chunk.text async for chunk in chunks if isinstance(chunk, TextDelta)]
    except (WeftError, TimeoutError):
        return ""
    return to_title("".join(said))

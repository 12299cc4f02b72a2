"""An answer that arrives all at once reaches every listener."""

import asyncio
from collections.abc import AsyncGenerator

from given.engine import open_engine, text_prompt
from weft.bus import LOG_SIZE
from weft.model.event import PartGrew, PartUpdated
from weft.model.input import SessionInput
from weft.model.part import TextPart
from weft.provider.chunk import AnyChunk, Finished, Started, TextDelta, TextEnd, TextStart, Usage
from weft.provider.contract import ModelRequest

PIECES = LOG_SIZE * 2


class FloodingProvider:
    """Sends everything without waiting."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        del request
        yield Started()
        yield TextStart(id="t")
        for _ in range(PIECES):
            yield TextDelta(id="t", text="x")
        yield TextEnd(id="t")
        yield Finished(reason="stop", usage=Usage())


async def test_a_listener_keeps_up_with_a_long_answer_that_arrives_at_once() -> None:
    async with open_engine(provider=FloodingProvider()) as engine:
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        events = engine.api.events()
        heard = 0

        async def listen() -> None:
            nonlocal heard
            async for published in events:
                match published.event:
                    case PartGrew(delta=delta):
                        heard += len(delta)
                    case PartUpdated(part=TextPart(), delta=str(delta)):
                        heard += len(delta)
                    case event if event.type == "session.idle":
                        return
                    case _:
                        pass

        listening = asyncio.ensure_future(listen())
        await engine.api.prompt(session, text_prompt("go"))
        await listening
        assert heard == PIECES

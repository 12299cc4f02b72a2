"""The scripted model that ships with weft: it needs no key and no network, and always does the same."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from importlib.resources import files
from itertools import takewhile
from typing import Final

from weft.host.clock import Clock
from weft.provider.catalog.offers import DEMO, scripted_model
from weft.provider.chunk import AnyChunk
from weft.provider.contract import AssistantTurn, ModelRequest, UserTurn
from weft.provider.registry import Served
from weft.provider.scripted import Say, Script, ScriptedProvider, read_script

PACE = 0.02
OVER: Final = (Say(text="That is all there is in the demo. Every new prompt plays it from the beginning."),)


class DemoProvider:
    """Plays a script from its beginning for every prompt, in as many sessions as there are, and has an answer to all."""

    def __init__(self, script: Script, clock: Clock) -> None:
        self._script = script
        self._clock = clock

    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        since = takewhile(lambda turn: not isinstance(turn, UserTurn), reversed(request.messages))
        place = sum(isinstance(turn, AssistantTurn) for turn in since)
        moves = self._script[place] if place < len(self._script) else OVER
        async with aclosing(ScriptedProvider([moves], self._clock, pace=PACE).stream(request)) as chunks:
            async for chunk in chunks:
                yield chunk


def serve_script(id: str, raw: bytes, clock: Clock, *, where: str, pace: float = 0) -> Served:
    """A script as a model."""
    return Served(scripted_model(id), ScriptedProvider(read_script(raw, where=where), clock, pace=pace))


def serve_demo(clock: Clock) -> Served:
    raw = files("weft.provider").joinpath("scripts/demo.json").read_bytes()
    return Served(scripted_model(DEMO), DemoProvider(read_script(raw, where="the demo script"), clock))

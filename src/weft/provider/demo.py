"""The demo model that ships with weft. It plays a script, so it needs no key and no network."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from importlib.resources import files
from itertools import takewhile
from typing import Final

from weft.host.clock import Clock
from weft.provider.catalog.offers import make_scripted_model
from weft.provider.chunk import AnyChunk
from weft.provider.contract import AssistantModelMessage, ModelRequest, UserModelMessage
from weft.provider.registry import ServedModel
from weft.provider.scripted import Say, Script, ScriptedProvider, read_script

WORD_PAUSE_SECONDS: Final = 0.02
END_OF_DEMO: Final = (
    Say(text="That is all there is in the demo. Every new prompt plays it from the beginning."),
)


class DemoProvider:
    """Plays a script from its beginning for every prompt, in any number of sessions."""

    def __init__(self, script: Script, clock: Clock) -> None:
        self._script = script
        self._clock = clock

    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        messages = takewhile(
            lambda message: not isinstance(message, UserModelMessage), reversed(request.messages)
        )
        step = sum(isinstance(message, AssistantModelMessage) for message in messages)
        moves = self._script[step] if step < len(self._script) else END_OF_DEMO
        async with aclosing(
            ScriptedProvider([moves], self._clock, pace=WORD_PAUSE_SECONDS).stream(request)
        ) as chunks:
            async for chunk in chunks:
                yield chunk


def serve_script(id: str, raw: bytes, clock: Clock, *, where: str, pace: float = 0) -> ServedModel:
    """Return a model that plays the script in `raw`. Raise `InvalidInputError` that names `where` if it is invalid."""
    return ServedModel(
        make_scripted_model(id), ScriptedProvider(read_script(raw, where=where), clock, pace=pace)
    )


def make_demo_provider(clock: Clock) -> DemoProvider:
    """Return what plays the demo."""
    raw = files("weft.provider").joinpath("scripts/demo.json").read_bytes()
    return DemoProvider(read_script(raw, where="the demo script"), clock)

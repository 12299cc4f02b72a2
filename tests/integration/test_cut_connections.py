"""A hundred cut connections: what a client of ours holds in the end is what the server holds."""

import asyncio

from given.client_house import lent, open_server
from given.client_proxy import open_road
from given.house import open_house
from weft.client.api import open_remote
from weft.client.conversation import converse
from weft.client.http import ConnectionOptions
from weft.host.clock import SystemClock
from weft.model.event_wire import RESYNC, UnknownEvent
from weft.model.input import SessionInput
from weft.model.message import AssistantMessage, UserMessage
from weft.model.transcript import Transcript
from weft.provider.scripted import Say, ScriptedProvider, Think, UseTool

CUTS = 100
WORDS = " ".join(f"word{number}🧵\u2028" for number in range(150))
MOST_RUNS = 200
STEP = [
    [Think(text=WORDS[:600]), Say(text=WORDS), UseTool(tool="echo", input={"words": WORDS[:500]})],
    [Say(text=WORDS[::-1])],
]


async def test_after_a_hundred_cuts_a_client_holds_what_the_server_holds() -> None:
    clock = SystemClock()
    provider = ScriptedProvider(STEP * MOST_RUNS, clock, pace=0.0005)
    async with (
        open_house(provider=provider, clock=clock, auto=False) as house,
        open_server(lent(house)) as url,
        open_road(url, cuts=CUTS) as road,
        open_remote(road.url, ConnectionOptions(patience=30), env={}) as api,
    ):
        # Made at the server: a session is not asked for twice, and whoever asks is told that it is not known to be there.
        talk = await converse(api, (await house.api.create_session(SessionInput())).id)
        heard, listening = Transcript(), api.events()
        runs = resyncs = 0
        while road.left:
            runs += 1
            assert runs < MOST_RUNS
            async for _ in talk.prompt(f"prompt {runs}"):
                pass
            assert talk.answer is not None
            assert isinstance(talk.answer.info, AssistantMessage)
            assert talk.answer.info.error is None
        there = await house.api.list_messages(talk.id)
        assert talk.messages() == there
        async with asyncio.timeout(60):
            while heard.messages() != there:
                event = (await anext(listening)).event
                heard.feed(event)
                resyncs += isinstance(event, UnknownEvent) and event.named == RESYNC
        # Each prompt arrived once, and was answered once, however often it had to be sent.
        assert sum(isinstance(message.info, UserMessage) for message in there) == runs
        assert len(provider.requests) == len(STEP) * runs
        assert resyncs == 0
        assert (road.streams + road.answers, road.left) == (CUTS, 0)
        assert road.streams > CUTS // 2
        assert road.answers > 0

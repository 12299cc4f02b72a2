"""After a hundred cut connections, our client holds the same state as the server."""

import asyncio

from given.cutting_proxy import open_cutting_proxy
from given.engine import open_engine
from given.served_engine import always_open, open_server
from weft.client.api import open_remote
from weft.client.http import ConnectionOptions
from weft.client.prompt_run import converse
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
        open_engine(provider=provider, clock=clock, auto=False) as engine,
        open_server(always_open(engine)) as url,
        open_cutting_proxy(url, cuts=CUTS) as proxy,
        open_remote(proxy.url, ConnectionOptions(patience=30), env={}) as api,
    ):
        # Made at the server: a session is not asked for twice, and whoever asks is told that it is not known to be there.
        talk = await converse(api, (await engine.api.create_session(SessionInput())).id)
        heard, listening = Transcript(), api.events()
        runs = resyncs = 0
        while proxy.cuts_left:
            runs += 1
            assert runs < MOST_RUNS
            async for _ in talk.prompt(f"prompt {runs}"):
                pass
            assert talk.answer is not None
            assert isinstance(talk.answer.info, AssistantMessage)
            assert talk.answer.info.error is None
        there = await engine.api.list_messages(talk.id)
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
        assert (proxy.cut_streams + proxy.cut_answers, proxy.cuts_left) == (CUTS, 0)
        assert proxy.cut_streams > CUTS // 2
        assert proxy.cut_answers > 0

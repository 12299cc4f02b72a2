"""After a hundred cut connections, our client holds the same state as the server."""

import asyncio

from given.cutting_proxy import open_cutting_proxy
from given.engine import open_engine
from given.served_engine import always_open, open_server
from weft.agent.agent import Agent, Host
from weft.agent.answer import Answer, list_steps
from weft.agent.events import AnswerEvent
from weft.agent.options import QuestionOptions
from weft.client.api import open_remote
from weft.client.http import ConnectionOptions
from weft.host.clock import SystemClock
from weft.model.event_wire import RESYNC, UnknownEvent
from weft.model.input import SessionInput
from weft.model.message import UserMessage
from weft.model.transcript import Transcript
from weft.provider.scripted import Say, ScriptedProvider, Think, UseTool

CUTS = 100
ANSWER_CUTS = 10  # otherwise the event streams of two runs use all of them
WORDS = " ".join(f"word{number}🧵\u2028" for number in range(150))
MOST_RUNS = 200
STEP = [
    [Think(text=WORDS[:600]), Say(text=WORDS), UseTool(tool="echo", input={"words": WORDS[:500]})],
    [Say(text=WORDS[::-1])],
]


async def test_after_a_hundred_lost_connections_a_client_has_the_state_of_the_server() -> None:
    clock = SystemClock()
    provider = ScriptedProvider(STEP * MOST_RUNS, clock, pace=0.0005)
    async with (
        open_engine(provider=provider, clock=clock, auto=False) as engine,
        open_server(always_open(engine)) as url,
        open_cutting_proxy(url, cuts=CUTS, answer_cuts=ANSWER_CUTS) as proxy,
        open_remote(proxy.url, ConnectionOptions(patience=30), env={}) as api,
    ):
        # The session is created at the server: a client does not repeat this request if its connection is cut.
        session = (await engine.api.create_session(SessionInput())).id
        agent: Agent[str] = Agent(Host(api, None, "the test"), QuestionOptions())
        talk = await agent.converse(session)
        heard, listening = Transcript(), api.events()
        answers: list[Answer[str]] = []
        resyncs = 0
        while proxy.cuts_left:
            assert len(answers) < MOST_RUNS
            text = ""
            async for event in talk.stream(f"prompt {len(answers)}"):
                text += event.text
            assert text == f"{WORDS}\n{WORDS[::-1]}"
            assert isinstance(event, AnswerEvent)
            answers.append(event.answer)
        there = await engine.api.list_messages(session)
        assert await talk.messages() == there
        # An answer has the steps that the client put together from events.
        prompts = [message.info for message in there if isinstance(message.info, UserMessage)]
        assert [answer.steps for answer in answers] == [list_steps(there, prompt.id) for prompt in prompts]
        async with asyncio.timeout(60):
            while heard.messages() != there:
                published = (await anext(listening)).event
                heard.feed(published)
                resyncs += isinstance(published, UnknownEvent) and published.named == RESYNC
        # Each prompt arrived once and was answered once, however often the client had to send it.
        assert len(prompts) == len(answers)
        assert len(provider.requests) == len(STEP) * len(answers)
        assert resyncs == 0
        assert (proxy.cut_streams + proxy.cut_answers, proxy.cuts_left) == (CUTS, 0)
        assert proxy.cut_streams > CUTS // 2
        assert proxy.cut_answers >= ANSWER_CUTS

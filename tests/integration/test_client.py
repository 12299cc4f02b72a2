"""Our client against our server over real HTTP: cancelled, restarted, gone, or of a newer version."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

import weft
from given.canned_server import CannedServer, open_canned_server
from given.cutting_proxy import open_cutting_proxy
from given.engine import open_engine, text_prompt
from given.served_engine import always_open, open_served_engine, open_server
from weft.agent.agent import Agent, Host
from weft.agent.options import QuestionOptions
from weft.api import Api
from weft.client.address import Address
from weft.client.api import connect, open_remote
from weft.client.http import NO_SERVER_HINT, ConnectionOptions, ServerConnection
from weft.client.prompt_run import PromptRun
from weft.client.terminals import PROXY_HINT, open_remote_screen
from weft.errors import (
    CursorLostError,
    NotFoundError,
    NotPermittedError,
    UnreachableError,
    UnsupportedError,
)
from weft.host.clock import SystemClock
from weft.local.open import OpenOptions, open_directory
from weft.local.permissions import PermissionSettings
from weft.model.event import PartUpdated, SessionCreated, SessionIdled, SessionUpdated
from weft.model.event_wire import RESYNC, UnknownEvent
from weft.model.failure import AbortedFailure
from weft.model.ids import SessionID
from weft.model.input import SessionInput
from weft.model.message import AssistantMessage
from weft.model.part import TextPart
from weft.model.permission import PermissionRequest, Reply, Rule
from weft.model.session import Idle
from weft.model.transcript import Transcript
from weft.model.workspace import PtyInput
from weft.permission.policy import AskPolicy as GateTerms
from weft.provider.scripted import Fail, Say, Think, UseTool, Wait
from weft.server.access import AccessPolicy
from weft.testing import Script

ANSWER = [Say(text="Here is a short answer.")]
CAN_ASK = PermissionSettings(policy=GateTerms(can_ask=True))
ASK = (Rule(permission="echo", pattern="*", action="ask"),)


@asynccontextmanager
async def open_in_process(*script: list[object]) -> AsyncIterator[Api]:
    async with open_engine(*script, clock=SystemClock()) as engine:  # type: ignore[arg-type]
        yield engine.api


@asynccontextmanager
async def open_over_http(*script: list[object]) -> AsyncIterator[Api]:
    async with open_served_engine(*script) as served:  # type: ignore[arg-type]
        yield served.api


KEEPERS = pytest.mark.parametrize("keeper", [open_in_process, open_over_http])


def make_agent(api: Api) -> Agent[str]:
    return Agent(Host(api, None, "the test"), QuestionOptions())


@KEEPERS
async def test_a_prompt_yields_events_until_the_session_is_idle_and_then_the_answer(keeper: object) -> None:
    async with keeper(ANSWER) as api:  # type: ignore[operator]
        session = await api.create_session(SessionInput())
        run, heard = PromptRun(api, session.id, text_prompt("hello")), Transcript()
        events = [event async for event in run.events()]
        heard.feed(*events)
        assert isinstance(events[-1], SessionIdled)
        assert heard.messages() == await api.list_messages(session.id)
        assert await run.answer() == heard.messages()[-1]
        assert not run.missed
        await run.close()


@KEEPERS
async def test_a_conversation_is_continued_in_its_session(keeper: object) -> None:
    async with keeper(ANSWER, [Say(text="And another.")], [Say(text="The last.")]) as api:  # type: ignore[operator]
        agent = make_agent(api)
        talk = await agent.converse(title="Talk")
        assert (await talk.ask("hello")).text == "Here is a short answer."
        assert (await talk.ask("more?")).text == "And another."
        again = await agent.converse(talk.session)
        assert (await again.ask("and more?")).session == talk.session
        assert await again.messages() == await talk.messages() == await api.list_messages(talk.session)
        assert len(await talk.messages()) == 6
        assert [session.title for session in await api.list_sessions()] == ["Talk"]


@KEEPERS
async def test_an_answer_is_streamed_from_its_first_character_without_reasoning(keeper: object) -> None:
    step = [
        Think(text="Let me see."),
        Say(text="I look first."),
        UseTool(tool="echo", input={"words": "hi"}),
    ]
    async with keeper(step, ANSWER) as api:  # type: ignore[operator]
        pieces = [event.text async for event in make_agent(api).stream("one") if event.text]
        assert "".join(pieces) == "I look first.\nHere is a short answer."
        assert len(pieces) > 2


@KEEPERS
async def test_cancelling_the_caller_aborts_the_run(keeper: object) -> None:
    async with keeper([Say(text="Wait"), Wait(seconds=600)]) as api:  # type: ignore[operator]
        talk, begun = await make_agent(api).converse(), asyncio.Event()

        async def read() -> None:
            async for event in talk.stream("hello"):
                if "Wait" in event.text:
                    begun.set()

        reading = asyncio.ensure_future(read())
        await begun.wait()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert await api.get_status(talk.session) == Idle()
        last = (await api.list_messages(talk.session))[-1]
        assert isinstance(last.info, AssistantMessage)
        assert isinstance(last.info.error, AbortedFailure)


@KEEPERS
async def test_a_prompt_cancelled_before_it_began_does_not_begin(keeper: object) -> None:
    async with keeper([Wait(seconds=600)]) as api:  # type: ignore[operator]
        talk = await make_agent(api).converse()
        asking = asyncio.ensure_future(talk.ask("hello"))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert await api.list_status() == {}


@KEEPERS
async def test_a_prompt_closed_before_it_arrives_leaves_no_run(keeper: object) -> None:
    async with keeper([Wait(seconds=600)]) as api:  # type: ignore[operator]
        session = await api.create_session(SessionInput())
        await PromptRun(api, session.id, text_prompt("hello")).close()
        assert await api.list_status() == {}


@KEEPERS
async def test_a_failure_is_raised_by_ask_and_stored_in_the_session(keeper: object) -> None:
    async with keeper([Fail(message="no more")]) as api:  # type: ignore[operator]
        agent = make_agent(api)
        talk = await agent.converse()
        with pytest.raises(weft.RunFailedError, match="no more") as raised:
            await talk.ask("hello")
        last = (await talk.messages())[-1]
        assert isinstance(last.info, AssistantMessage)
        assert last.info.error is not None
        assert last.info.error == raised.value.failure
        with pytest.raises(NotFoundError):
            await agent.converse(SessionID("ses_00000000000000000000000000"))


async def test_a_program_answers_requests_of_an_agent() -> None:
    asked: list[PermissionRequest] = []

    def permit(request: PermissionRequest) -> Reply:
        asked.append(request)
        return "once"

    async def permit_asynchronously(request: PermissionRequest) -> Reply:
        return permit(request)

    def refuse(request: PermissionRequest) -> Reply:
        asked.append(request)
        return "reject"

    use = [UseTool(tool="echo", input={"words": "hi"})]
    script = use, [Say(text="Done.")]
    async with open_served_engine(*script, *script, use, use, rules=ASK, permissions=CAN_ASK) as served:
        agent = make_agent(served.api)
        for each in (permit, permit_asynchronously):
            assert (await agent.ask("go", permissions=each)).text == "Done."
        with pytest.raises(weft.RunRefusedError):
            await agent.ask("go", permissions=refuse)
        with pytest.raises(weft.RunRefusedError, match="it asked for echo"):
            await agent.ask("go")  # without a function, every request is rejected
        assert [request.permission for request in asked] == ["echo", "echo", "echo"]
        assert await served.api.list_permissions() == []


async def test_a_client_reconnects_to_a_restarted_server_and_misses_nothing() -> None:
    notices: list[str] = []
    async with open_engine(*[ANSWER] * 3, clock=SystemClock()) as engine:
        async with AsyncExitStack() as client, open_server(always_open(engine), name="one") as url:
            options = ConnectionOptions(patience=30, notice=notices.append)
            api = await client.enter_async_context(open_remote(url, options, env={}))
            staying = client.pop_all()
            session, port = await api.create_session(SessionInput()), int(url.rpartition(":")[2])
            listening, heard = api.events(), Transcript()
            await api.prompt(session.id, text_prompt("one"))
            published = await anext(listening)
            heard.feed(published.event)
        await engine.api.prompt(session.id, text_prompt("two"))  # while there is no server
        await engine.api.rename_session(session.id, "Another name")
        there = await engine.api.list_messages(session.id)
        async with open_server(always_open(engine), name="two", port=port):
            events = [published.event]
            async with asyncio.timeout(60):
                while heard.messages() != there or not any(
                    isinstance(each, SessionUpdated) for each in events
                ):
                    events.append((await anext(listening)).event)
                    heard.feed(*events[-1:])
            assert any(isinstance(each, UnknownEvent) and each.named == RESYNC for each in events)
            await api.prompt(session.id, text_prompt("three"))
            with pytest.raises(CursorLostError):
                await anext(api.events(after=published.cursor))
            await staying.aclose()
        assert [line.rpartition(" ")[2] for line in notices[:2]] == ["again", "back"]


async def test_a_gap_in_a_run_is_reported_once() -> None:
    async with (
        open_engine([Say(text="Wait"), Wait(seconds=600)], clock=SystemClock()) as engine,
        open_server(always_open(engine), name="one") as one,
        open_server(always_open(engine), name="two") as two,
        open_cutting_proxy(one, cuts=0) as proxy,
        open_remote(proxy.url, ConnectionOptions(patience=30), env={}) as api,
    ):
        session = await api.create_session(SessionInput())
        listening = api.events()
        prompting = asyncio.ensure_future(api.prompt(session.id, text_prompt("one")))
        while not isinstance((event := (await anext(listening)).event), PartUpdated) or not event.delta:
            pass
        await proxy.redirect(two)
        while not isinstance(event, UnknownEvent):
            event = (await anext(listening)).event
        await engine.api.abort(session.id)
        await prompting
        await engine.api.rename_session(session.id, "Over")
        events = [event]
        while not isinstance(event, SessionUpdated) or event.info.title != "Over":
            events.append(event := (await anext(listening)).event)
        gaps = [each.named for each in events if isinstance(each, UnknownEvent)]
        assert gaps == [RESYNC]


async def test_a_client_gives_up_on_a_server_that_stays_unreachable() -> None:
    async with open_served_engine(
        [Wait(seconds=600)], options=ConnectionOptions(patience=0.2, health_interval=0.05)
    ) as served:
        api = served.api
        session = await api.create_session(SessionInput())
        listening = api.events()
        prompting = asyncio.ensure_future(api.prompt(session.id, text_prompt("hello")))
        await anext(listening)
        api._connection.client.base_url = "http://127.0.0.1:9"
        with pytest.raises(UnreachableError) as refused:
            await prompting
        assert refused.value.hint == NO_SERVER_HINT
        await served.engine.api.abort(session.id)


async def test_an_address_without_a_server_is_named_with_what_to_do() -> None:
    with pytest.raises(UnreachableError, match="nothing answers there") as refused:
        async with open_remote("http://127.0.0.1:9", env={}):
            pass
    assert (
        refused.value.hint == NO_SERVER_HINT == "is it running? weft serve starts one and prints its address"
    )


async def test_a_client_leaves_a_server_that_stays_silent(canned_server: CannedServer) -> None:
    canned_server.answers["/global/health"]["weft"] = True
    async with open_remote(
        canned_server.url, ConnectionOptions(patience=2, health_interval=0.05), env={}
    ) as api:
        canned_server.silent = True  # it accepts requests and does not answer
        with pytest.raises(UnreachableError):
            await api.prompt(SessionID("ses_1e10b972bffeAbCdEfGhIjKlMn"), text_prompt("hello"))


@pytest.fixture
async def canned_server() -> AsyncIterator[CannedServer]:
    async with open_canned_server() as canned:
        yield canned


async def test_events_of_later_versions_are_tolerated(canned_server: CannedServer) -> None:
    session = "ses_1e10b972bffeAbCdEfGhIjKlMn"
    part = {"id": "prt_1e10b972b001AbCdEfGhIjKlMn", "sessionID": session, "type": "text", "text": "ab"}
    part["messageID"] = "msg_1e10b972b001AbCdEfGhIjKlMn"
    info = {
        "id": part["messageID"],
        "sessionID": session,
        "role": "assistant",
        "time": {"created": 1, "x": 2},
    }
    grew = {key: part[key] for key in ("sessionID", "messageID")} | {"partID": part["id"], "field": "text"}
    canned_server.stream = [
        {"type": "server.connected", "properties": {}},
        {"type": "moon.rose", "properties": {"phase": 3}, "id": "evt_1"},
        {"type": "message.updated", "properties": {"info": info | {"mood": "good"}, "sessionID": session}},
        {"type": "message.part.updated", "properties": {"part": part | {"colour": "blue"}}},
        {"type": "message.part.delta", "properties": grew | {"delta": "cd"}},
        {"type": "session.status", "properties": {"sessionID": session, "status": {"type": "dreaming"}}},
    ]
    canned_server.answers[f"/session/{session}"] = {
        "id": session,
        "time": {"created": 1, "updated": 2},
        "new": [1],
    }
    async with open_remote(canned_server.url, ConnectionOptions(patience=5), env={}) as api:
        assert (await api.get_session(SessionID(session))).extra_ == {"new": [1]}
        listening, heard = api.events(), Transcript()
        collected = [(await anext(listening)).event for _ in range(5)]
        heard.feed(*collected)
        assert collected[0] == UnknownEvent(named="moon.rose", properties={"phase": 3})
        assert isinstance(collected[4], UnknownEvent)
        (message,) = heard.messages()
        assert [each.text for each in message.parts if isinstance(each, TextPart)] == ["abcd"]


async def test_operations_of_weft_are_not_requested_from_other_servers(canned_server: CannedServer) -> None:
    async with open_remote(canned_server.url, ConnectionOptions(patience=5), env={}) as api:
        before = len(canned_server.asked)
        for asked in (api.search("words"), api.list_trash(), api.list_grants(), api.get_figures()):
            with pytest.raises(UnsupportedError, match=r"OpenCode 1\.1\.34"):
                await asked
        assert len(canned_server.asked) == before


async def test_the_password_comes_from_the_address_the_environment_or_the_file_of_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        open_engine(clock=SystemClock()) as engine,
        open_server(always_open(engine), access=AccessPolicy(password="open sesame")) as url,
    ):
        with pytest.raises(NotPermittedError):
            async with connect(url):
                pass
        async with connect(url.replace("//", "//opencode:open%20sesame@")) as api:
            assert await api.list_sessions() == []
        kept = tmp_path / "opencode" / "weft" / "server-password"
        kept.parent.mkdir(parents=True)
        kept.write_text("open sesame\n")
        kept.chmod(0o600)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        async with connect(url) as api:
            assert await api.list_sessions() == []
        monkeypatch.delenv("XDG_STATE_HOME")
        monkeypatch.setenv("OPENCODE_SERVER_PASSWORD", "open sesame")
        async with connect(url) as api:
            assert await api.list_sessions() == []


async def test_a_terminal_is_read_and_typed_into(tmp_path: Path) -> None:
    async with open_served_engine() as served:
        terminals = served.api.terminals
        pty = await terminals.create_pty(PtyInput(command="/bin/cat", args=(), cwd=str(tmp_path)))
        async with terminals.open_screen(pty.id) as screen, asyncio.timeout(60):
            for typed in (b"h\xc3", b"\xa9llo\n"):  # a letter in two pieces
                await screen.write(typed)
            said = b""
            while said.count("héllo".encode()) < 2:  # as typed, and as printed by cat
                said += await screen.read()
                assert "\ufffd".encode() not in said
            await screen.write(b"\x04")
            while await screen.read():
                pass
            await screen.write(b"too late")
        await terminals.remove_pty(pty.id)


@pytest.mark.parametrize(
    ("answer", "said", "hint"),
    [
        (None, "no answer", NO_SERVER_HINT),
        (b"", "does not accept a websocket", PROXY_HINT),
        (b"SSH-2.0-x\r\n\r\n", "does not accept a websocket", PROXY_HINT),
    ],
    ids=["silent", "closes", "speaks otherwise"],
)
async def test_a_terminal_is_not_opened_on_what_does_not_answer_as_a_server_does(
    answer: bytes | None, said: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.client.terminals.CONNECT_SECONDS", 60.0 if answer is not None else 0.2)

    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if answer is None:
            await reader.read()  # until the client gives up
        else:
            writer.write(answer)
        writer.close()
        await writer.wait_closed()
        ended.set()

    async with asyncio.timeout(60), await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        address = Address(url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        connection = ServerConnection(address, ConnectionOptions())
        with pytest.raises(UnreachableError, match=said) as refused:
            await open_remote_screen(connection, "/pty/pty_1/connect")
        assert refused.value.hint == hint
        await ended.wait()
        await connection.close()


async def test_a_search_finds_as_many_lines_as_were_asked_for(tmp_path: Path) -> None:
    (tmp_path / "many.txt").write_text("warp\n" * 300)
    options = OpenOptions(directory=str(tmp_path), env=dict(os.environ), store="memory:")
    async with (
        open_server(lambda _: open_directory(options), default_directory=str(tmp_path)) as url,
        open_remote(url, env={}) as api,
    ):
        for limit, found in ((0, 0), (3, 3), (40, 40), (1000, 200)):
            assert len(await api.files.find_text("warp", limit=limit)) == found


async def test_two_clients_that_join_a_run_both_receive_its_events() -> None:
    async with open_served_engine(ANSWER, ANSWER) as served, open_remote(served.url, env={}) as other:
        session = await served.api.create_session(SessionInput())
        mine, theirs = served.api.events(), other.events()
        await served.api.prompt(session.id, text_prompt("hello"))
        for listening in (mine, theirs):
            heard = Transcript()
            async for published in listening:
                heard.feed(published.event)
                if isinstance(published.event, SessionIdled):
                    break
            assert heard.messages() == await other.list_messages(session.id)


def test_blocking_calls_converse_listen_and_raise_errors(tmp_path: Path) -> None:
    script = Script("one").says("One.").asked("two").says("Two.").asked("three").says("Wait").hangs()
    with weft.open(tmp_path, model=script, store="memory:") as agent:
        talk, api = agent.converse(title="Talk"), agent.api
        *_, last = talk.stream("one")
        assert isinstance(last, weft.AnswerEvent)
        assert talk.ask("two").text == "Two."
        assert agent.wait(api.list_messages(talk.session)) == talk.messages()
        assert agent.wait(api.workspace.list_agents())[0].name == "build"
        events = agent.iterate(api.events)
        made = agent.wait(api.create_session(SessionInput()))
        assert next(events).event == SessionCreated(info=made)
        with pytest.raises(NotFoundError):
            agent.wait(api.get_session(SessionID("ses_00000000000000000000000000")))
        for _ in talk.stream("three"):
            break  # a caller that stops reading ends the run
        assert agent.wait(api.list_status()) == {}
    with pytest.raises(weft.ClosedError):
        talk.ask("four")


def test_event_streams_end_when_the_agent_is_closed(tmp_path: Path) -> None:
    with weft.open(tmp_path, store="memory:") as agent:
        closed, read = agent.iterate(agent.api.events), agent.iterate(agent.api.events)
        agent.wait(agent.api.create_session(SessionInput()))
        assert next(closed) == next(read)
    closed.close()  # type: ignore[attr-defined]
    assert list(read) == []

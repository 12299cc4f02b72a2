"""Our client with a server of the real OpenCode: the same suite as for our own, and the checks that OpenCode fails."""

import asyncio
import re
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from opencode.client_differences import FAILED_CHECKS, TIMING_DEPENDENT
from opencode.fake_model import FakeModel
from opencode.sandbox import Sandbox
from weft.agent.agent import Agent, Host
from weft.agent.options import QuestionOptions
from weft.api import Api
from weft.client.api import connect
from weft.client.prompt_run import PromptRun
from weft.model.event import PartUpdated, SessionIdled
from weft.model.input import SessionInput, prompt
from weft.model.message import UserMessage
from weft.model.transcript import Transcript
from weft.testing.api_contract import CHECKS

pytestmark = pytest.mark.opencode

PATIENCE = 60
DECIDED = [check for check in CHECKS if check.__name__ not in TIMING_DEPENDENT]


@pytest.fixture(scope="module")
def url(sandbox: Sandbox) -> Iterator[str]:
    with sandbox.run_opencode("serve", "--port", "0", "--hostname", "127.0.0.1") as serving:
        assert serving.stdout is not None
        for line in serving.stdout:
            found = re.search(r"http://[0-9.:]+", line)
            if found:
                yield found[0]
                return
        raise AssertionError("OpenCode did not start to serve")


@pytest.fixture
def project(tmp_path: Path, sandbox: Sandbox) -> Path:
    """A project of its own: OpenCode identifies projects by their first commit."""
    (tmp_path / "hello.txt").write_text("hello\n")
    who = ["-c", "user.name=Ada Loom", "-c", "user.email=ada@example.test"]
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", str(tmp_path)]):
        subprocess.run(["git", *who, *command], cwd=tmp_path, env=dict(sandbox.env), check=True)
    return tmp_path


@pytest.fixture
async def api(url: str, project: Path) -> AsyncIterator[Api]:
    async with connect(url, directory=str(project), patience=5) as api:
        yield api


@pytest.mark.parametrize("check", DECIDED, ids=lambda check: check.__name__)
async def test_the_api_contract_holds_over_http(check: Callable[[Api], Awaitable[None]], api: Api) -> None:
    if check.__name__ not in FAILED_CHECKS:
        async with asyncio.timeout(PATIENCE):
            await check(api)
        return
    with pytest.raises(Exception):  # noqa: B017, PT011  the reason is in the list, and differs
        async with asyncio.timeout(5):
            await check(api)


def test_every_known_failure_is_a_check_of_the_suite() -> None:
    assert {*FAILED_CHECKS, *TIMING_DEPENDENT} <= {check.__name__ for check in CHECKS}


async def test_a_prompt_gets_a_summary_after_it_was_accepted(api: Api) -> None:
    session = await api.create_session(SessionInput())
    message = (await api.submit(session.id, prompt("hello"))).info
    async with asyncio.timeout(PATIENCE):
        while isinstance(message, UserMessage) and message.summary is None:
            await asyncio.sleep(0.1)  # it does not publish all its changes
            message = (await api.get_message(session.id, message.id)).info
    assert isinstance(message, UserMessage)


async def test_a_prompt_is_followed_until_the_session_is_idle(api: Api, model: FakeModel) -> None:
    model.play()
    session = await api.create_session(SessionInput())
    run, heard = PromptRun(api, session.id, prompt("hello")), Transcript()
    events = [event async for event in run.events()]
    heard.feed(*events)
    assert isinstance(events[-1], SessionIdled)
    assert any(isinstance(event, PartUpdated) for event in events)
    assert heard.messages() == await api.list_messages(session.id)
    await run.close()


async def test_a_conversation_is_continued(api: Api, model: FakeModel) -> None:
    model.play()
    agent: Agent[str] = Agent(Host(api, None, "the test"), QuestionOptions())
    talk = await agent.converse()
    answers = [await talk.ask("hello"), await talk.ask("and again?")]
    assert [answer.text for answer in answers if not answer.text] == []
    assert [answer.session for answer in answers] == [talk.session, talk.session]
    assert len(await talk.messages()) == 4


def test_a_prompt_from_the_shell_runs_on_opencode(sandbox: Sandbox, url: str, model: FakeModel) -> None:
    model.play()
    assert sandbox.weft("run", "--attach", url, "hello") == "the script has no answer to request 1\n"

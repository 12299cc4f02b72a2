"""The provider contract, for the main adapters."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import pytest

from fake.anthropic import AnthropicDialect
from fake.openai import Manners, OpenAIChatDialect
from given.models import CLAUDE, GPT, LOCAL, ROUTED
from weft.provider.anthropic.adapter import AnthropicMessages
from weft.provider.openai_chat.adapter import OpenAIChat
from weft.provider.scripted import Say
from weft.testing.provider_bad_servers import IN_LINES
from weft.testing.provider_contract import CHECKS, SERVER_CHECKS, Check, ServerCheck
from weft.testing.provider_stand import ScriptedStand, ServerStand, asking, hear, open_stand

ROUTER = Manners(message_fields=frozenset({"reasoning_details"}), marks=True, longest_id=1000)


def at_server(name: str) -> AbstractAsyncContextManager[ServerStand]:
    match name:
        case "anthropic":
            return open_stand(AnthropicDialect(), AnthropicMessages, CLAUDE)
        case "openai-chat":
            return open_stand(OpenAIChatDialect(), OpenAIChat, GPT)
        case _:
            return open_stand(OpenAIChatDialect(ROUTER), OpenAIChat, ROUTED)


@pytest.fixture(params=["anthropic", "openai-chat", "openai-chat-router"])
async def server_stand(request: pytest.FixtureRequest) -> AsyncIterator[ServerStand]:
    async with at_server(request.param) as stand:
        yield stand


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_a_provider_keeps_its_promise(check: Check, server_stand: ServerStand) -> None:
    await check(server_stand)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_scripted_provider_keeps_its_promise(check: Check) -> None:
    await check(ScriptedStand(GPT))


@pytest.mark.parametrize("check", [*SERVER_CHECKS, *IN_LINES], ids=lambda check: check.__name__)
async def test_a_provider_stands_any_server(check: ServerCheck, server_stand: ServerStand) -> None:
    await check(server_stand)


async def test_a_server_that_does_not_know_how_to_count_is_asked_again_without() -> None:
    manners = Manners(unknown=frozenset({"stream_options"}))
    async with open_stand(OpenAIChatDialect(manners), OpenAIChat, LOCAL) as stand:
        stand.play([Say(text="one")], [Say(text="two")])
        refused = (await hear(stand.provider, asking(stand.model))).error
        assert refused is not None
        assert (refused.kind, refused.retryable, refused.wait_ms) == ("bad-request", True, 0)
        heard = await hear(stand.provider, asking(stand.model))
        assert (heard.text(), stand.asked()) == ("one", 2)

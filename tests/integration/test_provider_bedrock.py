"""Sessions over Bedrock, with a server that refuses what the real one refuses and verifies signatures."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from fake.converse import REGION, SECRET, ConverseDialect
from fake.converse_rules import signature_of
from given.engine import Engine, open_engine, text_prompt
from given.models import ON_BEDROCK
from weft.errors import ProviderAuthError
from weft.model.failure import AuthFailure
from weft.model.input import SessionInput
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import CacheTokens, TextPart, Tokens
from weft.provider.bedrock.adapter import Bedrock
from weft.provider.chunk import Usage
from weft.provider.endpoint import AwsKeys, ModelEndpoint
from weft.provider.http_client import HttpClient
from weft.provider.scripted import End, Say, Think, UseTool
from weft.testing.provider_harness import ServerProviderHarness, open_provider_harness


@asynccontextmanager
async def open_session(
    keys: AwsKeys | ProviderAuthError = SECRET,
) -> AsyncIterator[tuple[Engine, ServerProviderHarness]]:
    def find() -> AwsKeys:
        if isinstance(keys, ProviderAuthError):
            raise keys
        return keys

    def make(client: HttpClient, endpoint: ModelEndpoint) -> Bedrock:
        return Bedrock(client, replace(endpoint, api_key="", aws=find, options={"region": REGION}))

    model = replace(ON_BEDROCK, options={"reasoningConfig": {"type": "enabled", "budgetTokens": 4000}})
    async with (
        open_provider_harness(ConverseDialect(), make, model) as harness,
        open_engine(model=model, provider=harness.provider) as engine,
    ):
        yield engine, harness


def info(answer: MessageWithParts) -> AssistantMessage:
    assert isinstance(answer.info, AssistantMessage)
    return answer.info


def get_sent_messages(harness: ServerProviderHarness) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = harness.server.requests[-1].body["messages"]
    return messages


async def test_a_call_runs_and_its_result_is_sent_back_signed() -> None:
    async with open_session() as (engine, harness):
        used = Usage(input=7, output=5, cache_read=40, cache_write=5)
        harness.play(
            [Think(text="hm, so \n"), Say(text="I call."), UseTool(tool="echo", input={"words": "hi"})],
            [Say(text="It said hi."), End(usage=used)],
        )
        session = await engine.api.create_session(SessionInput(title="t"))
        answer = await engine.api.prompt(session.id, text_prompt("go"))
        assert [part.text for part in answer.parts if isinstance(part, TextPart)] == ["It said hi."]
        assert (info(answer).finish, info(answer).error) == ("stop", None)
        assert info(answer).tokens == Tokens(input=7, output=5, cache=CacheTokens(read=40, write=5))
    kept = {"reasoningText": {"text": "hm, so \n", "signature": signature_of("hm, so \n")}}
    assert get_sent_messages(harness)[1]["content"][0] == {"reasoningContent": kept}
    assert harness.server.requests[0].path == (
        "/v1/model/eu.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream"
    )


async def test_wrong_keys_are_refused_and_the_session_continues() -> None:
    async with open_session(AwsKeys(id="AKIAOTHER", secret="wrong")) as (engine, harness):
        harness.play([Say(text="fine")])
        session = await engine.api.create_session(SessionInput(title="t"))
        failed = info(await engine.api.prompt(session.id, text_prompt("go"))).error
    assert failed is not None
    assert "signature we calculated does not match" in failed.data.message


async def test_missing_keys_are_reported() -> None:
    missing = ProviderAuthError("amazon-bedrock", "no keys in the profile 'work'")
    async with open_session(missing) as (engine, harness):
        session = await engine.api.create_session(SessionInput(title="t"))
        failed = info(await engine.api.prompt(session.id, text_prompt("go"))).error
    assert isinstance(failed, AuthFailure)
    assert (failed.data.message, harness.request_count) == ("no keys in the profile 'work'", 0)

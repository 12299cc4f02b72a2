"""GitHub Copilot: which API, which headers, and what its errors mean."""

import pytest

from fake.openai import OpenAIChatDialect
from fake.responses import ResponsesDialect
from given.model_requests import GPT_4O, GPT_5, request
from weft.provider.contract import (
    AssistantModelMessage,
    CallContent,
    MediaContent,
    ModelMessage,
    ResultContent,
    TextContent,
    ToolModelMessage,
    UserModelMessage,
)
from weft.provider.copilot import SETTINGS_URL, Copilot, build_headers, uses_responses_api
from weft.provider.scripted import Say
from weft.testing.provider_harness import collect_answer, open_provider_harness

HELLO = UserModelMessage(content=(TextContent(text="hello"),))
PICTURE = MediaContent(url="data:image/png;base64,iVBORw0KGgo=", mime="image/png")
CALL = AssistantModelMessage(content=(CallContent(call_id="a", tool="read", input={}),))
ASKED = {"openai-intent": "conversation-edits"}


@pytest.mark.parametrize(
    ("id", "newer"),
    [
        ("gpt-5", True),
        ("gpt-5.2-codex", True),
        ("gpt-6", True),
        ("gpt-5-mini", False),
        ("gpt-4o", False),
        ("claude-sonnet-4.5", False),
        ("gemini-2.5-pro", False),
    ],
)
def test_newer_models_use_the_newer_api(id: str, newer: bool) -> None:
    assert uses_responses_api(id) is newer


@pytest.mark.parametrize(
    ("messages", "headers"),
    [
        ((HELLO,), {"x-initiator": "user"}),
        (
            (HELLO, CALL, ToolModelMessage(content=(ResultContent(call_id="a", tool="read", output="x"),))),
            {"x-initiator": "agent"},
        ),
        (
            (UserModelMessage(content=(PICTURE,)), CALL, HELLO),
            {"x-initiator": "user", "copilot-vision-request": "true"},
        ),
        (
            (
                HELLO,
                CALL,
                ToolModelMessage(
                    content=(ResultContent(call_id="a", tool="read", output="x", files=(PICTURE,)),)
                ),
            ),
            {"x-initiator": "agent", "copilot-vision-request": "true"},
        ),
    ],
)
def test_headers_say_who_initiated_the_request_and_whether_it_has_images(
    messages: tuple[ModelMessage, ...], headers: dict[str, str]
) -> None:
    assert build_headers(request(GPT_5, *messages)) == ASKED | headers


async def test_an_answer_is_read_over_either_api() -> None:
    for dialect, model in ((OpenAIChatDialect(), GPT_4O), (ResponsesDialect(), GPT_5)):
        async with open_provider_harness(dialect, Copilot, model) as harness:
            harness.play([Say(text="fine")])
            answer = await collect_answer(harness.provider, request(model))
            assert (answer.error, answer.text()) == (None, "fine")
            assert harness.server.requests[0].headers.items() >= (ASKED | {"x-initiator": "user"}).items()


@pytest.mark.parametrize(
    ("status", "message", "expected"),
    [
        (
            403,
            "nope",
            "Copilot refuses this login: sign in to GitHub Copilot again and store the new login",
        ),
        (
            400,
            "The requested model is not supported.",
            f"The requested model is not supported.\n\nIt may have to be enabled for your account: {SETTINGS_URL}",
        ),
        (400, "something else", "something else"),
    ],
)
async def test_a_refusal_has_a_hint(status: int, message: str, expected: str) -> None:
    async with open_provider_harness(OpenAIChatDialect(), Copilot, GPT_4O) as harness:
        harness.server.refuse(status, message)
        answer = await collect_answer(harness.provider, request(GPT_4O))
    assert answer.error is not None
    assert (str(answer.error), answer.error.status) == (expected, status)
    assert message in answer.error.body

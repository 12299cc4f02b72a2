"""For any stored history, Chat Completions and Anthropic's Messages API accept the next request."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from msgspec.structs import replace

from fake import anthropic as fake_anthropic
from fake import openai as fake_openai
from fake.anthropic import signature_of
from fake.openai import STRICT, ServerDialect
from given.examples import examples
from given.history_strategies import histories
from given.model_requests import request
from given.models import CLAUDE, GPT, LOCAL, MISTRAL, ROUTED, TEXT_ONLY
from weft.context.history import to_model_messages
from weft.model.catalog import Model
from weft.model.message import MessageWithParts
from weft.model.part import AnyPart, ReasoningPart
from weft.provider.anthropic import request as anthropic_request
from weft.provider.body import to_bytes
from weft.provider.openai_chat import request as openai_chat_request
from weft.testing.provider_harness import READ

MADE_BY = tuple((model.provider_id, model.id) for model in (CLAUDE, GPT, MISTRAL, ROUTED))
THINKING = {"thinking": {"type": "enabled", "budgetTokens": 16_000}}
MANNERS = {
    GPT.id: STRICT,
    MISTRAL.id: ServerDialect(mistral=True),
    LOCAL.id: ServerDialect(longest_id=1000),
    TEXT_ONLY.id: ServerDialect(longest_id=1000),
    ROUTED.id: ServerDialect(marks=True, longest_id=1000),
}


def sign_reasoning(history: list[MessageWithParts]) -> list[MessageWithParts]:
    """Return the history with the reasoning of Claude signed."""

    def sign(part: AnyPart) -> AnyPart:
        kept: Any = part.metadata if isinstance(part, ReasoningPart) else None
        if not isinstance(part, ReasoningPart) or not kept or "anthropic" not in kept:
            return part
        text = part.text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return replace(part, text=text, metadata={"anthropic": {"signature": signature_of(text)}})

    return [replace(message, parts=tuple(sign(part) for part in message.parts)) for message in history]


@pytest.mark.parametrize("options", [{}, THINKING], ids=["quiet", "thinking"])
@pytest.mark.parametrize("tools", [(), (READ,)], ids=["no tools", "a tool"])
@given(history=histories(*MADE_BY))
@examples(100)
def test_any_history_is_valid_for_anthropic(
    tools: Any, options: Any, history: list[MessageWithParts]
) -> None:
    shown = to_model_messages(sign_reasoning(history), CLAUDE)
    asked = request(CLAUDE, *shown, tools=tools, options=options, temperature=0.5, max_output=32_000)
    fake_anthropic.check(msgspec.json.decode(to_bytes(anthropic_request.to_body(asked))))


@pytest.mark.parametrize("model", [GPT, MISTRAL, LOCAL, TEXT_ONLY, ROUTED], ids=lambda model: model.id)
@given(history=histories(*MADE_BY))
@examples(100)
def test_any_history_is_valid_for_chat_completions(model: Model, history: list[MessageWithParts]) -> None:
    shown = to_model_messages(history, model)
    asked = request(model, *shown, tools=(READ,), temperature=0.5, max_output=1000)
    fake_openai.check(msgspec.json.decode(to_bytes(openai_chat_request.to_body(asked))), MANNERS[model.id])

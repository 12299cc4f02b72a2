"""The cache of encoded messages does not change what is sent."""

import gc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import replace

from given.examples import examples
from given.history_strategies import histories
from given.model_requests import request
from given.models import CLAUDE, GPT, MISTRAL, ROUTED
from weft.context.history import to_model_messages
from weft.model.catalog import Model
from weft.model.message import MessageWithParts
from weft.provider.anthropic import request as claude
from weft.provider.body import ModelMessageCache, to_bytes
from weft.provider.contract import ModelMessage, ModelRequest, TextContent, UserModelMessage
from weft.provider.conversation import ConversationCache, EncodedMessages
from weft.provider.normalise import to_plain_id
from weft.provider.openai_chat import request as chat
from weft.provider.openai_responses import request as responses
from weft.testing.provider_harness import READ

MADE_BY = tuple((model.provider_id, model.id) for model in (CLAUDE, GPT, MISTRAL, ROUTED))
Body = Callable[[ModelRequest, Any], dict[str, Any]]


@pytest.mark.parametrize(
    ("model", "to_body", "way"),
    [
        (GPT, chat.to_body, "cache_json"),
        (MISTRAL, chat.to_body, "cache_json"),
        (ROUTED, chat.to_body, "cache_json"),
        (CLAUDE, claude.to_body, "cache_values"),
        (GPT, responses.to_body, "cache_json"),
    ],
    ids=["chat", "mistral", "marked chat", "anthropic", "responses"],
)
@given(history=histories(*MADE_BY))
@examples(50)
def test_a_cached_request_equals_one_built_from_scratch(
    model: Model, to_body: Body, way: str, history: list[MessageWithParts]
) -> None:
    messages, memory = to_model_messages(history, model), ModelMessageCache()
    for end in {len(messages) // 2, len(messages)}:
        for _ in range(2):
            asked = request(model, *messages[:end], tools=(READ,))
            sent = to_bytes(to_body(asked, getattr(memory, way)))
            assert sent == to_bytes(to_body(asked, lambda _, say: say))


@pytest.mark.parametrize(
    ("model", "to_body", "way"),
    [
        (GPT, chat.to_body, "cache_json"),
        (MISTRAL, chat.to_body, "cache_json"),
        (ROUTED, chat.to_body, "cache_json"),
        (CLAUDE, claude.to_body, "cache_values"),
        (GPT, responses.to_body, "cache_json"),
    ],
    ids=["chat", "mistral", "marked chat", "anthropic", "responses"],
)
@given(history=histories(*MADE_BY), other=histories(*MADE_BY))
@examples(50)
def test_a_conversation_that_grows_equals_one_built_from_scratch(
    model: Model, to_body: Any, way: str, history: list[MessageWithParts], other: list[MessageWithParts]
) -> None:
    whole, others = to_model_messages(history, model), to_model_messages(other, model)
    memory, conversations = ModelMessageCache(), ConversationCache[Any]()
    grown = [whole[:end] for end in range(len(whole) + 1)]
    # It grows message by message, while another one is requested; then its end is replaced.
    for messages in (*(each for part in grown for each in (part, others)), whole[:2], [*whole[:2], *others]):
        asked = request(model, *messages, tools=(READ,))
        sent = to_bytes(to_body(asked, getattr(memory, way), conversations))
        assert sent == to_bytes(to_body(asked, lambda _, say: say))


def test_only_the_new_messages_of_a_conversation_are_encoded() -> None:
    encoded: list[ModelMessage] = []

    def encode(message: ModelMessage) -> list[dict[str, Any]]:
        encoded.append(message)
        return [{}]

    conversations = ConversationCache[EncodedMessages]()
    messages = [UserModelMessage(content=(TextContent(text=text),)) for text in ("one", "two", "three")]
    for end in (2, 2, 3):
        found = conversations.encode(GPT, tuple(messages[:end]), to_plain_id, lambda: EncodedMessages(encode))
        assert found.messages == messages[:end]
    assert encoded == messages


def test_a_message_is_encoded_once_for_each_model() -> None:
    said: list[str] = []

    def encode_message(message: Any) -> list[dict[str, Any]]:
        said.append(message.content[0].text)
        return [{"text": message.content[0].text}]

    memory, message = ModelMessageCache(), UserModelMessage(content=(TextContent(text="weave"),))
    assert memory.cache_values(GPT, encode_message)(message) is memory.cache_values(GPT, encode_message)(
        message
    )
    assert said == ["weave"]
    memory.cache_values(MISTRAL, encode_message)(message)
    memory.cache_values(replace(GPT, name="another"), encode_message)(message)
    assert said == ["weave"] * 3


def test_a_cache_entry_lives_as_long_as_its_message() -> None:
    memory = ModelMessageCache()
    for number in range(100):
        message = UserModelMessage(content=(TextContent(text=str(number)),))
        [said] = memory.cache_values(GPT, lambda message: [{"text": message.content[0].text}])(message)  # type: ignore[union-attr]
        assert said == {"text": str(number)}
        del message
    gc.collect()
    assert not any(said for _, said in memory._models.values())

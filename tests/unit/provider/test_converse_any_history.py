"""For any stored history, Bedrock accepts the next request, with models of every vendor."""

import msgspec
import pytest
from hypothesis import given

from fake.converse_rules import check_request
from given.examples import examples
from given.history_strategies import histories
from given.model_requests import READ, request
from given.models import NOVA, ON_BEDROCK, QWEN_ON_BEDROCK
from weft.context.history import to_model_messages
from weft.model.catalog import Model
from weft.model.message import MessageWithParts
from weft.provider.bedrock.request import to_body
from weft.provider.body import to_bytes

MADE_BY = ((ON_BEDROCK.provider_id, ON_BEDROCK.id), ("anthropic", "claude-sonnet-4"), ("openai", "gpt-5"))
THINKING = {"reasoningConfig": {"type": "enabled", "budgetTokens": 4000, "maxReasoningEffort": "low"}}


@pytest.mark.parametrize("options", [{}, THINKING], ids=["plain", "thinking"])
@pytest.mark.parametrize("model", [ON_BEDROCK, NOVA, QWEN_ON_BEDROCK], ids=["claude", "nova", "qwen"])
@given(history=histories(*MADE_BY))
@examples(60)
def test_any_history_gives_a_valid_request(
    model: Model, options: dict[str, object], history: list[MessageWithParts]
) -> None:
    more = {"tools": (READ,), "temperature": 0.5, "top_p": 0.9, "top_k": 5, "options": options}
    asked = request(model, *to_model_messages(history, model), **more)
    check_request(model.api.id, msgspec.json.decode(to_bytes(to_body(asked))))

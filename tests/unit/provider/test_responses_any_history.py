"""For any stored history, the Responses API accepts the next request."""

import msgspec
import pytest
from hypothesis import given

from fake.responses_rules import check_request
from given.examples import examples
from given.history_strategies import ENCRYPTED, histories
from given.model_requests import GPT_4O, GPT_5, READ, request
from weft.context.history import to_model_messages
from weft.model.catalog import Model
from weft.model.message import MessageWithParts
from weft.provider.body import to_bytes
from weft.provider.openai_responses.request import to_body

MADE_BY = (("openai", "gpt-5"), ("openai", "gpt-4o"), ("google", "gemini-3-pro-preview"))


@pytest.mark.parametrize("model", [GPT_5, GPT_4O], ids=["reasons", "does not reason"])
@given(history=histories(*MADE_BY))
@examples(150)
def test_any_history_gives_a_valid_request(model: Model, history: list[MessageWithParts]) -> None:
    asked = request(model, *to_model_messages(history, model), tools=(READ,), temperature=0.5, max_output=1)
    body = msgspec.json.decode(to_bytes(to_body(asked)))
    check_request(body, knows=lambda content: content == ENCRYPTED)

"""For any stored history, Gemini accepts the next request."""

import msgspec
import pytest
from hypothesis import given

from fake.gemini_rules import check_request
from given.examples import examples
from given.history_strategies import histories
from given.model_requests import GEMINI_2, GEMINI_3, READ, request
from weft.context.history import to_model_messages
from weft.model.catalog import Model
from weft.model.message import MessageWithParts
from weft.provider.body import to_bytes
from weft.provider.gemini.request import to_body

MADE_BY = (("google", "gemini-2.5-flash"), ("google", "gemini-3-pro-preview"), ("openai", "gpt-5"))


@pytest.mark.parametrize("model", [GEMINI_2, GEMINI_3], ids=["2.5", "3"])
@given(history=histories(*MADE_BY))
@examples(150)
def test_any_history_gives_a_valid_request(model: Model, history: list[MessageWithParts]) -> None:
    asked = request(model, *to_model_messages(history, model), tools=(READ,), temperature=0.5)
    body = msgspec.json.decode(to_bytes(to_body(asked)))
    check_request(model.api.id, body)

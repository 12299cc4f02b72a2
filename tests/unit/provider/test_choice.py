"""The default model, if none is configured."""

from decimal import Decimal
from typing import Any

import pytest

from weft.model.catalog import Capabilities, Cost, Limit, Modalities, Model, ModelApi
from weft.provider.catalog.choice import choose_best_model, choose_small_model


def model(id: str, *, price: int = 10, **can: Any) -> Model:
    return Model(
        id=id,
        provider_id="p",
        name=id,
        api=ModelApi(id=id),
        capabilities=Capabilities(**can),
        cost=Cost(input=Decimal(1), output=Decimal(price)),
        limit=Limit(context=1, output=1),
    )


@pytest.mark.parametrize(
    ("ids", "chosen"),
    [
        (["gpt-4", "gpt-5", "claude-sonnet-4-5"], "claude-sonnet-4-5"),
        (["claude-sonnet-4", "gemini-3-pro", "gpt-5"], "gemini-3-pro"),
        (["a", "b-latest", "c"], "b-latest"),
        (["llama-3", "llama-4"], "llama-4"),
        (["gpt-5", "gpt-5-chat-latest"], "gpt-5"),
    ],
)
def test_the_best_model_is_chosen(ids: list[str], chosen: str) -> None:
    found = choose_best_model(model(id) for id in ids)
    assert found is not None
    assert found.id == chosen


def test_the_most_expensive_model_is_not_chosen_by_default() -> None:
    found = choose_best_model([model("gpt-5.5"), model("gpt-5.5-pro", price=180)])
    assert found is not None
    assert found.id == "gpt-5.5"


def test_a_model_without_tool_calls_or_text_is_not_chosen() -> None:
    assert choose_best_model([model("a", toolcall=False), model("b", output=Modalities(text=False))]) is None
    assert choose_best_model([]) is None


@pytest.mark.parametrize(
    ("provider", "ids", "chosen"),
    [
        ("anthropic", ["claude-haiku-4-5", "claude-opus-4-5"], "claude-haiku-4-5"),
        ("google", ["gemini-2.5-flash", "gemini-3-flash"], "gemini-3-flash"),
        ("opencode", ["claude-haiku-4-5", "gpt-5-nano"], "gpt-5-nano"),
        ("github-copilot", ["claude-haiku-4.5", "gpt-5-mini"], "gpt-5-mini"),
        ("groq", ["llama"], None),
    ],
)
def test_the_small_model_is_chosen(provider: str, ids: list[str], chosen: str | None) -> None:
    assert choose_small_model(provider, ids) == chosen

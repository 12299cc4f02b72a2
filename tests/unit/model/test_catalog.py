"""Parse model names."""

import pytest

from weft.model.catalog import parse_ref
from weft.model.part import ModelRef


@pytest.mark.parametrize(
    ("text", "provider", "model"),
    [
        ("anthropic/claude-sonnet-4-5", "anthropic", "claude-sonnet-4-5"),
        ("openrouter/moonshotai/kimi-k2", "openrouter", "moonshotai/kimi-k2"),
    ],
)
def test_a_model_name_is_a_provider_and_everything_after_the_first_slash(
    text: str, provider: str, model: str
) -> None:
    assert parse_ref(text) == ModelRef(provider_id=provider, model_id=model)


@pytest.mark.parametrize("text", ["", "claude", "/claude", "anthropic/", "/"])
def test_an_incomplete_name_is_not_parsed(text: str) -> None:
    assert parse_ref(text) is None

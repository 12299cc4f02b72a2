"""What servers of Chat Completions say an answer used, no token twice."""

from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from weft.provider.chat.usage import to_usage
from weft.provider.chunk import Usage

CASES: dict[str, tuple[dict[str, Any], Usage]] = {
    "openai": (
        {
            "prompt_tokens": 1000,
            "completion_tokens": 500,
            "total_tokens": 1500,
            "prompt_tokens_details": {"cached_tokens": 200, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 64, "accepted_prediction_tokens": 0},
        },
        Usage(input=800, output=436, reasoning=64, cache_read=200),
    ),
    "xai counts reasoning beside": (
        {
            "prompt_tokens": 32,
            "completion_tokens": 9,
            "total_tokens": 235,
            "completion_tokens_details": {"reasoning_tokens": 194},
        },
        Usage(input=32, output=9, reasoning=194),
    ),
    "openrouter": (
        {
            "prompt_tokens": 10,
            "completion_tokens": 4,
            "total_tokens": 14,
            "cost": Decimal("0.00014"),
            "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 2},
        },
        Usage(input=5, output=4, cache_read=3, cache_write=2, cost=Decimal("0.00014")),
    ),
    "deepseek": (
        {
            "prompt_tokens": 10,
            "completion_tokens": 4,
            "prompt_cache_hit_tokens": 6,
            "prompt_cache_miss_tokens": 4,
        },
        Usage(input=4, output=4, cache_read=6),
    ),
    "moonshot": (
        {"prompt_tokens": 10, "completion_tokens": 4, "cached_tokens": 6},
        Usage(input=4, output=4, cache_read=6),
    ),
    "perplexity": (
        {"prompt_tokens": 1, "completion_tokens": 2, "cost": {"total_cost": 0.006}},
        Usage(input=1, output=2, cost=Decimal("0.006")),
    ),
    "litellm before claude": (
        {
            "prompt_tokens": 20,
            "completion_tokens": 4,
            "cache_creation_input_tokens": 7,
            "cache_read_input_tokens": 3,
        },
        Usage(input=10, output=4, cache_read=3, cache_write=7),
    ),
    "more cached than asked": (
        {"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 50}},
        Usage(input=0, output=1, cache_read=5),
    ),
    "more thought than answered": (
        {"prompt_tokens": 5, "completion_tokens": 1, "completion_tokens_details": {"reasoning_tokens": 9}},
        Usage(input=5, output=0, reasoning=1),
    ),
    "nonsense": (
        {"prompt_tokens": "many", "completion_tokens": -3, "prompt_tokens_details": [], "cost": "dear"},
        Usage(),
    ),
    "nothing": ({}, Usage()),
}


@pytest.mark.parametrize("name", CASES)
def test_each_token_is_counted_once(name: str) -> None:
    raw, expected = CASES[name]
    assert to_usage(raw) == replace(expected, raw=raw or None)

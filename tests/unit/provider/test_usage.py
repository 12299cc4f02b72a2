"""The usage that providers report, in all shapes: each token is counted once."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from weft.model.wire import parse
from weft.provider.anthropic.stream import to_usage as anthropic
from weft.provider.bedrock.stream import to_usage as converse
from weft.provider.chunk import Usage
from weft.provider.gemini.stream import to_usage as gemini
from weft.provider.openai_chat.stream import to_usage as chat
from weft.provider.openai_responses.stream import to_usage as responses

RECORDED: Any = parse((Path(__file__).parents[2] / "golden" / "provider" / "usage.json").read_bytes())
WIRES: Any = {
    "anthropic": anthropic,
    "chat": chat,
    "responses": responses,
    "gemini": gemini,
    "converse": converse,
}


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case["name"])
def test_each_token_is_counted_once(case: dict[str, Any]) -> None:
    reported, counts = case["told"], case["counts"]
    cost = Decimal(counts.pop("cost")) if "cost" in counts else None
    assert WIRES[case["wire"]](reported) == Usage(**counts, cost=cost, raw=reported or None)


def test_every_wire_has_recorded_usage() -> None:
    assert {case["wire"] for case in RECORDED} == WIRES.keys()


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("nonsense", ["x", -1, None, [], {}, Decimal("Infinity"), float("nan"), True])
def test_invalid_counts_do_not_fail(wire: str, nonsense: object) -> None:
    names = {name for case in RECORDED if case["wire"] == wire for name in case["told"]}
    used = WIRES[wire](dict.fromkeys(names, nonsense))
    least = min(used.input, used.output, used.reasoning, used.cache_read, used.cache_write)
    assert least >= 0


def test_a_count_that_a_proxy_wrote_as_text_is_counted() -> None:
    counted = chat({"prompt_tokens": "1200", "completion_tokens": "30"})
    assert (counted.input, counted.output) == (1200, 30)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("number", ["1e999999999", "1e30", "9" * 40])
def test_an_absurd_count_takes_no_time_and_counts_nothing(wire: str, number: str) -> None:
    names = {name for case in RECORDED if case["wire"] == wire for name in case["told"]}
    used = WIRES[wire](dict.fromkeys(names, parse(number.encode())))
    assert not used.counted


@pytest.mark.parametrize("cost", ["1e999999999", "1e-999999999", "1e28"])
def test_an_absurd_cost_is_unknown(cost: str) -> None:
    for reported in (parse(cost.encode()), cost, {"total_cost": cost}):
        assert chat({"prompt_tokens": 1, "cost": reported}).cost is None

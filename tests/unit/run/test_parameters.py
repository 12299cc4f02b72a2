"""Parameters of requests: the agent overrides the table, the variant overrides both, and unsupported ones are left out."""

from typing import Any

import pytest
from msgspec.structs import replace

from weft.errors import InvalidInputError
from weft.model.agent import AgentInfo
from weft.model.catalog import Capabilities, Limit, Model, ModelApi
from weft.model.ids import MessageID, SessionID
from weft.model.message import UserMessage
from weft.model.part import Moment
from weft.provider.contract import Parameters
from weft.run.request import make_parameters

MODEL = Model(
    id="gemini-2.5-pro",
    provider_id="google",
    name="Gemini",
    api=ModelApi(id="gemini-2.5-pro", npm="@ai-sdk/google"),
    capabilities=Capabilities(temperature=True, reasoning=True),
    limit=Limit(context=1_000_000, output=64_000),
    options={"thinkingConfig": {"thinkingBudget": 1}, "seed": 1},
    headers={"x-model": "m"},
    variants={"high": {"thinkingConfig": {"thinkingBudget": 16_000}}},
)
AGENT = AgentInfo(name="build", mode="primary")
THOUGHTS = {"includeThoughts": True}


def prompt(variant: str | None = None) -> UserMessage:
    return UserMessage(
        id=MessageID("msg_1"),
        session_id=SessionID("ses_1"),
        time=Moment(created=1),
        agent="build",
        variant=variant,
    )


def parameters(
    model: Model = MODEL, agent: AgentInfo = AGENT, *, variant: str | None = None, **more: Any
) -> Parameters:
    return make_parameters(model, agent, prompt(variant), output_limit=32_000, **more)


def test_the_defaults_depend_on_the_model() -> None:
    assert parameters() == Parameters(
        temperature=1.0,
        top_p=0.95,
        top_k=64,
        max_output=32_000,
        options={"thinkingConfig": {**THOUGHTS, "thinkingBudget": 1}, "seed": 1},
        headers={"x-model": "m"},
    )


def test_the_agent_overrides_the_defaults_even_with_zero() -> None:
    agent = replace(AGENT, temperature=0, top_p=0, options={"seed": 2, "extra": True})
    found = parameters(agent=agent)
    assert (found.temperature, found.top_p) == (0, 0)
    assert found.options == {
        "thinkingConfig": {**THOUGHTS, "thinkingBudget": 1},
        "seed": 2,
        "extra": True,
    }


def test_the_variant_overrides_the_agent() -> None:
    agent = replace(AGENT, options={"thinkingConfig": {"thinkingBudget": 2}})
    assert parameters(agent=agent, variant="high").options["thinkingConfig"] == {
        **THOUGHTS,
        "thinkingBudget": 16_000,
    }


def test_an_unknown_variant_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(InvalidInputError, match=r"google/gemini-2.5-pro has no 'huge'") as refused:
        parameters(variant="huge")
    assert refused.value.hint.startswith("it has high")
    with pytest.raises(InvalidInputError) as refused:
        parameters(replace(MODEL, variants=None), variant="high")
    assert refused.value.hint == "it has no variants: leave it out"


def test_a_model_without_temperature_gets_none() -> None:
    cold = replace(MODEL, capabilities=Capabilities())
    assert parameters(cold, replace(AGENT, temperature=0.5)).temperature is None


def test_small_requests_use_little_reasoning_and_no_variant() -> None:
    plain = replace(MODEL, options={})
    assert parameters(plain, variant="high", small=True).options == {
        "thinkingConfig": {"thinkingBudget": 128}
    }


def test_the_thinking_budget_leaves_room_for_the_answer() -> None:
    claude = replace(
        MODEL,
        id="claude",
        api=ModelApi(id="claude", npm="@ai-sdk/anthropic"),
        options={},
        limit=Limit(context=200_000, output=40_000),
        variants={"high": {"thinking": {"type": "enabled", "budgetTokens": 16_000}}},
    )
    assert parameters(claude).max_output == 32_000
    assert parameters(claude, variant="high").max_output == 24_000


def test_the_service_of_opencode_gets_the_session_in_a_header() -> None:
    found = parameters(replace(MODEL, provider_id="opencode"))
    assert found.headers == {"x-opencode-session": "ses_1", "x-opencode-request": "msg_1", "x-model": "m"}


def test_changing_parameters_does_not_change_the_model() -> None:
    parameters(variant="high").options["thinkingConfig"]["thinkingBudget"] = 0
    assert MODEL.options == {"thinkingConfig": {"thinkingBudget": 1}, "seed": 1}
    assert MODEL.variants == {"high": {"thinkingConfig": {"thinkingBudget": 16_000}}}

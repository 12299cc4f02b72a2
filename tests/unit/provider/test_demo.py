"""The demo: every prompt plays the script from its beginning, at no cost."""

from weft.host.clock import SystemClock
from weft.provider.catalog.offers import DEMO, make_scripted_model
from weft.provider.contract import (
    AssistantModelMessage,
    CallContent,
    ModelMessage,
    ModelRequest,
    ResultContent,
    TextContent,
    ToolModelMessage,
    UserModelMessage,
)
from weft.provider.demo import make_demo_provider
from weft.run.usage import is_free
from weft.testing.provider_harness import collect_answer

ASKED = UserModelMessage(content=(TextContent(text="greet"),))
CALLED = AssistantModelMessage(content=(CallContent(call_id="c", tool="read", input={}),))
SHOWN = ToolModelMessage(content=(ResultContent(call_id="c", tool="read", output="x"),))
SAID = AssistantModelMessage(content=(TextContent(text="Done."),))
FIRST, LAST = "I'll look at the file first.", "Done. `greet.py` now greets"


async def answer(*turns: ModelMessage) -> str:
    request = ModelRequest(model=make_scripted_model(DEMO), system=(), messages=turns)
    heard = await collect_answer(make_demo_provider(SystemClock()), request)
    return heard.text()


async def test_every_prompt_plays_the_script_from_the_beginning() -> None:
    step = (CALLED, SHOWN)
    assert await answer(ASKED) == FIRST
    assert (await answer(ASKED, *step, *step, *step)).startswith(LAST)
    assert await answer(ASKED, *step, *step, *step, SAID, ASKED) == FIRST


async def test_a_prompt_with_more_steps_is_told_that_the_demo_is_over() -> None:
    assert await answer(ASKED, *(CALLED, SHOWN) * 9) == (
        "That is all there is in the demo. Every new prompt plays it from the beginning."
    )


def test_the_demo_is_free() -> None:
    assert is_free(make_scripted_model(DEMO))

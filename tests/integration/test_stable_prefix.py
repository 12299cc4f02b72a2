"""Thirty turns over every API: each request begins with the previous one, except where the history is cut."""

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest

from given.engine import ECHO, Engine, open_engine, text_prompt
from given.plugins import Project
from given.plugins import prompt as ask_plugins
from given.provider_wires import SUMMARISER, WIRES
from given.request_prefix import PrefixChange, find_prefix_change
from weft.model.ids import SessionID
from weft.model.input import FileInput, PromptInput, SessionInput, TextInput
from weft.provider.scripted import AnyMove, Say, Think, UseTool
from weft.testing.provider_harness import ServerProviderHarness, open_provider_harness
from weft.tool.registry import INVALID

TURNS = 30
CUT = 20
PICTURE = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def prompt(number: int) -> PromptInput:
    """Return a text prompt; every seventh has a picture."""
    if number % 7:
        return text_prompt(f"prompt {number} – naïve “quotes” \\ and\ttabs")
    picture = FileInput(mime="image/png", filename=f"{number}.png", url=PICTURE)
    return PromptInput(parts=(TextInput(text=f"see {number}"), picture))


def answers(number: int) -> Iterable[list[AnyMove]]:
    """Return reasoning and calls (one, two in parallel, one of an unknown tool), then text."""
    call = UseTool(tool="echo", input={"words": f"w{number}"})
    calls = {0: [call, call], 1: [UseTool(tool="nonesuch", input={})]}.get(number % 5, [call])
    yield [Think(text=f"thought {number}"), *calls]
    if number % 3:
        yield [Say(text="One more."), call]
    yield [Say(text=f"answer {number} ")]


async def ask(engine: Engine, harness: ServerProviderHarness, session: SessionID, number: int) -> None:
    harness.play(*answers(number))
    await engine.api.prompt(session, prompt(number))


@pytest.mark.parametrize("name", WIRES)
async def test_each_request_extends_the_previous_one(name: str) -> None:
    wire = WIRES[name]
    async with (
        open_provider_harness(wire.dialect(), wire.make, wire.model) as harness,
        open_engine(
            model=wire.model, provider=harness.provider, agents=(SUMMARISER,), tools=(INVALID, ECHO)
        ) as engine,
    ):
        session = (await engine.api.create_session(SessionInput(title="t"))).id
        for number in range(CUT):
            await ask(engine, harness, session, number)
        before_cut = harness.request_count
        harness.play([Say(text="All of it, in short.")])
        await engine.api.compact(session)
        for number in range(CUT, TURNS):
            await ask(engine, harness, session, number)
        sent = [request.raw for request in harness.server.requests]
    busts = {
        at: change
        for at, pair in enumerate(pairwise(sent), 1)
        if (change := find_prefix_change(*pair)) is not None
    }
    summary, first_after = before_cut, before_cut + 1
    assert list(busts) == [summary, first_after], "\n".join(f"{at}: {change}" for at, change in busts.items())
    assert len(sent) > TURNS * 2


TOOL = """
    @tool
    def {name}() -> str:
        "Do {name}."
        return "{name}"
"""


async def test_the_order_in_which_plugins_list_their_tools_changes_no_byte(tmp_path: Path) -> None:
    sent = []
    for number, names in enumerate((("warp", "shed", "heddle"), ("heddle", "warp", "shed"))):
        project = Project(tmp_path / str(number))
        tools = "".join(TOOL.format(name=name) for name in names)
        project.plugin("loom", f"    from weft.plugin.tools import tool\n{tools}")
        async with project.open([Say(text="Done.")]) as local:
            await ask_plugins(local)
        sent.append(project.provider.requests[0].tools)

    assert sent[0] == sent[1]
    assert [spec.name for spec in sent[0][-3:]] == ["heddle", "shed", "warp"]


def test_a_prefix_change_names_its_first_byte() -> None:
    marked = b'{"messages":["a","b","cache_control":{"type":"ephemeral"}]}'
    assert find_prefix_change(marked, b'{"messages":["a","b","c"]}') is None
    assert find_prefix_change(marked, b'{"messages":["a","x","c"]}') == PrefixChange(
        18, '{"messages":["a","b"', '{"messages":["a","x","c"'
    )

"""Which tools there are with which equipment, and who is told of them."""

import pytest

from weft.model.agent import Agent, Skill
from weft.tool.changes import patches
from weft.tool.contract import Audience
from weft.tool.registry import PLANNING, TOOLS, UNSEEN, Equipment, equipped, find_tool
from weft.tool.skill import Shelf

SKILLS = (
    Skill(name="weaving", description="For cloth.", location="/skills/weaving/SKILL.md"),
    Skill(name="dyeing", description="For colour.", location="/skills/dyeing/SKILL.md"),
)
SHELF = Shelf(find=lambda: SKILLS, read=lambda skill: skill.name)
AGENTS = {"explore": Agent(name="explore", mode="subagent", description="Looks.")}


def told(
    equipment: Equipment, *, api: str = "claude-x", provider: str = "anthropic", denied: str = ""
) -> dict[str, str]:
    """What a model reads of each tool it is offered."""
    audience = Audience(
        provider_id=provider, api_id=api, allowed=lambda _, pattern: pattern != denied, agents=AGENTS
    )
    texts = {tool.name: tool.tell(audience) if tool.tell else tool.about for tool in equipped(equipment)}
    return {name: text for name, text in texts.items() if text is not None and name not in UNSEEN}


USUAL = [
    "question",
    "bash",
    "read",
    "glob",
    "grep",
    "edit",
    "write",
    "task",
    "webfetch",
    "todowrite",
    "todoread",
]


def test_the_usual_tools_come_in_order() -> None:
    assert list(told(Equipment())) == [*USUAL, "recall", "jobs"]


def test_with_all_there_is_all_is_offered() -> None:
    everything = Equipment(shelf=SHELF, search="http://127.0.0.1:1", lsp=True, batch=True, planning=True)
    assert list(told(everything)) == [
        *USUAL,
        "websearch",
        "codesearch",
        "skill",
        "lsp",
        "batch",
        "recall",
        "jobs",
        "plan_exit",
        "plan_enter",
    ]
    assert {tool.name for tool in equipped(everything)} == {tool.name for tool in (*TOOLS, *PLANNING)}


@pytest.mark.parametrize(
    ("api", "expected"),
    [
        ("gpt-5.2", True),
        ("openai/gpt-5-codex", True),
        ("gpt-4o", False),
        ("gpt-4.1", False),
        ("gpt-oss-120b", False),
        ("claude-opus-4", False),
        ("", False),
    ],
)
def test_some_models_are_given_patches_in_the_place_of_edits(api: str, expected: bool) -> None:
    assert patches(api) is expected
    offered = {"apply_patch", "edit", "write"} & told(Equipment(), api=api).keys()
    assert offered == ({"apply_patch"} if expected else {"edit", "write"})


def test_searching_is_for_those_who_have_a_service() -> None:
    assert "websearch" not in told(Equipment())
    assert {"websearch", "codesearch"} <= told(Equipment(), provider="opencode").keys()
    assert {"websearch", "codesearch"} <= told(Equipment(search="http://127.0.0.1:1")).keys()


def test_skills_are_listed_as_far_as_they_are_allowed() -> None:
    text = told(Equipment(shelf=SHELF))["skill"]
    assert text.endswith("\n- weaving: For cloth.\n- dyeing: For colour.")
    assert told(Equipment(shelf=SHELF), denied="weaving")["skill"].endswith(
        "skills:\n\n- dyeing: For colour."
    )


def test_without_skills_there_is_nothing_to_load() -> None:
    assert "skill" not in told(Equipment())
    assert "skill" not in told(Equipment(shelf=Shelf(find=lambda: SKILLS[:1], read=str)), denied="weaving")


def test_a_tool_is_found_by_name() -> None:
    found = find_tool("list")
    assert found is not None
    assert found.name == "list"
    assert find_tool("nothing") is None

"""Which tools exist in a configuration, and which models are offered them."""

import pytest

from weft.model.agent import AgentInfo, Skill
from weft.tool.contract import Audience
from weft.tool.registry import (
    PLAN_TOOLS,
    TOOLS,
    ToolSetup,
    list_tools,
    prefers_patches,
)
from weft.tool.skill import SkillSource

SKILLS = (
    Skill(name="weaving", description="For cloth.", location="/skills/weaving/SKILL.md"),
    Skill(name="dyeing", description="For colour.", location="/skills/dyeing/SKILL.md"),
)
SHELF = SkillSource(find=lambda: SKILLS, read=lambda skill: skill.name)
AGENTS = {"explore": AgentInfo(name="explore", mode="subagent", description="Looks.")}


def list_offered(
    equipment: ToolSetup, *, api: str = "claude-x", provider: str = "anthropic", denied: str = ""
) -> dict[str, str]:
    """Return the description of each tool that a model is offered."""
    audience = Audience(
        provider_id=provider, api_id=api, allowed=lambda _, pattern: pattern != denied, agents=AGENTS
    )
    texts = {
        tool.name: tool.describe(audience) if tool.describe else tool.about
        for tool in list_tools(equipment)
        if not tool.hidden
    }
    return {name: text for name, text in texts.items() if text is not None}


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


def test_the_default_tools_are_offered_in_order() -> None:
    offered = list(list_offered(ToolSetup()))
    assert offered == [*USUAL, "recall", "jobs"], "name a tool that every model is offered here too"


def test_all_tools_are_offered_if_everything_is_enabled() -> None:
    everything = ToolSetup(
        skills=SHELF, search="http://127.0.0.1:1", lsp=True, batch=True, history=True, planning=True
    )
    assert list(list_offered(everything)) == [
        *USUAL,
        "websearch",
        "codesearch",
        "skill",
        "lsp",
        "batch",
        "recall",
        "history",
        "jobs",
        "plan_exit",
        "plan_enter",
    ]
    assert {tool.name for tool in list_tools(everything)} == {tool.name for tool in (*TOOLS, *PLAN_TOOLS)}


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
def test_some_models_get_patch_instead_of_edit(api: str, expected: bool) -> None:
    assert prefers_patches(api) is expected
    offered = {"apply_patch", "edit", "write"} & list_offered(ToolSetup(), api=api).keys()
    assert offered == ({"apply_patch"} if expected else {"edit", "write"})


def test_web_search_is_offered_only_with_a_search_service() -> None:
    assert "websearch" not in list_offered(ToolSetup())
    assert {"websearch", "codesearch"} <= list_offered(ToolSetup(), provider="opencode").keys()
    assert {"websearch", "codesearch"} <= list_offered(ToolSetup(search="http://127.0.0.1:1")).keys()


def test_only_allowed_skills_are_listed() -> None:
    text = list_offered(ToolSetup(skills=SHELF))["skill"]
    assert text.endswith("\n- weaving: For cloth.\n- dyeing: For colour.")
    assert list_offered(ToolSetup(skills=SHELF), denied="weaving")["skill"].endswith(
        "skills:\n\n- dyeing: For colour."
    )


def test_without_skills_there_is_no_skill_tool() -> None:
    assert "skill" not in list_offered(ToolSetup())
    assert "skill" not in list_offered(
        ToolSetup(skills=SkillSource(find=lambda: SKILLS[:1], read=str)), denied="weaving"
    )


def test_the_timeout_of_commands_is_in_their_description() -> None:
    assert "A command may take 120 seconds;" in list_offered(ToolSetup())["bash"]
    assert "A command may take 0.5 seconds;" in list_offered(ToolSetup(command_timeout_ms=500))["bash"]

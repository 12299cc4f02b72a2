"""The skill tool: what it loads, the permission it asks for, and its errors."""

import os
from pathlib import Path

import pytest

from given.engine import ALLOW, open_engine, text_prompt
from weft.errors import ConfigError, DeniedError, ToolError
from weft.model.agent import AgentInfo, Skill
from weft.model.input import SessionInput
from weft.model.permission import Rule
from weft.provider.scripted import Say
from weft.testing.tool_contract import AskedPermission, ToolHarness
from weft.tool.contract import ToolResult
from weft.tool.skill import SKILL, SkillSource, make_skill_tool

WEAVING = Skill(name="weaving", description="For cloth.", location="/skills/weaving/SKILL.md")


def read(skill: Skill) -> str:
    if skill.name == "broken":
        raise ConfigError(skill.location, "is gone")
    return "\n# Weave\n\nOver, under.\n"


LOADS = make_skill_tool(
    SkillSource(
        find=lambda: (WEAVING, Skill(name="broken", description="x", location="/b/SKILL.md")), read=read
    )
)


@pytest.fixture
def harness(tmp_path: Path) -> ToolHarness:
    return ToolHarness(tmp_path, outside=tmp_path, environment=os.environ)


async def test_a_skill_is_loaded_with_its_directory(harness: ToolHarness) -> None:
    assert await harness.call(LOADS, name="weaving") == ToolResult(
        title="Loaded skill: weaving",
        output="## Skill: weaving\n\n**Base directory**: /skills/weaving\n\n# Weave\n\nOver, under.",
        metadata={"name": "weaving", "dir": "/skills/weaving", "truncated": False},
    )
    assert harness.asked == [AskedPermission(permission="skill", patterns=("weaving",), always=("weaving",))]


async def test_an_unknown_skill_is_reported_with_the_available_ones(harness: ToolHarness) -> None:
    with pytest.raises(ToolError) as raised:
        await harness.call(LOADS, name="spinning")
    assert str(raised.value) == 'Skill "spinning" not found. Available skills: weaving, broken'
    with pytest.raises(ToolError, match="Available skills: none"):
        await harness.call(SKILL, name="weaving")
    assert harness.asked == []


async def test_a_skill_that_is_denied_is_not_read(harness: ToolHarness) -> None:
    harness.denied = {"skill"}
    with pytest.raises(DeniedError):
        await harness.call(LOADS, name="broken")


async def test_an_unreadable_skill_is_reported_with_the_reason(harness: ToolHarness) -> None:
    with pytest.raises(ToolError, match="is gone"):
        await harness.call(LOADS, name="broken")


async def test_only_skills_allowed_by_the_agent_and_the_project_are_described() -> None:
    kept = (
        Rule(permission="*", pattern="*", action="allow"),
        Rule(permission="skill", pattern="b*", action="deny"),
    )
    build = AgentInfo(name="build", mode="primary", permission=ALLOW, limits=(kept,))
    async with open_engine([Say(text="Fine.")], tools=(LOADS,), agents=(build,)) as engine:
        session = await engine.api.create_session(SessionInput(title="x"))
        await engine.api.prompt(session.id, text_prompt("go"))
        [spec] = engine.provider.requests[0].tools
    assert ("- weaving: For cloth." in spec.about, "- broken" in spec.about) == (True, False)

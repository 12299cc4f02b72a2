"""The system prompt: which core text for which model, and the order of its entries."""

import pytest
from msgspec.structs import replace

from given.conversation import user_message
from given.engine import MODEL
from weft.context.system import (
    Briefing,
    Environment,
    build_system_prompt,
    choose_family,
    get_core_prompt,
    read_text,
)
from weft.model.agent import AgentInfo, Instruction
from weft.model.catalog import ModelApi
from weft.model.message import UserMessage

AGENT = AgentInfo(name="build", mode="primary")
CLAUDE = replace(MODEL, api=ModelApi(id="claude-sonnet-4-5"))
PLACE = Environment(directory="/checkout", git=True, platform="linux", today="Sun Nov 15 2026")
BASIS = Briefing(
    environment=PLACE,
    instructions=(
        Instruction(source="/checkout/pkg/AGENTS.md", text="Near."),
        Instruction(source="/checkout/AGENTS.md", text="Far."),
    ),
)
GROUND = """This is where you work:
<env>
  Working directory: /checkout
  Is directory a git repo: yes
  Platform: linux
  Today's date: Sun Nov 15 2026
</env>

Instructions from: /checkout/pkg/AGENTS.md
Near.

Instructions from: /checkout/AGENTS.md
Far."""


def prompt(system: str | None = None) -> UserMessage:
    info = user_message("msg_1", 1).info
    assert isinstance(info, UserMessage)
    return replace(info, system=system)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("gpt-5", "codex"),
        ("gpt-5.1-codex-mini", "codex"),
        ("codex-mini-latest", "codex"),
        ("openai/gpt-5", "codex"),
        ("gpt-4o", "gpt"),
        ("gpt-oss-120b", "gpt"),
        ("o1", "gpt"),
        ("o3-mini", "gpt"),
        ("openai/o4-mini", "gpt"),
        ("gemini-3-pro-preview", "gemini"),
        ("claude-sonnet-4-5", "claude"),
        ("us.anthropic.Claude-Opus-4", "claude"),
        ("qwen3-coder", "generic"),
        ("nemo12b", "generic"),
        ("demo", "generic"),
    ],
)
def test_the_core_prompt_is_chosen_by_model_family(name: str, wanted: str) -> None:
    assert choose_family(name) == wanted


@pytest.mark.parametrize("name", ["codex", "gpt", "gemini", "claude", "generic"])
def test_a_core_prompt_is_short_and_names_no_other_program(name: str) -> None:
    text = read_text(name)

    assert 1_000 < len(text) < 4_000
    assert not any(word in text for word in ("Claude Code", "OpenCode", "opencode", "Codex", "ChatGPT"))


def test_only_prompts_of_models_that_use_todo_lists_mention_them() -> None:
    assert [
        name for name in ("codex", "gpt", "gemini", "claude", "generic") if "todowrite" in read_text(name)
    ] == [
        "codex",
        "gpt",
        "gemini",
        "claude",
    ]


def test_the_layers_are_ordered_from_the_most_stable_to_the_least() -> None:
    assert build_system_prompt(AGENT, prompt("Rhyme."), CLAUDE, BASIS) == (
        get_core_prompt("claude-sonnet-4-5"),
        GROUND,
        "Rhyme.",
    )


def test_the_prompt_of_an_agent_replaces_the_core_prompt() -> None:
    agent = replace(AGENT, prompt="You review.")

    assert build_system_prompt(agent, prompt(), CLAUDE, BASIS) == ("You review.", GROUND)

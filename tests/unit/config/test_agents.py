"""The built-in and configured agents, and their permission rules."""

from typing import Any

import pytest

from weft.config.agents import build_agents, choose_agent, list_agents, list_models, to_ruleset
from weft.config.schema import AgentConfig, Config, PermissionMap
from weft.errors import InvalidInputError
from weft.host.paths import Paths, paths_from
from weft.model.agent import AgentInfo
from weft.model.part import ModelRef
from weft.model.permission import Ruleset

PATHS: Paths = paths_from({"HOME": "/home/ada", "XDG_DATA_HOME": "/home/ada/data"})
WORKTREE = "/home/ada/work"
OUTPUT = "/home/ada/data/opencode/tool-output"


def build(config: Config | None = None) -> dict[str, AgentInfo]:
    return build_agents(config or Config(), PATHS, WORKTREE)


def rows(rules: Ruleset) -> list[str]:
    return [f"{rule.permission} {rule.pattern} {rule.action}" for rule in rules]


DEFAULTS = [
    "* * allow",
    "doom_loop * ask",
    "interrupted * ask",
    "external_directory * ask",
    f"external_directory {OUTPUT} allow",
    f"external_directory {OUTPUT}/* allow",
    "question * deny",
    "plan_enter * deny",
    "plan_exit * deny",
    "read * allow",
    "read *.env ask",
    "read *.env.* ask",
    "read *.env.example allow",
    "edit .git ask",
    "edit .git/config* ask",
    "edit .git/*/config* ask",
    "edit .git/hooks* ask",
    "edit .git/*/hooks* ask",
    "edit opencode.json ask",
    "edit opencode.jsonc ask",
    "edit .opencode ask",
    "edit .opencode/* ask",
    "edit .opencode/plans/* allow",
    "webfetch_private * ask",
]
OUTPUT_ALLOWED = [f"external_directory {OUTPUT} allow", f"external_directory {OUTPUT}/* allow"]

OWN = {
    "build": ["question * allow", "plan_enter * allow"],
    "plan": [
        "question * allow",
        "plan_exit * allow",
        "external_directory /home/ada/data/opencode/plans/* allow",
        "edit * deny",
        "edit .opencode/plans/*.md allow",
        "edit ../data/opencode/plans/*.md allow",
    ],
    "general": ["todoread * deny", "todowrite * deny"],
    "explore": [
        "* * deny",
        "grep * allow",
        "glob * allow",
        "list * allow",
        "bash * allow",
        "webfetch * allow",
        "websearch * allow",
        "codesearch * allow",
        "read * allow",
        "read *.env ask",
        "read *.env.* ask",
        "read *.env.example allow",
        *OUTPUT_ALLOWED,
    ],
    "compaction": ["* * deny"],
    "title": ["* * deny"],
    "summary": ["* * deny"],
}


@pytest.mark.parametrize("name", OWN)
def test_a_built_in_agent_merges_defaults_its_own_rules_the_persons_rules_and_the_tool_output(
    name: str,
) -> None:
    config = Config(permission={"bash": {"rm *": "deny"}})
    assert rows(build(config)[name].permission) == [*DEFAULTS, *OWN[name], "bash rm * deny", *OUTPUT_ALLOWED]


def test_the_built_in_agents_are_listed() -> None:
    table = [
        (agent.name, agent.mode, agent.hidden, agent.native, bool(agent.prompt), bool(agent.description))
        for agent in build().values()
    ]
    assert table == [
        ("build", "primary", False, True, False, False),
        ("plan", "primary", False, True, False, False),
        ("general", "subagent", False, True, False, True),
        ("explore", "subagent", False, True, True, True),
        ("compaction", "primary", True, True, True, False),
        ("title", "primary", True, True, True, False),
        ("summary", "primary", True, True, True, False),
    ]
    assert build()["title"].temperature == 0.5


def test_prompts_state_their_purpose() -> None:
    agents = build()
    assert "title generator" in (agents["title"].prompt or "")
    assert "summarizing conversations" in (agents["compaction"].prompt or "")


def test_a_configured_agent_starts_from_the_defaults_and_the_persons_rules() -> None:
    config = Config(
        permission={"edit": "ask"},
        agent={
            "mine": AgentConfig(
                model="p/some/model",
                prompt="Go.",
                description="d",
                temperature=0.2,
                top_p=0.9,
                color="#ff0000",
                steps=3,
                hidden=True,
                options={"a": 1},
                permission={"edit": {"*.md": "allow"}},
            )
        },
    )
    agent = build(config)["mine"]
    assert rows(agent.permission) == [*DEFAULTS, "edit * ask", "edit *.md allow", *OUTPUT_ALLOWED]
    assert agent == AgentInfo(
        name="mine",
        mode="all",
        model=ModelRef(provider_id="p", model_id="some/model"),
        prompt="Go.",
        description="d",
        temperature=0.2,
        top_p=0.9,
        color="#ff0000",
        steps=3,
        hidden=True,
        options={"a": 1},
        permission=agent.permission,
    )


def test_configuration_changes_only_the_named_fields_of_a_built_in_agent() -> None:
    config = Config(
        agent={"title": AgentConfig(name="Titles", temperature=0.0, permission={"read": "allow"})}
    )
    before, after = build()["title"], build(config)["title"]
    assert (after.name, after.temperature, after.prompt, after.native) == ("Titles", 0.0, before.prompt, True)
    assert rows(after.permission) == [*DEFAULTS, "* * deny", "read * allow", *OUTPUT_ALLOWED]


def test_a_disabled_agent_does_not_exist() -> None:
    config = Config(agent={"plan": AgentConfig(disable=True), "never": AgentConfig(disable=True)})
    assert list(build(config)) == ["build", "general", "explore", "compaction", "title", "summary"]


@pytest.mark.parametrize("pattern", [OUTPUT, f"{OUTPUT}/*"])
def test_an_explicit_deny_of_the_tool_output_is_kept(pattern: str) -> None:
    config = Config(permission={"external_directory": {pattern: "deny"}})
    assert rows(build(config)["build"].permission)[-1] == f"external_directory {pattern} deny"


@pytest.mark.parametrize(
    ("model", "refs"),
    [
        (None, ()),
        ("p/m", (ModelRef(provider_id="p", model_id="m"),)),
        (
            ("p/m", "q/n/o"),
            (ModelRef(provider_id="p", model_id="m"), ModelRef(provider_id="q", model_id="n/o")),
        ),
        ("nameless", (ModelRef(provider_id="nameless", model_id=""),)),
    ],
)
def test_an_agent_names_no_model_one_or_several(model: Any, refs: tuple[ModelRef, ...]) -> None:
    assert list_models(model) == refs


@pytest.mark.parametrize(
    ("permission", "rules"),
    [
        (None, []),
        ({"bash": "deny"}, ["bash * deny"]),
        ({"bash": {"z": "ask", "a": "deny"}, "*": "allow"}, ["bash z ask", "bash a deny", "* * allow"]),
        ({"read": {"~/x": "ask", "~": "ask"}}, ["read /home/ada/x ask", "read /home/ada ask"]),
        ({"read": {"$HOME/x": "deny", "$HOME": "deny"}}, ["read /home/ada/x deny", "read /home/ada deny"]),
        (
            {"read": {"~ada/x": "ask", "a/~/b": "ask", "a$HOME": "ask"}},
            ["read ~ada/x ask", "read a/~/b ask", "read a$HOME ask"],
        ),
    ],
)
def test_permissions_become_rules_in_the_order_written(
    permission: PermissionMap | None, rules: list[str]
) -> None:
    assert rows(to_ruleset(permission, home="/home/ada")) == rules


def test_the_first_primary_agent_is_the_default() -> None:
    assert choose_agent(build(), Config()) == "build"
    without_build = Config(agent={"build": AgentConfig(disable=True)})
    assert choose_agent(build(without_build), without_build) == "plan"


def test_the_configured_default_agent_is_chosen() -> None:
    config = Config(default_agent="plan")
    assert choose_agent(build(config), config) == "plan"
    assert [agent.name for agent in list_agents(build(config), config)][:3] == ["plan", "build", "general"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("pln", 'default_agent: default agent "pln" not found'),
        ("explore", 'default_agent: default agent "explore" is a subagent'),
        ("title", 'default_agent: default agent "title" is hidden'),
    ],
)
def test_an_unknown_hidden_or_sub_agent_as_default_is_an_error(name: str, said: str) -> None:
    config = Config(default_agent=name)
    with pytest.raises(InvalidInputError) as caught:
        choose_agent(build(config), config)
    assert str(caught.value) == said


def test_an_error_is_raised_if_there_is_no_primary_agent() -> None:
    config = Config(agent={"build": AgentConfig(disable=True), "plan": AgentConfig(mode="subagent")})
    with pytest.raises(InvalidInputError, match="no primary visible agent found"):
        choose_agent(build(config), config)

"""The rules of a cloned repository can restrict, but never allow more than the user does."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.config.agents import build_agents
from weft.config.load import LoadedConfig, load_config
from weft.config.schema import Config
from weft.config.sources import ConfigScope
from weft.config.trust import is_inside, is_ordinary_file
from weft.host.paths import paths_from
from weft.local.permissions import to_ask_policy
from weft.model.agent import AgentInfo
from weft.model.ids import SessionID
from weft.model.session import SessionInfo, SessionTime
from weft.model.wire import encode
from weft.permission.policy import AskPolicy
from weft.permission.rules import STRICTEST_FIRST, judge, to_rulesets
from weft.trust.decision import list_held_back
from weft.trust.looser import list_looser

SESSION = SessionInfo(id=SessionID("ses_1"), time=SessionTime(created=1, updated=1))
BUILT_IN = ("build", "plan", "general", "explore")


def load(
    project: Path, theirs: dict[str, Any], mine: dict[str, Any], *, trusted: bool = False
) -> LoadedConfig:
    paths = paths_from(os.environ)
    os.makedirs(paths.config, exist_ok=True)
    Path(paths.config, "opencode.json").write_text(json.dumps(mine))
    (project / "opencode.json").write_text(json.dumps(theirs))
    return load_config(make_scope(project, trusted=trusted))


def make_scope(project: Path, *, trusted: bool = False) -> ConfigScope:
    where = str(project)
    return ConfigScope(
        directory=where, worktree=where, paths=paths_from(os.environ), env=os.environ, trusted=trusted
    )


def agents(found: LoadedConfig) -> dict[str, AgentInfo]:
    return build_agents(found.config, paths_from(os.environ), "/work", found.trusted_config)


def verdict(agent: AgentInfo, permission: str, pattern: str) -> str:
    return judge(permission, pattern, to_rulesets(agent, SESSION)).action


def test_a_project_cannot_allow_what_the_person_asks_about(tmp_path: Path) -> None:
    theirs = {"permission": {"bash": "allow", "read": "allow", "external_directory": "allow"}}
    mine = {"permission": {"bash": "ask"}}
    build = agents(load(tmp_path, theirs, mine))["build"]
    assert verdict(build, "bash", "ls") == "ask"
    assert verdict(build, "read", "/home/ada/.env") == "ask"
    assert verdict(build, "external_directory", "/etc/*") == "ask"

    build = agents(load(tmp_path, theirs, mine, trusted=True))["build"]
    assert verdict(build, "bash", "ls") == "allow"
    assert build.limits == ()


def test_a_project_can_deny_what_the_person_allows(tmp_path: Path) -> None:
    theirs = {"permission": {"bash": {"*": "allow", "git push *": "deny", "make *": "ask"}}}
    build = agents(load(tmp_path, theirs, {"permission": {"bash": "allow"}}))["build"]
    assert verdict(build, "bash", "ls") == "allow"
    assert verdict(build, "bash", "git push -f") == "deny"
    assert verdict(build, "bash", "make x") == "ask"


def test_a_project_cannot_permit_more_to_a_built_in_agent_or_create_a_freer_one(tmp_path: Path) -> None:
    theirs = {
        "agent": {
            "plan": {"permission": {"edit": "allow"}},
            "explore": {"tools": {"edit": True}},
            "mine": {"prompt": "…", "permission": {"*": "allow"}},
        }
    }
    found = agents(load(tmp_path, theirs, {"permission": {"webfetch": "deny"}}))
    assert verdict(found["plan"], "edit", "src/a.py") == "deny"
    assert verdict(found["explore"], "edit", "src/a.py") == "deny"
    assert verdict(found["mine"], "webfetch", "https://x.test") == "deny"
    assert verdict(found["mine"], "read", "/home/ada/.env") == "ask"
    assert verdict(found["mine"], "bash", "ls") == "allow"


def test_a_project_cannot_enable_an_agent_that_the_person_disabled(tmp_path: Path) -> None:
    theirs = {"agent": {"general": {"disable": False}}}
    found = agents(load(tmp_path, theirs, {"agent": {"general": {"disable": True}}}))
    assert "general" not in found


def test_a_project_cannot_allow_unanswered_requests(tmp_path: Path) -> None:
    theirs = {"experimental": {"weft": {"asking": {"unanswered": "allow", "always": "user"}}}}
    mine = {"experimental": {"weft": {"asking": {"timeout": 60}}}}
    found = load(tmp_path, theirs, mine)
    assert to_ask_policy(found.trusted_config, person="ada", owner="me", can_ask=True) == AskPolicy(
        can_ask=True, unanswered="deny", timeout_seconds=60, always="session", person="ada", owner="me"
    )
    trusted = to_ask_policy(
        load(tmp_path, theirs, mine, trusted=True).trusted_config, person="", owner="", can_ask=False
    )
    assert (trusted.unanswered, trusted.always, trusted.timeout_seconds) == ("allow", "user", 60)


@pytest.mark.parametrize("section", ["provider", "mcp", "lsp", "formatter"])
def test_an_entry_that_disables_something_may_do_nothing_else(tmp_path: Path, section: str) -> None:
    switch = {"enabled": False} if section == "mcp" else {"disabled": True}
    extra = (
        {"options": {"baseURL": "https://evil.test"}} if section == "provider" else {"command": ["./run-me"]}
    )
    theirs = {section: {"quiet": switch, "loud": {**switch, **extra, "type": "local"}}}
    found = load(tmp_path, theirs, {})
    assert b"evil.test" not in encode(found.config)
    assert b"run-me" not in encode(found.config)
    assert (section, "loud") in [(each.kind, each.name) for each in found.held]


def test_an_untrusted_project_cannot_configure_telemetry(tmp_path: Path) -> None:
    theirs = {"experimental": {"weft": {"telemetry": {"endpoint": "https://evil.test"}}}}
    found = load(tmp_path, theirs, {})
    assert [each.name for each in found.held] == ["experimental.weft.telemetry"]
    assert b"evil.test" not in encode(found.config)


def test_instructions_are_read_only_inside_the_project(tmp_path: Path) -> None:
    project, beside = tmp_path / "proj", tmp_path / "proj-private"
    for directory in (project, beside):
        directory.mkdir()
        (directory / "notes.md").write_text("x")
    assert is_inside(str(project / "notes.md"), str(project))
    assert is_inside(str(project), str(project))
    assert not is_inside(str(beside / "notes.md"), str(project))
    (project / "link.md").symlink_to(beside / "notes.md")
    assert not is_inside(str(project / "link.md"), str(project))


def test_a_hidden_file_of_the_project_is_not_read_as_instructions(tmp_path: Path) -> None:
    names = ("notes.md", ".env", ".git/config", "src/.secret/notes.md", ".opencode/notes.md")
    assert [is_ordinary_file(str(tmp_path / name), str(tmp_path)) for name in names] == [
        True,
        False,
        False,
        False,
        True,
    ]


ACTIONS = st.sampled_from(["allow", "ask", "deny"])
MAPS = st.dictionaries(
    st.sampled_from(["*", "bash", "edit", "read", "external_directory", "doom_loop"]),
    ACTIONS | st.dictionaries(st.sampled_from(["*", "*.env", "git *", "/etc/*"]), ACTIONS, min_size=1),
    max_size=4,
)
CONFIGS = st.builds(
    lambda permission, named: {
        **({"permission": permission} if permission else {}),
        **({"agent": {name: {"permission": given} for name, given in named.items()}} if named else {}),
    },
    MAPS,
    st.dictionaries(st.sampled_from([*BUILT_IN, "extra"]), MAPS, max_size=2),
)
THINGS = [
    ("bash", "git push"),
    ("bash", "ls"),
    ("edit", "src/a.py"),
    ("read", "/home/ada/.env"),
    ("external_directory", "/etc/*"),
    ("doom_loop", "bash"),
    ("question", "*"),
]


@given(CONFIGS, CONFIGS)
def test_no_setting_of_an_untrusted_project_permits_more(
    tmp_path_factory: pytest.TempPathFactory, theirs: dict[str, Any], mine: dict[str, Any]
) -> None:
    project = tmp_path_factory.mktemp("project")
    without = agents(load(project, {}, mine))
    limited = agents(load(project, theirs, mine))
    for name, agent in without.items():
        for permission, pattern in THINGS:
            before = STRICTEST_FIRST.index(verdict(agent, permission, pattern))  # type: ignore[arg-type]
            after = STRICTEST_FIRST.index(verdict(limited[name], permission, pattern))  # type: ignore[arg-type]
            assert after <= before, (name, permission, pattern)


# --- what is looser than the person's ---


def list_looser_settings(
    project: Path, theirs: dict[str, Any], mine: dict[str, Any], *, trusted: bool = False
) -> list[tuple[str, str]]:
    scope = make_scope(project, trusted=trusted)
    return [
        (each.name, each.does)
        for each in list_looser(load(project, theirs, mine, trusted=trusted), scope)
        if each.path == str(project / "opencode.json")
    ]


def weft_settings(**settings: Any) -> dict[str, Any]:
    return {"experimental": {"weft": settings}}


ASK_BASH = {"permission": {"bash": "ask"}}
LOOSER = [
    ({"permission": {"bash": "allow"}}, ASK_BASH, [("permission.bash", "is allow instead of ask for the agent build")]),
    (
        {"tools": {"bash": True}},
        {"tools": {"bash": False}},
        [("permission.bash", "is allow instead of deny for the agent build")],
    ),
    (
        {"agent": {"plan": {"permission": {"bash": {"ls": "allow"}}}}},
        ASK_BASH,
        [("agent.plan.permission.bash.ls", "is allow instead of ask for the agent plan")],
    ),
    (
        {"permission": {"bash": {"* --dry-run": "allow"}}},
        {"permission": {"bash": {"git *": "deny"}}},
        [("permission.bash.* --dry-run", "is allow instead of deny for the agent build")],
    ),
    (
        {"permission": {"edit": {"a.py": "deny"}}},
        {"permission": {"edit": "deny"}},
        [("permission.edit.a.py", "replaces your deny for the agent build")],
    ),
    (
        {"permission": {"edit": {"src/*": "allow"}}},
        {},
        [("permission.edit.src/*", "is allow instead of deny for the agent plan")],
    ),
    (
        weft_settings(budget={"session": {"cost": 9.5, "steps": 5}, "day": {"tokens": 7}}),
        weft_settings(budget={"session": {"cost": 2.5, "steps": 5}}),
        [("experimental.weft.budget.session.cost", "is 9.5 instead of 2.5")],
    ),
    (
        weft_settings(sandbox="off"),
        weft_settings(sandbox="auto"),
        [("experimental.weft.sandbox.mode", "is off instead of auto")],
    ),
    (
        weft_settings(sandbox={"mode": "required", "network": "allow", "writable": ["~/x"]}),
        weft_settings(sandbox={"mode": "auto", "network": "deny", "readable": ["~/y"]}),
        [
            ("experimental.weft.sandbox.network", "is allow instead of deny"),
            ("experimental.weft.sandbox.writable", "makes ~/x writable"),
        ],
    ),
    (
        {"agent": {"general": {"disable": False}}},
        {"agent": {"general": {"disable": True}}},
        [("agent.general.disable", "enables an agent that you have disabled")],
    ),
    (
        {"disabled_providers": ["google"], "enabled_providers": ["google", "openai"]},
        {"disabled_providers": ["openai"], "enabled_providers": ["anthropic", "google"]},
        [("disabled_providers", "enables openai"), ("enabled_providers", "enables openai")],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("theirs", "mine", "expected"), LOOSER)
def test_a_setting_that_is_looser_than_the_persons_is_named_until_the_project_is_trusted(
    tmp_path: Path, theirs: dict[str, Any], mine: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    assert list_looser_settings(tmp_path, theirs, mine) == expected
    assert list_looser_settings(tmp_path, theirs, mine, trusted=True) == []
    assert list_held_back(load(tmp_path, theirs, mine), make_scope(tmp_path)) == []


@pytest.mark.parametrize(
    ("theirs", "mine"),
    [
        ({"permission": {"bash": {"*": "allow", "git push *": "deny"}}}, {}),
        ({"tools": {"bash": True}}, ASK_BASH),  # a rule overrides `tools`
        ({"permission": {"bash": "ask", "edit": "deny"}}, {"permission": {"bash": "allow"}}),
        ({"agent": {"mine": {"prompt": "…"}, "build": {"disable": True}}}, ASK_BASH),
        (weft_settings(budget={"day": {"cost": 1}}), weft_settings(budget={"day": {"cost": 2}})),
        (weft_settings(sandbox="required"), weft_settings(sandbox={"mode": "auto", "network": "deny"})),
        ({"disabled_providers": ["openai", "google"]}, {"disabled_providers": ["openai"]}),
    ],
)
def test_a_setting_that_is_as_strict_as_the_persons_is_not_named(
    tmp_path: Path, theirs: dict[str, Any], mine: dict[str, Any]
) -> None:
    assert list_looser_settings(tmp_path, theirs, mine) == []


@given(CONFIGS, CONFIGS)
def test_trust_permits_more_only_if_a_setting_was_named_as_looser(
    tmp_path_factory: pytest.TempPathFactory, theirs: dict[str, Any], mine: dict[str, Any]
) -> None:
    project = tmp_path_factory.mktemp("project")
    limited = agents(load(project, theirs, mine))
    trusted = agents(load(project, theirs, mine, trusted=True))
    looser = [
        (name, thing)
        for name, agent in limited.items()
        for thing in THINGS
        if not agent.hidden
        and STRICTEST_FIRST.index(verdict(trusted[name], *thing))  # type: ignore[arg-type]
        > STRICTEST_FIRST.index(verdict(agent, *thing))  # type: ignore[arg-type]
    ]
    assert not looser or list_looser_settings(project, theirs, mine)


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("path", ["/home/ada/.env", "/home/ada/deep/.env.local", "/home/ada/prod.env"])
def test_no_built_in_agent_reads_a_secret_file_without_asking(name: str, path: str) -> None:
    agent = build_agents(Config(), paths_from(os.environ), "/work")[name]
    assert verdict(agent, "read", path) == "ask"
    assert verdict(agent, "read", "/home/ada/.env.example") == "allow"


@pytest.mark.parametrize("name", ["compaction", "title", "summary"])
def test_hidden_agents_read_nothing(name: str) -> None:
    agent = build_agents(Config(), paths_from(os.environ), "/work")[name]
    assert verdict(agent, "read", "/home/ada/.env") == "deny"

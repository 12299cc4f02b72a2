"""How configuration selects tools, formatters and language servers; and that a cloned repository names no programs to run."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from weft.config.flags import read_flags
from weft.config.load import LoadedConfig, load_config
from weft.config.sources import ConfigScope
from weft.errors import ConfigError
from weft.host.paths import paths_from
from weft.local.helper_programs import to_formatters, to_language_servers
from weft.local.open import OpenOptions, open_directory
from weft.local.tools import to_tool_setup
from weft.model.ids import SessionID
from weft.tool.contract import Audience
from weft.tool.format import FORMATTERS
from weft.tool.lsp.known_servers import SERVERS
from weft.tool.websearch import SERVICE_URL

OWN = {
    "formatter": {
        "gofmt": {"disabled": True},
        "shfmt": {"command": ["shfmt", "-i", "2", "-w", "$FILE"], "environment": {"A": "b"}},
        "mine": {"command": ["mine", "$FILE"], "extensions": [".mine"]},
        "unfinished": {"command": ["x"]},
        "ruff": {"extensions": [".pyx"]},
    },
    "lsp": {
        "pyright": {"disabled": True},
        "gopls": {"env": {"GOFLAGS": "-mod=mod"}, "initialization": {"a": 1}},
        "mine": {"command": ["mine-ls", "--stdio"], "extensions": [".mine"]},
        "rust": {"command": ["my-analyzer"]},
    },
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


def make_scope(project: Path, *, trusted: bool = False, **env: str) -> ConfigScope:
    where = str(project)
    return ConfigScope(
        directory=where,
        worktree=where,
        paths=paths_from(os.environ),
        env={**os.environ, **env},
        trusted=trusted,
    )


def load(
    project: Path,
    *,
    own: dict[str, Any] | None = None,
    theirs: dict[str, Any] | None = None,
    trusted: bool = False,
) -> LoadedConfig:
    config = Path(paths_from(os.environ).config)
    config.mkdir(parents=True, exist_ok=True)
    (config / "opencode.json").write_text(json.dumps(own or {}))
    (project / "opencode.json").write_text(json.dumps(theirs or {}))
    return load_config(make_scope(project, trusted=trusted), strict=True)


PLAIN = read_flags({})


def test_without_configuration_the_known_formatters_and_servers_are_used(project: Path) -> None:
    found = load(project)
    assert to_formatters(found, PLAIN) == FORMATTERS
    assert to_language_servers(found, PLAIN) == SERVERS


@pytest.mark.parametrize("trusted", [True, False])
def test_a_person_may_change_and_add_formatters_and_servers(project: Path, trusted: bool) -> None:
    found = load(project, **({"theirs": OWN} if trusted else {"own": OWN}), trusted=trusted)
    formatters = {each.name: each for each in to_formatters(found, PLAIN)}
    assert formatters.keys() == ({each.name for each in FORMATTERS} | {"mine"}) - {"gofmt"}
    shfmt, mine, ruff = (formatters[name] for name in ("shfmt", "mine", "ruff"))
    assert (shfmt.argv, shfmt.environment, shfmt.extensions, shfmt.safe_without_trust) == (
        ("shfmt", "-i", "2", "-w", "$FILE"),
        {"A": "b"},
        (".sh", ".bash"),
        True,
    )
    assert (mine.argv, mine.extensions, mine.safe_without_trust) == (("mine", "$FILE"), (".mine",), True)
    assert (ruff.argv, ruff.extensions) == (("ruff", "format", "$FILE"), (".pyx",))
    servers = {each.name: each for each in to_language_servers(found, PLAIN)}
    assert servers.keys() == ({each.name for each in SERVERS} | {"mine"}) - {"pyright"}
    assert (servers["gopls"].environment, servers["gopls"].options) == ({"GOFLAGS": "-mod=mod"}, {"a": 1})
    assert (servers["mine"].argv, servers["mine"].extensions) == (("mine-ls", "--stdio"), (".mine",))
    assert (servers["rust"].argv, servers["rust"].extensions, servers["rust"].safe_without_trust) == (
        ("my-analyzer",),
        (".rs",),
        True,
    )
    assert found.held == ()


def test_an_untrusted_project_may_only_disable_formatters_and_servers(project: Path) -> None:
    found = load(project, theirs=OWN)
    assert to_formatters(found, PLAIN) == tuple(each for each in FORMATTERS if each.name != "gofmt")
    assert to_language_servers(found, PLAIN) == tuple(each for each in SERVERS if each.name != "pyright")
    assert {(held.kind, held.name) for held in found.held} >= {("formatter", "mine"), ("lsp", "mine")}


def test_an_untrusted_project_does_not_change_a_command_of_the_person(project: Path) -> None:
    theirs = {"formatter": {"mine": {"command": ["evil"], "environment": {"LD_PRELOAD": "x"}}}}
    found = load(project, own=OWN, theirs=theirs)
    [mine] = [each for each in to_formatters(found, PLAIN) if each.name == "mine"]
    assert (mine.argv, mine.environment) == (("mine", "$FILE"), {})
    assert ("formatter", "mine") in {(held.kind, held.name) for held in found.held}


@pytest.mark.parametrize("whose", ["own", "theirs"])
def test_false_disables_all_formatters_and_servers(project: Path, whose: str) -> None:
    found = load(project, **{whose: {"formatter": False, "lsp": False}})
    assert (to_formatters(found, PLAIN), to_language_servers(found, PLAIN)) == ((), ())


def test_experimental_flags_add_formatters_and_replace_servers(project: Path) -> None:
    flags = read_flags({"OPENCODE_EXPERIMENTAL_OXFMT": "1", "OPENCODE_EXPERIMENTAL_LSP_TY": "1"})
    found = load(project)
    assert "oxfmt" in {each.name for each in to_formatters(found, flags)}
    names = {each.name for each in to_language_servers(found, flags)}
    assert ("ty" in names, "pyright" in names) == (True, False)


@pytest.mark.parametrize(
    ("env", "config", "expected"),
    [
        ({}, {}, (None, False, False, False)),
        ({"OPENCODE_ENABLE_EXA": "1"}, {}, (SERVICE_URL, False, False, False)),
        ({"WEFT_EXA_URL": "http://127.0.0.1:9/mcp"}, {}, ("http://127.0.0.1:9/mcp", False, False, False)),
        ({"OPENCODE_EXPERIMENTAL_LSP_TOOL": "1"}, {}, (None, True, False, False)),
        ({}, {"experimental": {"batch_tool": True}}, (None, False, True, False)),
        ({"OPENCODE_EXPERIMENTAL_PLAN_MODE": "1"}, {}, (None, False, False, True)),
        ({"OPENCODE_EXPERIMENTAL_PLAN_MODE": "1", "OPENCODE_CLIENT": "app"}, {}, (None, False, False, False)),
    ],
)
def test_flags_and_configuration_enable_tools(
    project: Path, env: dict[str, str], config: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    made = to_tool_setup(load(project, own=config), read_flags(env), ())
    assert (made.search, made.lsp, made.batch, made.planning) == expected


# --- with the whole engine ---


async def write(project: Path, *, trusted: bool) -> str:
    """Write a file with the tool, and return its content."""
    script = "tr a-z A-Z < $0 > $0.new; mv $0.new $0"
    command = {"command": ["sh", "-c", script, "$FILE"], "extensions": [".loud"]}
    (project / "opencode.json").write_text(json.dumps({"formatter": {"loud": command}}))
    env = {**os.environ, "WEFT_TRUST": "1"} if trusted else dict(os.environ)
    async with open_directory(OpenOptions(directory=str(project), env=env, store="memory:")) as local:
        path = project / "a.loud"
        resources = local.runtime.make_resources(SessionID("ses_x"))
        path.write_text("quiet\n")
        await resources.after_edit(str(path))
        return path.read_text()


async def test_a_formatter_of_a_trusted_project_runs_and_one_of_an_untrusted_project_does_not(
    project: Path,
) -> None:
    assert await write(project, trusted=False) == "quiet\n"
    assert await write(project, trusted=True) == "QUIET\n"


async def test_a_skill_of_the_project_is_offered_to_the_model(project: Path) -> None:
    skill = project / ".opencode/skills/weaving/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: weaving\ndescription: For cloth.\n---\nOver, under.\n")
    async with open_directory(OpenOptions(directory=str(project), store="memory:")) as local:
        tool = local.runtime.tools["skill"]
        assert tool.describe is not None
        audience = Audience(provider_id="a", api_id="b", allowed=lambda *_: True)
        description = await asyncio.to_thread(tool.describe, audience)
    assert description is not None
    assert description.endswith("- weaving: For cloth.")


async def test_skills_are_searched_when_opening_and_not_for_each_request(project: Path) -> None:
    good, broken = [project / f".claude/skills/{name}/SKILL.md" for name in ("good", "broken")]
    for path, text in ((good, "---\nname: good\ndescription: For good.\n---\n"), (broken, "nothing\n")):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    warned: list[ConfigError] = []
    async with open_directory(
        OpenOptions(directory=str(project), store="memory:", warn=warned.append)
    ) as local:
        assert [error.path for error in warned] == [str(broken)]
        good.unlink()
        audience = Audience(provider_id="a", api_id="b", allowed=lambda *_: True)
        tell = local.runtime.tools["skill"].describe
        assert tell is not None
        assert (tell(audience) or "").endswith("- good: For good.")
        assert await local.workspace.list_skills() == []

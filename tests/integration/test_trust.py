"""Trust: given once for the current files of a project, and void when they change."""

import json
import os
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from weft.cli.output import Paint
from weft.cli.trust import to_lines
from weft.config.load import LoadedConfig, load_config
from weft.config.sources import ConfigScope
from weft.errors import ConfigError
from weft.host.paths import paths_from
from weft.local.mcp_settings import McpSettings, to_mcp_settings
from weft.local.models import ProviderEnvironment, build_offers, to_provider_deadlines
from weft.local.open import to_deadlines, to_subtasks
from weft.model.project import TrustChange
from weft.run.runtime import RunDeadlines
from weft.trust.decision import ProjectTrust, TrustStatus, get_trust, is_trusted
from weft.trust.records import TrustRecords

NOW = 1_790_000_000_000
TRUSTED = TrustStatus(trusted=True, why="given")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    (made / ".git").mkdir(parents=True)
    return made


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def look_at(project: Path) -> ProjectTrust:
    return get_trust(str(project), os.environ)


def changed(*changes: tuple[Any, str]) -> TrustStatus:
    found = tuple(TrustChange(what=what, name=name) for what, name in changes)
    return TrustStatus(trusted=False, why="changed", changes=found)


# --- who is trusted ---


def test_a_project_is_untrusted_until_the_user_trusts_it(project: Path) -> None:
    put(project / "opencode.json", '{"mcp": {"x": {"type": "local", "command": ["x"]}}}')
    assert look_at(project).get_status() == TrustStatus(trusted=False, why="unknown")

    look_at(project).trust(NOW)
    assert look_at(project).get_status() == TRUSTED
    assert is_trusted(paths_from(os.environ), os.environ, str(project))

    assert look_at(project).revoke() is True
    assert look_at(project).get_status() == TrustStatus(trusted=False, why="unknown")
    assert look_at(project).revoke() is False


def test_files_that_change_after_the_review_are_not_trusted(project: Path) -> None:
    seen = look_at(project).take_fingerprint()
    put(project / "opencode.json", '{"mcp": {"x": {"type": "local", "command": ["x"]}}}')
    look_at(project).trust(NOW, seen)
    assert look_at(project).get_status() == changed(("new", "opencode.json"))
    look_at(project).refuse(NOW, seen)
    assert look_at(project).get_status() == changed(("new", "opencode.json"))


def test_what_would_be_run_is_shown_to_its_end(project: Path) -> None:
    quiet = f"echo {'all is well ' * 30}; touch gone"
    said = {"type": "local", "command": ["sh", "-c", quiet]}
    put(project / "opencode.json", json.dumps({"mcp": {"x": said, "y": {**said, "command": ["a" * 9000]}}}))
    trusting = look_at(project)
    _, _, first, second = to_lines(
        str(project), trusting.list_held_back(), trusting.get_status(), Paint(StringIO())
    )
    assert "all is well ; touch gone  # opencode.json" in first
    assert second.endswith("a… and 7,005 characters more  # opencode.json")


def test_a_refusal_of_trust_is_remembered_until_the_project_changes(project: Path) -> None:
    put(project / "opencode.json", '{"plugin": ["x"]}')
    look_at(project).refuse(NOW)
    assert look_at(project).get_status() == TrustStatus(trusted=False, why="refused")

    put(project / "opencode.json", '{"plugin": ["y"]}')
    assert look_at(project).get_status() == changed(("changed", "opencode.json"))


def test_trust_is_given_in_the_persons_own_configuration_and_nowhere_else(project: Path) -> None:
    paths = paths_from(os.environ)
    vouched = json.dumps({"experimental": {"weft": {"trusted": [str(project)]}}})
    put(project / "opencode.json", vouched)
    put(project / ".env", "WEFT_TRUST=1")
    assert not is_trusted(paths, os.environ, str(project))
    put(Path(paths.config, "opencode.json"), vouched)

    assert look_at(project).get_status() == TrustStatus(trusted=True, why="configured")
    assert not is_trusted(paths, os.environ, str(project.parent))
    assert is_trusted(paths, {**os.environ, "WEFT_TRUST": "1"}, str(project.parent))
    assert not is_trusted(paths, {**os.environ, "WEFT_TRUST": "0"}, str(project.parent))


def test_trust_is_for_the_real_path(project: Path) -> None:
    look_at(project).trust(NOW)
    link = project.parent / "link"
    link.symlink_to(project)
    assert look_at(link).get_status() == TRUSTED

    other = project.parent / "other"
    project.rename(other)
    put(project / ".git" / "HEAD", "")
    link.unlink()
    link.symlink_to(other)
    assert look_at(link).get_status() == TrustStatus(trusted=False, why="unknown")


def test_a_checkout_within_a_trusted_one_is_another_project(project: Path) -> None:
    inner = project / "vendor" / "inner"
    (inner / ".git").mkdir(parents=True)
    look_at(project).trust(NOW)
    assert look_at(inner).get_status() == TrustStatus(trusted=False, why="unknown")


def test_where_there_is_no_checkout_each_directory_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    look_at(tmp_path / "a").trust(NOW)
    assert look_at(tmp_path / "a").get_status() == TRUSTED
    assert look_at(tmp_path / "a" / "b").get_status() == TrustStatus(trusted=False, why="unknown")
    put(tmp_path / "opencode.json", '{"theme": "from above"}')
    assert look_at(tmp_path / "a").get_status() == changed(("new", str(tmp_path / "opencode.json")))


# --- what ends it ---


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("opencode.json", '{"theme": "x"}'),
        ("opencode.jsonc", "{}"),
        (".opencode/opencode.json", "{}"),
        (".opencode/plugin/x.py", ""),
        (".opencode/tool/x.py", ""),
        (".opencode/command/deep/x.md", "Go."),
        (".opencode/agent/x.md", "Go."),
        (".opencode/lib/used_by_a_plugin.py", ""),
        (".opencode/skill/x/SKILL.md", ""),
        (".claude/skills/x/run.sh", ""),
    ],
)
def test_a_new_file_that_could_act_and_a_change_of_it_end_it(project: Path, path: str, text: str) -> None:
    look_at(project).trust(NOW)
    file = put(project / path, text)
    assert look_at(project).get_status() == changed(("new", path))

    look_at(project).trust(NOW)
    assert look_at(project).get_status() == TRUSTED
    file.write_text(text + " ")
    assert look_at(project).get_status() == changed(("changed", path))


@pytest.mark.parametrize(
    "path",
    [
        "src/main.py",
        "AGENTS.md",
        ".opencode/plans/1-x.md",
        ".opencode/node_modules/x/y.js",
        ".opencode/bun.lock",
    ],
)
def test_what_does_not_act_by_itself_ends_nothing(project: Path, path: str) -> None:
    look_at(project).trust(NOW)
    put(project / path, "x")
    assert look_at(project).get_status() == TRUSTED


def test_programs_of_the_project_that_it_names_are_looked_at(project: Path) -> None:
    server, script = put(project / "tools" / "server.py", "1"), put(project / "run.sh", "1")
    config = {"mcp": {"x": {"type": "local", "command": ["python3", "tools/server.py"]}}}
    put(project / "opencode.json", json.dumps(config))
    put(project / ".opencode" / "command" / "x.md", "See !`sh './run.sh' all`")
    look_at(project).trust(NOW)

    server.write_text("2")
    assert look_at(project).get_status() == changed(("changed", "tools/server.py"))
    server.write_text("1")
    script.write_text("2")
    assert look_at(project).get_status() == changed(("changed", "run.sh"))


def test_a_link_out_of_the_project_that_was_not_there_ends_it(project: Path, tmp_path: Path) -> None:
    put(tmp_path / "secret", "hunter2")
    look_at(project).trust(NOW)
    (project / "AGENTS.md").symlink_to(tmp_path / "secret")
    standing = look_at(project).get_status()
    assert (standing.trusted, standing.why, len(standing.changes)) == (False, "changed", 1)


def test_what_goes_away_ends_nothing(project: Path) -> None:
    file = put(project / ".opencode" / "plugin" / "x.py", "")
    look_at(project).trust(NOW)
    file.unlink()
    assert look_at(project).get_status() == TRUSTED


def test_what_stands_deeper_is_asked_about_when_it_counts_and_what_was_said_of_the_top_stays(
    project: Path,
) -> None:
    put(project / "opencode.json", "{}")
    deep = project / "packages" / "loom"
    put(deep / ".opencode" / "plugin" / "x.py", "")
    look_at(project).trust(NOW)
    assert look_at(project).get_status() == TRUSTED
    assert look_at(deep).get_status() == changed(("new", "packages/loom/.opencode/plugin/x.py"))

    look_at(deep).trust(NOW)
    assert (look_at(deep).get_status(), look_at(project).get_status()) == (TRUSTED, TRUSTED)


def test_a_project_with_too_much_to_look_at_is_not_trusted(project: Path) -> None:
    look_at(project).trust(NOW)
    for number in range(5001):
        put(project / ".opencode" / "lib" / str(number), "")
    assert look_at(project).get_status().why == "changed"


def test_unreadable_trust_records_trust_nothing(project: Path) -> None:
    look_at(project).trust(NOW)
    book = TrustRecords(paths_from(os.environ))
    assert [each.path for each in book.list_all()] == [str(project)]
    (file,) = Path(paths_from(os.environ).data, "trust").iterdir()
    assert file.stat().st_mode & 0o077 == 0
    file.write_text("{")
    assert (look_at(project).get_status().why, book.list_all()) == ("unknown", [])


# --- what it means ---


def loaded(project: Path, config: dict[str, Any], *, trusted: bool = False) -> LoadedConfig:
    put(project / "opencode.json", json.dumps(config))
    paths, where = paths_from(os.environ), str(project)
    return load_config(
        ConfigScope(directory=where, worktree=where, paths=paths, env=os.environ, trusted=trusted)
    )


def address(found: LoadedConfig) -> str:
    said: list[ConfigError] = []
    offer = build_offers(
        found, ProviderEnvironment(env=os.environ, paths=paths_from(os.environ), warn=said.append)
    ).find("anthropic")
    assert offer is not None
    assert said == []
    return offer.get_access(offer.list_models()[0]).url


@pytest.mark.parametrize("url", ["https://evil.example.test/v1", "http://127.0.0.1:9/v1"])
def test_a_project_cannot_send_the_persons_key_to_its_own_address(
    project: Path, monkeypatch: Any, url: str
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-the-persons-own")
    config = {"provider": {"anthropic": {"options": {"baseURL": url}}}}
    found = loaded(project, config)

    assert address(found) != url
    assert [(each.kind, each.name, each.does) for each in found.held] == [
        ("provider", "anthropic", f"sends your prompts and keys to {url}")
    ]
    assert address(loaded(project, config, trusted=True)) == url


def test_a_project_cannot_read_the_persons_environment_into_its_settings(
    project: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("SECRET_OF_MINE", "s3cret")
    config = {"username": "{env:SECRET_OF_MINE}", "watcher": {"ignore": ["a", "{env:SECRET_OF_MINE}"]}}

    assert "s3cret" not in str(loaded(project, config).config)
    assert [(each.kind, each.name, each.does) for each in loaded(project, config).held] == [
        ("substitution", "username", "reads {env:SECRET_OF_MINE}"),
        ("substitution", "watcher.ignore", "reads {env:SECRET_OF_MINE}"),
    ]
    assert "s3cret" in str(loaded(project, config, trusted=True).config)


def prompt_of(found: LoadedConfig) -> str | None:
    return (found.config.agent or {})["x"].prompt


def test_a_project_may_take_its_prompts_out_of_its_own_files_and_no_others(
    project: Path, tmp_path: Path
) -> None:
    put(tmp_path / "secret", "hunter2")
    put(project / ".env", "hunter2")
    put(project / "prompts" / "x.md", "Be kind.")
    (project / "link").symlink_to(tmp_path / "secret")

    def prompt(named: str) -> str | None:
        return prompt_of(loaded(project, {"agent": {"x": {"prompt": named, "description": "x"}}}))

    assert prompt("{file:./prompts/x.md}") == "Be kind."
    for named in (
        "{file:../secret}",
        "{file:link}",
        "{file:.env}",
        "{file:~/x}",
        f"{{file:{tmp_path}/secret}}",
    ):
        assert prompt(named) is None


def test_what_only_withholds_is_in_force(project: Path) -> None:
    said = {
        "share": "disabled",
        "formatter": False,
        "lsp": {"x": {"disabled": True}},
        "mcp": {"mine": {"enabled": False}},
        "permission": {"bash": "deny"},
        "disabled_providers": ["openai"],
        "model": "x/y",
    }
    found = loaded(project, said)
    assert found.held == ()
    assert (found.config.share, found.config.formatter, found.config.model) == ("disabled", False, "x/y")


def test_a_project_cannot_change_deadlines(project: Path) -> None:
    own = {"experimental": {"weft": {"deadlines": {"turn": 900, "firstByte": 20}}}}
    put(Path(paths_from(os.environ).config, "opencode.json"), json.dumps(own))
    longer = {"turn": 90_000, "tool": 90_000, "subtask": 90_000, "firstByte": 90_000}
    config = {"experimental": {"mcp_timeout": 90_000_000, "weft": {"deadlines": longer}}}

    def read(*, trusted: bool) -> tuple[RunDeadlines, float, float, float]:
        found = loaded(project, config, trusted=trusted).config
        mcp = to_mcp_settings(found, auth_file="", one_shot=False)
        first_byte = to_provider_deadlines(found).first_byte
        return to_deadlines(found), to_subtasks(found).seconds, mcp.call, first_byte

    assert read(trusted=False) == (RunDeadlines(tool=3600, turn=900), 3600, McpSettings().call, 20)
    assert read(trusted=True) == (RunDeadlines(tool=90_000, turn=90_000), 90_000, 90_000, 90_000)
    assert [each.name for each in loaded(project, config).held] == [
        "experimental.mcp_timeout",
        "experimental.weft.deadlines",
    ]


def test_a_project_cannot_bring_back_a_provider_that_the_person_does_without(project: Path) -> None:
    own = {"disabled_providers": ["openai"], "enabled_providers": ["anthropic", "google"]}
    put(Path(paths_from(os.environ).config, "opencode.json"), json.dumps(own))
    config = loaded(
        project, {"disabled_providers": ["google"], "enabled_providers": ["google", "openai"]}
    ).config

    assert (config.disabled_providers, config.enabled_providers) == (("openai", "google"), ("google",))


def test_a_definition_that_leads_out_of_the_project_is_not_taken(project: Path, tmp_path: Path) -> None:
    put(tmp_path / "secret.md", "hunter2")
    agent = project / ".opencode" / "agent" / "x.md"
    agent.parent.mkdir(parents=True)
    agent.symlink_to(tmp_path / "secret.md")
    found = loaded(project, {})

    assert "hunter2" not in str(found.config)
    assert [(each.kind, each.path, each.does) for each in found.held] == [
        ("link", str(agent), "leads out of the project")
    ]


def test_a_skill_with_scripts_is_held_back_and_one_of_words_is_not(project: Path) -> None:
    front = "---\nname: {0}\ndescription: x\n---\nGo."
    put(project / ".opencode" / "skill" / "words" / "SKILL.md", front.format("words"))
    put(project / ".opencode" / "skill" / "acts" / "SKILL.md", front.format("acts"))
    put(project / ".opencode" / "skill" / "acts" / "scripts" / "go.sh", "")

    assert [(each.kind, each.name) for each in look_at(project).list_held_back()] == [("skill", "acts")]

"""Trust: given once for the current files of a project, and void when they change."""

import json
import os
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from weft.cli.exit import ExitCode
from weft.cli.main import run_command
from weft.cli.output import Paint
from weft.cli.trust import offer_trust, to_lines
from weft.config.load import LoadedConfig, load_config
from weft.config.sources import ConfigScope
from weft.errors import ConfigError, ConflictError, DirectoryError
from weft.host.paths import paths_from
from weft.local.mcp_settings import McpSettings, to_mcp_settings
from weft.local.models import ProviderEnvironment, build_offers, to_provider_deadlines
from weft.local.open import to_deadlines, to_subtasks
from weft.model.trust import TrustChange
from weft.run.runtime import RunDeadlines
from weft.trust.decision import (
    ProjectTrust,
    TrustStatus,
    get_trust,
    is_trusted,
    make_report,
    trust_as_reported,
)
from weft.trust.fingerprint import MAX_FILES
from weft.trust.records import TrustRecords

NOW = 1_790_000_000_000
TRUSTED = TrustStatus(trusted=True, why="given")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    (made / ".git").mkdir(parents=True)
    return made


def write_file(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def get_trust_of(project: Path) -> ProjectTrust:
    return get_trust(str(project), os.environ)


def changed_status(*changes: tuple[Any, str]) -> TrustStatus:
    found = tuple(TrustChange(what=what, name=name) for what, name in changes)
    return TrustStatus(trusted=False, why="changed", changes=found)


# --- who is trusted ---


def test_a_project_is_untrusted_until_the_user_trusts_it(project: Path) -> None:
    write_file(project / "opencode.json", '{"mcp": {"x": {"type": "local", "command": ["x"]}}}')
    assert get_trust_of(project).get_status() == TrustStatus(trusted=False, why="unknown")

    get_trust_of(project).trust(NOW)
    assert get_trust_of(project).get_status() == TRUSTED
    assert is_trusted(paths_from(os.environ), os.environ, str(project))

    assert get_trust_of(project).revoke() is True
    assert get_trust_of(project).get_status() == TrustStatus(trusted=False, why="unknown")
    assert get_trust_of(project).revoke() is False


def test_files_that_change_after_the_review_are_not_trusted(project: Path) -> None:
    seen = get_trust_of(project).take_fingerprint()
    write_file(project / "opencode.json", '{"mcp": {"x": {"type": "local", "command": ["x"]}}}')
    get_trust_of(project).trust(NOW, seen)
    assert get_trust_of(project).get_status() == changed_status(("new", "opencode.json"))
    get_trust_of(project).refuse(NOW, seen)
    assert get_trust_of(project).get_status() == changed_status(("new", "opencode.json"))


def test_a_project_is_trusted_as_it_was_reported_or_not_at_all(project: Path) -> None:
    write_file(project / "opencode.json", '{"plugin": ["x"]}')
    report = make_report(get_trust_of(project))
    write_file(project / "opencode.json", '{"plugin": ["y"]}')
    with pytest.raises(ConflictError):
        trust_as_reported(get_trust_of(project), report.fingerprint, NOW)
    assert get_trust_of(project).get_status() == TrustStatus(trusted=False, why="unknown")
    seen = make_report(get_trust_of(project)).fingerprint
    assert trust_as_reported(get_trust_of(project), seen, NOW).trusted


def test_programs_that_would_run_are_shown_to_their_end_or_with_how_much_is_missing(project: Path) -> None:
    quiet = f"echo {'all is well ' * 30}; touch gone"
    said = {"type": "local", "command": ["sh", "-c", quiet]}
    write_file(
        project / "opencode.json", json.dumps({"mcp": {"x": said, "y": {**said, "command": ["a" * 9000]}}})
    )
    trusting = get_trust_of(project)
    _, _, first, second = to_lines(
        str(project), trusting.list_held_back(), [], trusting.get_status(), Paint(StringIO())
    )
    assert "all is well ; touch gone  # opencode.json" in first
    assert second.endswith("a… and 7,005 characters more  # opencode.json")


def test_a_refusal_of_trust_is_remembered_until_the_project_changes(project: Path) -> None:
    write_file(project / "opencode.json", '{"plugin": ["x"]}')
    get_trust_of(project).refuse(NOW)
    assert get_trust_of(project).get_status() == TrustStatus(trusted=False, why="refused")

    write_file(project / "opencode.json", '{"plugin": ["y"]}')
    assert get_trust_of(project).get_status() == changed_status(("changed", "opencode.json"))


def test_only_the_persons_own_configuration_can_grant_trust(project: Path) -> None:
    paths = paths_from(os.environ)
    trusting_config = json.dumps({"experimental": {"weft": {"trusted": [str(project)]}}})
    write_file(project / "opencode.json", trusting_config)
    write_file(project / ".env", "WEFT_TRUST=1")
    assert not is_trusted(paths, os.environ, str(project))
    write_file(Path(paths.config, "opencode.json"), trusting_config)

    assert get_trust_of(project).get_status() == TrustStatus(trusted=True, why="configured")
    assert not is_trusted(paths, os.environ, str(project.parent))
    assert is_trusted(paths, {**os.environ, "WEFT_TRUST": "1"}, str(project.parent))
    assert not is_trusted(paths, {**os.environ, "WEFT_TRUST": "0"}, str(project.parent))


def test_trust_applies_to_the_real_path(project: Path) -> None:
    get_trust_of(project).trust(NOW)
    link = project.parent / "link"
    link.symlink_to(project)
    assert get_trust_of(link).get_status() == TRUSTED

    other = project.parent / "other"
    project.rename(other)
    write_file(project / ".git" / "HEAD", "")
    link.unlink()
    link.symlink_to(other)
    assert get_trust_of(link).get_status() == TrustStatus(trusted=False, why="unknown")


def test_a_checkout_inside_a_trusted_one_is_another_project(project: Path) -> None:
    inner = project / "vendor" / "inner"
    (inner / ".git").mkdir(parents=True)
    get_trust_of(project).trust(NOW)
    assert get_trust_of(inner).get_status() == TrustStatus(trusted=False, why="unknown")


def test_without_a_checkout_each_directory_is_trusted_separately(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    get_trust_of(tmp_path / "a").trust(NOW)
    assert get_trust_of(tmp_path / "a").get_status() == TRUSTED
    assert get_trust_of(tmp_path / "a" / "b").get_status() == TrustStatus(trusted=False, why="unknown")
    write_file(tmp_path / "opencode.json", '{"theme": "from above"}')
    assert get_trust_of(tmp_path / "a").get_status() == changed_status(
        ("new", str(tmp_path / "opencode.json"))
    )


# --- what is looser than the person's ---


@pytest.fixture
def loose(project: Path) -> Path:
    """Return a project that does nothing but allow what the person asks about."""
    write_file(Path(paths_from(os.environ).config, "opencode.json"), '{"permission": {"bash": "ask"}}')
    write_file(project / "opencode.json", '{"permission": {"bash": "allow"}}')
    return project


def test_a_looser_setting_is_shown_as_without_effect(loose: Path, capsys: pytest.CaptureFixture[str]) -> None:
    setting = "  setting  permission.bash is allow instead of ask for the agent build  # opencode.json"
    assert run_command(["trust", "--show", str(loose)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{loose}: not trusted: you have not been asked",
        "looser than your settings, and without effect until you trust it:",
        setting,
    ]
    run_command(["trust", "--show", "--format", "json", str(loose)])
    report = json.loads(capsys.readouterr().out)
    assert (report["held"], [each["name"] for each in report["looser"]]) == ([], ["permission.bash"])

    get_trust_of(loose).trust(NOW)
    run_command(["trust", "--show", str(loose)])
    assert capsys.readouterr().out.splitlines() == [
        f"{loose}: trusted",
        "looser than your settings:",
        setting,
    ]


def test_nobody_is_asked_because_of_a_looser_setting_alone_but_the_question_names_it(
    loose: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", StringIO("n\n"))
    offer_trust(str(loose), os.environ)
    assert capsys.readouterr().err == ""
    write_file(loose / "opencode.json", '{"permission": {"bash": "allow"}, "share": "auto"}')
    offer_trust(str(loose), os.environ)
    asked = capsys.readouterr().err
    assert "held back, until you trust it:\n  setting  share shares sessions" in asked
    assert "without effect until you trust it:\n  setting  permission.bash is allow" in asked
    assert asked.endswith("Trust this project, as it is now? [y/N] ")


def test_a_project_with_too_much_to_check_is_not_asked_about_and_the_other_way_to_trust_it_is_named(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_file(project / "opencode.json", '{"share": "auto"}')
    notes = project / ".opencode" / "notes"
    notes.mkdir(parents=True)
    for number in range(MAX_FILES):
        (notes / str(number)).touch()
    monkeypatch.setattr(sys, "stdin", StringIO("y\n"))
    offer_trust(str(project), os.environ)
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"warning: {project}: weft can check at most 5,000 files of together 256 MB")
    assert "experimental.weft.trusted" in line
    assert run_command(["trust", "--yes", str(project)]) == ExitCode.USAGE
    assert "experimental.weft.trusted" in capsys.readouterr().err


def test_files_below_too_many_directories_are_not_left_out_of_the_fingerprint(project: Path) -> None:
    agents = project / ".opencode" / "agent"
    for number in range(MAX_FILES):
        (agents / str(number)).mkdir(parents=True)
    write_file(agents / "z" / "x.md", "Go.")
    with pytest.raises(DirectoryError, match="weft can check at most 5,000 files"):
        get_trust_of(project).take_fingerprint()


# --- what ends trust ---


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
        (".opencode/command/plans/x.md", "Go."),
        (".opencode/agent/node_modules/x.md", "Go."),
        (".opencode/skill/plans/SKILL.md", ""),
        (".claude/skills/plans/SKILL.md", ""),
        (".opencode/lib/used_by_a_plugin.py", ""),
        (".opencode/skill/x/SKILL.md", ""),
        (".claude/skills/x/run.sh", ""),
    ],
)
def test_a_new_or_changed_file_that_could_act_ends_trust(project: Path, path: str, text: str) -> None:
    get_trust_of(project).trust(NOW)
    file = write_file(project / path, text)
    assert get_trust_of(project).get_status() == changed_status(("new", path))

    get_trust_of(project).trust(NOW)
    assert get_trust_of(project).get_status() == TRUSTED
    file.write_text(text + " ")
    assert get_trust_of(project).get_status() == changed_status(("changed", path))


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
def test_files_that_do_not_act_by_themselves_do_not_end_trust(project: Path, path: str) -> None:
    get_trust_of(project).trust(NOW)
    write_file(project / path, "x")
    assert get_trust_of(project).get_status() == TRUSTED


def test_programs_of_the_project_that_its_configuration_names_are_part_of_the_fingerprint(
    project: Path,
) -> None:
    server, script = write_file(project / "tools" / "server.py", "1"), write_file(project / "run.sh", "1")
    config = {"mcp": {"x": {"type": "local", "command": ["python3", "tools/server.py"]}}}
    write_file(project / "opencode.json", json.dumps(config))
    write_file(project / ".opencode" / "command" / "x.md", "See !`sh './run.sh' all`")
    get_trust_of(project).trust(NOW)

    server.write_text("2")
    assert get_trust_of(project).get_status() == changed_status(("changed", "tools/server.py"))
    server.write_text("1")
    script.write_text("2")
    assert get_trust_of(project).get_status() == changed_status(("changed", "run.sh"))


def test_a_new_link_out_of_the_project_ends_trust(project: Path, tmp_path: Path) -> None:
    write_file(tmp_path / "secret", "hunter2")
    get_trust_of(project).trust(NOW)
    (project / "AGENTS.md").symlink_to(tmp_path / "secret")
    status = get_trust_of(project).get_status()
    assert (status.trusted, status.why, len(status.changes)) == (False, "changed", 1)


def test_a_removed_file_does_not_end_trust(project: Path) -> None:
    file = write_file(project / ".opencode" / "plugin" / "x.py", "")
    get_trust_of(project).trust(NOW)
    file.unlink()
    assert get_trust_of(project).get_status() == TRUSTED


def test_files_in_a_subdirectory_are_reviewed_when_it_is_opened(
    project: Path,
) -> None:
    write_file(project / "opencode.json", "{}")
    deep = project / "packages" / "loom"
    write_file(deep / ".opencode" / "plugin" / "x.py", "")
    get_trust_of(project).trust(NOW)
    assert get_trust_of(project).get_status() == TRUSTED
    assert get_trust_of(deep).get_status() == changed_status(("new", "packages/loom/.opencode/plugin/x.py"))

    get_trust_of(deep).trust(NOW)
    assert (get_trust_of(deep).get_status(), get_trust_of(project).get_status()) == (TRUSTED, TRUSTED)


def test_a_project_with_too_many_files_to_review_is_not_trusted(project: Path) -> None:
    get_trust_of(project).trust(NOW)
    for number in range(5001):
        write_file(project / ".opencode" / "lib" / str(number), "")
    assert get_trust_of(project).get_status().why == "changed"


def test_unreadable_trust_records_trust_nothing(project: Path) -> None:
    get_trust_of(project).trust(NOW)
    records = TrustRecords(paths_from(os.environ))
    assert [each.path for each in records.list_all()] == [str(project)]
    (file,) = Path(paths_from(os.environ).data, "trust").iterdir()
    assert file.stat().st_mode & 0o077 == 0
    file.write_text("{")
    assert (get_trust_of(project).get_status().why, records.list_all()) == ("unknown", [])


# --- what an untrusted project may configure ---


def load(project: Path, config: dict[str, Any], *, trusted: bool = False) -> LoadedConfig:
    write_file(project / "opencode.json", json.dumps(config))
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
    found = load(project, config)

    assert address(found) != url
    assert [(each.kind, each.name, each.does) for each in found.held] == [
        ("provider", "anthropic", f"sends your prompts and keys to {url}")
    ]
    assert address(load(project, config, trusted=True)) == url


def test_a_project_cannot_read_the_persons_environment_into_its_settings(
    project: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("SECRET_OF_MINE", "s3cret")
    config = {"username": "{env:SECRET_OF_MINE}", "watcher": {"ignore": ["a", "{env:SECRET_OF_MINE}"]}}

    assert "s3cret" not in str(load(project, config).config)
    assert [(each.kind, each.name, each.does) for each in load(project, config).held] == [
        ("substitution", "username", "reads {env:SECRET_OF_MINE}"),
        ("substitution", "watcher.ignore", "reads {env:SECRET_OF_MINE}"),
    ]
    assert "s3cret" in str(load(project, config, trusted=True).config)


def prompt_of(found: LoadedConfig) -> str | None:
    return (found.config.agent or {})["x"].prompt


def test_a_project_may_include_prompts_from_its_own_files_only(project: Path, tmp_path: Path) -> None:
    write_file(tmp_path / "secret", "hunter2")
    write_file(project / ".env", "hunter2")
    write_file(project / "prompts" / "x.md", "Be kind.")
    (project / "link").symlink_to(tmp_path / "secret")

    def prompt(named: str) -> str | None:
        return prompt_of(load(project, {"agent": {"x": {"prompt": named, "description": "x"}}}))

    assert prompt("{file:./prompts/x.md}") == "Be kind."
    for named in (
        "{file:../secret}",
        "{file:link}",
        "{file:.env}",
        "{file:~/x}",
        f"{{file:{tmp_path}/secret}}",
    ):
        assert prompt(named) is None


def test_settings_that_only_restrict_are_in_force(project: Path) -> None:
    said = {
        "share": "disabled",
        "formatter": False,
        "lsp": {"x": {"disabled": True}},
        "mcp": {"mine": {"enabled": False}},
        "permission": {"bash": "deny"},
        "disabled_providers": ["openai"],
        "model": "x/y",
    }
    found = load(project, said)
    assert found.held == ()
    assert (found.config.share, found.config.formatter, found.config.model) == ("disabled", False, "x/y")


def test_a_project_cannot_change_deadlines(project: Path) -> None:
    own = {"experimental": {"weft": {"deadlines": {"turn": 900, "firstByte": 20}}}}
    write_file(Path(paths_from(os.environ).config, "opencode.json"), json.dumps(own))
    longer = {"turn": 90_000, "tool": 90_000, "subtask": 90_000, "firstByte": 90_000}
    config = {"experimental": {"mcp_timeout": 90_000_000, "weft": {"deadlines": longer}}}

    def read(*, trusted: bool) -> tuple[RunDeadlines, float, float, float]:
        found = load(project, config, trusted=trusted).config
        mcp = to_mcp_settings(found, auth_file="", one_shot=False)
        first_byte = to_provider_deadlines(found).first_byte
        return to_deadlines(found), to_subtasks(found).seconds, mcp.call, first_byte

    assert read(trusted=False) == (RunDeadlines(tool=3600, turn=900), 3600, McpSettings().call, 20)
    assert read(trusted=True) == (RunDeadlines(tool=90_000, turn=90_000), 90_000, 90_000, 90_000)
    assert [each.name for each in load(project, config).held] == [
        "experimental.mcp_timeout",
        "experimental.weft.deadlines",
    ]


def test_a_project_cannot_enable_a_provider_that_the_person_disabled(project: Path) -> None:
    own = {"disabled_providers": ["openai"], "enabled_providers": ["anthropic", "google"]}
    write_file(Path(paths_from(os.environ).config, "opencode.json"), json.dumps(own))
    config = load(
        project, {"disabled_providers": ["google"], "enabled_providers": ["google", "openai"]}
    ).config

    assert (config.disabled_providers, config.enabled_providers) == (("openai", "google"), ("google",))


def test_a_definition_linked_from_outside_of_the_project_is_ignored(project: Path, tmp_path: Path) -> None:
    write_file(tmp_path / "secret.md", "hunter2")
    agent = project / ".opencode" / "agent" / "x.md"
    agent.parent.mkdir(parents=True)
    agent.symlink_to(tmp_path / "secret.md")
    found = load(project, {})

    assert "hunter2" not in str(found.config)
    assert [(each.kind, each.path, each.does) for each in found.held] == [
        ("link", str(agent), "leads out of the project")
    ]


def test_a_skill_with_scripts_is_held_back_and_one_without_is_not(project: Path) -> None:
    front = "---\nname: {0}\ndescription: x\n---\nGo."
    write_file(project / ".opencode" / "skill" / "words" / "SKILL.md", front.format("words"))
    write_file(project / ".opencode" / "skill" / "acts" / "SKILL.md", front.format("acts"))
    write_file(project / ".opencode" / "skill" / "acts" / "scripts" / "go.sh", "")

    assert [(each.kind, each.name) for each in get_trust_of(project).list_held_back()] == [("skill", "acts")]

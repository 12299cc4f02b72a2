"""Instruction files: which are found, in which order, and which are not read in an untrusted project."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from unit.config.conftest import Home
from weft.config.instructions import MAX_INSTRUCTION_BYTES, read_instructions, to_sources
from weft.config.load import load_config
from weft.config.remote import Fetch
from weft.errors import WeftError


def read(
    home: Home,
    directory: Path | None = None,
    *,
    trusted: bool = False,
    fetch: Fetch | None = None,
    known: Mapping[str, str] | None = None,
) -> list[tuple[str, str]]:
    """Return the found files, with paths relative to home."""
    scope = home.scope(directory, trusted=trusted)
    found = read_instructions(to_sources(load_config(scope), scope, fetch), known)
    return [(each.source.removeprefix(f"{home.root}/"), each.text) for each in found]


def test_all_files_of_the_first_name_that_exists_are_read_nearest_first(home: Home) -> None:
    near = home.project / "packages" / "loom"
    home.write(near / "AGENTS.md", "Near.\n")
    home.write(near / "CLAUDE.md", "Not this.")
    home.write(home.project / "AGENTS.md", "Far.")
    home.write(home.project.parent / "AGENTS.md", "Outside.")

    assert read(home, near) == [
        ("work/project/packages/loom/AGENTS.md", "Near."),
        ("work/project/AGENTS.md", "Far."),
    ]


@pytest.mark.parametrize("name", ["AGENTS.md", "CLAUDE.md", "CONTEXT.md"])
def test_every_instruction_file_name_is_found(home: Home, name: str) -> None:
    home.write(home.project / name, "Go.")

    assert read(home) == [(f"work/project/{name}", "Go.")]


def test_only_the_first_existing_file_of_the_person_is_read(home: Home) -> None:
    custom = home.write(home.root / "custom" / "AGENTS.md", "Custom.")
    home.with_env({"OPENCODE_CONFIG_DIR": str(custom.parent)})
    assert read(home) == [("custom/AGENTS.md", "Custom.")]

    home.write(home.root / ".claude" / "CLAUDE.md", "Claude.")
    assert read(home) == [(".claude/CLAUDE.md", "Claude.")]
    assert read(home.with_env({"OPENCODE_DISABLE_CLAUDE_CODE_PROMPT": "1"})) == [
        ("custom/AGENTS.md", "Custom.")
    ]

    home.write(home.config / "AGENTS.md", "Mine.")
    assert read(home) == [(".config/opencode/AGENTS.md", "Mine.")]


def test_instructions_of_a_project_can_be_disabled(home: Home) -> None:
    home.write(home.project / "AGENTS.md", "Project.")
    home.write(home.config / "AGENTS.md", "Mine.")

    assert read(home.with_env({"OPENCODE_DISABLE_PROJECT_CONFIG": "1"})) == [
        (".config/opencode/AGENTS.md", "Mine.")
    ]


def test_configured_patterns_match_at_every_level_and_each_file_is_read_once(home: Home) -> None:
    near = home.project / "a"
    home.write(
        home.project / "opencode.json",
        '{"instructions": ["docs/*.md", "rules/**/*.txt", "{x,y}.md", "docs/1.md"]}',
    )
    for path in (
        "a/docs/9.md",
        "docs/2.md",
        "docs/1.md",
        "rules/deep/er/r.txt",
        "rules/s.txt",
        "y.md",
        "z.md",
    ):
        home.write(home.project / path, path)

    assert [text for _, text in read(home, near)] == [
        "a/docs/9.md",
        "docs/1.md",
        "docs/2.md",
        "rules/deep/er/r.txt",
        "rules/s.txt",
        "y.md",
    ]


def test_the_persons_own_configuration_may_name_any_file(home: Home) -> None:
    absolute = home.write(home.root / "team" / "one.md", "One.")
    home.write(home.root / "two.md", "Two.")
    home.write(home.config / "opencode.json", f'{{"instructions": ["{absolute}", "~/two.md", "~/none.md"]}}')

    assert read(home) == [("team/one.md", "One."), ("two.md", "Two.")]


# --- untrusted projects ---


def test_a_link_out_of_the_project_is_named_and_not_read(home: Home) -> None:
    home.write(home.root / "secret", "hunter2")
    (home.project / "AGENTS.md").symlink_to(home.root / "secret")

    assert read(home) == [("work/project/AGENTS.md", "[not read: it leads out of the project]")]
    assert read(home, trusted=True) == [("work/project/AGENTS.md", "hunter2")]


def test_a_link_within_the_project_is_followed(home: Home) -> None:
    home.write(home.project / "docs" / "agents.md", "Go.")
    (home.project / "AGENTS.md").symlink_to(Path("docs") / "agents.md")

    assert read(home) == [("work/project/AGENTS.md", "Go.")]


def test_a_project_cannot_include_files_outside_of_it(home: Home) -> None:
    secret = home.write(home.root / "secret.md", "hunter2")
    (home.project / "link").symlink_to(home.root)
    home.write(
        home.project / "opencode.json",
        f'{{"instructions": ["{secret}", "~/secret.md", "../../secret.md", "link/secret.md", "*/secret.md"]}}',
    )
    found = read(home)

    assert {text for _, text in found} == {"[not read: it leads out of the project]"}
    assert [source for source, _ in found] == ["secret.md", "work/project/link/secret.md"]


def test_without_a_checkout_a_link_must_stay_in_its_directory(home: Home) -> None:
    home.write(home.root / "secret", "hunter2")
    (home.project / "AGENTS.md").symlink_to(home.root / "secret")
    scope = home.scope(trusted=False)
    everywhere = type(scope)(
        directory=scope.directory, worktree="/", paths=scope.paths, env=scope.env, trusted=False
    )
    found = read_instructions(to_sources(load_config(everywhere), everywhere))

    assert [each.text for each in found] == ["[not read: it leads out of the project]"]


def test_circular_links_end_the_search(home: Home) -> None:
    for name in ("a", "b", "c"):
        (home.project / name).symlink_to(home.project)
    home.write(home.project / "x" / "y.md", "Found.")
    home.write(
        home.project / "opencode.json",
        f'{{"instructions": ["**/y.md", "{"*/" * 30}z.md", "{"**/" * 8}z.md"]}}',
    )

    assert read(home) == [("work/project/x/y.md", "Found.")]


# --- what cannot be read ---


def test_an_unreadable_file_is_named_with_the_reason(home: Home) -> None:
    (home.project / "AGENTS.md").mkdir()
    os.mkfifo(home.root / "pipe.md")
    home.write(home.config / "opencode.json", '{"instructions": ["~/pipe.md"]}')

    assert read(home) == [("work/project/AGENTS.md", "[not read: not a regular file]")]


def test_a_long_file_is_cut_with_a_notice(home: Home) -> None:
    home.write(home.project / "AGENTS.md", "é" * MAX_INSTRUCTION_BYTES)
    ((_, text),) = read(home)

    assert text == "é" * (MAX_INSTRUCTION_BYTES // 2) + "\n[cut here: the first 65,536 of 131,072 bytes]"


def test_an_empty_file_adds_nothing_and_broken_text_is_shown_as_far_as_possible(home: Home) -> None:
    home.write(home.project / "AGENTS.md", " \n")
    home.write(home.config / "AGENTS.md", b"\xef\xbb\xbfBe \xff kind.")

    assert read(home) == [(".config/opencode/AGENTS.md", "Be � kind.")]


# --- addresses ---


def test_an_address_is_fetched_only_if_the_person_configured_it_and_fetching_is_possible(home: Home) -> None:
    home.write(home.config / "opencode.json", '{"instructions": ["https://mine.test/a"]}')
    home.write(home.project / "opencode.json", '{"instructions": ["https://theirs.test/b"]}')
    home.write(home.project / "AGENTS.md", "First.")

    def fetch(url: str) -> bytes:
        return f"from {url}".encode()

    unread = "[not read: it is not fetched]"
    assert read(home)[1:] == [("https://mine.test/a", unread), ("https://theirs.test/b", unread)]
    assert read(home, fetch=fetch) == [
        ("work/project/AGENTS.md", "First."),
        ("https://mine.test/a", "from https://mine.test/a"),
        ("https://theirs.test/b", unread),
    ]


def test_addresses_in_instructions_are_fetched_only_for_a_trusted_project(home: Home) -> None:
    home.write(home.project / "opencode.json", '{"instructions": ["https://theirs.test/b"]}')
    scope = home.scope()
    for trusted, text in ((False, "[not read: it is not fetched]"), (True, "Theirs.")):
        at = replace(scope, trusted=trusted)
        found = read_instructions(to_sources(load_config(at), at, lambda _: b"Theirs."))
        assert [(each.source, each.text) for each in found] == [("https://theirs.test/b", text)]


def test_fetched_instructions_are_available_without_a_network(home: Home) -> None:
    home.write(home.config / "opencode.json", '{"instructions": ["https://mine.test/a"]}')

    def fail(url: str) -> bytes:
        raise ConnectionRefusedError(url)

    assert read(home, fetch=lambda _: b"Be kind.") == [("https://mine.test/a", "Be kind.")]
    (copy,) = (Path(home.paths.cache) / "weft" / "remote").iterdir()
    os.utime(copy, (0, 0))
    assert read(home, fetch=fail) == read(home) == [("https://mine.test/a", "Be kind.")]


def test_cached_instructions_are_not_fetched_again_and_failures_are_named(home: Home) -> None:
    home.write(home.config / "opencode.json", '{"instructions": ["https://x.test/a", "https://x.test/b"]}')

    def fail(url: str) -> bytes:
        raise WeftError(url)

    assert read(home, fetch=fail, known={"https://x.test/a": "Known."}) == [
        ("https://x.test/a", "Known."),
        ("https://x.test/b", "[not read: it could not be fetched (WeftError)]"),
    ]


@pytest.mark.parametrize(
    "pattern", ["{a,b}" * 800, "{a}" * 100_000, "a/" * 2000 + "b", "**/" * 1200 + "*.md", "*/" * 2000]
)
def test_a_pattern_of_any_length_matches_what_it_can(home: Home, pattern: str) -> None:
    home.write(home.project / "opencode.json", json.dumps({"instructions": [pattern, "{b,a}/*.md"]}))
    home.write(home.project / "a" / "one.md", "One.")
    home.write(home.project / "b" / "two.md", "Two.")
    assert read(home) == [("work/project/a/one.md", "One."), ("work/project/b/two.md", "Two.")]

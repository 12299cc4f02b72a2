"""The guides for contributors and the map of the code name what exists, and pages for users have the lists of the code."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from opencode.client_differences import FAILED_CHECKS, TIMING_DEPENDENT
from weft.config.trust import ALLOWED_EXPERIMENTS, ALLOWED_KEYS, ALLOWED_WEFT_KEYS
from weft.local.plugin_tools import RESERVED_NAMES
from weft.testing.api_contract import CHECKS
from weft.tui.commands import COMMANDS

ROOT = Path(__file__).parents[2]
GUIDES = ("AGENTS.md", "CONTRIBUTING.md", "docs/explanation/architecture.md")
# Where a path of a guide may begin.
TOPS = (ROOT, ROOT / "src" / "weft", ROOT / "docs")
FILE = re.compile(r"`([\w.-]+(?:/[\w.-]+)*(?:/|\.(?:py|js|md|toml|json|jsonl|yml|pyi)))`")
# Names, and the file that has them: `ACTIONS` and `OWN_KEYS` of `tui/keys.py`.
NAMES = re.compile(r"((?:`\w+`(?:, | and (?:in )?| or )?)+) (?:of|in) `([\w./-]+\.(?:py|js))`")
MADE = {"site/", ".venv/"}


def find(path: str) -> Path | None:
    return next((top / path for top in TOPS if (top / path).exists()), None)


def list_unknown(text: str) -> Iterator[str]:
    """Yield each file of a guide that does not exist, and each name that its file does not have."""
    for path in FILE.findall(text):
        if path not in MADE and find(path) is None and not list((ROOT / "tests").rglob(path)):
            yield path
    for names, path in NAMES.findall(text):
        found = find(path)
        words = set(re.findall(r"\w+", found.read_text())) if found else set()
        yield from (f"{name} of {path}" for name in re.findall(r"`(\w+)`", names) if name not in words)


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_names_what_exists(guide: str) -> None:
    assert list(list_unknown((ROOT / guide).read_text())) == []


def test_the_check_finds_files_and_names_that_are_gone() -> None:
    text = "`tui/keys.py`, `tui/locks.py`; `ACTIONS` and `OTHER_KEYS` of `tui/keys.py`"
    assert list(list_unknown(text)) == ["tui/locks.py", "OTHER_KEYS of tui/keys.py"]


def test_the_page_about_trust_lists_what_an_untrusted_project_may_set() -> None:
    page = (ROOT / "docs" / "guides" / "trust.md").read_text()
    listed = page.partition("These settings of an untrusted project count:")[2].partition("Instructions (")[0]
    general, experiments, own = re.split(r"below `experimental(?:\.weft)?`", listed)
    assert [set(re.findall(r"`([^`]+)`", part)) for part in (general, experiments, own)] == [
        ALLOWED_KEYS,
        ALLOWED_EXPERIMENTS,
        ALLOWED_WEFT_KEYS,
    ]


def test_the_page_about_plugins_lists_the_tools_that_cannot_be_replaced() -> None:
    page = (ROOT / "docs" / "guides" / "plugins.md").read_text()
    listed = page.partition("replaces it, under its permission;")[2].partition("cannot be replaced")[0]
    assert set(re.findall(r"`([^`]+)`", listed)) == RESERVED_NAMES


def test_the_page_about_the_terminal_names_every_slash_command() -> None:
    page = (ROOT / "docs" / "guides" / "terminal.md").read_text()
    assert [name for name in COMMANDS if not re.search(rf"`/{name}[ `]", page)] == []


def test_the_page_about_compatibility_lists_the_checks_that_opencode_fails() -> None:
    page = (ROOT / "docs" / "explanation" / "compatibility.md").read_text()
    section = page.partition("\n## Our client with a server of OpenCode")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    failed = FAILED_CHECKS | TIMING_DEPENDENT
    assert {check.replace(" ", "_"): why for check, why in rows[1:]} == failed
    assert f"{len(failed)} of the {len(CHECKS)} checks" in section

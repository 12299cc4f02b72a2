"""Rules for the repository: short pages, numbered decisions, links that work, one entry point."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "deploy").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
    ]
)
# Split, so that this file does not contain the words that it forbids.
REGISTRIES = re.compile(r"pypi\.org|pythonhosted\.|npmjs\.|deb\.debian\.|crates\.(?=i)io\b")
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def list_text_files() -> list[Path]:
    """Return every text file of the repository."""
    inside = [
        path
        for top in ("src", "tests", "docs", "tools", "changes", "deploy", "examples", ".ci")
        for path in (ROOT / top).rglob("*")
    ]
    files = [
        path for path in [*ROOT.glob("*"), *inside] if path.is_file() and path.stat().st_size < 2_000_000
    ]
    return [path for path in files if "__pycache__" not in path.parts and not path.match("*.egg-info/*")]


def test_no_file_names_a_package_registry() -> None:
    assert [
        str(path) for path in list_text_files() if REGISTRIES.search(path.read_text(errors="replace"))
    ] == []


def test_the_page_for_agents_is_short() -> None:
    assert len((ROOT / "AGENTS.md").read_text().splitlines()) <= 60


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_is_short_and_has_context_decision_and_consequences(path: Path) -> None:
    text = path.read_text()
    assert re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", path.name)
    assert text.startswith(f"# {path.name[:4]} ")
    assert len(text.splitlines()) <= 40
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## Context",
        "## Decision",
        "## Consequences",
    ]


def test_decisions_are_numbered_without_a_gap() -> None:
    assert [int(path.name[:4]) for path in DECISIONS] == list(range(1, len(DECISIONS) + 1))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_in_a_page_works(page: Path) -> None:
    assert list(dead_links(page)) == []


def test_the_check_finds_dead_links_and_anchors(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Some `title`\n[a](#some-title) [b](none.md) [c](#none) [d](page.md#none)\n")
    assert list(dead_links(page)) == ["none.md", "#none", "page.md#none"]


def dead_links(page: Path) -> Iterator[str]:
    for path, anchor in LINK.findall(FENCED.sub("", page.read_text())):
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            yield f"{path}#{anchor}" if anchor else path


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as web pages and repositories name them."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_every_target_of_the_makefile_is_described() -> None:
    text = (ROOT / "Makefile").read_text()
    [phony] = re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    assert re.findall(r"^([a-z-]+):.*## .+$", text, re.MULTILINE) == phony.split()


def test_the_ci_script_is_executable() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


@pytest.mark.parametrize("page", ["docs/explanation/architecture.md", "AGENTS.md"])
def test_modules_named_in_the_maps_of_the_code_exist(page: str) -> None:
    named = re.findall(r"`([a-z_]+(?:/[a-z_0-9]+)*(?:\.py|/))`", (ROOT / page).read_text())
    own = [each for each in named if not each.startswith(("tests", "test_", "docs", "changes"))]
    assert len(own) > 10
    assert [each for each in own if not (ROOT / "src" / "weft" / each).exists()] == []


def test_commit_hooks_are_local_and_run_what_the_makefile_runs() -> None:
    [repository] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    assert {hook["language"] for hook in repository["hooks"]} == {"system"}
    programs = [hook["entry"].split()[0] for hook in repository["hooks"]]
    makefile = (ROOT / "Makefile").read_text()
    assert [each for each in programs if each.replace(".venv/bin", "$(RUN)") not in makefile] == []

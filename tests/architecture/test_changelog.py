"""The changelog tool checks change fragments, and adds each of them to the changelog once."""

import subprocess
from pathlib import Path

import pytest

import changelog

HEAD = "# Change log\n\nWords.\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "README.md").write_text("How to.\n")
    (tmp_path / "src" / "weft").mkdir(parents=True)
    (tmp_path / "src" / "weft" / "version.py").write_text('VERSION = "0.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(HEAD)
    return tmp_path


def write(root: Path, name: str, text: str = "It works.\n") -> None:
    (root / "changes" / name).write_text(text)


def git(root: Path, *args: str) -> None:
    subprocess.run(["git", "-C", str(root), *args], check=True, capture_output=True)


def test_our_change_fragments_are_valid() -> None:
    assert changelog.faults(changelog.ROOT) == []


def test_a_valid_fragment_passes(root: Path) -> None:
    write(root, "the-loom.added.md")
    assert changelog.faults(root) == []


@pytest.mark.parametrize(
    "name", ["loom.md", "loom.new.md", "The Loom.added.md", "loom.added.txt", ".added.md"]
)
def test_a_fragment_with_an_invalid_name_is_refused(root: Path, name: str) -> None:
    write(root, name)
    assert changelog.faults(root) == [f"{name}: call it <slug>.<added|changed|fixed|removed|security>.md"]


@pytest.mark.parametrize("text", ["", " \n", "One.\n\nTwo.\n", "word " * 100])
def test_a_fragment_is_one_sentence_for_users(root: Path, text: str) -> None:
    write(root, "loom.fixed.md", text)
    assert changelog.faults(root) == ["loom.fixed.md: one sentence for a user, at most 400 characters"]


def test_a_fragment_is_required_if_the_source_changed_since_the_last_release(root: Path) -> None:
    missing = ["src/ has changed since the last release, and changes/ says nothing about it"]
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    assert changelog.faults(root) == missing
    git(root, "tag", "v0.2.0")
    assert changelog.faults(root) == []
    (root / "src" / "weft" / "loom.py").write_text("x = 1\n")
    git(root, "add", ".")
    assert changelog.faults(root) == missing


def test_a_described_but_untagged_version_needs_no_fragment(root: Path) -> None:
    (root / "CHANGELOG.md").write_text(f"{HEAD}\n## [0.2.0] - 2026-11-20\n\nFirst.\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    assert changelog.faults(root) == []
    git(root, "tag", "v0.2.0")
    (root / "src" / "weft" / "loom.py").write_text("x = 1\n")
    git(root, "add", ".")
    assert changelog.faults(root) != []


def test_a_release_moves_the_fragments_into_the_changelog(root: Path) -> None:
    write(root, "b.added.md", "Second\nthing.\n")
    write(root, "a.added.md", "First thing.\n")
    write(root, "c.security.md", "Safe.\n")
    changelog.release(root, "2026-11-20")
    (root / "src" / "weft" / "version.py").write_text('VERSION = "0.3.0"\n')
    write(root, "d.fixed.md", "Mended.\n")
    changelog.release(root, "2026-12-01")
    assert (root / "CHANGELOG.md").read_text() == (
        f"{HEAD}\n## [0.3.0] - 2026-12-01\n\n### Fixed\n\n- Mended.\n"
        "\n## [0.2.0] - 2026-11-20\n\n### Added\n\n- First thing.\n- Second thing.\n\n### Security\n\n- Safe.\n"
    )
    assert changelog.fragments(root) == []


def test_a_version_is_released_once(root: Path) -> None:
    write(root, "a.added.md")
    changelog.release(root, "2026-11-20")
    write(root, "b.added.md")
    with pytest.raises(SystemExit, match=r"already has 0\.2\.0"):
        changelog.release(root, "2026-11-21")


def test_a_release_without_fragments_is_refused(root: Path) -> None:
    with pytest.raises(SystemExit, match="nothing"):
        changelog.release(root, "2026-11-20")

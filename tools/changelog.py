"""Check the fragments in `changes/`, and fold them into CHANGELOG.md for a release.

A fragment is `changes/<slug>.<kind>.md`, one sentence for a user. Each is a file of its own, so that two branches never
conflict.
"""

import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
KINDS = ("added", "changed", "fixed", "removed", "security")
NAME = re.compile(rf"[a-z0-9][a-z0-9-]*\.({'|'.join(KINDS)})\.md")
LONGEST = 400
FIRST_RELEASE = re.compile(r"^## \[", re.MULTILINE)


def fragments(root: Path) -> list[Path]:
    return sorted(path for path in (root / "changes").glob("*") if path.name != "README.md")


def faults(root: Path) -> list[str]:
    """Return what is wrong with the fragments, one line each."""
    found = []
    for path in fragments(root):
        text = path.read_text().strip()
        if NAME.fullmatch(path.name) is None:
            found.append(f"{path.name}: call it <slug>.<{'|'.join(KINDS)}>.md")
        if not text or "\n\n" in text or len(text) > LONGEST:
            found.append(f"{path.name}: one sentence for a user, at most {LONGEST} characters")
    if not fragments(root) and source_changed(root):
        found.append("src/ has changed since the last release, and changes/ says nothing about it")
    return found


def source_changed(root: Path) -> bool:
    """Return True if `src` differs from the last release.

    A version that CHANGELOG.md has and no tag names is about to be released: it needs no fragment.
    """
    tag = git(root, "describe", "--tags", "--abbrev=0", "--match", "v*")
    if not git(root, "tag", "--list", f"v{version(root)}") and is_described(root):
        return False
    return not tag or bool(git(root, "diff", "--name-only", tag, "--", "src"))


def is_described(root: Path) -> bool:
    """Return True if CHANGELOG.md has a section for this version."""
    return f"## [{version(root)}]" in (root / "CHANGELOG.md").read_text()


def git(root: Path, *args: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(root), *args], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def version(root: Path) -> str:
    found = re.search(r'VERSION = "([^"]+)"', (root / "src/weft/version.py").read_text())
    if found is None:
        raise SystemExit("src/weft/version.py names no version")
    return found[1]


def section(root: Path, day: str) -> str:
    """Return the section of this version: the sentences by kind, in the order of their file names."""
    lines = [f"## [{version(root)}] - {day}"]
    for kind in KINDS:
        said = [path.read_text().strip() for path in fragments(root) if path.name.endswith(f".{kind}.md")]
        if said:
            lines += ["", f"### {kind.capitalize()}", "", *(f"- {' '.join(each.split())}" for each in said)]
    return "\n".join(lines) + "\n"


def release(root: Path, day: str) -> None:
    """Fold the fragments in. Raise `SystemExit` if this version has been released."""
    path = root / "CHANGELOG.md"
    before = path.read_text()
    if is_described(root):
        raise SystemExit(
            f"CHANGELOG.md already has {version(root)}: raise the version in src/weft/version.py"
        )
    if not fragments(root):
        raise SystemExit("there is nothing in changes/ to release")
    earlier = FIRST_RELEASE.search(before)
    at = earlier.start() if earlier else len(before)
    path.write_text(
        before[:at].rstrip() + "\n\n" + section(root, day) + ("\n" + before[at:] if earlier else "")
    )
    for fragment in fragments(root):
        fragment.unlink()


def main(command: str) -> int:
    if found := faults(ROOT):
        sys.stderr.write("\n".join(found) + "\n")
        return 1
    if command == "release":
        release(ROOT, datetime.now(UTC).date().isoformat())
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:2] or ["check"]))

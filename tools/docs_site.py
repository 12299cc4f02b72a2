"""Hooks of the documentation site (`mkdocs.yml`): pages from outside `docs/`, and links that work in both places.

A link in a Markdown file is relative to the file in the repository. `SECURITY.md` and its like become pages of the site,
so links to them are rewritten; a link to any other file of the repository becomes plain text. The list of decisions is
made from the files.
"""

import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
# A file of the repository, and the page it becomes.
OUTSIDE = {
    "SECURITY.md": "project/security.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "deploy/README.md": "project/deploy.md",
    "examples/README.md": "project/examples.md",
}
DECISIONS = "decisions/index.md"
LINK = re.compile(
    r"(?<!!)\[(?P<text>[^\]]*)\]\((?!https?:|mailto:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)"
)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    for source, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    files.append(File.generated(config, DECISIONS, content=decisions_page()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    inside = page.file.src_uri
    sources = {there: here for here, there in OUTSIDE.items()}
    origin = PurePosixPath(sources.get(inside, f"docs/{inside}"))
    return "".join(
        part if part.startswith("```") else LINK.sub(lambda found: to_link(found, origin, inside), part)
        for part in split_fences(markdown)
    )


def split_fences(markdown: str) -> list[str]:
    """Return the text cut into code blocks and the rest."""
    parts, at = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [markdown[at : fence.start()], fence[0]]
        at = fence.end()
    return [*parts, markdown[at:]]


def to_link(found: re.Match[str], origin: PurePosixPath, inside: str) -> str:
    """Return a link of the repository as a link of the site."""
    target = os.path.normpath(origin.parent / found["path"])
    if not (ROOT / target).exists():
        return found[0]  # dead: MkDocs reports it
    page = OUTSIDE.get(target)
    if page is None and target == "docs/decisions":
        page = DECISIONS
    if page is None and target.startswith("docs/") and target.endswith(".md"):
        page = target.removeprefix("docs/")
    if page is None:
        return found["text"]
    return f"[{found['text']}]({os.path.relpath(page, PurePosixPath(inside).parent)}{found['anchor'] or ''})"


def decisions_page() -> str:
    """List the decision records by number."""
    lines = [
        "# Decisions",
        "",
        "Each record says what the situation was, what we decided and what follows from it. A record is not edited when",
        "we change our mind: a later one supersedes it.",
        "",
    ]
    for path in sorted((ROOT / "docs" / "decisions").glob("0*.md")):
        title = path.read_text().partition("\n")[0].removeprefix("# ")
        lines.append(f"- [{title}]({path.name})")
    return "\n".join(lines) + "\n"

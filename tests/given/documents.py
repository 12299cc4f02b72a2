"""The code in the documents: every fenced block, and the Python programs among them."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "deploy" / "README.md",
        *(ROOT / "examples").rglob("README.md"),
    ]
)
FENCE = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block, with the page and the line where it begins."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def list_blocks(*languages: str) -> list[Block]:
    """Return every fenced block in one of these languages."""
    found = []
    for page in PAGES:
        text = page.read_text()
        for fence in FENCE.finditer(text):
            line = text.count("\n", 0, fence.start()) + 1
            if fence[1] in languages:
                found.append(Block(str(page.relative_to(ROOT)), line, fence[1], fence[2]))
    return found


def list_programs() -> list[Block]:
    """Return the Python blocks that are whole: they begin with an import. The others are excerpts."""
    return [each for each in list_blocks("python") if each.text.startswith(("import ", "from "))]

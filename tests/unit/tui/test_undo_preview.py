"""The preview of an undo on the full screen: every word of it can be read."""

from tests.given.session_exports import info

from weft.model.diff import FileFate
from weft.model.ids import SessionID
from weft.model.session import RevertResult
from weft.tui.full.actions import to_preview
from weft.tui.text import Line, measure

DIRECTORY = "/there/project"
REASON = "it was changed since by a program that is not known"
CAUTION = "undo does not cover what commands changed in ignored files, in nested repositories and outside the project"


def to_text(line: Line) -> str:
    return "".join(text for _, text in line)


def test_a_preview_breaks_its_lines_at_the_width_of_the_page_and_loses_no_word() -> None:
    result = RevertResult(
        session=info(SessionID("ses_1"), directory=DIRECTORY),
        files=(
            FileFate(file=f"{DIRECTORY}/loom.py", fate="restored"),
            FileFate(file=f"{DIRECTORY}/cloth.py", fate="kept", reason=REASON),
        ),
        caution=CAUTION,
    )
    lines = [to_text(line) for line in to_preview(result, DIRECTORY, 40)]
    assert max(map(measure, lines)) <= 40
    said = f"restored loom.py kept cloth.py {REASON} {CAUTION}"
    assert " ".join(lines).split() == said.split()

"""Parse a patch, and apply it to a text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import ToolError
from weft.tool.patch import (
    AddFile,
    DeleteFile,
    PatchChunk,
    PatchSection,
    UpdateFile,
    apply_chunks,
    parse_patch,
)

FILE = "import os\n\n\nclass Loom:\n    def weave(self):\n        return 1\n\n    def rest(self):\n        return 1\n"


def patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


def change(*lines: str) -> tuple[PatchChunk, ...]:
    [section] = parse_patch(patch("*** Update File: a.py", *lines))
    assert isinstance(section, UpdateFile)
    return section.chunks


def test_every_kind_of_section_is_read() -> None:
    text = patch(
        "*** Add File: new.py",
        "+one",
        "+",
        "+two",
        "*** Update File: old name: x.py",
        "*** Move to: moved.py",
        "@@ class Loom",
        " kept",
        "-gone",
        "+come",
        "@@",
        "-last",
        "*** End of File",
        "*** Delete File: obsolete.py",
    )
    assert parse_patch(text) == (
        AddFile(path="new.py", content="one\n\ntwo\n"),
        UpdateFile(
            path="old name: x.py",
            target="moved.py",
            chunks=(
                PatchChunk(context="class Loom", old=("kept", "gone"), new=("kept", "come")),
                PatchChunk(old=("last",), new=(), at_end=True),
            ),
        ),
        DeleteFile(path="obsolete.py"),
    )


@pytest.mark.parametrize(
    "wrap", ["cat <<'EOF'\n{}\nEOF", "<<EOF\n{}\nEOF\n", "Here it is:\n{}\nDone.", " {} "]
)
def test_text_around_a_patch_is_ignored(wrap: str) -> None:
    assert parse_patch(wrap.format(patch("*** Delete File: a"))) == (DeleteFile(path="a"),)


def test_windows_line_ends_and_two_patches_in_one_are_read() -> None:
    text = patch("*** Delete File: a").replace("\n", "\r\n") + "\r\n" + patch("*** Delete File: b")
    assert parse_patch(text) == (DeleteFile(path="a"), DeleteFile(path="b"))


def test_a_blank_line_without_its_prefix_is_a_blank_line() -> None:
    assert parse_patch(patch("*** Add File: a", "+one", "", "+two", "", "*** Delete File: b")) == (
        AddFile(path="a", content="one\n\ntwo\n"),
        DeleteFile(path="b"),
    )
    assert change("@@", " one", "", "-two", "") == (PatchChunk(old=("one", "", "two"), new=("one", "")),)


def test_line_numbers_are_ignored() -> None:
    assert change("@@ -1,3 +1,4 @@ class Loom", "-x")[0].context == "class Loom"
    assert change("@@ -1 +1 @@", "-x")[0].context == ""


def test_a_quoted_end_marker_does_not_end_the_patch() -> None:
    assert parse_patch(patch("*** Update File: a", "@@", " *** End Patch", "-x")) == (
        UpdateFile(path="a", chunks=(PatchChunk(old=("*** End Patch", "x"), new=("*** End Patch",)),)),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nothing", "must begin with a line"),
        ("*** Begin Patch\n*** Delete File: a", "must begin with a line"),
        ("*** End Patch\n*** Begin Patch", "must begin with a line"),
        (patch("*** Rename File: a"), "line 2 of the patch, '*** Rename File: a': expected"),
        (patch("*** Delete File:"), "expected"),
        (patch("*** Delete File: a", "-x"), "line 3 of the patch, '-x': expected"),
        (patch("*** Add File: a", "+one", "two"), "every line of the new file a must begin with +"),
        (patch("*** Update File: a", "@@", "-x", "y"), "line 5 of the patch, 'y': a line of a change to a"),
        (patch("*** Update File: a"), "the section does not say what to change in a"),
    ],
)
def test_an_invalid_patch_is_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(ToolError) as raised:
        parse_patch(text)
    assert said in str(raised.value)


# --- applying a patch ---


def test_lines_are_replaced_in_place() -> None:
    chunks = change("@@", "     def rest(self):", "-        return 1", "+        return 2")
    assert apply_chunks(FILE, chunks, "a.py") == FILE.removesuffix("return 1\n") + "return 2\n"


def test_a_context_line_chooses_among_several_matches() -> None:
    chunks = change("@@ def rest(self):", "-        return 1", "+        return 2")
    assert apply_chunks(FILE, chunks, "a.py") == FILE.removesuffix("return 1\n") + "return 2\n"


def test_context_lines_can_be_nested() -> None:
    text = "class A:\n  def f():\n    1\nclass B:\n  def f():\n    1\n"
    chunks = change("@@ class B:", "@@   def f():", "-    1", "+    2")
    assert apply_chunks(text, chunks, "a.py") == "class A:\n  def f():\n    1\nclass B:\n  def f():\n    2\n"


@pytest.mark.parametrize(
    ("line", "quoted"),
    [
        ("x = 1   ", "x = 1"),
        ("    x = 1", "x = 1"),
        ("say(\u201chi\u201d)\u2026", 'say("hi")...'),
        ("a \u2014 b", "a - b"),
    ],
)
def test_lines_match_despite_common_quoting_mistakes_of_models(line: str, quoted: str) -> None:
    assert apply_chunks(f"a\n{line}\nb\n", change("@@", f"-{quoted}", "+new"), "a.py") == "a\nnew\nb\n"


def test_a_later_exact_match_beats_an_earlier_similar_one() -> None:
    assert apply_chunks(" x\nx\n", change("@@", "-x", "+y"), "a.py") == " x\ny\n"


def test_an_end_of_file_marker_selects_the_last_lines() -> None:
    assert apply_chunks("x\na\nx\n", change("@@", "-x", "+y", "*** End of File"), "a.py") == "x\na\ny\n"


def test_added_lines_go_to_the_end_or_below_their_context() -> None:
    assert apply_chunks("a\nb", change("@@", "+c"), "a.py") == "a\nb\nc\n"
    assert apply_chunks("a\nb\n", change("@@ a", "+c"), "a.py") == "a\nc\nb\n"
    assert apply_chunks("", change("+a"), "a.py") == "a\n"


def test_changes_keep_their_order() -> None:
    chunks = change("@@", "+end", "@@", "-a", "+A", "@@", "+very end", "@@ a", "+below a")
    assert apply_chunks("a\nb\na\n", chunks, "a.py") == "A\nb\na\nbelow a\nend\nvery end\n"


def test_a_blank_line_before_the_next_section_is_ignored() -> None:
    assert apply_chunks("a\nb\n", change("@@", "-a", "+A", "", "@@", "-b", "+B", "", ""), "a.py") == "A\nB\n"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (("@@", "-nowhere"), "Failed to find expected lines in a.py:\nnowhere"),
        (("@@ nowhere", "-a"), "Failed to find context 'nowhere' in a.py"),
        (("@@", "-b", "@@", "-a"), "Failed to find expected lines in a.py:\na"),
    ],
)
def test_missing_lines_are_an_error(lines: tuple[str, ...], said: str) -> None:
    with pytest.raises(ToolError) as raised:
        apply_chunks("a\nb\n", change(*lines), "a.py")
    assert str(raised.value) == said


# --- properties ---

WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=12)
NAMES = WORDS.map(str.strip).filter(bool)
MARKS = """\
*** Begin Patch|*** End Patch|*** Add File: a|*** Update File: b|*** Delete File: c|*** Move to: d|*** End of File\
|@@|@@ x|+x|-x| x||x|@@ -1 +1 @@|<<EOF|EOF"""
PIECES = st.lists(st.sampled_from(MARKS.split("|")) | WORDS, max_size=20)


@given(PIECES, st.text(max_size=40))
def test_a_broken_patch_is_refused_and_nothing_else(lines: list[str], content: str) -> None:
    try:
        sections = parse_patch("\n".join(lines))
        for section in sections:
            if isinstance(section, UpdateFile):
                assert apply_chunks(content, section.chunks, section.path).endswith("\n") or not content
    except ToolError:
        pass


@st.composite
def sections(draw: st.DrawFn) -> PatchSection:
    kind = draw(st.sampled_from(["add", "delete", "update"]))
    path = draw(NAMES)
    if kind == "add":
        lines = draw(st.lists(WORDS, max_size=5))
        return AddFile(path=path, content="".join(f"{line}\n" for line in lines))
    if kind == "delete":
        return DeleteFile(path=path)
    chunk = st.builds(
        lambda old, new, at_end: PatchChunk(old=(*old, "-"), new=tuple(new), at_end=at_end),
        st.lists(WORDS, max_size=3),
        st.lists(WORDS, max_size=3),
        st.booleans(),
    )
    return UpdateFile(path=path, chunks=tuple(draw(st.lists(chunk, min_size=1, max_size=3))))


def to_patch_lines(section: PatchSection) -> list[str]:
    match section:
        case AddFile(path=path, content=content):
            return [f"*** Add File: {path}", *(f"+{line}" for line in content.split("\n")[:-1])]
        case DeleteFile(path=path):
            return [f"*** Delete File: {path}"]
        case UpdateFile(path=path, chunks=chunks):
            lines = [f"*** Update File: {path}"]
            for chunk in chunks:
                lines += ["@@", *(f"-{line}" for line in chunk.old), *(f"+{line}" for line in chunk.new)]
                lines += ["*** End of File"] if chunk.at_end else []
            return lines


@given(st.lists(sections(), max_size=5))
def test_a_formatted_patch_is_parsed_back(wanted: list[PatchSection]) -> None:
    assert parse_patch(patch(*(line for section in wanted for line in to_patch_lines(section)))) == tuple(
        wanted
    )


@given(st.lists(WORDS, min_size=1, max_size=12, unique=True), st.data())
def test_a_change_to_existing_lines_is_applied(lines: list[str], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(lines) - 1))
    end = data.draw(st.integers(start + 1, len(lines)))
    new = data.draw(st.lists(WORDS, max_size=3))
    content = "".join(f"{line}\n" for line in lines)
    chunk = PatchChunk(old=tuple(lines[start:end]), new=tuple(new))
    expected = [*lines[:start], *new, *lines[end:]]
    assert apply_chunks(content, (chunk,), "a") == "".join(f"{line}\n" for line in expected)

"""read, write and edit on real files."""

import asyncio
import os
from base64 import b64encode
from pathlib import Path

import pytest
from msgspec.structs import replace

from weft.errors import DeniedError, ToolError
from weft.testing.tool_contract import AskedPermission, ToolHarness, read_files
from weft.tool.contract import AnyTool, Attachment, ReadGuard, ToolResult
from weft.tool.files import Stamp
from weft.tool.inputs import ReadInput
from weft.tool.registry import APPLY_PATCH, EDIT, READ, WRITE


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


@pytest.fixture
def harness(project: Path, tmp_path: Path) -> ToolHarness:
    return ToolHarness(project, outside=tmp_path, environment=os.environ)


def write_file(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def text_of(path: Path) -> str:
    return path.read_bytes().decode()


# --- read ---


async def test_text_is_returned_with_line_numbers(harness: ToolHarness, project: Path) -> None:
    write_file(project / "src/a.txt", "one\ntwo")
    assert await harness.call(READ, filePath="src/a.txt") == ToolResult(
        title="src/a.txt",
        output="<file>\n00001| one\n00002| two\n\n(End of file - total 2 lines)\n</file>",
        metadata={"preview": "one\ntwo", "truncated": False},
    )
    path = str(project / "src/a.txt")
    assert harness.asked == [AskedPermission(permission="read", patterns=(path,), always=("*",))]


async def test_outside_of_a_repository_a_title_is_relative_to_the_directory(
    harness: ToolHarness, project: Path
) -> None:
    write_file(project / "src/a.txt", "one")
    context = replace(harness.context(), worktree="/")
    result = await READ.run(ReadInput(file_path="src/a.txt"), context)
    assert result.title == "src/a.txt"


async def test_a_page_of_a_longer_file_is_returned(harness: ToolHarness, project: Path) -> None:
    write_file(project / "a.txt", "\n".join(str(number) for number in range(10)))
    result = await harness.call(READ, filePath=str(project / "a.txt"), offset=3, limit=2)
    end = "(File has more lines. Use 'offset' parameter to read beyond line 5)"
    assert result.output == f"<file>\n00004| 3\n00005| 4\n\n{end}\n</file>"
    assert result.metadata == {"preview": "3\n4", "truncated": True}


async def test_a_large_file_is_cut_at_whole_lines(harness: ToolHarness, project: Path) -> None:
    write_file(project / "a.txt", ("x" * 999 + "\n") * 100)
    result = await harness.call(READ, filePath="a.txt")
    assert result.output.endswith(
        "\n\n(Output truncated at 51200 bytes. Use 'offset' parameter to read beyond line 51)\n</file>"
    )
    assert result.metadata["truncated"] is True


async def test_long_lines_are_cut(harness: ToolHarness, project: Path) -> None:
    write_file(project / "a.txt", "é" * 3000 + "\nb")
    result = await harness.call(READ, filePath="a.txt")
    assert f"00001| {'é' * 2000}...\n00002| b\n" in result.output


async def test_the_line_after_the_last_newline_is_shown(harness: ToolHarness, project: Path) -> None:
    write_file(project / "a.txt", "one\n")
    write_file(project / "empty.txt", "")
    assert (
        "00001| one\n00002| \n\n(End of file - total 2 lines)"
        in (await harness.call(READ, filePath="a.txt")).output
    )
    assert (
        "00001| \n\n(End of file - total 1 lines)" in (await harness.call(READ, filePath="empty.txt")).output
    )


@pytest.mark.parametrize(
    ("name", "head", "mime", "said"),
    [
        ("a.png", b"\x89PNG\r\n\x1a\n", "image/png", "Image read successfully"),
        ("b.txt", b"\xff\xd8\xff\xe0", "image/jpeg", "Image read successfully"),
        ("c.pdf", b"%PDF-1.7", "application/pdf", "PDF read successfully"),
    ],
)
async def test_images_and_pdfs_are_attached(
    harness: ToolHarness, project: Path, name: str, head: bytes, mime: str, said: str
) -> None:
    raw = write_file(project / name, head + bytes(50)).read_bytes()
    result = await harness.call(READ, filePath=name)
    assert result.output == said
    assert result.attachments == (Attachment(mime=mime, url=f"data:{mime};base64,{b64encode(raw).decode()}"),)


async def test_an_image_too_large_for_any_model_is_refused(harness: ToolHarness, project: Path) -> None:
    write_file(project / "a.png", b"\x89PNG\r\n\x1a\n" + bytes(4_000_000))
    with pytest.raises(ToolError, match="Make a smaller copy"):
        await harness.call(READ, filePath="a.png")


@pytest.mark.parametrize(
    ("name", "raw"), [("a.zip", b"text"), ("a", b"a\0b"), ("b", b"\x01" * 40 + b"a" * 60), ("not.png", b"\0")]
)
async def test_other_binary_files_are_refused(
    harness: ToolHarness, project: Path, name: str, raw: bytes
) -> None:
    write_file(project / name, raw)
    with pytest.raises(ToolError, match=f"Cannot read binary file: {project}/{name}"):
        await harness.call(READ, filePath=name)


async def test_a_missing_file_is_reported_with_similar_names(harness: ToolHarness, project: Path) -> None:
    write_file(project / "settings.py.bak", "")
    with pytest.raises(ToolError) as raised:
        await harness.call(READ, filePath="settings.py")
    assert str(raised.value) == (
        f"File not found: {project}/settings.py\n\nDid you mean one of these?\n{project}/settings.py.bak"
    )


async def test_a_special_file_is_refused(harness: ToolHarness, project: Path) -> None:
    os.mkfifo(project / "pipe")
    with pytest.raises(ToolError, match="is a directory"):
        await harness.call(READ, filePath=".")
    with pytest.raises(ToolError, match="is not a plain file"):
        await harness.call(READ, filePath="pipe")


async def test_a_rule_for_a_file_applies_to_every_path_to_it(harness: ToolHarness, project: Path) -> None:
    write_file(project / ".env", "KEY=1")
    (project / "innocent.txt").symlink_to(".env")
    await harness.call(READ, filePath="innocent.txt")
    both = (str(project / "innocent.txt"), str(project / ".env"))
    assert harness.asked == [AskedPermission(permission="read", patterns=both, always=("*",))]


@pytest.mark.parametrize("way", ["../secret/key", "link/key", "inner/../link/key", "{root}/secret/key"])
async def test_reading_outside_of_the_project_asks(
    harness: ToolHarness, project: Path, tmp_path: Path, way: str
) -> None:
    write_file(tmp_path / "secret/key", "s3cret")
    (project / "inner").mkdir()
    (project / "link").symlink_to(tmp_path / "secret")
    harness.denied = {"external_directory"}
    with pytest.raises(DeniedError):
        await harness.call(READ, filePath=way.format(root=tmp_path))
    pattern = f"{tmp_path}/secret/*"
    assert harness.asked == [
        AskedPermission(permission="external_directory", patterns=(pattern,), always=(pattern,))
    ]


# --- write ---


async def test_a_new_file_is_written_with_its_directories(harness: ToolHarness, project: Path) -> None:
    path = project / "src/new/a.txt"
    assert await harness.call(WRITE, filePath="src/new/a.txt", content="hello\n") == ToolResult(
        title="src/new/a.txt",
        output="Wrote file successfully.",
        metadata={"diagnostics": {}, "filepath": str(path), "exists": False, "truncated": False},
    )
    assert read_files(project) == {str(path): b"hello\n"}
    assert harness.asked == [AskedPermission(permission="edit", patterns=("src/new/a.txt",), always=("*",))]
    assert harness.edited == [str(path)]


async def test_a_file_may_have_the_longest_name_there_is(harness: ToolHarness, project: Path) -> None:
    for name in ("n" * 255, "\u540d" * 85, "\U0001f600" * 63, "a" * 99 + "\u540d" * 52):
        await harness.call(WRITE, filePath=name, content="x")
        assert text_of(project / name) == "x"
    assert len(os.listdir(project)) == 4


async def test_an_unread_file_is_not_overwritten(harness: ToolHarness, project: Path) -> None:
    path = write_file(project / "a.txt", "mine")
    with pytest.raises(ToolError) as raised:
        await harness.call(WRITE, filePath="a.txt", content="theirs")
    assert str(raised.value) == f"You must read file {path} before overwriting it. Use the Read tool first"
    assert text_of(path) == "mine"


async def test_a_file_that_changed_since_it_was_read_is_not_overwritten(
    harness: ToolHarness, project: Path
) -> None:
    path = write_file(project / "a.txt", "one")
    await harness.call(READ, filePath="a.txt")
    write_file(path, "two, by hand")
    with pytest.raises(ToolError, match="has changed since it was last read"):
        await harness.call(WRITE, filePath="a.txt", content="x")
    assert text_of(path) == "two, by hand"


def test_a_file_with_an_impossible_time_is_refused_like_others() -> None:
    guard = ReadGuard()
    guard.remember("/a.txt", Stamp(modified=-(10**21), size=1))
    with pytest.raises(ToolError, match="has changed since it was last read"):
        guard.check("/a.txt", Stamp(modified=10**21, size=1))


async def test_a_file_that_was_read_or_written_may_be_overwritten(
    harness: ToolHarness, project: Path
) -> None:
    path = write_file(project / "a.sh", "one")
    path.chmod(0o755)
    await harness.call(READ, filePath="a.sh")
    await harness.call(WRITE, filePath="a.sh", content="two")
    result = await harness.call(WRITE, filePath="a.sh", content="three")
    assert result.metadata["exists"] is True
    assert (text_of(path), path.stat().st_mode & 0o777) == ("three", 0o755)


async def test_writing_through_a_link_keeps_the_link(harness: ToolHarness, project: Path) -> None:
    path = write_file(project / "real.txt", "one")
    (project / "link.txt").symlink_to("real.txt")
    await harness.call(READ, filePath="link.txt")
    await harness.call(WRITE, filePath="link.txt", content="two")
    assert (text_of(path), (project / "link.txt").is_symlink()) == ("two", True)
    assert harness.asked[-1].patterns == ("link.txt", "real.txt")


async def test_a_denied_file_is_not_written(harness: ToolHarness, project: Path) -> None:
    harness.denied = {"edit"}
    with pytest.raises(DeniedError):
        await harness.call(WRITE, filePath="a.txt", content="x")
    assert read_files(project) == {}


# --- edit ---


async def test_an_edit_is_made_and_shown_as_a_diff(harness: ToolHarness, project: Path) -> None:
    path = write_file(project / "a.py", "x = 1\ny = 2\n")
    await harness.call(READ, filePath="a.py")
    result = await harness.call(EDIT, filePath="a.py", oldString="x = 1", newString="x = 3")
    diff = f"Index: {path}\n{'=' * 67}\n--- {path}\n+++ {path}\n@@ -1,2 +1,2 @@\n-x = 1\n+x = 3\n y = 2\n"
    assert result == ToolResult(
        title="a.py",
        output="Edit applied successfully.",
        metadata={
            "diagnostics": {},
            "diff": diff,
            "filediff": {
                "file": str(path),
                "before": "x = 1\ny = 2\n",
                "after": "x = 3\ny = 2\n",
                "additions": 1,
                "deletions": 1,
            },
            "truncated": False,
        },
    )
    assert text_of(path) == "x = 3\ny = 2\n"


async def test_line_endings_byte_order_mark_and_invalid_bytes_are_kept(
    harness: ToolHarness, project: Path
) -> None:
    path = write_file(project / "a.txt", b"\xef\xbb\xbfone\r\ntwo \xff\r\nthree\r\n")
    await harness.call(READ, filePath="a.txt")
    await harness.call(EDIT, filePath="a.txt", oldString="one\n", newString="1\nand a half\n")
    assert path.read_bytes() == b"\xef\xbb\xbf1\r\nand a half\r\ntwo \xff\r\nthree\r\n"


async def test_two_concurrent_edits_are_both_made(harness: ToolHarness, project: Path) -> None:
    path = write_file(project / "a.txt", "one\ntwo\nthree\n")
    await harness.call(READ, filePath="a.txt")
    async with asyncio.TaskGroup() as tasks:
        for old, new in (("one", "1"), ("two", "2"), ("three", "3")):
            tasks.create_task(harness.call(EDIT, filePath="a.txt", oldString=old, newString=new))
    assert text_of(path) == "1\n2\n3\n"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        (EDIT, {"filePath": "a.txt", "oldString": "TWO", "newString": "2"}),
        (WRITE, {"filePath": "a.txt", "content": "1\n2\n"}),
        (
            APPLY_PATCH,
            {"patchText": "*** Begin Patch\n*** Update File: a.txt\n@@\n-TWO\n+2\n*** End Patch"},
        ),
    ],
)
async def test_a_call_waits_for_one_that_is_just_changing_its_file(
    harness: ToolHarness, project: Path, tool: AnyTool, arguments: dict[str, str]
) -> None:
    path = write_file(project / "a.txt", "one\ntwo\n")
    await harness.call(READ, filePath="a.txt")
    formatted = asyncio.Event()

    async def format_file(_: str) -> None:
        path.write_text(path.read_text().upper())
        formatted.set()
        await asyncio.sleep(0.05)

    harness.resources = replace(harness.resources, after_edit=format_file)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(harness.call(EDIT, filePath="a.txt", oldString="one", newString="1"))
        await formatted.wait()
        tasks.create_task(harness.call(tool, **arguments))
    assert text_of(path) == "1\n2\n"


async def test_an_empty_old_text_creates_a_file_and_overwrites_none_unseen(
    harness: ToolHarness, project: Path
) -> None:
    await harness.call(EDIT, filePath="new.txt", oldString="", newString="hello")
    path = write_file(project / "old.txt", "mine")
    with pytest.raises(ToolError, match="You must read file"):
        await harness.call(EDIT, filePath="old.txt", oldString="", newString="hello")
    assert read_files(project) == {str(project / "new.txt"): b"hello", str(path): b"mine"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"filePath": "a.txt", "oldString": "x", "newString": "x"}, "nothing to change"),
        ({"filePath": "none.txt", "oldString": "x", "newString": "y"}, "not found"),
        ({"filePath": ".", "oldString": "x", "newString": "y"}, "is a directory"),
        ({"filePath": "a.txt", "oldString": "nowhere", "newString": "y"}, "oldString not found in content"),
        ({"filePath": "a.txt", "oldString": "a", "newString": "y"}, "Found multiple matches"),
    ],
)
async def test_impossible_edits_are_errors(
    harness: ToolHarness, project: Path, given: dict[str, str], said: str
) -> None:
    path = write_file(project / "a.txt", "a a\n")
    await harness.call(READ, filePath="a.txt")
    with pytest.raises(ToolError, match=said):
        await harness.call(EDIT, **given)
    assert text_of(path) == "a a\n"


async def test_an_invalid_path_is_an_error(harness: ToolHarness) -> None:
    for tool, rest in ((READ, {}), (WRITE, {"content": ""}), (EDIT, {"oldString": "", "newString": "x"})):
        with pytest.raises(ToolError, match="is not a path"):
            await harness.call(tool, filePath="a\0b", **rest)

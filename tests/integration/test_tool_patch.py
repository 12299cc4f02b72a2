"""apply_patch and multiedit on real files, which change all or nothing."""

import asyncio
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from weft.errors import DeniedError, ToolError
from weft.testing.tool_contract import AskedPermission, ToolHarness, read_files
from weft.tool.contract import ToolResult
from weft.tool.language_servers import (
    Diagnostic,
    DiagnosticPosition,
    DiagnosticRange,
    Diagnostics,
    NoLanguageServers,
)
from weft.tool.registry import APPLY_PATCH, MULTIEDIT, READ


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


@pytest.fixture
def harness(project: Path, tmp_path: Path) -> ToolHarness:
    return ToolHarness(project, outside=tmp_path, environment=os.environ)


async def write_read_file(harness: ToolHarness, name: str, text: str) -> Path:
    """Write a file that the session has read."""
    path = harness.directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    await harness.call(READ, filePath=name)
    harness.asked.clear()
    return path


def patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


async def apply(harness: ToolHarness, *lines: str) -> ToolResult:
    return await harness.call(APPLY_PATCH, patchText=patch(*lines))


# --- apply_patch ---


async def test_a_patch_adds_changes_moves_and_deletes(harness: ToolHarness, project: Path) -> None:
    await write_read_file(harness, "old.py", "one\ntwo\n")
    await write_read_file(harness, "away.py", "x\n")
    result = await apply(
        harness,
        "*** Add File: deep/new.py",
        "+hello",
        "*** Update File: old.py",
        "*** Move to: deep/moved.py",
        "@@",
        "-one",
        "+ONE",
        "*** Delete File: away.py",
    )
    assert read_files(project) == {
        f"{project}/deep/moved.py": b"ONE\ntwo\n",
        f"{project}/deep/new.py": b"hello\n",
    }
    summary = "Success. Updated the following files:\nA deep/new.py\nM deep/moved.py\nD away.py"
    assert (result.title, result.output) == (summary, summary)
    assert harness.asked == [
        AskedPermission(
            permission="edit",
            patterns=("deep/new.py", "old.py", "deep/moved.py", "away.py"),
            always=("*",),
        )
    ]
    assert harness.edited == [f"{project}/deep/new.py", f"{project}/deep/moved.py"]
    assert [
        {key: file[key] for key in ("relativePath", "type", "before", "after", "additions", "deletions")}
        for file in result.metadata["files"]
    ] == [
        {
            "relativePath": "deep/new.py",
            "type": "add",
            "before": "",
            "after": "hello\n",
            "additions": 1,
            "deletions": 0,
        },
        {
            "relativePath": "deep/moved.py",
            "type": "move",
            "before": "one\ntwo\n",
            "after": "ONE\ntwo\n",
            "additions": 1,
            "deletions": 1,
        },
        {
            "relativePath": "away.py",
            "type": "delete",
            "before": "x\n",
            "after": "",
            "additions": 0,
            "deletions": 1,
        },
    ]
    assert result.metadata["files"][1]["movePath"] == f"{project}/deep/moved.py"
    assert result.metadata["diagnostics"] == {}


async def test_a_patched_file_may_be_patched_again(harness: ToolHarness, project: Path) -> None:
    await write_read_file(harness, "a.txt", "one\n")
    for old, new in (("one", "two"), ("two", "three")):
        await apply(harness, "*** Update File: a.txt", "@@", f"-{old}", f"+{new}")
    assert (project / "a.txt").read_text() == "three\n"


async def test_sections_build_on_each_other(harness: ToolHarness, project: Path) -> None:
    await write_read_file(harness, "a.txt", "one\ntwo\n")
    result = await apply(
        harness,
        *("*** Update File: a.txt", "@@", "-one", "+ONE"),
        *("*** Update File: a.txt", "*** Move to: b.txt", "@@", "-two", "+TWO"),
        *("*** Add File: a.txt", "+new"),
    )
    assert read_files(project) == {f"{project}/a.txt": b"new\n", f"{project}/b.txt": b"ONE\nTWO\n"}
    assert result.output.split("\n")[1:] == ["M a.txt", "M b.txt", "A a.txt"]


async def test_line_endings_marks_and_permissions_are_kept(harness: ToolHarness, project: Path) -> None:
    path = await write_read_file(harness, "run.sh", "\ufeffone\r\ntwo\r\n")
    path.chmod(0o755)
    await apply(harness, "*** Update File: run.sh", "*** Move to: bin/run.sh", "@@", "-one", "+ONE")
    moved = project / "bin/run.sh"
    assert moved.read_bytes() == "\ufeffONE\r\ntwo\r\n".encode()
    assert moved.stat().st_mode & 0o777 == 0o755


async def test_bytes_that_are_not_text_are_kept(harness: ToolHarness, project: Path) -> None:
    (project / "a.txt").write_bytes(b"caf\xe9\none\n")
    await harness.call(READ, filePath="a.txt")
    await apply(harness, "*** Update File: a.txt", "@@", "-one", "+two")
    assert (project / "a.txt").read_bytes() == b"caf\xe9\ntwo\n"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ((), "patch rejected: empty patch"),
        (("nonsense",), "apply_patch verification failed: line 2 of the patch, 'nonsense': expected"),
        (("*** Update File: none.txt", "@@", "-a"), "apply_patch verification failed: there is no file"),
        (("*** Delete File: none.txt",), "apply_patch verification failed: there is no file"),
        (
            ("*** Update File: a.txt", "@@", "-nowhere"),
            "apply_patch verification failed: Failed to find expected lines in",
        ),
        (("*** Delete File: a.txt", "*** Update File: a.txt", "@@", "-one"), "there is no file"),
        (("*** Delete File: link.txt",), "is a link"),
        (("*** Add File: sub", "+x"), "is a directory"),
        (("*** Add File: a\0b", "+x"), "is not a path"),
        (("*** Add File: \ud800x", "+x"), "is not a path"),
    ],
)
async def test_an_invalid_patch_changes_nothing(
    harness: ToolHarness, project: Path, lines: tuple[str, ...], said: str
) -> None:
    await write_read_file(harness, "a.txt", "one\n")
    (project / "sub").mkdir()
    (project / "link.txt").symlink_to("a.txt")
    before = read_files(project)
    with pytest.raises(ToolError) as raised:
        await apply(harness, "*** Add File: first.txt", "+x", *lines) if len(lines) > 1 else await apply(
            harness, *lines
        )
    assert said in str(raised.value)
    assert read_files(project) == before
    assert harness.asked == []


async def test_an_unread_file_is_not_patched(harness: ToolHarness, project: Path) -> None:
    (project / "a.txt").write_text("one\n")
    for lines in (
        ("*** Update File: a.txt", "@@", "-one", "+two"),
        ("*** Delete File: a.txt",),
        ("*** Add File: a.txt", "+x"),
    ):
        with pytest.raises(ToolError, match="You must read file"):
            await apply(harness, *lines)
    await write_read_file(harness, "b.txt", "b\n")
    with pytest.raises(ToolError, match="You must read file"):
        await apply(harness, "*** Update File: b.txt", "*** Move to: a.txt", "@@", "-b", "+c")
    assert (project / "a.txt").read_text() == "one\n"


async def test_a_file_changed_during_the_permission_request_is_not_patched(
    harness: ToolHarness, project: Path
) -> None:
    path = await write_read_file(harness, "a.txt", "one\n")
    allow = harness.context().ask

    async def ask(permission: str, *patterns: str, **more: object) -> None:
        await allow(permission, *patterns)
        path.write_text("one\nand more\n")

    wanted = APPLY_PATCH.takes(patch_text=patch("*** Update File: a.txt", "@@", "-one", "+two"))
    with pytest.raises(ToolError, match="has changed since it was last read"):
        await APPLY_PATCH.run(wanted, replace(harness.context(), ask=ask))
    assert path.read_text() == "one\nand more\n"


async def test_the_target_of_a_move_needs_permission(
    harness: ToolHarness, project: Path, tmp_path: Path
) -> None:
    await write_read_file(harness, "a.txt", "one\n")
    outside = tmp_path / "elsewhere" / "a.txt"
    await apply(harness, "*** Update File: a.txt", f"*** Move to: {outside}")
    assert [(each.permission, each.patterns) for each in harness.asked] == [
        ("external_directory", (f"{tmp_path}/elsewhere/*",)),
        ("edit", ("a.txt", "../elsewhere/a.txt")),
    ]
    assert outside.read_text() == "one\n"
    assert not (project / "a.txt").exists()


async def test_a_denied_patch_changes_nothing(harness: ToolHarness, project: Path) -> None:
    await write_read_file(harness, "a.txt", "one\n")
    harness.denied = {"edit"}
    with pytest.raises(DeniedError):
        await apply(harness, "*** Delete File: a.txt")
    assert (project / "a.txt").read_text() == "one\n"


async def test_a_failed_write_rolls_back_the_earlier_ones(harness: ToolHarness, project: Path) -> None:
    """`b.txt/x` cannot be created, because `b.txt` is a file."""
    await write_read_file(harness, "a.txt", "one\n")
    await write_read_file(harness, "b.txt", "b\n")
    (project / "a.txt").chmod(0o640)
    before = read_files(project)
    with pytest.raises(ToolError) as raised:
        await apply(
            harness,
            *("*** Update File: a.txt", "@@", "-one", "+two"),
            *("*** Add File: new/deep/c.txt", "+c"),
            *("*** Add File: b.txt/x", "+x"),
        )
    assert str(raised.value).endswith("Nothing was changed: the files that had been written were restored.")
    assert read_files(project) == before
    assert sorted(os.listdir(project)) == ["a.txt", "b.txt"]
    assert (project / "a.txt").stat().st_mode & 0o777 == 0o640
    assert harness.edited == []


async def test_a_patch_whose_files_exclude_each_other_changes_nothing(
    harness: ToolHarness, project: Path
) -> None:
    with pytest.raises(ToolError, match="Nothing was changed"):
        await apply(harness, "*** Add File: a", "+x", "*** Add File: a/b", "+y")
    assert os.listdir(project) == []


async def test_a_file_may_be_edited_after_a_failed_patch(harness: ToolHarness, project: Path) -> None:
    await write_read_file(harness, "a.txt", "one\n")
    with pytest.raises(ToolError, match="Nothing was changed"):
        await apply(
            harness, *("*** Update File: a.txt", "@@", "-one", "+two"), *("*** Add File: a.txt/x", "+x")
        )
    assert (project / "a.txt").read_text() == "one\n"


async def test_two_concurrent_patches_do_not_undo_each_other(harness: ToolHarness, project: Path) -> None:
    await write_read_file(harness, "a.txt", "one\ntwo\n")
    await write_read_file(harness, "b.txt", "one\ntwo\n")
    files = ("a.txt", "b.txt")
    await asyncio.gather(
        apply(
            harness, *(line for name in files for line in (f"*** Update File: {name}", "@@", "-one", "+1"))
        ),
        apply(
            harness,
            *(line for name in files[::-1] for line in (f"*** Update File: {name}", "@@", "-two", "+2")),
        ),
    )
    assert [(project / name).read_text() for name in files] == ["1\n2\n", "1\n2\n"]


async def test_the_formatted_file_is_shown(harness: ToolHarness, project: Path) -> None:
    path = await write_read_file(harness, "a.txt", "one\n")

    async def to_upper_case(edited: str) -> None:
        assert edited == str(path)
        path.write_text(path.read_text().upper())

    harness.resources = replace(harness.resources, after_edit=to_upper_case)
    result = await apply(harness, "*** Update File: a.txt", "@@", "-one", "+two")
    assert path.read_text() == "TWO\n"
    assert result.metadata["files"][0]["after"] == "TWO\n"
    await apply(harness, "*** Update File: a.txt", "@@", "-TWO", "+three")
    assert path.read_text() == "THREE\n"


class ComplainingServers(NoLanguageServers):
    """Reports a problem in every file."""

    async def diagnose(self, *paths: str) -> Diagnostics:
        start = DiagnosticPosition(0, 3)
        wrong = Diagnostic(range=DiagnosticRange(start, start), message="odd")
        return dict.fromkeys(paths, (wrong,))


async def test_diagnostics_are_added_to_the_output(harness: ToolHarness, project: Path) -> None:
    harness.resources = replace(harness.resources, language_servers=ComplainingServers())
    result = await apply(harness, "*** Add File: sub/a.py", "+x")
    path = f"{project}/sub/a.py"
    assert result.output == (
        "Success. Updated the following files:\nA sub/a.py\n\n"
        f'LSP errors detected in sub/a.py, please fix:\n<diagnostics file="{path}">\nERROR [1:4] odd\n</diagnostics>'
    )
    assert result.title == "Success. Updated the following files:\nA sub/a.py"
    assert list(result.metadata["diagnostics"]) == [path]


# --- multiedit ---


def edits(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"oldString": old, "newString": new} for old, new in pairs]


async def test_edits_build_on_each_other(harness: ToolHarness, project: Path) -> None:
    path = await write_read_file(harness, "a.txt", "one\ntwo\none\n")
    result = await harness.call(
        MULTIEDIT,
        filePath="a.txt",
        edits=[*edits(("two", "one")), {"oldString": "one", "newString": "1", "replaceAll": True}],
    )
    assert path.read_text() == "1\n1\n1\n"
    assert (result.title, result.output) == ("a.txt", "Edit applied successfully.")
    assert result.metadata["filediff"] == {
        "file": str(path),
        "before": "one\ntwo\none\n",
        "after": "1\n1\n1\n",
        "additions": 3,
        "deletions": 3,
    }
    assert harness.asked == [AskedPermission(permission="edit", patterns=("a.txt",), always=("*",))]
    assert harness.edited == [str(path)]


async def test_a_failing_edit_leaves_the_file_unchanged(harness: ToolHarness, project: Path) -> None:
    path = await write_read_file(harness, "a.txt", "one\n")
    for pairs, said in (
        ((("one", "two"), ("nowhere", "x")), "Edit 2 of 2: oldString not found in content."),
        ((("one", "one"),), "Edit 1 of 1: oldString and newString are the same"),
    ):
        with pytest.raises(ToolError) as raised:
            await harness.call(MULTIEDIT, filePath="a.txt", edits=edits(*pairs))
        assert str(raised.value).startswith(said)
        assert str(raised.value).endswith("Nothing was changed.")
    assert path.read_text() == "one\n"
    assert harness.asked == []


async def test_a_new_file_may_be_edited_at_once(harness: ToolHarness, project: Path) -> None:
    await harness.call(MULTIEDIT, filePath="new.txt", edits=edits(("", "one two"), ("two", "three")))
    assert (project / "new.txt").read_text() == "one three"


async def test_an_unread_or_missing_file_is_not_edited(harness: ToolHarness, project: Path) -> None:
    (project / "a.txt").write_text("one\n")
    with pytest.raises(ToolError, match="You must read file"):
        await harness.call(MULTIEDIT, filePath="a.txt", edits=edits(("one", "two")))
    with pytest.raises(ToolError, match="not found"):
        await harness.call(MULTIEDIT, filePath="none.txt", edits=edits(("one", "two")))
    with pytest.raises(ToolError, match="invalid arguments"):
        await harness.call(MULTIEDIT, filePath="a.txt", edits=[])

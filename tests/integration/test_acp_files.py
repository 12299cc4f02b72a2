"""The tools of `weft acp` see unsaved text of the editor; undo restores it, and none of it is lost."""

import os
from pathlib import Path

from acp.schema import ClientCapabilities, FileSystemCapabilities

from given.editor import FILES, Editor, open_editor
from weft.local.open import OpenOptions, open_directory
from weft.model.ids import SessionID
from weft.provider.scripted import Say, UseTool

READ = UseTool(tool="read", input={"filePath": "hello.txt"})
EDIT = UseTool(tool="edit", input={"filePath": "hello.txt", "oldString": "typed", "newString": "changed"})
OVER = UseTool(tool="write", input={"filePath": "hello.txt", "content": "all new\n"})
NEW = UseTool(tool="write", input={"filePath": "deep/new.txt", "content": "new\n"})
PATCH = UseTool(
    tool="apply_patch",
    input={
        "patchText": "*** Begin Patch\n*** Update File: hello.txt\n@@\n-typed, not saved\n+patched\n*** End Patch"
    },
)
UNSAVED = "typed, not saved\n"


async def undo(home: Path, session: str) -> None:
    opening = OpenOptions(directory=str(home / "project"), env=os.environ, store=f"file:{home / 'storage'}")
    async with open_directory(opening) as api:
        [prompt, *_] = await api.list_messages(SessionID(session))
        await api.revert(SessionID(session), prompt.info.id)


def result(editor: Editor, kind: str) -> str:
    [content] = editor.call(kind)["content"]
    text: str = content["content"]["text"]
    return text


async def test_unsaved_text_is_read(tmp_path: Path) -> None:
    async with open_editor(tmp_path, [READ], [Say(text="So.")], capabilities=FILES) as connection:
        path = str(connection.project / "hello.txt")
        connection.editor.buffers[path] = UNSAVED
        session = await connection.new_session()
        await connection.editor.prompt(session, "what does it say?")
        assert "00001| typed, not saved" in result(connection.editor, "read")
        assert set(connection.editor.read) == {(session, path)}
        assert connection.editor.written == []


async def test_an_edit_builds_on_unsaved_text_and_undo_restores_it(tmp_path: Path) -> None:
    async with open_editor(tmp_path, [READ], [EDIT], [Say(text="Done.")], capabilities=FILES) as connection:
        path = connection.project / "hello.txt"
        connection.editor.buffers[str(path)] = UNSAVED
        session = await connection.new_session()
        await connection.editor.prompt(session, "change it")
        assert path.read_text() == "changed, not saved\n"
        # The person's own text is saved first, as theirs; then it is changed.
        assert connection.editor.written == [
            (session, str(path), UNSAVED),
            (session, str(path), "changed, not saved\n"),
        ]
    await undo(tmp_path, session)
    assert path.read_text() == UNSAVED


async def test_a_patch_builds_on_unsaved_text(tmp_path: Path) -> None:
    patching = {"model": "scripted/gpt-test"}
    async with open_editor(
        tmp_path, [READ], [PATCH], [Say(text="Done.")], capabilities=FILES, config=patching
    ) as connection:
        path = connection.project / "hello.txt"
        connection.editor.buffers[str(path)] = UNSAVED
        session = await connection.new_session()
        await connection.editor.prompt(session, "patch it")
        assert path.read_text() == "patched\n"
        assert connection.editor.written == [(session, str(path), UNSAVED), (session, str(path), "patched\n")]
    await undo(tmp_path, session)
    assert path.read_text() == UNSAVED


async def test_text_typed_after_the_read_is_not_overwritten(tmp_path: Path) -> None:
    for number, call in enumerate((OVER, EDIT)):
        editor = Editor()
        script = [READ], [call], [Say(text="Sorry.")]
        async with open_editor(
            tmp_path / str(number), *script, editor=editor, capabilities=FILES, config=ASK
        ) as connection:
            path = connection.project / "hello.txt"
            path.write_text("typed\n")

            def type_on(_: object, __: object, path: Path = path, editor: Editor = editor) -> str:
                editor.buffers[str(path)] = "typed on\n"
                return "once"

            editor.choose = type_on
            await editor.prompt(await connection.new_session(), "write over it")
            assert (path.read_text(), editor.buffers) == ("typed\n", {str(path): "typed on\n"})
            assert "has been changed in the editor since it was last read" in result(editor, "edit")


ASK = {"permission": {"edit": "ask"}}


async def test_a_file_that_the_editor_cannot_save_is_not_changed(tmp_path: Path) -> None:
    editor = Editor()
    editor.read_only = True
    script = [READ], [EDIT], [Say(text="Sorry.")]
    async with open_editor(tmp_path, *script, editor=editor, capabilities=FILES) as connection:
        path = connection.project / "hello.txt"
        editor.buffers[str(path)] = UNSAVED
        await editor.prompt(await connection.new_session(), "change it")
        assert (path.read_text(), editor.buffers) == ("hello there\n", {str(path): UNSAVED})
        assert "the editor could not save them" in result(editor, "edit")


async def test_a_new_file_is_written_through_the_editor_if_possible(tmp_path: Path) -> None:
    for number, cannot in enumerate((False, True)):
        editor, at = Editor(), tmp_path / str(number)
        editor.read_only = cannot
        async with open_editor(
            at, [NEW], [Say(text="Done.")], editor=editor, capabilities=FILES
        ) as connection:
            path = connection.project / "deep" / "new.txt"
            if not cannot:
                path.parent.mkdir()
            session = await connection.new_session()
            await editor.prompt(session, "make it")
            assert path.read_text() == "new\n"
            assert editor.written == ([] if cannot else [(session, str(path), "new\n")])


async def test_files_that_are_not_text_are_edited_on_the_disk(tmp_path: Path) -> None:
    over = UseTool(tool="edit", input={"filePath": "odd.txt", "oldString": "one", "newString": "two"})
    read = UseTool(tool="read", input={"filePath": "odd.txt"})
    async with open_editor(tmp_path, [read], [over], [Say(text="Done.")], capabilities=FILES) as connection:
        path = connection.project / "odd.txt"
        path.write_bytes(b"one \xff\n")
        connection.editor.buffers[str(path)] = "one \ufffd\n"
        await connection.editor.prompt(await connection.new_session(), "change it")
        assert path.read_bytes() == b"two \xff\n"
        assert connection.editor.written == []


async def test_an_editor_without_file_support_gets_no_file_requests(tmp_path: Path) -> None:
    only = ClientCapabilities(fs=FileSystemCapabilities(read_text_file=False, write_text_file=False))
    async with open_editor(tmp_path, [READ], [OVER], [Say(text="Done.")], capabilities=only) as connection:
        await connection.editor.prompt(await connection.new_session(), "write")
        assert (connection.editor.read, connection.editor.written) == ([], [])
        assert (connection.project / "hello.txt").read_text() == "all new\n"

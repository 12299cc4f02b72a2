"""Bundles are read back as they were written, and a manipulated one is refused as a whole."""

import base64
import io
import json
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from given.damage import (
    IN_ONE_DIRECTORY,
    allow_refusal,
    check_import,
    check_storable,
    damaged_bytes,
    damaged_values,
    to_json,
)
from given.session_exports import export, id_of, session_id, with_parts
from weft.errors import BundleError, DocumentError, InvalidInputError, NewerFormatError, WeftError
from weft.importers.export_file import open_export_file
from weft.model.diff import FileDiff
from weft.model.ids import MessageID, PartID
from weft.model.part import FilePart
from weft.model.session import Todo
from weft.model.transfer import SessionExport
from weft.model.wire import encode
from weft.snapshot.contract import PackedObject
from weft.transfer.bundle import BundledWorkspace, BundleWriter, open_bundle, write_bundle

PICTURE = bytes(range(256)) * 8
TODO = Todo(content="Mend it", status="pending", priority="high")
DIFF = FileDiff(file="a.py", before="a\n", after="b\n", additions=1, deletions=1)
OUT_OF_IT = ("../evil.json", "/etc/evil", "sessions/../../evil.json", "a\\..\\..\\evil", "C:evil")


def full_session(
    number: int = 1, url: str = f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}"
) -> SessionExport:
    session = export(number, turns=2, todos=(TODO,), diff=(DIFF,))
    ids = {"session_id": session.info.id, "message_id": MessageID(session.messages[0].info.id)}
    return with_parts(
        session, FilePart(id=PartID(id_of("prt", number * 10_000 + 9)), **ids, mime="image/png", url=url)
    )


def write_exports(path: Path, *exports: SessionExport) -> Path:
    with path.open("wb") as file:
        write_bundle(file, exports)
    return path


def rewrite_bundle(path: Path, **changes: bytes | None) -> Path:
    """Rewrite a bundle with some files replaced, added, or (None) left out."""
    with zipfile.ZipFile(path) as archive:
        files: dict[str, bytes | None] = {name: archive.read(name) for name in archive.namelist()}
    files |= changes
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, raw in files.items():
            if raw is not None:
                archive.writestr(name, raw)
    return path


def manifest(path: Path) -> dict[str, object]:
    with zipfile.ZipFile(path) as archive:
        read: dict[str, object] = json.loads(archive.read("manifest.json"))
        return read


def refusal(path: Path) -> str:
    with pytest.raises(BundleError) as caught, open_bundle(str(path)):
        pass
    return caught.value.reason


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_exports(tmp_path / "b.zip", full_session(1), full_session(2))


def test_a_bundle_is_read_back_unchanged(bundle: Path) -> None:
    with open_bundle(str(bundle)) as opened:
        assert list(opened.exports()) == [full_session(1), full_session(2)]


def test_an_attachment_of_two_sessions_is_stored_once_as_bytes(bundle: Path) -> None:
    with zipfile.ZipFile(bundle) as archive:
        name = f"attachments/{sha256(PICTURE).hexdigest()}"
        assert [each for each in archive.namelist() if each.startswith("attachments/")] == [name]
        assert archive.read(name) == PICTURE


@pytest.mark.parametrize(
    "url",
    [
        "attachment:",
        "attachment:plan.pdf",
        "attachment:,attachment:,x",
        f"attachment:{'a' * 64},image/png",
        f"attachment:{sha256(PICTURE).hexdigest()},image/png",
        "data:;base64,",
    ],
)
def test_a_file_may_have_any_address(tmp_path: Path, url: str) -> None:
    sessions = [full_session(1, url), full_session(2)]
    with open_bundle(str(write_exports(tmp_path / "b.zip", *sessions))) as opened:
        assert list(opened.exports()) == sessions


def test_the_same_sessions_make_the_same_bytes() -> None:
    one, other = io.BytesIO(), io.BytesIO()
    write_bundle(one, [full_session()])
    write_bundle(other, [full_session()])
    assert one.getvalue() == other.getvalue()


@pytest.mark.parametrize("name", OUT_OF_IT)
def test_a_file_that_points_outside_the_bundle_is_refused(bundle: Path, name: str) -> None:
    assert refusal(rewrite_bundle(bundle, **{name: b"{}"})) == f"{name!r} points outside the bundle"


def test_an_unexpected_file_is_refused(bundle: Path) -> None:
    assert refusal(rewrite_bundle(bundle, **{"notes.txt": b""})) == "'notes.txt' does not belong in a bundle"


def test_a_truncated_bundle_is_refused_wherever_it_is_cut(bundle: Path) -> None:
    raw = bundle.read_bytes()
    for length in range(0, len(raw), max(1, len(raw) // 50)):
        bundle.write_bytes(raw[:length])
        with pytest.raises(WeftError), open_bundle(str(bundle)):
            pass


def test_a_flipped_byte_never_gives_another_session(bundle: Path) -> None:
    raw = bundle.read_bytes()
    for at in range(0, len(raw), max(1, len(raw) // 200)):
        bundle.write_bytes(raw[:at] + bytes([raw[at] ^ 0x55]) + raw[at + 1 :])
        try:
            with open_bundle(str(bundle)) as opened:
                assert list(opened.exports()) == [full_session(1), full_session(2)]
        except WeftError:
            pass


def test_a_changed_session_is_refused(bundle: Path) -> None:
    name = f"sessions/{session_id(2)}.json"
    with zipfile.ZipFile(bundle) as archive:
        changed = archive.read(name).replace(b"prompt 0", b"prompt 9")
    assert (
        refusal(rewrite_bundle(bundle, **{name: changed}))
        == f"{name} has changed since the bundle was written"
    )


def test_a_missing_file_is_named(bundle: Path) -> None:
    name = f"sessions/{session_id(2)}.json"
    assert refusal(rewrite_bundle(bundle, **{name: None})) == (
        f"{name!r} is a file that its manifest lists, but it is missing"
    )


def test_a_newer_format_is_refused_by_name(bundle: Path) -> None:
    newer = json.dumps({**manifest(bundle), "format": 99}).encode()
    with (
        pytest.raises(NewerFormatError) as caught,
        open_bundle(str(rewrite_bundle(bundle, **{"manifest.json": newer}))),
    ):
        pass
    assert (caught.value.found, caught.value.known) == (99, 2)


def test_any_other_zip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", '{"name": "an extension"}')
    assert refusal(path) == "its manifest is not that of a bundle"


def test_a_session_that_does_not_match_the_manifest_is_refused(bundle: Path) -> None:
    """The hash can be right all the same, because the author of a bundle controls all of it."""
    other = encode(export(3))
    listed = manifest(bundle)
    name = f"sessions/{session_id(1)}.json"
    listed["sessions"][0]["file"] = {"name": name, "size": len(other), "sha256": sha256(other).hexdigest()}  # type: ignore[index]
    forged = rewrite_bundle(bundle, **{name: other, "manifest.json": json.dumps(listed).encode()})
    assert refusal(forged) == f"{name} does not match its manifest"


def test_a_zip_bomb_is_refused_before_it_is_unpacked(bundle: Path) -> None:
    bomb = rewrite_bundle(bundle, **{f"attachments/{'0' * 64}": bytes(100 << 20)})
    assert "more than any session needs" in refusal(bomb)


TREE = PackedObject("tree", "4b825dc642cb6eb9a060e54bf8d69288fbee4904", b"")
WORKSPACE = BundledWorkspace(
    directory="/loom", commit="c" * 40, present=TREE.oid, absent=TREE.oid, briefings={"ses_1": {"a": 1}}
)


def with_workspace(path: Path) -> Path:
    with path.open("wb") as file:
        writer = BundleWriter(file)
        writer.add_session(full_session())
        writer.add_object(TREE)
        writer.close(workspace=WORKSPACE)
    return path


def test_a_workspace_is_included_with_its_objects(tmp_path: Path) -> None:
    with open_bundle(str(with_workspace(tmp_path / "b"))) as bundle:
        assert list(bundle.exports()) == [full_session()]
        assert list(bundle.read_objects()) == [TREE]
        workspace = bundle.manifest.workspace
        assert workspace is not None
        assert (bundle.manifest.format, workspace.commit, workspace.briefings) == (
            2,
            "c" * 40,
            {"ses_1": {"a": 1}},
        )


def test_without_a_workspace_older_versions_can_read_a_bundle(tmp_path: Path) -> None:
    assert manifest(write_exports(tmp_path / "b", full_session()))["format"] == 1


def test_an_object_that_is_listed_as_something_else_is_refused(tmp_path: Path) -> None:
    path = with_workspace(tmp_path / "b")
    changed = json.loads(json.dumps(manifest(path)))
    changed["attachments"] += changed["workspace"].pop("objects")
    rewrite_bundle(path, **{"manifest.json": json.dumps(changed).encode()})
    with pytest.raises(BundleError, match="as something else"), open_bundle(str(path)):
        pass


def damaged_bundle(path: Path, data: st.DataObject) -> None:
    """Damage the bytes of a bundle, or its documents with hashes that match all the same."""
    if data.draw(st.booleans(), label="bytes"):
        path.write_bytes(data.draw(damaged_bytes(path.read_bytes())))
        return
    listed = manifest(path)
    name = f"sessions/{session_id(1)}.json"
    with zipfile.ZipFile(path) as archive:
        session = json.loads(archive.read(name))
    if data.draw(st.booleans(), label="session"):
        session = data.draw(damaged_values(session))
    raw = to_json(session)
    listed["sessions"][0]["file"] |= {"size": len(raw), "sha256": sha256(raw).hexdigest()}  # type: ignore[index]
    rewrite_bundle(path, **{name: raw, "manifest.json": to_json(data.draw(damaged_values(listed)))})


@given(data=st.data())
@IN_ONE_DIRECTORY
def test_whatever_a_bundle_contains_is_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "odd.zip"
    with path.open("wb") as file:
        write_bundle(file, (full_session(1), full_session(2)))
    damaged_bundle(path, data)
    with (
        allow_refusal(BundleError, NewerFormatError, InvalidInputError),
        open_bundle(str(path)) as opened,
    ):
        for each in opened.exports():
            check_storable(each)


DOCUMENTS = damaged_values(json.loads(encode(full_session(1)))).map(to_json)


@given(raw=DOCUMENTS | DOCUMENTS.flatmap(damaged_bytes))
@IN_ONE_DIRECTORY
def test_whatever_an_exported_document_contains_is_read_or_refused(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "session.json"
    path.write_bytes(raw)
    with allow_refusal(DocumentError, InvalidInputError), open_export_file(str(path)) as source:
        for found in source.list_sessions():
            check_import(found)

"""Import a tree of OpenCode whose files are damaged, in its own format or an older one."""

import json
import shutil
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from given.damage import IN_ONE_DIRECTORY, allow_refusal, check_import, damaged_bytes, damaged_values, to_json
from given.file_store import files, make_old
from given.opencode_tree import write_bytes, write_tree
from weft.errors import DocumentError, NewerFormatError
from weft.importers.opencode_tree import open_opencode_tree


def write_old_tree(root: Path) -> Path:
    """Write a tree in format 0, next to sessions where the first versions of OpenCode kept them."""
    storage = write_tree(root, 1)
    (storage / "migration").unlink()
    [path] = (storage / "session" / "there").iterdir()
    info = json.loads(path.read_bytes())
    info["summary"] = {
        "additions": 1,
        "deletions": 0,
        "diffs": [{"file": "a", "additions": 1, "deletions": 0}],
    }
    path.write_text(json.dumps(info))
    oldest = storage.parent / "project" / "there" / "storage" / "session"
    write_bytes(oldest / "info" / "ses_1.json", json.dumps({"id": "ses_1", "time": {"created": 1}}).encode())
    write_bytes(oldest / "message" / "ses_1" / "msg_1.json", b'{"id": "msg_1", "path": {"root": "/a"}}')
    return storage


@given(data=st.data())
@IN_ONE_DIRECTORY
def test_whatever_a_tree_contains_is_imported_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    good, odd = tmp_path / "good", tmp_path / "odd"
    if not good.exists():
        write_tree(good / "new", 1)
        write_old_tree(good / "old")
    shutil.rmtree(odd, ignore_errors=True)
    shutil.copytree(good / data.draw(st.sampled_from(["new", "old"])), odd)
    for name in set(data.draw(st.lists(st.sampled_from(sorted(files(odd))), min_size=1, max_size=3))):
        raw = (odd / name).read_bytes()
        if name.endswith(".json") and data.draw(st.booleans()):
            raw = to_json(data.draw(damaged_values(json.loads(raw))))
        else:
            raw = data.draw(damaged_bytes(raw))
        (odd / name).write_bytes(raw)
        make_old(odd / name)
    before = {name: (odd / name).read_bytes() for name in files(odd)}
    with (
        allow_refusal(DocumentError, NewerFormatError, naming=str(odd)),
        open_opencode_tree(str(odd), lambda _: None) as tree,
    ):
        tree.list_projects([])
        for found in tree.list_sessions():
            check_import(found)
        list(tree.list_troubles())
    assert {name: (odd / name).read_bytes() for name in files(odd)} == before


def test_a_file_in_place_of_a_directory_of_parts_loses_nothing_else(tmp_path: Path) -> None:
    storage = write_tree(tmp_path, 1)
    parts = sorted((storage / "part").iterdir())
    shutil.rmtree(parts[0])
    parts[0].write_text("x")
    with open_opencode_tree(str(tmp_path), lambda _: None) as tree:
        (session,) = [found.read() for found in tree.list_sessions()]
    assert session.counted.messages == len(session.export.messages) == len(parts)
    assert str(parts[0]) in [trouble.where for trouble in session.troubles]

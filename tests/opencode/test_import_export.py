"""Sessions exchanged between both programs as files arrive complete."""

import json
from pathlib import Path

import pytest

from opencode.comparison import strict
from opencode.engine import open_sandbox_store
from opencode.fake_model import FakeModel, called, said
from opencode.sandbox import Sandbox, make_sandbox
from weft.model.diff import FileDiff
from weft.model.ids import SessionID
from weft.model.wire import encode

pytestmark = pytest.mark.opencode

DIFF = FileDiff(file="hello.txt", before="hello\n", after="goodbye\n", additions=1, deletions=1)


@pytest.fixture(scope="module")
def elsewhere(
    program: Path, served: tuple[FakeModel, str], tmp_path_factory: pytest.TempPathFactory
) -> Sandbox:
    """Another machine: other paths, an empty store, the same program."""
    return make_sandbox(tmp_path_factory.mktemp("elsewhere"), program, served[1])


@pytest.fixture(scope="module")
def session(sandbox: Sandbox, model: FakeModel) -> SessionID:
    hello = str(sandbox.project / "hello.txt")
    model.plays(
        called("read", filePath=hello),
        called("edit", filePath=hello, oldString="hello", newString="goodbye – «ä» \U0001f9f6"),
        said("It says goodbye now."),
    )
    [first, *_] = sandbox.opencode("run", "--format", "json", "Let the file say goodbye.").splitlines()
    return SessionID(json.loads(first)["sessionID"])


def test_weft_exports_what_opencode_exports(sandbox: Sandbox, session: SessionID) -> None:
    ours, theirs = sandbox.weft("export", session), sandbox.opencode("export", session)
    assert strict(ours) == strict(theirs)
    assert len(ours) == len(theirs)  # only the order of keys may differ
    assert ours[:12] == theirs[:12] == '{\n  "info": '
    assert ours[-3:] == theirs[-3:] == "\n}\n"


def test_weft_imports_what_opencode_exported(
    sandbox: Sandbox, elsewhere: Sandbox, session: SessionID, tmp_path: Path
) -> None:
    exported = tmp_path / "exported.json"
    exported.write_text(sandbox.opencode("export", session))
    imported = elsewhere.weft("import", str(exported), "--rebind", f"{sandbox.project}={elsewhere.project}")
    assert imported.splitlines()[0] == f"Imported session: {session}"
    again = elsewhere.weft("export", session)
    theirs, ours = strict(exported.read_text()), strict(again.replace(str(elsewhere.root), str(sandbox.root)))
    assert ours["info"].pop("projectID") != theirs["info"].pop("projectID")
    assert ours == theirs
    # The real one reads it there, too.
    assert strict(elsewhere.opencode("export", session)) == strict(again)
    assert elsewhere.weft("import", str(exported)).splitlines()[1].startswith("already stored")


def test_opencode_imports_what_weft_exported(
    sandbox: Sandbox, session: SessionID, program: Path, served: tuple[FakeModel, str], tmp_path: Path
) -> None:
    third = make_sandbox(tmp_path / "third", program, served[1])
    exported = tmp_path / "exported.json"
    exported.write_text(sandbox.weft("export", session))
    assert f"Imported session: {session}" in third.opencode("import", str(exported))
    assert strict(third.opencode("export", session)) == strict(exported.read_text())


async def test_opencode_goes_on_with_an_imported_session_and_it_comes_home(
    sandbox: Sandbox, elsewhere: Sandbox, model: FakeModel, session: SessionID, tmp_path: Path
) -> None:
    bundle, back = tmp_path / "session.weft", tmp_path / "back.json"
    # OpenCode may have ended before it wrote one.
    shelf = sandbox.storage / "session_diff"
    shelf.mkdir(exist_ok=True)
    (shelf / f"{session}.json").write_bytes(encode([DIFF]))
    sandbox.weft("export", session, "--bundle", str(bundle))
    elsewhere.weft("import", str(bundle))
    model.plays(said("I went on."))
    elsewhere.opencode("run", "--format", "json", "-s", session, "Go on.")
    back.write_text(elsewhere.weft("export", session))
    [received] = json.loads(sandbox.weft("import", str(back), "--format", "json"))["sessions"]
    assert (received["id"], received["verdict"]) == (session, "updated")
    assert "I went on." in sandbox.opencode("export", session)
    async with open_sandbox_store(sandbox) as store:
        assert (await store.get_session(session)).directory == str(sandbox.project)
        assert await store.list_diff(session) == [DIFF]  # an export carries none, and none is lost by that

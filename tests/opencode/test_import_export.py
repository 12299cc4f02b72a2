"""Sessions exchanged between both programs as files arrive complete."""

import json
from pathlib import Path

import pytest

from opencode.comparison import parse_strictly
from opencode.engine import open_sandbox_store
from opencode.fake_model import FakeModel, answer_call, answer_text
from opencode.sandbox import Sandbox, make_sandbox
from weft.model.diff import FileDiff
from weft.model.ids import SessionID
from weft.model.wire import encode

pytestmark = pytest.mark.opencode

DIFF = FileDiff(file="hello.txt", before="hello\n", after="goodbye\n", additions=1, deletions=1)


@pytest.fixture(scope="module")
def other_sandbox(
    program: Path, model_server: tuple[FakeModel, str], tmp_path_factory: pytest.TempPathFactory
) -> Sandbox:
    """Another machine: other paths, an empty store, the same program."""
    return make_sandbox(tmp_path_factory.mktemp("elsewhere"), program, model_server[1])


@pytest.fixture(scope="module")
def session(sandbox: Sandbox, model: FakeModel) -> SessionID:
    hello = str(sandbox.project / "hello.txt")
    model.play(
        answer_call("read", filePath=hello),
        answer_call("edit", filePath=hello, oldString="hello", newString="goodbye – «ä» \U0001f9f6"),
        answer_text("It says goodbye now."),
    )
    [first, *_] = sandbox.opencode("run", "--format", "json", "Let the file say goodbye.").splitlines()
    return SessionID(json.loads(first)["sessionID"])


def test_weft_exports_what_opencode_exports(sandbox: Sandbox, session: SessionID) -> None:
    ours, theirs = sandbox.weft("export", session), sandbox.opencode("export", session)
    assert parse_strictly(ours) == parse_strictly(theirs)
    assert len(ours) == len(theirs)  # only the order of keys may differ
    assert ours[:12] == theirs[:12] == '{\n  "info": '
    assert ours[-3:] == theirs[-3:] == "\n}\n"


def test_weft_imports_what_opencode_exported(
    sandbox: Sandbox, other_sandbox: Sandbox, session: SessionID, tmp_path: Path
) -> None:
    exported = tmp_path / "exported.json"
    exported.write_text(sandbox.opencode("export", session))
    imported = other_sandbox.weft(
        "import", str(exported), "--rebind", f"{sandbox.project}={other_sandbox.project}"
    )
    assert imported.splitlines()[0] == f"Imported session: {session}"
    again = other_sandbox.weft("export", session)
    theirs, ours = (
        parse_strictly(exported.read_text()),
        parse_strictly(again.replace(str(other_sandbox.root), str(sandbox.root))),
    )
    assert ours["info"].pop("projectID") != theirs["info"].pop("projectID")
    assert ours == theirs
    # The real one reads it there, too.
    assert parse_strictly(other_sandbox.opencode("export", session)) == parse_strictly(again)
    assert other_sandbox.weft("import", str(exported)).splitlines()[1].startswith("already stored")


def test_opencode_imports_what_weft_exported(
    sandbox: Sandbox, session: SessionID, program: Path, model_server: tuple[FakeModel, str], tmp_path: Path
) -> None:
    third = make_sandbox(tmp_path / "third", program, model_server[1])
    exported = tmp_path / "exported.json"
    exported.write_text(sandbox.weft("export", session))
    assert f"Imported session: {session}" in third.opencode("import", str(exported))
    assert parse_strictly(third.opencode("export", session)) == parse_strictly(exported.read_text())


async def test_opencode_continues_an_imported_session_which_can_be_imported_back(
    sandbox: Sandbox, other_sandbox: Sandbox, model: FakeModel, session: SessionID, tmp_path: Path
) -> None:
    bundle, back = tmp_path / "session.weft", tmp_path / "back.json"
    # OpenCode may have ended before it wrote one.
    shelf = sandbox.storage / "session_diff"
    shelf.mkdir(exist_ok=True)
    (shelf / f"{session}.json").write_bytes(encode([DIFF]))
    sandbox.weft("export", session, "--bundle", str(bundle))
    other_sandbox.weft("import", str(bundle))
    model.play(answer_text("I went on."))
    other_sandbox.opencode("run", "--format", "json", "-s", session, "Go on.")
    back.write_text(other_sandbox.weft("export", session))
    [received] = json.loads(sandbox.weft("import", str(back), "--format", "json"))["sessions"]
    assert (received["id"], received["verdict"]) == (session, "updated")
    assert "I went on." in sandbox.opencode("export", session)
    async with open_sandbox_store(sandbox) as store:
        assert (await store.get_session(session)).directory == str(sandbox.project)
        assert await store.list_diff(session) == [DIFF]  # an export contains none, so none is lost

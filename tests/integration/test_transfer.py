"""Sessions imported between real stores: new, continued, diverged, and back again."""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from given.session_exports import AT, export, id_of, list_texts, session_id, turn_of, with_text
from weft.errors import BundleError, DocumentError, InvalidIdError, UnreadableError
from weft.local.bulk_import import BulkImporter, ImportReport, ImportRequest, open_importer
from weft.local.open import OpenOptions, open_directory
from weft.maintenance.verify import verify_store
from weft.model.diff import FileDiff
from weft.model.ids import MessageID, SessionID
from weft.model.move import MOVE_FORMAT, MoveOffer
from weft.model.session import Todo
from weft.model.transfer import SessionExport
from weft.store.contract import Store
from weft.store.maintenance import open_maintenance
from weft.store.url import open_store
from weft.transfer.bundle import write_bundle
from weft.transfer.document import to_document
from weft.transfer.rebind import Rebind
from weft.transfer.session_import import pack_session


def ignore_progress(done: int, of: int) -> None:
    """Ignore progress."""


class Machine:
    """A home with its own store, and a project without a repository."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.project = root / "project"
        self.project.mkdir(parents=True)
        self.storage = root / "storage"

    @asynccontextmanager
    async def open_importer_here(self) -> AsyncIterator[BulkImporter]:
        async with open_importer(str(self.project), os.environ, store=f"file:{self.storage}") as mover:
            yield mover

    async def import_file(self, path: Path, **more: object) -> ImportReport:
        async with self.open_importer_here() as mover:
            return await mover.run(ImportRequest(path=str(path), **more), ignore_progress)  # type: ignore[arg-type]

    async def import_export(self, given: SessionExport, tmp: Path, **more: object) -> ImportReport:
        path = tmp / "given.json"
        path.write_bytes(to_document(given))
        return await self.import_file(path, **more)

    @asynccontextmanager
    async def store(self) -> AsyncIterator[Store]:
        async with open_store(f"file:{self.storage}") as store:
            yield store

    async def export(self, id: SessionID) -> SessionExport:
        async with self.store() as store:
            return await pack_session(store, id)

    def files(self) -> dict[str, bytes]:
        shelves = ("session", "message", "part", "todo", "session_diff")
        return {
            str(path.relative_to(self.storage)): path.read_bytes()
            for shelf in shelves
            for path in sorted((self.storage / shelf).rglob("*.json"))
        }


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "here")


@pytest.fixture
def other_machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "there")


def get_verdict(report: ImportReport) -> tuple[str, str]:
    [received] = report.received
    assert report.troubles == ()
    return received.verdict, received.id


def with_another_turn(given: SessionExport, turn: int, base: int) -> SessionExport:
    """Return the session with one more turn."""
    messages = (*given.messages, *turn_of(given.info.id, base, turn, given.info.directory))
    time = replace(given.info.time, updated=AT + turn)
    return replace(given, info=replace(given.info, time=time), messages=messages)


async def test_a_session_from_a_missing_directory_is_bound_to_this_one(
    machine: Machine, tmp_path: Path
) -> None:
    assert get_verdict(await machine.import_export(export(), tmp_path)) == ("new", session_id())
    mine = await machine.export(session_id())
    assert (mine.info.directory, mine.info.project_id) == (str(machine.project), "global")
    assert list_texts(mine.messages) == list_texts(export().messages)
    assert b"/there/project/a.py" in to_document(mine)  # what a tool answered stays as it was
    assert f'"filePath": "{machine.project}/a.py"'.encode() in to_document(mine)


async def test_an_existing_directory_is_kept_and_a_rebind_is_respected(
    machine: Machine, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    await machine.import_export(export(1, directory=str(other)), tmp_path)
    await machine.import_export(export(2), tmp_path, rebinds=(Rebind("/there/project", str(other)),))
    for number in (1, 2):
        assert (await machine.export(session_id(number))).info.directory == str(other)


async def test_importing_twice_equals_importing_once(machine: Machine, tmp_path: Path) -> None:
    await machine.import_export(export(), tmp_path)
    before = machine.files()
    assert get_verdict(await machine.import_export(export(), tmp_path)) == ("same", session_id())
    assert machine.files() == before


async def test_a_continued_session_is_updated_and_an_unchanged_one_is_not(
    machine: Machine, tmp_path: Path
) -> None:
    await machine.import_export(export(turns=1), tmp_path)
    assert get_verdict(await machine.import_export(export(turns=3), tmp_path)) == ("updated", session_id())
    before = machine.files()
    assert list_texts((await machine.export(session_id())).messages) == list_texts(export(turns=3).messages)
    assert get_verdict(await machine.import_export(export(turns=2), tmp_path)) == ("older", session_id())
    assert machine.files() == before


async def test_a_session_that_is_unreadable_here_is_not_overwritten(machine: Machine, tmp_path: Path) -> None:
    await machine.import_export(export(), tmp_path)
    [document] = (machine.storage / "session").rglob("*.json")
    document.write_bytes(b"{half")
    with pytest.raises(DocumentError, match="it is here already, and cannot be read"):
        await machine.import_export(export(turns=3), tmp_path)
    assert document.read_bytes() == b"{half"


async def test_a_move_is_refused_if_its_session_is_unreadable_here(machine: Machine, tmp_path: Path) -> None:
    await machine.import_export(export(), tmp_path)
    [document] = (machine.storage / "session").rglob("*.json")
    document.write_bytes(b"{half")
    offer = MoveOffer(
        move="mov_1",
        format=MOVE_FORMAT,
        session=session_id(),
        sessions=(session_id(),),
        host="loom",
        directory="/there/project",
        commit="0" * 40,
        size=1,
        sha256="0" * 64,
    )
    async with open_directory(
        OpenOptions(directory=str(machine.project), store=f"file:{machine.storage}")
    ) as api:
        with pytest.raises(UnreadableError):
            await api.moves.offer(offer)
    assert document.read_bytes() == b"{half"


async def test_a_round_trip_keeps_everything(
    machine: Machine, other_machine: Machine, tmp_path: Path
) -> None:
    todo = Todo(content="Mend it", status="pending", priority="high")
    diff = FileDiff(file="a.py", before="a\n", after="b\n", additions=1, deletions=1)
    bundle = tmp_path / "b.zip"
    with bundle.open("wb") as file:
        write_bundle(file, [export(todos=(todo,), diff=(diff,))])
    await machine.import_file(bundle)
    mine = await machine.export(session_id())

    with bundle.open("wb") as file:
        write_bundle(file, [mine])
    await other_machine.import_file(bundle)
    theirs = await other_machine.export(session_id())
    assert theirs.info.directory == str(machine.project)  # both are one machine here, so it is there
    later = with_another_turn(theirs, 5, 900)
    assert get_verdict(await machine.import_export(later, tmp_path)) == ("updated", session_id())
    home = await machine.export(session_id())
    assert list_texts(home.messages) == [*list_texts(mine.messages), "prompt 5", "answer 5"]
    assert (home.todos, home.diff, home.info.directory) == ((todo,), (diff,), mine.info.directory)


async def test_if_both_sides_continued_both_are_kept(machine: Machine, tmp_path: Path) -> None:
    await machine.import_export(with_another_turn(export(), 3, 300), tmp_path)
    mine = await machine.export(session_id())
    other = with_another_turn(export(), 4, 400)
    verdict, copy = get_verdict(await machine.import_export(other, tmp_path))
    assert verdict == "forked"
    assert await machine.export(session_id()) == mine
    theirs = await machine.export(SessionID(copy))
    assert list_texts(theirs.messages) == list_texts(other.messages)
    assert theirs.info.title == "A session (imported)"
    assert theirs.info.weft is not None
    assert theirs.info.weft.forked_from is not None
    assert theirs.info.weft.forked_from.session_id == session_id()
    ids = {message.info.id for message in mine.messages}
    assert ids.isdisjoint(message.info.id for message in theirs.messages)

    # Importing again changes nothing, and later messages continue the copy.
    before = machine.files()
    assert get_verdict(await machine.import_export(other, tmp_path)) == ("same", copy)
    assert machine.files() == before
    assert get_verdict(await machine.import_export(with_another_turn(other, 6, 600), tmp_path)) == (
        "updated",
        copy,
    )
    # A third version becomes a second copy.
    verdict, second = get_verdict(await machine.import_export(with_another_turn(export(), 7, 700), tmp_path))
    assert (verdict, second in (copy, session_id())) == ("forked", False)


async def test_a_copy_beside_its_original_is_sound(machine: Machine, tmp_path: Path) -> None:
    """It has the answers that both sides have, and counts the cost of none of them."""
    await machine.import_export(with_another_turn(export(), 3, 300), tmp_path)
    other = with_another_turn(with_another_turn(export(), 4, 400), 5, 500)
    verdict, _ = get_verdict(await machine.import_export(other, tmp_path))
    assert verdict == "forked"
    checked = verify_store(open_maintenance(f"file:{machine.storage}"), now=AT + 10**12)
    assert [proof for proof in checked.proofs if proof.verdict != "intact"] == []


async def test_a_dry_run_reports_what_would_happen_and_writes_nothing(
    machine: Machine, tmp_path: Path
) -> None:
    assert get_verdict(await machine.import_export(export(), tmp_path, dry_run=True)) == ("new", session_id())
    assert machine.files() == {}


async def test_a_message_of_another_session_is_not_overwritten(machine: Machine, tmp_path: Path) -> None:
    await machine.import_export(export(), tmp_path)
    before = machine.files()
    stolen = replace(export(), info=replace(export().info, id=session_id(2)))
    with pytest.raises(DocumentError, match=f"belongs to session {session_id()} here"):
        await machine.import_export(with_text(stolen, "mine now"), tmp_path)
    assert machine.files() == before


@pytest.mark.parametrize(
    "id", ["ses_../../../../etc/passwd", "../x", "", "ses_", "/etc/passwd", "ses_" + "x" * 500, "ses_a\0b"]
)
async def test_an_id_with_a_wrong_format_is_refused(machine: Machine, tmp_path: Path, id: str) -> None:
    with pytest.raises(InvalidIdError):
        await machine.import_export(
            replace(export(), info=replace(export().info, id=SessionID(id))), tmp_path
        )
    assert machine.files() == {}


async def test_a_message_or_part_id_that_is_a_path_is_refused(machine: Machine, tmp_path: Path) -> None:
    document = to_document(export()).decode()
    path = tmp_path / "evil.json"
    for id in (export().messages[0].info.id, export().messages[0].parts[0].id):
        path.write_text(document.replace(f'"id": "{id}"', '"id": "../../../evil"'))
        with pytest.raises(InvalidIdError):
            await machine.import_file(path)
    assert machine.files() == {}


@pytest.mark.parametrize(
    ("raw", "error_message"),
    [
        (b"", "not JSON"),
        (b"hello", "not JSON"),
        (b"[]", 'it has no "info" and "messages"'),
        (b'{"name": "package", "version": "1"}', 'it has no "info" and "messages"'),
        (b'{"type": "user", "sessionId": "x", "message": {}}', "--from claude"),
        (b'{"info": {"id": "ses_x"}, "messages": []}', "time"),
        (b'{"info": 1, "messages": []}', "not an exported session"),
    ],
)
async def test_a_file_that_is_not_a_session_is_refused_by_name(
    machine: Machine, tmp_path: Path, raw: bytes, error_message: str
) -> None:
    path = tmp_path / "given.json"
    path.write_bytes(raw)
    with pytest.raises(DocumentError, match=error_message) as caught:
        await machine.import_file(path)
    assert str(path) in str(caught.value)
    assert machine.files() == {}


async def test_a_truncated_export_is_refused(machine: Machine, tmp_path: Path) -> None:
    raw, path = to_document(export()), tmp_path / "cut.json"
    for length in range(0, len(raw) - 2, 97):
        path.write_bytes(raw[:length])
        with pytest.raises(DocumentError):
            await machine.import_file(path)
    assert machine.files() == {}


async def test_a_duplicate_message_is_refused(machine: Machine, tmp_path: Path) -> None:
    twice = replace(export(), messages=(*export().messages, export().messages[0]))
    with pytest.raises(DocumentError, match="is in it twice"):
        await machine.import_export(twice, tmp_path)


async def test_a_bad_bundle_writes_nothing_of_its_good_sessions(machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "b.zip"
    with path.open("wb") as file:
        write_bundle(file, [export(1), export(2)])
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2])
    with pytest.raises(BundleError):
        await machine.import_file(path)
    assert machine.files() == {}


async def test_children_stay_with_their_parent_even_if_it_becomes_a_copy(
    machine: Machine, tmp_path: Path
) -> None:
    await machine.import_export(with_another_turn(export(1), 3, 300), tmp_path)
    child = export(2)
    child = replace(child, info=replace(child.info, parent_id=session_id(1)))
    path = tmp_path / "b.zip"
    with path.open("wb") as file:
        write_bundle(file, [with_another_turn(export(1), 4, 400), child])
    parent, kept = (await machine.import_file(path)).received
    assert (parent.verdict, kept.verdict) == ("forked", "new")
    assert (await machine.export(session_id(2))).info.parent_id == parent.id


async def test_unknown_fields_of_a_document_are_imported(machine: Machine, tmp_path: Path) -> None:
    plain = json.loads(to_document(export()))
    plain["info"]["novel"] = {"deep": [1, 2.5]}
    plain["messages"][0]["parts"][0]["novel"] = "x"
    plain["messages"][0]["parts"].append(
        {
            "id": id_of("prt", 10_009),
            "sessionID": session_id(),
            "messageID": MessageID(plain["messages"][0]["info"]["id"]),
            "type": "novelty",
            "with": "words",
        }
    )
    path = tmp_path / "given.json"
    path.write_text(json.dumps(plain))
    await machine.import_file(path)
    again = json.loads(to_document(await machine.export(session_id())))
    assert again["info"]["novel"] == plain["info"]["novel"]
    assert again["messages"][0]["parts"] == plain["messages"][0]["parts"]

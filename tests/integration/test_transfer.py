"""Sessions imported between real stores: new, continued, diverged, and back again."""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from given.session_exports import AT, export, id_of, session_id, turn_of, with_text, words
from weft.errors import BundleError, DocumentError, InvalidIdError
from weft.local.imports import BulkImporter, ImportReport, ImportRequest, open_importer
from weft.model.diff import FileDiff
from weft.model.ids import MessageID, SessionID
from weft.model.session import Todo
from weft.model.transfer import SessionExport
from weft.store.contract import Store
from weft.store.url import open_store
from weft.transfer.bundle import write_bundle
from weft.transfer.document import to_document
from weft.transfer.rebind import Rebind
from weft.transfer.session_import import pack_session


def nobody(done: int, of: int) -> None:
    """Ignore progress."""


class Machine:
    """A home with its own store, and a project without a repository."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.project = root / "project"
        self.project.mkdir(parents=True)
        self.storage = root / "storage"

    @asynccontextmanager
    async def mover(self) -> AsyncIterator[BulkImporter]:
        async with open_importer(str(self.project), os.environ, store=f"file:{self.storage}") as mover:
            yield mover

    async def bring(self, path: Path, **more: object) -> ImportReport:
        async with self.mover() as mover:
            return await mover.run(ImportRequest(path=str(path), **more), nobody)  # type: ignore[arg-type]

    async def take(self, given: SessionExport, tmp: Path, **more: object) -> ImportReport:
        path = tmp / "given.json"
        path.write_bytes(to_document(given))
        return await self.bring(path, **more)

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
def here(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "here")


@pytest.fixture
def there(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "there")


def one(report: ImportReport) -> tuple[str, str]:
    [received] = report.received
    assert report.troubles == ()
    return received.verdict, received.id


def with_another_turn(given: SessionExport, turn: int, base: int) -> SessionExport:
    """Return the session with one more turn."""
    messages = (*given.messages, *turn_of(given.info.id, base, turn, given.info.directory))
    time = replace(given.info.time, updated=AT + turn)
    return replace(given, info=replace(given.info, time=time), messages=messages)


async def test_a_session_from_a_directory_that_is_not_here_comes_to_live_here(
    here: Machine, tmp_path: Path
) -> None:
    assert one(await here.take(export(), tmp_path)) == ("new", session_id())
    mine = await here.export(session_id())
    assert (mine.info.directory, mine.info.project_id) == (str(here.project), "global")
    assert words(mine.messages) == words(export().messages)
    assert b"/there/project/a.py" in to_document(mine)  # what a tool answered stays as it was
    assert f'"filePath": "{here.project}/a.py"'.encode() in to_document(mine)


async def test_a_directory_that_is_here_is_kept_and_a_rebind_is_obeyed(here: Machine, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    await here.take(export(1, directory=str(other)), tmp_path)
    await here.take(export(2), tmp_path, rebinds=(Rebind("/there/project", str(other)),))
    for number in (1, 2):
        assert (await here.export(session_id(number))).info.directory == str(other)


async def test_imported_twice_is_imported_once(here: Machine, tmp_path: Path) -> None:
    await here.take(export(), tmp_path)
    before = here.files()
    assert one(await here.take(export(), tmp_path)) == ("same", session_id())
    assert here.files() == before


async def test_what_has_gone_on_is_added_and_what_has_not_changes_nothing(
    here: Machine, tmp_path: Path
) -> None:
    await here.take(export(turns=1), tmp_path)
    assert one(await here.take(export(turns=3), tmp_path)) == ("updated", session_id())
    before = here.files()
    assert words((await here.export(session_id())).messages) == words(export(turns=3).messages)
    assert one(await here.take(export(turns=2), tmp_path)) == ("older", session_id())
    assert here.files() == before


async def test_a_round_trip_brings_everything_home(here: Machine, there: Machine, tmp_path: Path) -> None:
    todo = Todo(content="Mend it", status="pending", priority="high")
    diff = FileDiff(file="a.py", before="a\n", after="b\n", additions=1, deletions=1)
    bundle = tmp_path / "b.zip"
    with bundle.open("wb") as file:
        write_bundle(file, [export(todos=(todo,), diff=(diff,))])
    await here.bring(bundle)
    mine = await here.export(session_id())

    with bundle.open("wb") as file:
        write_bundle(file, [mine])
    await there.bring(bundle)
    theirs = await there.export(session_id())
    assert theirs.info.directory == str(here.project)  # both are one machine here, so it is there
    later = with_another_turn(theirs, 5, 900)
    assert one(await here.take(later, tmp_path)) == ("updated", session_id())
    home = await here.export(session_id())
    assert words(home.messages) == [*words(mine.messages), "prompt 5", "answer 5"]
    assert (home.todos, home.diff, home.info.directory) == ((todo,), (diff,), mine.info.directory)


async def test_when_both_have_gone_on_both_are_kept(here: Machine, tmp_path: Path) -> None:
    await here.take(with_another_turn(export(), 3, 300), tmp_path)
    mine = await here.export(session_id())
    other = with_another_turn(export(), 4, 400)
    verdict, copy = one(await here.take(other, tmp_path))
    assert verdict == "forked"
    assert await here.export(session_id()) == mine
    theirs = await here.export(SessionID(copy))
    assert words(theirs.messages) == words(other.messages)
    assert theirs.info.title == "A session (imported)"
    assert theirs.info.weft is not None
    assert theirs.info.weft.forked_from is not None
    assert theirs.info.weft.forked_from.session_id == session_id()
    ids = {message.info.id for message in mine.messages}
    assert ids.isdisjoint(message.info.id for message in theirs.messages)

    # Once more changes nothing, and what went on there goes on in the copy.
    before = here.files()
    assert one(await here.take(other, tmp_path)) == ("same", copy)
    assert here.files() == before
    assert one(await here.take(with_another_turn(other, 6, 600), tmp_path)) == ("updated", copy)
    # A third way is a second copy.
    verdict, second = one(await here.take(with_another_turn(export(), 7, 700), tmp_path))
    assert (verdict, second in (copy, session_id())) == ("forked", False)


async def test_a_dry_run_says_what_would_be_and_writes_nothing(here: Machine, tmp_path: Path) -> None:
    assert one(await here.take(export(), tmp_path, dry_run=True)) == ("new", session_id())
    assert here.files() == {}


async def test_a_message_of_another_session_is_not_overwritten(here: Machine, tmp_path: Path) -> None:
    await here.take(export(), tmp_path)
    before = here.files()
    stolen = replace(export(), info=replace(export().info, id=session_id(2)))
    with pytest.raises(DocumentError, match=f"belongs to session {session_id()} here"):
        await here.take(with_text(stolen, "mine now"), tmp_path)
    assert here.files() == before


@pytest.mark.parametrize(
    "id", ["ses_../../../../etc/passwd", "../x", "", "ses_", "/etc/passwd", "ses_" + "x" * 500, "ses_a\0b"]
)
async def test_an_id_with_a_wrong_format_is_refused(here: Machine, tmp_path: Path, id: str) -> None:
    with pytest.raises(InvalidIdError):
        await here.take(replace(export(), info=replace(export().info, id=SessionID(id))), tmp_path)
    assert here.files() == {}


async def test_an_id_of_a_message_or_part_that_leads_elsewhere_is_refused(
    here: Machine, tmp_path: Path
) -> None:
    document = to_document(export()).decode()
    path = tmp_path / "evil.json"
    for id in (export().messages[0].info.id, export().messages[0].parts[0].id):
        path.write_text(document.replace(f'"id": "{id}"', '"id": "../../../evil"'))
        with pytest.raises(InvalidIdError):
            await here.bring(path)
    assert here.files() == {}


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
async def test_a_file_that_is_no_session_is_refused_by_name(
    here: Machine, tmp_path: Path, raw: bytes, error_message: str
) -> None:
    path = tmp_path / "given.json"
    path.write_bytes(raw)
    with pytest.raises(DocumentError, match=error_message) as caught:
        await here.bring(path)
    assert str(path) in str(caught.value)
    assert here.files() == {}


async def test_an_export_cut_short_is_refused_wherever_it_is_cut(here: Machine, tmp_path: Path) -> None:
    raw, path = to_document(export()), tmp_path / "cut.json"
    for length in range(0, len(raw) - 2, 97):
        path.write_bytes(raw[:length])
        with pytest.raises(DocumentError):
            await here.bring(path)
    assert here.files() == {}


async def test_a_message_that_comes_twice_is_refused(here: Machine, tmp_path: Path) -> None:
    twice = replace(export(), messages=(*export().messages, export().messages[0]))
    with pytest.raises(DocumentError, match="is in it twice"):
        await here.take(twice, tmp_path)


async def test_a_bad_bundle_writes_nothing_of_its_good_sessions(here: Machine, tmp_path: Path) -> None:
    path = tmp_path / "b.zip"
    with path.open("wb") as file:
        write_bundle(file, [export(1), export(2)])
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2])
    with pytest.raises(BundleError):
        await here.bring(path)
    assert here.files() == {}


async def test_children_stay_with_their_parent_also_when_it_becomes_a_copy(
    here: Machine, tmp_path: Path
) -> None:
    await here.take(with_another_turn(export(1), 3, 300), tmp_path)
    child = export(2)
    child = replace(child, info=replace(child.info, parent_id=session_id(1)))
    path = tmp_path / "b.zip"
    with path.open("wb") as file:
        write_bundle(file, [with_another_turn(export(1), 4, 400), child])
    parent, kept = (await here.bring(path)).received
    assert (parent.verdict, kept.verdict) == ("forked", "new")
    assert (await here.export(session_id(2))).info.parent_id == parent.id


async def test_what_a_document_carries_that_we_do_not_know_comes_along(here: Machine, tmp_path: Path) -> None:
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
    await here.bring(path)
    again = json.loads(to_document(await here.export(session_id())))
    assert again["info"]["novel"] == plain["info"]["novel"]
    assert again["messages"][0]["parts"] == plain["messages"][0]["parts"]

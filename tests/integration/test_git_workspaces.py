"""Git workspaces with real git: checkouts, the files that nodes store for each other, and what goes wrong.

Each node has a root of its own here, as on a machine of its own.
"""

import os
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from given.engine import open_engine, text_prompt
from given.http_server import make_project
from given.machines import read_files
from weft.bus import Bus
from weft.cluster.git_workspace import KEEP_MS, TIDY_MS, Workspaces, list_clones
from weft.cluster.git_workspace_files import WorkspaceFiles, find_stored
from weft.cluster.git_workspace_pack import MAX_PACK_BYTES, MAX_PIECES, StoredFiles, make_key
from weft.errors import (
    BundleError,
    ConflictError,
    DirectoryError,
    InvalidInputError,
    LeaseLostError,
    NotFoundError,
    SessionBusyError,
)
from weft.host.now import now
from weft.journal import Journal, open_journal
from weft.local.undo import UndoSettings, open_undo_snapshots
from weft.model.event import SessionCreated, SessionDeleted, SessionWarned
from weft.model.ids import Mint, ProjectID, SessionID
from weft.model.input import SessionInput
from weft.model.part import TextPart
from weft.model.principal import Principal
from weft.model.project import Place, Project, ProjectTime
from weft.model.session import SessionInfo, SessionTime, WeftSessionData, get_weft_data, with_weft_data
from weft.model.wire import to_plain
from weft.provider.scripted import Say
from weft.store.memory import MemoryStore
from weft.store.ownership import OwnedStore
from weft.testing.clock import HandClock
from weft.undo.changes import ChangeTotals
from weft.undo.context import UndoContext
from weft.worktree.clone import check_repository

SESSION = SessionID("ses_1")
COMMIT = ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qam", "mine")


def git(directory: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=directory, check=True, capture_output=True, text=True)
    return done.stdout.strip()


class NodeMachine:
    """A node on a machine of its own, without a server."""

    def __init__(self, tmp_path: Path, name: str, store: MemoryStore, repository: Path | str) -> None:
        self.home = tmp_path / name
        self.name = name
        self.store = store
        self.clock = HandClock(now())
        self.notes: list[str] = []
        self.workspaces = Workspaces(
            list_clones([f"loom={repository}"], str(self.home / "root"), os.environ),
            store,
            self.clock,
            node=name,
            snapshots=str(self.home / "snapshots"),
            note=self.notes.append,
        )
        self.directory = self.home / "root" / "loom" / SESSION

    def locate(self, directory: str) -> Path:
        """Return the path of a checkout on this node: every node has its own root."""
        return self.directory.parent / os.path.basename(directory)

    @asynccontextmanager
    async def hold(self, session: SessionInfo) -> AsyncIterator[tuple[WorkspaceFiles, Journal]]:
        """Hold the lease of a session, with its files taken over. What changed is stored at the end."""
        directory = str(self.locate(session.directory))
        place = Place(
            project=Project(id=ProjectID("p"), worktree=directory, vcs="git", time=ProjectTime(created=1)),
            directory=directory,
            worktree=directory,
        )
        await self.workspaces.prepare(directory)
        bus = Bus()
        bus.watch(
            lambda event: self.notes.append(event.message) if isinstance(event, SessionWarned) else None
        )
        settings = UndoSettings(base=str(self.home / "snapshots"), environ=os.environ)
        async with (
            open_journal(self.store, bus, self.clock, directory=directory) as journal,
            open_undo_snapshots(settings, place) as snapshots,
            journal.lease(session.id, self.name),
        ):
            undo_context = UndoContext(
                store=self.store,
                journal=journal,
                clock=self.clock,
                mint=Mint(self.clock.now, os.urandom),
                snapshots=snapshots,
                totals=ChangeTotals(snapshots, directory),
            )
            files = self.workspaces.make_carrier(directory)(undo_context)
            assert isinstance(files, WorkspaceFiles)
            await files.take_over(session)
            yield files, journal
            await files.store(session, [])


async def create(node: NodeMachine) -> SessionInfo:
    directory = await node.workspaces.begin("loom", SESSION)
    session = SessionInfo(
        id=SESSION,
        directory=directory,
        time=SessionTime(created=1, updated=1),
        weft=WeftSessionData(workspace="loom"),
    )
    await node.store.apply(SessionCreated(info=session))
    return session


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_project(tmp_path / "repository")


@pytest.fixture
def nodes(tmp_path: Path, repository: Path) -> tuple[NodeMachine, NodeMachine]:
    store = MemoryStore()
    return NodeMachine(tmp_path, "a", store, repository), NodeMachine(tmp_path, "b", store, repository)


async def change(node: NodeMachine, session: SessionInfo, work: Callable[[Path], object]) -> None:
    async with node.hold(session):
        work(node.locate(session.directory))


def write(name: str, text: str) -> Callable[[Path], object]:
    return lambda directory: (directory / name).write_text(text)


async def get_stored(node: NodeMachine) -> StoredFiles:
    stored = await find_stored(node.store, make_key(SESSION))
    assert stored is not None
    return stored


async def test_files_move_to_another_node_and_back_and_changes_of_a_person_are_kept(
    nodes: tuple[NodeMachine, NodeMachine],
) -> None:
    a, b = nodes
    session = await create(a)
    (a.directory / "secret").touch(mode=0o600)
    await change(a, session, write("secret", "s"))
    await change(b, session, write("hello.txt", "from b\n"))
    assert read_files(b.directory) == {**read_files(a.directory), "hello.txt": ("0o644", b"from b\n")}
    assert read_files(b.directory)["secret"] == ("0o600", b"s")
    # No other node took over since, so the person's changes on the node now belong to the session.
    write("mine.txt", "mine\n")(b.directory)
    await change(b, session, write("hello.txt", "from b again\n"))
    # The other node has lost nothing but a person's file, which is set aside.
    write("left.txt", "left here\n")(a.directory)
    await change(a, session, lambda _: None)
    assert read_files(a.directory) == read_files(b.directory)
    assert (a.directory / "mine.txt").read_text() == "mine\n"
    (aside,) = {note.split()[-1] for note in a.notes if "set aside" in note}
    assert git(a.directory, "show", f"{aside}:left.txt") == "left here"
    assert b.notes == []
    # Nothing changed, so nothing is stored.
    before = await get_stored(a)
    await change(a, session, lambda _: None)
    assert await get_stored(a) == before


async def test_an_ignored_file_in_the_way_of_an_arriving_one_is_set_aside(
    nodes: tuple[NodeMachine, NodeMachine],
) -> None:
    a, b = nodes
    session = await create(a)
    await change(b, session, write("ignored", "installed on b\n"))
    await change(a, session, write(".gitignore", ""))
    await change(a, session, write("ignored", "from a\n"))
    await change(b, session, lambda _: None)
    assert read_files(a.directory) == read_files(b.directory)
    (aside,) = {note.split()[-1] for note in b.notes}
    assert git(b.directory, "show", f"{aside}:ignored") == "installed on b"


async def test_a_nested_repository_is_left_alone_and_named(nodes: tuple[NodeMachine, NodeMachine]) -> None:
    a, b = nodes
    session = await create(a)
    await change(a, session, lambda directory: make_project(directory / "nested"))
    assert a.notes == [
        "repositories inside of the checkout stay on a: nested",
        f"session {SESSION}: {a.notes[0]}",
    ]
    await change(b, session, write("hello.txt", "from b\n"))
    await change(a, session, lambda _: None)
    assert (a.directory / "nested" / "hello.txt").exists()
    assert not (b.directory / "nested").exists()


async def test_many_pieces_are_merged_and_old_ones_dropped(
    nodes: tuple[NodeMachine, NodeMachine],
) -> None:
    a, b = nodes
    session = await create(a)
    await change(a, session, write("hello.txt", "one\n"))
    stored = await get_stored(a)
    (piece,) = stored.pieces
    copies = tuple(replace(piece, name=f"copy{number}") for number in range(MAX_PIECES))
    for copy in copies:
        await a.store.put_value(
            (*make_key(SESSION), copy.name), await a.store.find_value((*make_key(SESSION), piece.name))
        )
    await a.store.put_value(make_key(SESSION), to_plain(replace(stored, pieces=copies)))
    await change(a, session, write("hello.txt", "two\n"))
    (piece,) = (await get_stored(a)).pieces
    assert await a.store.list_keys(make_key(SESSION)) == [make_key(SESSION), (*make_key(SESSION), piece.name)]
    await change(b, session, lambda _: None)
    assert (b.directory / "hello.txt").read_text() == "two\n"


async def test_a_damaged_or_missing_piece_changes_nothing_and_names_the_node_with_the_files(
    nodes: tuple[NodeMachine, NodeMachine],
) -> None:
    a, b = nodes
    session = await create(a)
    await change(a, session, write("hello.txt", "changed\n"))
    stored = await get_stored(a)
    key = (*make_key(SESSION), stored.pieces[0].name)
    for damaged, reason in (({"data": "AAAA"}, "damaged"), (None, "missing")):
        await a.store.put_value(key, damaged)
        with pytest.raises(BundleError, match=reason) as raised:
            await change(b, session, lambda _: None)
        assert "node a" in raised.value.hint
        assert (b.directory / "hello.txt").read_text() == "hello there\n"
    assert await get_stored(a) == stored


async def test_work_that_is_too_large_is_refused_and_kept(nodes: tuple[NodeMachine, NodeMachine]) -> None:
    a, _ = nodes
    session = await create(a)
    stored = await get_stored(a)

    def make_large(directory: Path) -> None:
        with (directory / "large").open("wb") as file:
            file.truncate(MAX_PACK_BYTES + 1)

    with pytest.raises(ConflictError, match="at most 128 MB"):
        await change(a, session, make_large)
    assert await get_stored(a) == stored
    (a.directory / "large").unlink()
    await change(a, session, write("hello.txt", "small\n"))
    assert await get_stored(a) != stored


async def test_files_are_stored_only_under_the_lease(nodes: tuple[NodeMachine, NodeMachine]) -> None:
    a, _ = nodes
    session = await create(a)
    async with a.hold(session) as (files, journal):
        held = files
    write("hello.txt", "too late\n")(a.directory)
    stored = await get_stored(a)
    await held.store(session, [])
    assert await get_stored(a) == stored
    with pytest.raises(LeaseLostError):
        await journal.put_value(SESSION, make_key(SESSION), None)


async def test_a_checkout_is_used_by_one_session(nodes: tuple[NodeMachine, NodeMachine]) -> None:
    a, _ = nodes
    session = await create(a)
    other = replace(session, id=SessionID("ses_2"))
    await a.store.apply(SessionCreated(info=other))
    with pytest.raises(ConflictError, match="is in the checkout of session ses_1"):
        await change(a, other, lambda _: None)


async def test_a_repository_that_cannot_be_reached_leaves_nothing_behind(tmp_path: Path) -> None:
    node = NodeMachine(tmp_path, "a", MemoryStore(), tmp_path / "nowhere")
    with pytest.raises(ConflictError, match="workspace 'loom' cannot be fetched") as raised:
        await create(node)
    assert "git ls-remote" in raised.value.hint
    assert str(tmp_path / "nowhere") not in str(raised.value)
    assert not node.directory.exists()
    assert await node.store.list_keys() == []
    with pytest.raises(NotFoundError, match="no workspace 'other'") as unknown:
        await node.workspaces.begin("other", SESSION)
    assert unknown.value.hint == "this node has loom"


async def test_without_git_the_error_says_so(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = NodeMachine(tmp_path, "a", MemoryStore(), repository)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConflictError, match="needs git") as raised:
        await create(node)
    assert "install git" in raised.value.hint


async def test_a_missing_commit_is_named_with_a_hint(
    nodes: tuple[NodeMachine, NodeMachine], repository: Path
) -> None:
    a, b = nodes
    (repository / "hello.txt").write_text("soon rewritten\n")
    git(repository, "commit", "-qam", "two")
    session = await create(a)
    commit = git(repository, "rev-parse", "HEAD")
    git(repository, "reset", "-q", "--hard", "HEAD~")
    git(repository, "reflog", "expire", "--expire=now", "--all")
    git(repository, "gc", "-q", "--prune=now")
    with pytest.raises(ConflictError, match=f"no longer has the commit {commit[:12]}") as raised:
        await change(b, session, lambda _: None)
    assert "push it" in raised.value.hint
    assert not b.directory.exists()
    git(a.directory, "push", "-q", str(repository), f"{commit}:refs/heads/again")
    await change(b, session, lambda _: None)
    assert read_files(b.directory) == read_files(a.directory)


async def test_no_program_of_a_session_or_repository_runs_and_no_path_is_redirected(
    nodes: tuple[NodeMachine, NodeMachine], repository: Path, tmp_path: Path
) -> None:
    a, _ = nodes
    mark = tmp_path / "ran"
    (repository / ".gitattributes").write_text("*.txt filter=evil\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "attributes")
    session = await create(a)
    base = a.home / "root" / "loom" / "base" / ".git"
    hooks = base / "hooks"
    hooks.mkdir()
    for hook in ("post-checkout", "reference-transaction", "post-index-change"):
        (hooks / hook).write_text(f"#!/bin/sh\ntouch {mark}\n")
        (hooks / hook).chmod(0o755)
    settings = {
        "filter.evil.clean": f"touch {mark}; cat",
        "filter.evil.smudge": f"touch {mark}; cat",
        "core.sshCommand": f"touch {mark}",
        "core.fsmonitor": f"touch {mark}",
        f"url.ext::touch {mark}.insteadOf": str(repository),
        "user.name": "Ada",
    }
    for key, value in settings.items():
        git(base, "config", key, value)
    await change(a, session, write("hello.txt", "changed\n"))
    await a.workspaces.begin("loom", SessionID("ses_2"))
    assert not mark.exists()
    assert git(base, "config", "user.name") == "Ada"


async def test_a_removed_session_removes_its_checkouts_and_stored_files(
    nodes: tuple[NodeMachine, NodeMachine],
) -> None:
    a, b = nodes
    session = await create(a)
    await change(b, session, write("hello.txt", "from b\n"))
    write("late.txt", "late\n")(a.directory)
    await a.store.apply(SessionDeleted(info=session))
    await b.workspaces.remove([replace(session, directory=str(b.directory))], trash=True)
    assert not b.directory.exists()
    assert (await get_stored(a)).host == "b"
    for node in nodes:  # too early: a session may be about to be created
        await node.workspaces.tidy()
    assert a.directory.exists()
    a.clock.turn(KEEP_MS + TIDY_MS)
    await a.workspaces.tidy()
    assert not a.directory.exists()
    assert await a.store.list_keys() == []
    (note,) = a.notes
    assert git(a.home / "root" / "loom" / "base", "show", f"{note.split()[-1]}:late.txt") == "late"
    with pytest.raises(DirectoryError, match="no session with this checkout"):
        await a.workspaces.prepare(str(a.directory))


FORK = SessionID("ses_2")


async def test_a_fork_has_the_files_that_were_stored_last_in_a_checkout_of_its_own(
    nodes: tuple[NodeMachine, NodeMachine],
) -> None:
    a, b = nodes
    session = await create(a)
    await change(a, session, write("hello.txt", "from a\n"))
    await change(a, session, lambda directory: git(directory, *COMMIT))
    await change(a, session, write("new.txt", "not committed\n"))
    write("late.txt", "not stored\n")(a.directory)
    old, new = await b.workspaces.copy(str(b.directory), FORK)
    assert (old, new) == (str(b.directory), str(b.locate(FORK)))
    fork = replace(session, id=FORK, directory=new)
    await b.store.apply(SessionCreated(info=fork))
    # The original may be removed, and another node may continue the fork.
    await a.workspaces.remove([session], trash=False)
    for node in (a, b):
        await change(node, fork, lambda _: None)
    assert (b.locate(FORK) / "new.txt").read_text() == "not committed\n"
    assert (b.locate(FORK) / "hello.txt").read_text() == "from a\n"
    assert not (b.locate(FORK) / "late.txt").exists()
    assert git(b.locate(FORK), "log", "-1", "--format=%s") == "mine"
    assert get_weft_data(await a.store.get_session(FORK)).resumed is None


async def test_a_fork_of_files_that_are_missing_in_the_store_is_refused(
    nodes: tuple[NodeMachine, NodeMachine],
) -> None:
    a, b = nodes
    session = await create(a)
    await change(a, session, write("hello.txt", "changed\n"))
    stored = await get_stored(a)
    await a.store.put_value((*make_key(SESSION), stored.pieces[0].name), None)
    with pytest.raises(BundleError, match="missing") as raised:
        await b.workspaces.copy(str(b.directory), FORK)
    assert "node a" in raised.value.hint
    assert await a.store.list_keys(make_key(FORK)) == []
    await b.workspaces.discard(FORK, str(b.locate(FORK)))  # there is no clone yet


ADA = Principal(name="ada", directories=("/srv/ada",), workspaces=("loom",))


async def test_a_principal_has_checkouts_and_stored_files_of_its_own(
    nodes: tuple[NodeMachine, NodeMachine],
) -> None:
    a, _ = nodes
    own = a.workspaces.for_principal(ADA, OwnedStore(a.store, "ada"))
    directory = Path(await own.begin("loom", SESSION))
    assert directory == a.home / "root" / "loom" / "principal" / "ada" / SESSION
    assert own.roots == [str(directory.parent)]
    assert await a.store.list_keys() == [("principal", "ada", *make_key(SESSION))]
    # No git directory is shared with the administrator or with another principal.
    common = git(directory, "rev-parse", "--path-format=absolute", "--git-common-dir")
    assert common == str(directory.parent / "base" / ".git")
    # The administrator finds the same checkout and files, to settle and to remove.
    for workspaces in (own, a.workspaces):
        assert workspaces.find_session(str(directory)) == SESSION
        await workspaces.prepare(str(directory))
    ben = a.workspaces.for_principal(
        Principal(name="ben", directories=("/srv/ben",)), OwnedStore(a.store, "ben")
    )
    assert ben.find_session(str(directory)) is None
    assert ben.roots == []
    with pytest.raises(NotFoundError, match="no workspace 'loom'") as raised:
        await ben.begin("loom", SESSION)
    assert raised.value.hint == "you may use none here; ask the administrator of the server for another"
    # A session that was never created, or is gone.
    a.clock.turn(KEEP_MS + TIDY_MS)
    await a.workspaces.tidy()
    assert read_files(directory) == {}
    assert await a.store.list_keys() == []


@pytest.mark.parametrize(
    "given",
    [
        "loom",
        "=/srv/loom",
        "../loom=/srv/loom",
        "loom=",
        "loom=relative/path",
        "loom=ext::sh -c 'touch x'",
        "loom=ssh::x",
        "loom=-oProxyCommand=x",
        "loom=https://host/with space",
    ],
)
def test_an_invalid_workspace_is_refused_at_start(given: str) -> None:
    with pytest.raises(InvalidInputError, match="--workspace"):
        check_repository(given)


@pytest.mark.parametrize(
    "url",
    [
        "/srv/git/loom.git",
        "https://git.example/loom",
        "ssh://git@git.example/loom",
        "git@git.example:team/loom.git",
    ],
)
def test_every_form_of_a_repository_address_is_accepted(url: str) -> None:
    assert check_repository(f"loom={url}") == ("loom", url)


def test_two_workspaces_need_different_names() -> None:
    with pytest.raises(InvalidInputError, match="same name"):
        list_clones(["loom=/a", "loom=/b"], "/root", {})


async def test_a_session_of_a_workspace_runs_only_on_its_nodes_and_an_imported_copy_anywhere() -> None:
    async with open_engine([Say(text="ok")]) as here:
        with pytest.raises(NotFoundError, match="no workspace 'loom'"):
            await here.api.create_session(SessionInput(workspace="loom"))
        session = await here.api.create_session(SessionInput())
        await here.store.edit(
            session.id, lambda it: with_weft_data(it, replace(get_weft_data(it), workspace="loom"))
        )
        with pytest.raises(SessionBusyError) as raised:
            await here.api.prompt(session.id, text_prompt("go"))
        expected = "only a node of the git workspace loom can run it: weft attach URL -s "
        assert raised.value.hint == f"{expected}{session.id}"
        export = await here.api.export_session(session.id)
        assert (await here.api.import_session(export)).verdict == "same"
        assert get_weft_data(await here.api.get_session(session.id)).workspace == "loom"
    async with open_engine([Say(text="ok")]) as there:
        received = await there.api.import_session(export)
        answer = await there.api.prompt(received.id, text_prompt("go"))
        assert [part.text for part in answer.parts if isinstance(part, TextPart)] == ["ok"]

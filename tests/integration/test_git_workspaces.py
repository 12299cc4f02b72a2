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
from weft.cluster.workspace import KEEP_MS, TIDY_MS, WorkspaceFiles, Workspaces, find_stored, list_clones
from weft.cluster.workspace_pack import MAX_PACK_BYTES, MAX_PIECES, StoredFiles, make_key
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
from weft.model.project import Place, Project, ProjectTime
from weft.model.session import SessionInfo, SessionTime, WeftSessionData, get_weft_data, with_weft_data
from weft.model.wire import to_plain
from weft.provider.scripted import Say
from weft.store.memory import MemoryStore
from weft.testing.clock import HandClock
from weft.undo.changes import ChangeTotals
from weft.undo.recovery import UndoContext
from weft.worktree.clone import check_repository

SESSION = SessionID("ses_1")


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

    @asynccontextmanager
    async def hold(self, session: SessionInfo) -> AsyncIterator[tuple[WorkspaceFiles, Journal]]:
        """Hold the lease of a session, with its files taken over. What changed is stored at the end."""
        place = Place(
            project=Project(
                id=ProjectID("p"), worktree=str(self.directory), vcs="git", time=ProjectTime(created=1)
            ),
            directory=str(self.directory),
            worktree=str(self.directory),
        )
        await self.workspaces.prepare(str(self.directory))
        bus = Bus()
        bus.watch(
            lambda event: self.notes.append(event.message) if isinstance(event, SessionWarned) else None
        )
        settings = UndoSettings(base=str(self.home / "snapshots"), environ=os.environ)
        async with (
            open_journal(self.store, bus, self.clock, directory=str(self.directory)) as journal,
            open_undo_snapshots(settings, place) as snapshots,
            journal.lease(session.id, self.name),
        ):
            undo_context = UndoContext(
                store=self.store,
                journal=journal,
                clock=self.clock,
                mint=Mint(self.clock.now, os.urandom),
                snapshots=snapshots,
                totals=ChangeTotals(snapshots, str(self.directory)),
            )
            files = self.workspaces.make_carrier(str(self.directory))(undo_context)
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
        work(node.directory)


def write(name: str, text: str) -> Callable[[Path], object]:
    return lambda directory: (directory / name).write_text(text)


async def get_stored(node: NodeMachine) -> StoredFiles:
    stored = await find_stored(node.store, SESSION)
    assert stored is not None
    return stored


async def test_files_go_there_and_back_and_what_a_person_did_on_a_node_is_kept(
    nodes: tuple[NodeMachine, NodeMachine],
) -> None:
    a, b = nodes
    session = await create(a)
    (a.directory / "secret").touch(mode=0o600)
    await change(a, session, write("secret", "s"))
    await change(b, session, write("hello.txt", "from b\n"))
    assert read_files(b.directory) == {**read_files(a.directory), "hello.txt": ("0o644", b"from b\n")}
    assert read_files(b.directory)["secret"] == ("0o600", b"s")
    # Nobody took over since, so what a person changed on the node belongs to the session from now on.
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


async def test_an_ignored_file_in_the_place_of_one_that_comes_along_is_set_aside(
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


async def test_a_nested_repository_stays_and_is_named(nodes: tuple[NodeMachine, NodeMachine]) -> None:
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


async def test_many_pieces_become_one_and_old_ones_are_dropped(
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
            make_key(SESSION, copy.name), await a.store.find_value(make_key(SESSION, piece.name))
        )
    await a.store.put_value(make_key(SESSION), to_plain(replace(stored, pieces=copies)))
    await change(a, session, write("hello.txt", "two\n"))
    (piece,) = (await get_stored(a)).pieces
    assert await a.store.list_keys(make_key(SESSION)) == [make_key(SESSION), make_key(SESSION, piece.name)]
    await change(b, session, lambda _: None)
    assert (b.directory / "hello.txt").read_text() == "two\n"


async def test_a_damaged_or_missing_part_changes_nothing_and_says_which_node_has_the_files(
    nodes: tuple[NodeMachine, NodeMachine],
) -> None:
    a, b = nodes
    session = await create(a)
    await change(a, session, write("hello.txt", "changed\n"))
    stored = await get_stored(a)
    key = make_key(SESSION, stored.pieces[0].name)
    for damaged, reason in (({"data": "AAAA"}, "damaged"), (None, "missing")):
        await a.store.put_value(key, damaged)
        with pytest.raises(BundleError, match=reason) as raised:
            await change(b, session, lambda _: None)
        assert "node a" in raised.value.hint
        assert (b.directory / "hello.txt").read_text() == "hello there\n"
    assert await get_stored(a) == stored


async def test_work_that_is_too_large_is_refused_and_stays(nodes: tuple[NodeMachine, NodeMachine]) -> None:
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


async def test_files_are_stored_under_the_lease_alone(nodes: tuple[NodeMachine, NodeMachine]) -> None:
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


async def test_one_session_has_a_checkout_to_itself(nodes: tuple[NodeMachine, NodeMachine]) -> None:
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


async def test_a_commit_that_is_gone_is_named_and_the_way_to_bring_it_back(
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


async def test_no_program_of_a_session_or_a_repository_is_run_and_nothing_is_redirected(
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


async def test_a_removed_session_takes_its_checkouts_and_its_stored_files_along(
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
def test_what_is_no_workspace_is_refused_at_the_start(given: str) -> None:
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
def test_addresses_of_repositories(url: str) -> None:
    assert check_repository(f"loom={url}") == ("loom", url)


def test_two_workspaces_need_two_names() -> None:
    with pytest.raises(InvalidInputError, match="same name"):
        list_clones(["loom=/a", "loom=/b"], "/root", {})


async def test_a_session_of_a_workspace_is_left_to_its_nodes_and_an_imported_copy_goes_on_anywhere() -> None:
    async with open_engine([Say(text="ok")]) as here:
        with pytest.raises(NotFoundError, match="no workspace 'loom'"):
            await here.api.create_session(SessionInput(workspace="loom"))
        session = await here.api.create_session(SessionInput())
        await here.store.edit(
            session.id, lambda it: with_weft_data(it, replace(get_weft_data(it), workspace="loom"))
        )
        with pytest.raises(SessionBusyError) as raised:
            await here.api.prompt(session.id, text_prompt("go"))
        assert "a node with the git workspace loom" in raised.value.hint
        export = await here.api.export_session(session.id)
        assert (await here.api.import_session(export)).verdict == "same"
        assert get_weft_data(await here.api.get_session(session.id)).workspace == "loom"
    async with open_engine([Say(text="ok")]) as there:
        received = await there.api.import_session(export)
        answer = await there.api.prompt(received.id, text_prompt("go"))
        assert [part.text for part in answer.parts if isinstance(part, TextPart)] == ["ok"]

"""Undo of a session: several times, in part, next to other sessions, and while a person works."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from given.engine import text_prompt
from given.failing_disk import limit_file_size
from given.snapshot_harness import git, init_repository, read_tree, write
from given.undo_harness import (
    ToolUse,
    UndoHarness,
    call_bash,
    call_edit,
    call_read,
    call_write,
    open_undo_harness,
)
from weft.errors import (
    InvalidInputError,
    NotFoundError,
    RestoreFailedError,
    SessionBusyError,
    SnapshotMissingError,
)
from weft.host.paths import paths_from
from weft.local.api import LocalApi
from weft.model.diff import FileDiff, FileFate
from weft.model.event import MessageUpdated, PartUpdated, SessionDiffed, SessionUpdated, SessionWarned
from weft.model.ids import MessageID, PartID
from weft.model.input import SessionInput, ShellInput
from weft.model.message import UserMessage
from weft.model.part import PatchPart, StepFinishPart, StepStartPart, TextPart, ToolPart
from weft.model.session import SessionRevert, SessionSummary, Todo, get_weft_data
from weft.session.revert_point import NO_SNAPSHOT, ONLY_OPENCODE_SNAPSHOT
from weft.snapshot.location import SnapshotLocation, list_locations
from weft.snapshot.objects import list_pins, list_sessions
from weft.undo.revert import NO_SNAPSHOTS_CAUTION, OUTSIDE_CAUTION


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "loom"
    write(root / "a.txt", "one\n")
    write(root / "b.txt", "b\n")
    write(root / ".gitignore", "*.log\n")
    return init_repository(root)


def text(path: Path) -> str:
    return path.read_text()


def exists(path: Path) -> bool:
    return path.exists()


def snapshots() -> SnapshotLocation:
    (place,) = list_locations(f"{paths_from(os.environ).data}/weft/snapshot")
    return place


# --- back and forth ---


async def test_a_second_undo_goes_further_back_and_redo_restores_all(root: Path) -> None:
    start = read_tree(root)
    async with open_undo_harness(root) as harness:
        first = await harness.run_step(call_bash("echo two > a.txt"))
        middle = read_tree(root)
        second = await harness.run_step(call_bash("echo three > a.txt; echo new > n.txt"))
        end = read_tree(root)

        await harness.undo(second)
        assert read_tree(root) == middle
        await harness.undo(first)
        assert read_tree(root) == start
        # Forward again: the first turn stands, the second does not.
        await harness.undo(second)
        assert read_tree(root) == middle
        await harness.redo()
        assert read_tree(root) == end
        assert (await harness.api.get_session(harness.session)).revert is None


async def test_changes_of_a_person_between_two_undos_are_kept(root: Path) -> None:
    async with open_undo_harness(root) as harness:
        first = await harness.run_step(call_bash("echo two > a.txt; echo two > b.txt"))
        second = await harness.run_step(call_bash("echo three > a.txt; echo three > b.txt"))
        await harness.undo(second)
        write(root / "a.txt", "me\n")

        assert await harness.undo(first) == {"a.txt": "kept", "b.txt": "restored"}

        assert (text(root / "a.txt"), text(root / "b.txt")) == ("me\n", "b\n")
        assert await harness.redo() == {"a.txt": "kept", "b.txt": "restored"}
        assert (text(root / "a.txt"), text(root / "b.txt")) == ("me\n", "three\n")


async def test_changes_of_a_person_between_undo_and_redo_are_kept(root: Path) -> None:
    async with open_undo_harness(root) as harness:
        prompt = await harness.run_step(call_bash("echo two > a.txt; rm b.txt; echo new > n.txt"))
        await harness.undo(prompt)
        write(root / "a.txt", "me\n")
        write(root / "n.txt", "my own\n")
        write(root / "other.txt", "me\n")

        assert await harness.redo() == {"a.txt": "kept", "b.txt": "removed", "n.txt": "kept"}

        assert text(root / "a.txt") == "me\n"
        assert text(root / "n.txt") == "my own\n"
        assert text(root / "other.txt") == "me\n"
        assert not exists(root / "b.txt")


async def test_undoing_an_answer_undoes_its_prompt_and_everything_after(root: Path) -> None:
    start = read_tree(root)
    async with open_undo_harness(root) as harness:
        prompt = await harness.run_turn([call_bash("echo two > a.txt")], [call_bash("echo two > b.txt")])
        answers = [each.info.id for each in await harness.history() if not isinstance(each.info, UserMessage)]

        done = await harness.api.revert(harness.session, answers[1])

        assert done.session.revert is not None
        assert done.session.revert.message_id == prompt
        assert read_tree(root) == start


async def test_undoing_to_an_unknown_message_is_refused(root: Path) -> None:
    async with open_undo_harness(root) as harness:
        prompt = await harness.run_step(call_bash("echo two > a.txt"))
        missing = MessageID("msg_00000000000000000000000000")
        with pytest.raises(NotFoundError):
            await harness.api.revert(harness.session, missing)
        with pytest.raises(NotFoundError):
            await harness.api.revert(harness.session, prompt, PartID("prt_00000000000000000000000000"))
        assert (await harness.api.get_session(harness.session)).revert is None
        assert text(root / "a.txt") == "two\n"


async def test_undo_can_be_limited_to_some_files_or_none(root: Path) -> None:
    async with open_undo_harness(root) as harness:
        prompt = await harness.run_step(call_bash("echo two > a.txt; echo two > b.txt"))

        done = await harness.api.revert(harness.session, prompt, files=(str(root / "a.txt"),))

        assert done.files == (FileFate(file=str(root / "a.txt"), fate="restored"),)
        assert (text(root / "a.txt"), text(root / "b.txt")) == ("one\n", "two\n")
        assert (await harness.api.unrevert(harness.session)).session.revert is None
        assert (await harness.api.revert(harness.session, prompt, files=())).files == ()
        assert (text(root / "a.txt"), text(root / "b.txt")) == ("two\n", "two\n")


# --- in part ---


async def test_undoing_a_part_keeps_earlier_parts_and_their_files(root: Path) -> None:
    async with open_undo_harness(root) as harness:
        await harness.run_turn(
            [call_write(root / "first.txt", "1\n"), call_write(root / "second.txt", "2\n")]
        )
        answer = (await harness.history())[1]
        first, second = [part for part in answer.parts if isinstance(part, ToolPart)]

        done = await harness.api.revert(harness.session, answer.info.id, second.id)

        assert harness.fates(done) == {"second.txt": "removed"}
        assert exists(root / "first.txt")
        await harness.run_turn()
        kept = (await harness.history())[1]
        assert kept.info.id == answer.info.id
        assert [part.id for part in kept.parts if isinstance(part, ToolPart)] == [first.id]
        # What the call did that stays can still be taken back.
        prompt = (await harness.history())[0].info.id
        assert await harness.undo(prompt) == {"first.txt": "removed"}


async def test_a_part_with_nothing_before_it_is_undone_with_its_prompt(root: Path) -> None:
    async with open_undo_harness(root) as harness:
        prompt = await harness.run_step(call_bash("echo two > a.txt"))
        answer = (await harness.history())[1]
        call = next(part for part in answer.parts if isinstance(part, ToolPart))

        done = await harness.api.revert(harness.session, answer.info.id, call.id)

        assert done.session.revert is not None
        assert (done.session.revert.message_id, done.session.revert.part_id) == (prompt, None)


# --- beside others ---


async def test_two_sessions_in_one_project_do_not_undo_each_other(root: Path) -> None:
    async with open_undo_harness(root) as harness:
        mine = await harness.run_step(call_bash("echo one more > a.txt; echo mine > mine.txt"))
        session = harness.session
        await harness.create_session()
        theirs = await harness.run_step(call_bash("echo theirs > b.txt; echo theirs > theirs.txt"))
        other, harness.session = harness.session, session

        assert await harness.undo(mine) == {"a.txt": "restored", "mine.txt": "removed"}

        assert text(root / "b.txt") == text(root / "theirs.txt") == "theirs\n"
        harness.session = other
        assert await harness.undo(theirs) == {"b.txt": "restored", "theirs.txt": "removed"}


async def test_two_sessions_that_change_one_file_keep_the_work_of_the_other(root: Path) -> None:
    async with open_undo_harness(root) as harness:
        mine = await harness.run_step(call_bash("echo mine > a.txt"))
        session = harness.session
        await harness.create_session()
        theirs = await harness.run_step(call_bash("echo theirs >> a.txt"))
        other, harness.session = harness.session, session

        assert await harness.undo(mine) == {"a.txt": "kept"}

        assert text(root / "a.txt") == "mine\ntheirs\n"
        harness.session = other
        assert await harness.undo(theirs) == {"a.txt": "restored"}
        harness.session = session
        await harness.redo()
        assert await harness.undo(mine) == {"a.txt": "restored"}
        assert text(root / "a.txt") == "one\n"


async def test_changes_of_a_child_session_are_undone_with_its_parent(root: Path) -> None:
    task = {"description": "Weave on", "prompt": "Go.", "subagent_type": "general"}
    start = read_tree(root)
    async with open_undo_harness(root) as harness:
        # The second and third answers are the child's.
        prompt = await harness.run_turn(
            [ToolUse(tool="task", input=task)],
            [call_bash("echo child > a.txt")],
            (),
            [call_bash("echo parent > b.txt")],
        )
        (child,) = await harness.api.list_children(harness.session)
        end = read_tree(root)
        # Whoever removes the child takes nothing from its parent.
        assert {*list_pins(snapshots(), child.id)} <= {*list_pins(snapshots(), harness.session)}
        assert list_pins(snapshots(), child.id) != []

        assert (await harness.api.get_session(harness.session)).summary == SessionSummary(
            additions=2, deletions=2, files=2
        )
        assert (await harness.api.get_session(child.id)).summary == SessionSummary(
            additions=1, deletions=1, files=1
        )
        assert await harness.undo(prompt) == {"a.txt": "restored", "b.txt": "restored"}
        assert read_tree(root) == start
        await harness.redo()
        assert read_tree(root) == end
        harness.session = child.id
        assert await harness.undo((await harness.history())[0].info.id) == {"a.txt": "restored"}


async def test_undo_and_redo_are_refused_while_the_session_runs(root: Path) -> None:
    async with open_undo_harness(root) as harness:
        prompt = await harness.run_step(call_bash("echo two > a.txt"))
        seen: list[type[BaseException] | None] = []

        def try_to_undo() -> None:
            async def ask() -> None:
                for attempt in (
                    harness.api.revert(harness.session, prompt),
                    harness.api.unrevert(harness.session),
                ):
                    try:
                        await attempt
                        seen.append(None)
                    except SessionBusyError as error:
                        seen.append(type(error))

            tasks.append(asyncio.get_running_loop().create_task(ask()))

        tasks: list[asyncio.Task[None]] = []
        await harness.run_turn([try_to_undo, call_bash("sleep 0.2")])
        await asyncio.gather(*tasks)
        assert seen == [SessionBusyError, SessionBusyError]
        assert text(root / "a.txt") == "two\n"


async def test_a_prompt_during_an_undo_waits_and_is_answered(root: Path) -> None:
    async with open_undo_harness(root) as harness:
        prompt = await harness.run_step(call_bash("echo two > a.txt"))
        taken, answer = await asyncio.gather(
            harness.api.revert(harness.session, prompt),
            harness.api.prompt(harness.session, text_prompt("And now?")),
        )
        assert taken.session.revert is not None
        assert text(root / "a.txt") == "one\n"
        assert [each.info.id for each in await harness.history()][-1] == answer.info.id
        assert prompt not in [each.info.id for each in await harness.history()]


async def test_a_session_of_another_directory_cannot_be_undone_from_here(root: Path, tmp_path: Path) -> None:
    async with open_undo_harness(root) as harness:
        prompt = await harness.run_step(call_bash("echo two > a.txt"))
    async with open_undo_harness(tmp_path / "elsewhere") as other:
        with pytest.raises(InvalidInputError, match="elsewhere"):
            await other.api.revert(harness.session, prompt)
    assert text(root / "a.txt") == "two\n"


async def test_what_another_process_did_while_a_command_ran_is_not_undone(root: Path) -> None:
    ready, done = root.parent / "ready", root.parent / "done"
    command = f"touch '{ready}'; until [ -e '{done}' ]; do sleep 0.01; done; echo mine > mine.txt"
    async with open_undo_harness(root) as harness:
        running = asyncio.create_task(harness.run_step(call_bash(command)))
        async with open_undo_harness(root) as other:  # it has ended when the command ends
            while not ready.exists():  # noqa: ASYNC110  a command makes it
                await asyncio.sleep(0.01)
            await other.run_step(call_write(root / "theirs.txt", "theirs\n"))
        done.touch()

        assert await harness.undo(await running) == {"mine.txt": "uncovered", "theirs.txt": "uncovered"}
        assert text(root / "theirs.txt") == "theirs\n"
        alone = await harness.run_step(call_bash("echo more > more.txt"))
        assert await harness.undo(alone) == {"more.txt": "removed"}


# --- missing snapshots ---


async def test_a_missing_snapshot_refuses_the_undo_and_nothing_is_changed(root: Path) -> None:
    async with open_undo_harness(root) as harness:
        prompt = await harness.run_step(call_bash("echo two > a.txt; echo new > n.txt"))
        changed = read_tree(root)
        forget(snapshots())

        preview = await harness.api.revert(harness.session, prompt, dry_run=True)
        with pytest.raises(SnapshotMissingError):
            await harness.api.revert(harness.session, prompt)

        assert harness.fates(preview) == {"a.txt": "missing", "n.txt": "missing"}
        assert read_tree(root) == changed
        assert (await harness.api.get_session(harness.session)).revert is None
        # The conversation alone can be taken back all the same.
        done = await harness.api.revert(harness.session, prompt, files=())
        assert done.session.revert is not None
        assert read_tree(root) == changed


def forget(place: SnapshotLocation) -> None:
    for path in Path(place.objects).rglob("*"):
        if path.is_file():
            path.unlink()


async def test_without_snapshots_nothing_is_recorded_and_undo_says_so(root: Path) -> None:
    async with open_undo_harness(root, config={"snapshot": False}) as harness:
        prompt = await harness.run_turn(
            [call_read(root / "a.txt")],
            [call_edit(root / "a.txt", "one", "two"), call_bash("echo two > b.txt")],
        )
        assert await harness.patches() == []

        done = await harness.api.revert(harness.session, prompt)

        assert done.files == (FileFate(file=str(root / "a.txt"), fate="uncovered", reason=NO_SNAPSHOT),)
        # It cannot name `b.txt`, but says that commands may have changed more.
        assert done.caution == f"{OUTSIDE_CAUTION}, {NO_SNAPSHOTS_CAUTION} (snapshots are switched off)"
        assert (text(root / "a.txt"), text(root / "b.txt")) == ("two\n", "two\n")


async def test_a_person_is_warned_once_when_snapshots_cannot_be_written_any_more(root: Path) -> None:
    write(Path(paths_from(os.environ).data) / "weft/snapshot", "something else\n")
    warnings: list[str] = []

    async def listen(api: LocalApi) -> None:
        warned = (each.event.message async for each in api.events() if isinstance(each.event, SessionWarned))
        async for message in warned:
            warnings.append(message)  # noqa: PERF401  it never ends

    async with open_undo_harness(root) as harness, asyncio.TaskGroup() as tasks:
        listening = tasks.create_task(listen(harness.api))
        await asyncio.sleep(0)
        prompt = await harness.run_step(call_bash("echo two > a.txt"), call_bash("echo two > b.txt"))
        listening.cancel()

        assert await harness.undo(prompt) == {}
    assert [each.partition("(")[0] for each in warnings] == [
        "what tools change from now on cannot be undone: snapshots cannot be written "
    ]


async def test_an_answer_without_calls_scans_no_files(root: Path) -> None:
    async with open_undo_harness(root) as harness:
        await harness.run_turn()
    assert list(list_locations(f"{paths_from(os.environ).data}/weft/snapshot")) == []


async def test_changes_by_opencode_are_left_alone_and_reported(root: Path) -> None:
    async with open_undo_harness(root) as harness:
        prompt = await harness.run_turn()
        answer = (await harness.history())[1].info
        file = str(root / "a.txt")
        await harness.api.update_part(
            PatchPart(
                id=PartID("prt_1e10b972b001AbCdEfGhIjKlMn"),
                session_id=harness.session,
                message_id=answer.id,
                hash="4b825dc642cb6eb9a060e54bf8d69288fbee4904",
                files=(file,),
            )
        )
        done = await harness.api.revert(harness.session, prompt)
        assert done.files == (FileFate(file=file, fate="uncovered", reason=ONLY_OPENCODE_SNAPSHOT),)
        assert text(root / "a.txt") == "one\n"


class OpenCode:
    """The snapshot repository that OpenCode keeps for a project, written as OpenCode writes it."""

    def __init__(self, root: Path, project: str) -> None:
        self.git_dir = Path(paths_from(os.environ).snapshots) / project
        self._root = root
        self.git_dir.parent.mkdir(parents=True, exist_ok=True)
        git(root, "init", "-q", "--bare", str(self.git_dir))

    def write_tree(self) -> str:
        where = (f"--git-dir={self.git_dir}", f"--work-tree={self._root}")
        git(self._root, *where, "add", ".")
        return git(self._root, *where, "write-tree")


async def undo_with_opencode(harness: UndoHarness, root: Path) -> tuple[OpenCode, SessionRevert]:
    """OpenCode's agent changed, made and removed a file, and OpenCode took that back."""
    prompt = await harness.run_turn()
    answer = (await harness.history())[-1].info
    opencode = OpenCode(root, (await harness.api.get_session(harness.session)).project_id)
    before = opencode.write_tree()
    write(root / "a.txt", "by opencode\n")
    write(root / "deep" / "n.txt", "new\n")
    (root / "b.txt").unlink()
    after = opencode.write_tree()
    names = ("a.txt", "deep/n.txt", "b.txt")
    await harness.api.update_part(
        PatchPart(
            id=PartID("prt_1e10b972b001AbCdEfGhIjKlMn"),
            session_id=harness.session,
            message_id=answer.id,
            hash=before,
            files=tuple(str(root / name) for name in names),
        )
    )
    write(root / "a.txt", "one\n")
    write(root / "b.txt", "b\n")
    (root / "deep" / "n.txt").unlink()
    mark = SessionRevert(message_id=prompt, snapshot=after)
    info = await harness.api.get_session(harness.session)
    await harness.api.runtime.journal.commit(SessionUpdated(info=replace(info, revert=mark)))
    return opencode, mark


async def test_an_undo_of_opencode_is_redone_from_its_own_snapshots(root: Path) -> None:
    async with open_undo_harness(root) as harness:
        await undo_with_opencode(harness, root)
        assert await harness.redo() == {"a.txt": "restored", "b.txt": "removed", "deep/n.txt": "restored"}
        assert (text(root / "a.txt"), text(root / "deep" / "n.txt")) == ("by opencode\n", "new\n")
        assert not exists(root / "b.txt")
        assert (await harness.api.get_session(harness.session)).revert is None


async def test_changes_of_a_person_after_an_undo_of_opencode_are_kept(root: Path) -> None:
    async with open_undo_harness(root) as harness:
        await undo_with_opencode(harness, root)
        write(root / "a.txt", "mine\n")
        write(root / "deep" / "n.txt", "mine\n")
        assert await harness.redo() == {"a.txt": "kept", "b.txt": "removed", "deep/n.txt": "kept"}
        assert (text(root / "a.txt"), text(root / "deep" / "n.txt")) == ("mine\n", "mine\n")


@pytest.mark.parametrize("gone", ["repository", "tree"])
async def test_without_opencodes_snapshots_its_redo_data_is_kept(root: Path, gone: str) -> None:
    async with open_undo_harness(root) as harness:
        opencode, mark = await undo_with_opencode(harness, root)
        if gone == "repository":
            shutil.rmtree(opencode.git_dir)
        else:
            assert mark.snapshot is not None
            (opencode.git_dir / "objects" / mark.snapshot[:2] / mark.snapshot[2:]).unlink()
        before = read_tree(root)
        with pytest.raises(SnapshotMissingError) as refused:
            await harness.api.unrevert(harness.session)
        assert sorted(refused.value.files) == [str(root / name) for name in ("a.txt", "b.txt", "deep/n.txt")]
        assert ((await harness.api.get_session(harness.session)).revert, read_tree(root)) == (mark, before)
        # The conversation alone can be had.
        await harness.api.unrevert(harness.session, files=())
        assert ((await harness.api.get_session(harness.session)).revert, read_tree(root)) == (None, before)


async def test_a_further_undo_keeps_the_redo_data_of_opencode(root: Path) -> None:
    async with open_undo_harness(root) as harness:
        first = await harness.run_step(call_bash("echo early > early.txt"))
        _, mark = await undo_with_opencode(harness, root)
        await harness.api.revert(harness.session, first)
        now = (await harness.api.get_session(harness.session)).revert
        assert now is not None
        assert (now.message_id, now.snapshot) == (first, mark.snapshot)
        assert not exists(root / "early.txt")
        await harness.redo()
        assert (text(root / "a.txt"), text(root / "early.txt")) == ("by opencode\n", "early\n")


# --- going on ---


async def test_continuing_removes_the_undone_messages_and_their_data(root: Path) -> None:
    todo = {"content": "Weave", "status": "pending", "priority": "high", "id": "1"}
    later = {**todo, "content": "Weave more"}
    async with open_undo_harness(root) as harness:
        await harness.run_step(
            ToolUse(tool="todowrite", input={"todos": [todo]}), call_bash("echo two > a.txt")
        )
        kept = await harness.history()
        second = await harness.run_step(
            ToolUse(tool="todowrite", input={"todos": [todo, later]}), call_bash("echo three > a.txt")
        )
        spent = await harness.api.get_spending(harness.session)
        await harness.undo(second)
        assert len(await harness.api.list_todos(harness.session)) == 2

        await harness.run_turn()

        history = await harness.history()
        assert history[: len(kept)] == kept
        assert len(history) == len(kept) + 2
        assert await harness.api.list_todos(harness.session) == [
            Todo(content="Weave", status="pending", priority="high", id="1")
        ]
        session = await harness.api.get_session(harness.session)
        assert session.revert is None
        assert get_weft_data(session).undo == ()
        assert session.summary == SessionSummary(additions=1, deletions=1, files=1)
        assert (await harness.api.get_spending(harness.session)).own.steps == spent.own.steps + 1
        named = {tree for patch in await harness.patches() if patch.weft for tree in trees(patch)}
        assert set(list_pins(snapshots(), harness.session)) == named
        assert orphans() == set()


def trees(part: PatchPart) -> tuple[str, str]:
    assert part.weft is not None
    return part.weft.patch.before, part.weft.patch.after


def orphans() -> set[str]:
    """Parts whose message is not there."""
    storage = Path(paths_from(os.environ).storage)
    messages = {path.stem for path in storage.glob("message/*/*.json")}
    return {path.name for path in storage.glob("part/*") if any(path.iterdir())} - messages


async def test_an_invalid_prompt_removes_nothing(root: Path) -> None:
    async with open_undo_harness(root) as harness:
        prompt = await harness.run_step(call_bash("echo two > a.txt"))
        await harness.undo(prompt)
        before = await harness.history()
        with pytest.raises(NotFoundError):
            await harness.api.prompt(harness.session, text_prompt("Go on.", agent="nobody"))
        assert await harness.history() == before
        await harness.redo()
        assert text(root / "a.txt") == "two\n"


async def test_a_manual_command_and_a_summary_also_continue_a_session(root: Path) -> None:
    async with open_undo_harness(root) as harness:
        first = await harness.run_step(call_bash("echo two > a.txt"))
        second = await harness.run_step(call_bash("echo three > a.txt"))
        await harness.undo(second)
        await harness.api.shell(harness.session, ShellInput(command="true"))
        ids = [each.info.id for each in await harness.history()]
        assert first in ids
        assert second not in ids
        third = await harness.run_step(call_bash("echo four > a.txt"))
        await harness.undo(third)
        await harness.api.compact(harness.session)
        assert third not in [each.info.id for each in await harness.history()]


async def test_opening_removes_nothing(root: Path) -> None:
    async with open_undo_harness(root) as harness:
        prompt = await harness.run_step(call_bash("echo two > a.txt"))
        session = harness.session
        await harness.undo(prompt)
    async with open_undo_harness(root) as again:
        again.session = session
        assert prompt in [each.info.id for each in await again.history()]
        await again.redo()
    assert text(root / "a.txt") == "two\n"


async def test_undo_keeps_the_changes_of_a_command_that_the_user_ran(root: Path) -> None:
    async with open_undo_harness(root) as harness:
        await harness.create_session()
        await harness.api.shell(harness.session, ShellInput(command="echo me > a.txt"))
        first = (await harness.history())[0].info.id
        assert await harness.undo(first) == {}
        assert text(root / "a.txt") == "me\n"


# --- forks and removed sessions ---


async def test_a_fork_can_be_undone_after_the_original_is_removed(root: Path) -> None:
    async with open_undo_harness(root) as harness:
        await harness.run_step(call_bash("echo two > a.txt"))
        fork = await harness.api.fork_session(harness.session)
        await harness.api.remove_session(harness.session, trash=False)
        assert list_sessions(snapshots()) == [fork.id]
        harness.session = fork.id

        assert await harness.undo((await harness.history())[0].info.id) == {"a.txt": "restored"}

        assert text(root / "a.txt") == "one\n"


async def test_a_fork_of_an_undone_session_can_be_redone(root: Path) -> None:
    async with open_undo_harness(root) as harness:
        prompt = await harness.run_step(call_bash("echo two > a.txt"))
        await harness.undo(prompt)
        harness.session = (await harness.api.fork_session(harness.session)).id
        assert await harness.redo() == {"a.txt": "restored"}
        assert text(root / "a.txt") == "two\n"


async def test_an_imported_session_can_still_be_undone(root: Path) -> None:
    async with open_undo_harness(root) as harness:
        await harness.run_step(call_bash("echo two > a.txt"))
        export = await harness.api.export_session(harness.session)
        await harness.api.remove_session(harness.session, trash=False)
        assert list_sessions(snapshots()) == []
        harness.session = (await harness.api.import_session(export)).id
        assert list_sessions(snapshots()) == [harness.session]
        assert await harness.undo((await harness.history())[0].info.id) == {"a.txt": "restored"}


async def test_sessions_in_the_trash_can_still_be_undone_after_restoring(root: Path) -> None:
    async with open_undo_harness(root) as harness:
        prompt = await harness.run_step(call_bash("echo two > a.txt"))
        await harness.api.remove_session(harness.session)
        assert list_sessions(snapshots()) == [harness.session]
        await harness.api.restore_session(harness.session)
        assert await harness.undo(prompt) == {"a.txt": "restored"}


# --- recorded changes ---


async def test_a_step_has_the_snapshots_of_its_beginning_and_end(root: Path) -> None:
    async with open_undo_harness(root) as harness:
        await harness.run_turn([call_read(root / "a.txt")], [call_bash("echo two > a.txt")])
        _, looked, changed, said = await harness.history()
        (patch,) = await harness.patches()
        ends = [
            [part.snapshot for part in message.parts if isinstance(part, StepStartPart | StepFinishPart)]
            for message in (looked, changed, said)
        ]
        assert ends == [[None, None], list(trees(patch)), [None, None]]
        assert patch.files == ()
        assert patch.weft is not None
        assert patch.weft.patch.files == (str(root / "a.txt"),)
        call = next(part for part in changed.parts if isinstance(part, ToolPart))
        assert patch.weft.call_id == call.call_id


async def test_session_and_prompt_have_the_changes_after_every_step(root: Path) -> None:
    async with open_undo_harness(root) as harness:
        heard = harness.api.bus.listen(None)
        first = await harness.run_turn(
            [call_bash("echo two > a.txt")], [call_bash("echo new > n.txt; echo three > a.txt")]
        )
        second = await harness.run_turn([call_bash("rm n.txt"), call_bash("echo more >> b.txt")])

        published = [each.event for each in await heard.take()]
        a = FileDiff(file="a.txt", before="one\n", after="two\n", additions=1, deletions=1)
        later = FileDiff(file="a.txt", before="one\n", after="three\n", additions=1, deletions=1)
        n = FileDiff(file="n.txt", before="", after="new\n", additions=1, deletions=0)
        gone = FileDiff(file="n.txt", before="new\n", after="", additions=0, deletions=1)
        b = FileDiff(file="b.txt", before="b\n", after="b\nmore\n", additions=1, deletions=0)
        assert [event.diff for event in published if isinstance(event, SessionDiffed)] == [
            (a,),
            (later, n),
            (later, b),
        ]
        assert await harness.api.list_diff(harness.session) == [later, b]
        assert await harness.api.list_diff(harness.session, message=first) == [later, n]
        assert await harness.api.list_diff(harness.session, message=second) == [b, gone]
        answers = [each.info.id for each in await harness.history() if not isinstance(each.info, UserMessage)]
        assert await harness.api.list_diff(harness.session, message=answers[0]) == [a]
        assert (await harness.api.get_session(harness.session)).summary == SessionSummary(
            additions=2, deletions=1, files=2
        )


async def test_an_undone_session_reports_its_remaining_changes(root: Path) -> None:
    async with open_undo_harness(root) as harness:
        await harness.run_step(call_bash("echo two > a.txt"))
        second = await harness.run_step(call_bash("echo three > b.txt"))
        done = await harness.api.revert(harness.session, second)
        left = SessionSummary(additions=1, deletions=1, files=1)
        assert done.session.summary == left
        assert [diff.file for diff in await harness.api.list_diff(harness.session)] == ["a.txt"]
        assert done.session.revert is not None
        assert done.session.revert.diff is not None
        assert "-three\n+b\n" in done.session.revert.diff
        back = await harness.api.unrevert(harness.session)
        assert back.session.summary == SessionSummary(additions=2, deletions=2, files=2)


async def test_an_edited_prompt_stays_edited_after_compaction(root: Path) -> None:
    async with open_undo_harness(root) as harness:
        changed: list[asyncio.Task[object]] = []

        def edit_prompt() -> None:
            async def change() -> None:
                prompt = (await harness.history())[0].info
                assert isinstance(prompt, UserMessage)
                await harness.api.update_message(
                    UserMessage(
                        id=prompt.id,
                        session_id=prompt.session_id,
                        time=prompt.time,
                        agent=prompt.agent,
                        model=prompt.model,
                        system="By hand.",
                    )
                )

            changed.append(asyncio.get_running_loop().create_task(change()))

        prompt = await harness.run_turn([edit_prompt, call_bash("echo two > a.txt")])
        await asyncio.gather(*changed)
        info = (await harness.api.get_message(harness.session, prompt)).info
        assert isinstance(info, UserMessage)
        assert info.system == "By hand."
        assert info.summary is not None
        assert [diff.file for diff in info.summary.diffs] == ["a.txt"]


async def test_a_step_without_changes_stores_nothing_about_files(root: Path) -> None:
    async with open_undo_harness(root) as harness:
        heard = harness.api.bus.listen(None)
        await harness.run_turn([call_read(root / "a.txt"), call_bash("true")])
        events = [each.event for each in await heard.take()]
        assert not any(isinstance(event, SessionDiffed) for event in events)
        prompts = [
            each.info
            for each in events
            if isinstance(each, MessageUpdated) and isinstance(each.info, UserMessage)
        ]
        # The prompt is told once when it is stored, and once with its title.
        assert [prompt.summary and prompt.summary.diffs for prompt in prompts] == [None, ()]
        assert not any(
            isinstance(event, PartUpdated) and isinstance(event.part, PatchPart) for event in events
        )
        assert (await harness.api.get_session(harness.session)).summary is None


async def test_sessions_in_memory_can_be_undone(root: Path) -> None:
    async with open_undo_harness(root, store="memory:") as harness:
        prompt = await harness.run_step(call_bash("echo two > a.txt"))
        assert await harness.undo(prompt) == {"a.txt": "restored"}
        assert [part.text for part in (await harness.history())[0].parts if isinstance(part, TextPart)] == [
            "Weave."
        ]


async def test_a_session_without_file_changes_can_be_undone(root: Path) -> None:
    async with open_undo_harness(root) as harness:
        await harness.api.create_session(SessionInput())
        prompt = await harness.run_turn()
        assert await harness.undo(prompt) == {}
        assert await harness.redo() == {}


async def test_totals_include_files_beyond_the_listed_ones(root: Path) -> None:
    async with open_undo_harness(root) as harness:
        await harness.run_step(call_bash("for i in $(seq 510); do echo $i > many-$i.txt; done"))
        await harness.run_step(call_bash("echo two > a.txt; echo more >> many-1.txt; rm many-2.txt"))
        listed = await harness.api.list_diff(harness.session)
        assert (await harness.api.get_session(harness.session)).summary == SessionSummary(
            additions=511, deletions=1, files=510
        )
        assert len(listed) == 500
        assert sum(diff.additions for diff in listed) == 511


# --- a disk that is full ---

LIMIT = 300_000
LARGE = "large\n" * 100_000


async def test_an_undo_that_cannot_restore_a_file_names_it_and_changes_nothing(
    root: Path,
) -> None:
    write(root / "big.txt", LARGE)
    write(root / "gone.txt", "mine, and not committed\n")
    async with open_undo_harness(root) as harness:
        first = await harness.run_step(call_bash("echo two > a.txt; echo small > big.txt; rm gone.txt"))
        before = read_tree(root)
        with limit_file_size(LIMIT), pytest.raises(RestoreFailedError) as failed:
            await harness.api.revert(harness.session, first)
        assert (failed.value.files, failed.value.left) == ((str(root / "big.txt"),), ())
        assert "nothing was changed" in str(failed.value)
        assert read_tree(root) == before
        assert (await harness.api.get_session(harness.session)).revert is None
        # Going on loses nothing: it can be done when there is room.
        await harness.run_step(call_bash("echo three > b.txt"))
        await harness.undo(first)
        assert (text(root / "big.txt"), text(root / "gone.txt")) == (LARGE, "mine, and not committed\n")
        with limit_file_size(LIMIT):
            await harness.redo()
        assert (text(root / "big.txt"), exists(root / "gone.txt")) == ("small\n", False)


async def test_a_file_that_can_neither_be_restored_nor_rolled_back_is_settled_when_there_is_space(
    root: Path,
) -> None:
    write(root / "big.txt", LARGE)
    async with open_undo_harness(root) as harness:
        first = await harness.run_step(call_bash("yes large | head -n 100000 > a.txt; echo small > big.txt"))
        with limit_file_size(LIMIT):
            with pytest.raises(RestoreFailedError) as failed:
                await harness.api.revert(harness.session, first)
            assert (failed.value.files, failed.value.left) == (
                (str(root / "big.txt"),),
                (str(root / "a.txt"),),
            )
            assert "1 file could not be restored: " in str(failed.value)
            assert str(failed.value).endswith("; 1 file stays restored")
            with pytest.raises(RestoreFailedError):
                await harness.api.revert(harness.session, first)
        assert (text(root / "a.txt"), text(root / "big.txt")) == ("one\n", "small\n")
        await harness.api.revert(harness.session, first)
        assert (text(root / "a.txt"), text(root / "big.txt")) == ("one\n", LARGE)
        await harness.redo()
        assert (text(root / "a.txt"), text(root / "big.txt")) == (LARGE, "small\n")


async def test_a_redo_that_does_not_fit_is_an_error_and_can_be_repeated_later(root: Path) -> None:
    async with open_undo_harness(root) as harness:
        first = await harness.run_step(call_bash("yes large | head -n 100000 > a.txt; echo new > n.txt"))
        await harness.undo(first)
        with limit_file_size(LIMIT), pytest.raises(RestoreFailedError) as failed:
            await harness.api.unrevert(harness.session)
        assert failed.value.files == (str(root / "a.txt"),)
        assert (text(root / "a.txt"), exists(root / "n.txt")) == ("one\n", False)
        assert (await harness.api.get_session(harness.session)).revert is not None
        await harness.redo()
        assert (text(root / "a.txt"), text(root / "n.txt")) == (LARGE, "new\n")

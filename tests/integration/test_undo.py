"""Taking a session back: several times, in part, beside others, with a person at work in between."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from given.failing_disk import no_file_over
from given.house import say
from given.loom import Loom, Use, bash, edits, open_loom, reads, writes
from given.undoing import as_repository, files_below, git, write
from weft.errors import (
    InvalidInputError,
    NotFoundError,
    RestoreFailedError,
    SessionBusyError,
    SnapshotMissingError,
)
from weft.host.paths import paths_from
from weft.model.diff import FileDiff, FileFate
from weft.model.event import MessageUpdated, PartUpdated, SessionDiffed, SessionUpdated
from weft.model.ids import MessageID, PartID
from weft.model.input import SessionInput, ShellInput
from weft.model.message import UserMessage
from weft.model.part import PatchPart, StepFinishPart, StepStartPart, TextPart, ToolPart
from weft.model.session import SessionRevert, SessionSummary, Todo, get_weft_data
from weft.session.revert_point import NO_SNAPSHOT, ONLY_OPENCODE_SNAPSHOT
from weft.snapshot.location import SnapshotLocation, list_locations
from weft.snapshot.objects import list_pins, list_sessions
from weft.undo.revert import COMMAND_CAUTION


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "loom"
    write(root / "a.txt", "one\n")
    write(root / "b.txt", "b\n")
    write(root / ".gitignore", "*.log\n")
    return as_repository(root)


def text(path: Path) -> str:
    return path.read_text()


def exists(path: Path) -> bool:
    return path.exists()


def snapshots() -> SnapshotLocation:
    (place,) = list_locations(f"{paths_from(os.environ).data}/weft/snapshot")
    return place


# --- back and forth ---


async def test_taken_back_twice_it_goes_further_back_and_comes_forward_again(root: Path) -> None:
    start = files_below(root)
    async with open_loom(root) as loom:
        first = await loom.does(bash("echo two > a.txt"))
        middle = files_below(root)
        second = await loom.does(bash("echo three > a.txt; echo new > n.txt"))
        end = files_below(root)

        await loom.undoes(second)
        assert files_below(root) == middle
        await loom.undoes(first)
        assert files_below(root) == start
        # Forward again: the first turn stands, the second does not.
        await loom.undoes(second)
        assert files_below(root) == middle
        await loom.redoes()
        assert files_below(root) == end
        assert (await loom.api.get_session(loom.session)).revert is None


async def test_what_a_person_does_between_two_takings_back_stays(root: Path) -> None:
    async with open_loom(root) as loom:
        first = await loom.does(bash("echo two > a.txt; echo two > b.txt"))
        second = await loom.does(bash("echo three > a.txt; echo three > b.txt"))
        await loom.undoes(second)
        write(root / "a.txt", "me\n")

        assert await loom.undoes(first) == {"a.txt": "kept", "b.txt": "restored"}

        assert (text(root / "a.txt"), text(root / "b.txt")) == ("me\n", "b\n")
        assert await loom.redoes() == {"a.txt": "kept", "b.txt": "restored"}
        assert (text(root / "a.txt"), text(root / "b.txt")) == ("me\n", "three\n")


async def test_what_a_person_does_between_undo_and_redo_stays(root: Path) -> None:
    async with open_loom(root) as loom:
        prompt = await loom.does(bash("echo two > a.txt; rm b.txt; echo new > n.txt"))
        await loom.undoes(prompt)
        write(root / "a.txt", "me\n")
        write(root / "n.txt", "my own\n")
        write(root / "other.txt", "me\n")

        assert await loom.redoes() == {"a.txt": "kept", "b.txt": "removed", "n.txt": "kept"}

        assert text(root / "a.txt") == "me\n"
        assert text(root / "n.txt") == "my own\n"
        assert text(root / "other.txt") == "me\n"
        assert not exists(root / "b.txt")


async def test_an_answer_is_taken_back_with_its_prompt_and_all_it_led_to(root: Path) -> None:
    start = files_below(root)
    async with open_loom(root) as loom:
        prompt = await loom.works([bash("echo two > a.txt")], [bash("echo two > b.txt")])
        answers = [each.info.id for each in await loom.history() if not isinstance(each.info, UserMessage)]

        done = await loom.api.revert(loom.session, answers[1])

        assert done.session.revert is not None
        assert done.session.revert.message_id == prompt
        assert files_below(root) == start


async def test_what_is_not_there_cannot_be_taken_back_to(root: Path) -> None:
    async with open_loom(root) as loom:
        prompt = await loom.does(bash("echo two > a.txt"))
        missing = MessageID("msg_00000000000000000000000000")
        with pytest.raises(NotFoundError):
            await loom.api.revert(loom.session, missing)
        with pytest.raises(NotFoundError):
            await loom.api.revert(loom.session, prompt, PartID("prt_00000000000000000000000000"))
        assert (await loom.api.get_session(loom.session)).revert is None
        assert text(root / "a.txt") == "two\n"


async def test_only_some_files_can_be_taken_back_or_none(root: Path) -> None:
    async with open_loom(root) as loom:
        prompt = await loom.does(bash("echo two > a.txt; echo two > b.txt"))

        done = await loom.api.revert(loom.session, prompt, files=(str(root / "a.txt"),))

        assert done.files == (FileFate(file=str(root / "a.txt"), fate="restored"),)
        assert (text(root / "a.txt"), text(root / "b.txt")) == ("one\n", "two\n")
        assert (await loom.api.unrevert(loom.session)).session.revert is None
        assert (await loom.api.revert(loom.session, prompt, files=())).files == ()
        assert (text(root / "a.txt"), text(root / "b.txt")) == ("two\n", "two\n")


# --- in part (B11) ---


async def test_b11_a_part_is_taken_back_and_what_came_before_it_stays_with_its_files(root: Path) -> None:
    async with open_loom(root) as loom:
        await loom.works([writes(root / "first.txt", "1\n"), writes(root / "second.txt", "2\n")])
        answer = (await loom.history())[1]
        first, second = [part for part in answer.parts if isinstance(part, ToolPart)]

        done = await loom.api.revert(loom.session, answer.info.id, second.id)

        assert loom.told(done) == {"second.txt": "removed"}
        assert exists(root / "first.txt")
        await loom.works()
        kept = (await loom.history())[1]
        assert kept.info.id == answer.info.id
        assert [part.id for part in kept.parts if isinstance(part, ToolPart)] == [first.id]
        # What the call did that stays can still be taken back.
        prompt = (await loom.history())[0].info.id
        assert await loom.undoes(prompt) == {"first.txt": "removed"}


async def test_a_part_with_nothing_before_it_goes_with_its_prompt(root: Path) -> None:
    async with open_loom(root) as loom:
        prompt = await loom.does(bash("echo two > a.txt"))
        answer = (await loom.history())[1]
        call = next(part for part in answer.parts if isinstance(part, ToolPart))

        done = await loom.api.revert(loom.session, answer.info.id, call.id)

        assert done.session.revert is not None
        assert (done.session.revert.message_id, done.session.revert.part_id) == (prompt, None)


# --- beside others ---


async def test_two_sessions_in_one_project_do_not_undo_each_other(root: Path) -> None:
    async with open_loom(root) as loom:
        mine = await loom.does(bash("echo one more > a.txt; echo mine > mine.txt"))
        session = loom.session
        await loom.begins()
        theirs = await loom.does(bash("echo theirs > b.txt; echo theirs > theirs.txt"))
        other, loom.session = loom.session, session

        assert await loom.undoes(mine) == {"a.txt": "restored", "mine.txt": "removed"}

        assert text(root / "b.txt") == text(root / "theirs.txt") == "theirs\n"
        loom.session = other
        assert await loom.undoes(theirs) == {"b.txt": "restored", "theirs.txt": "removed"}


async def test_two_sessions_that_change_one_file_keep_what_the_other_built_on(root: Path) -> None:
    async with open_loom(root) as loom:
        mine = await loom.does(bash("echo mine > a.txt"))
        session = loom.session
        await loom.begins()
        theirs = await loom.does(bash("echo theirs >> a.txt"))
        other, loom.session = loom.session, session

        assert await loom.undoes(mine) == {"a.txt": "kept"}

        assert text(root / "a.txt") == "mine\ntheirs\n"
        loom.session = other
        assert await loom.undoes(theirs) == {"a.txt": "restored"}
        loom.session = session
        await loom.redoes()
        assert await loom.undoes(mine) == {"a.txt": "restored"}
        assert text(root / "a.txt") == "one\n"


async def test_what_a_subagent_did_is_taken_back_with_who_sent_it(root: Path) -> None:
    task = {"description": "Weave on", "prompt": "Go.", "subagent_type": "general"}
    start = files_below(root)
    async with open_loom(root) as loom:
        # The second and third answers are the child's.
        prompt = await loom.works(
            [Use(tool="task", input=task)], [bash("echo child > a.txt")], (), [bash("echo parent > b.txt")]
        )
        (child,) = await loom.api.list_children(loom.session)
        end = files_below(root)

        assert (await loom.api.get_session(loom.session)).summary == SessionSummary(
            additions=2, deletions=2, files=2
        )
        assert (await loom.api.get_session(child.id)).summary == SessionSummary(
            additions=1, deletions=1, files=1
        )
        assert await loom.undoes(prompt) == {"a.txt": "restored", "b.txt": "restored"}
        assert files_below(root) == start
        await loom.redoes()
        assert files_below(root) == end
        loom.session = child.id
        assert await loom.undoes((await loom.history())[0].info.id) == {"a.txt": "restored"}


async def test_a_session_that_is_being_run_is_busy(root: Path) -> None:
    async with open_loom(root) as loom:
        prompt = await loom.does(bash("echo two > a.txt"))
        seen: list[type[BaseException] | None] = []

        def try_it() -> None:
            async def ask() -> None:
                for attempt in (loom.api.revert(loom.session, prompt), loom.api.unrevert(loom.session)):
                    try:
                        await attempt
                        seen.append(None)
                    except SessionBusyError as error:
                        seen.append(type(error))

            tasks.append(asyncio.get_running_loop().create_task(ask()))

        tasks: list[asyncio.Task[None]] = []
        await loom.works([try_it, bash("sleep 0.2")])
        await asyncio.gather(*tasks)
        assert seen == [SessionBusyError, SessionBusyError]
        assert text(root / "a.txt") == "two\n"


async def test_a_prompt_that_comes_in_while_it_is_taken_back_waits_and_is_answered(root: Path) -> None:
    async with open_loom(root) as loom:
        prompt = await loom.does(bash("echo two > a.txt"))
        taken, answer = await asyncio.gather(
            loom.api.revert(loom.session, prompt), loom.api.prompt(loom.session, say("And now?"))
        )
        assert taken.session.revert is not None
        assert text(root / "a.txt") == "one\n"
        assert [each.info.id for each in await loom.history()][-1] == answer.info.id
        assert prompt not in [each.info.id for each in await loom.history()]


async def test_a_session_that_worked_elsewhere_is_not_taken_back_from_here(
    root: Path, tmp_path: Path
) -> None:
    async with open_loom(root) as loom:
        prompt = await loom.does(bash("echo two > a.txt"))
    async with open_loom(tmp_path / "elsewhere") as other:
        with pytest.raises(InvalidInputError, match="elsewhere"):
            await other.api.revert(loom.session, prompt)
    assert text(root / "a.txt") == "two\n"


# --- what is not to be had ---


async def test_a_missing_snapshot_refuses_and_nothing_is_changed(root: Path) -> None:
    async with open_loom(root) as loom:
        prompt = await loom.does(bash("echo two > a.txt; echo new > n.txt"))
        changed = files_below(root)
        forget(snapshots())

        preview = await loom.api.revert(loom.session, prompt, dry_run=True)
        with pytest.raises(SnapshotMissingError):
            await loom.api.revert(loom.session, prompt)

        assert loom.told(preview) == {"a.txt": "missing", "n.txt": "missing"}
        assert files_below(root) == changed
        assert (await loom.api.get_session(loom.session)).revert is None
        # The conversation alone can be taken back all the same.
        done = await loom.api.revert(loom.session, prompt, files=())
        assert done.session.revert is not None
        assert files_below(root) == changed


def forget(place: SnapshotLocation) -> None:
    for path in Path(place.objects).rglob("*"):
        if path.is_file():
            path.unlink()


async def test_switched_off_nothing_is_kept_and_that_is_said(root: Path) -> None:
    async with open_loom(root, config={"snapshot": False}) as loom:
        prompt = await loom.works(
            [reads(root / "a.txt")], [edits(root / "a.txt", "one", "two"), bash("echo two > b.txt")]
        )
        assert await loom.patches() == []

        done = await loom.api.revert(loom.session, prompt)

        assert done.files == (FileFate(file=str(root / "a.txt"), fate="uncovered", reason=NO_SNAPSHOT),)
        assert done.caution == COMMAND_CAUTION
        assert (text(root / "a.txt"), text(root / "b.txt")) == ("two\n", "two\n")


async def test_what_opencode_changed_is_left_alone_and_told(root: Path) -> None:
    async with open_loom(root) as loom:
        prompt = await loom.works()
        answer = (await loom.history())[1].info
        file = str(root / "a.txt")
        await loom.api.update_part(
            PatchPart(
                id=PartID("prt_1e10b972b001AbCdEfGhIjKlMn"),
                session_id=loom.session,
                message_id=answer.id,
                hash="4b825dc642cb6eb9a060e54bf8d69288fbee4904",
                files=(file,),
            )
        )
        done = await loom.api.revert(loom.session, prompt)
        assert done.files == (FileFate(file=file, fate="uncovered", reason=ONLY_OPENCODE_SNAPSHOT),)
        assert text(root / "a.txt") == "one\n"


class OpenCode:
    """The snapshot repository that OpenCode keeps for a project, written as OpenCode writes it."""

    def __init__(self, root: Path, project: str) -> None:
        self.git_dir = Path(paths_from(os.environ).snapshots) / project
        self._root = root
        self.git_dir.parent.mkdir(parents=True, exist_ok=True)
        git(root, "init", "-q", "--bare", str(self.git_dir))

    def tracks(self) -> str:
        where = (f"--git-dir={self.git_dir}", f"--work-tree={self._root}")
        git(self._root, *where, "add", ".")
        return git(self._root, *where, "write-tree")


async def taken_back_by_opencode(loom: Loom, root: Path) -> tuple[OpenCode, SessionRevert]:
    """OpenCode's agent changed, made and removed a file, and OpenCode took that back."""
    prompt = await loom.works()
    answer = (await loom.history())[-1].info
    opencode = OpenCode(root, (await loom.api.get_session(loom.session)).project_id)
    before = opencode.tracks()
    write(root / "a.txt", "by opencode\n")
    write(root / "deep" / "n.txt", "new\n")
    (root / "b.txt").unlink()
    after = opencode.tracks()
    names = ("a.txt", "deep/n.txt", "b.txt")
    await loom.api.update_part(
        PatchPart(
            id=PartID("prt_1e10b972b001AbCdEfGhIjKlMn"),
            session_id=loom.session,
            message_id=answer.id,
            hash=before,
            files=tuple(str(root / name) for name in names),
        )
    )
    write(root / "a.txt", "one\n")
    write(root / "b.txt", "b\n")
    (root / "deep" / "n.txt").unlink()
    mark = SessionRevert(message_id=prompt, snapshot=after)
    info = await loom.api.get_session(loom.session)
    await loom.api.runtime.journal.commit(SessionUpdated(info=replace(info, revert=mark)))
    return opencode, mark


async def test_what_opencode_took_back_is_brought_back_from_its_own_snapshots(root: Path) -> None:
    async with open_loom(root) as loom:
        await taken_back_by_opencode(loom, root)
        assert await loom.redoes() == {"a.txt": "restored", "b.txt": "removed", "deep/n.txt": "restored"}
        assert (text(root / "a.txt"), text(root / "deep" / "n.txt")) == ("by opencode\n", "new\n")
        assert not exists(root / "b.txt")
        assert (await loom.api.get_session(loom.session)).revert is None


async def test_what_a_person_changed_since_opencode_took_it_back_is_kept(root: Path) -> None:
    async with open_loom(root) as loom:
        await taken_back_by_opencode(loom, root)
        write(root / "a.txt", "mine\n")
        write(root / "deep" / "n.txt", "mine\n")
        assert await loom.redoes() == {"a.txt": "kept", "b.txt": "removed", "deep/n.txt": "kept"}
        assert (text(root / "a.txt"), text(root / "deep" / "n.txt")) == ("mine\n", "mine\n")


@pytest.mark.parametrize("gone", ["repository", "tree"])
async def test_without_opencodes_snapshots_its_way_back_is_kept(root: Path, gone: str) -> None:
    async with open_loom(root) as loom:
        opencode, mark = await taken_back_by_opencode(loom, root)
        if gone == "repository":
            shutil.rmtree(opencode.git_dir)
        else:
            assert mark.snapshot is not None
            (opencode.git_dir / "objects" / mark.snapshot[:2] / mark.snapshot[2:]).unlink()
        before = files_below(root)
        with pytest.raises(SnapshotMissingError) as refused:
            await loom.api.unrevert(loom.session)
        assert sorted(refused.value.files) == [str(root / name) for name in ("a.txt", "b.txt", "deep/n.txt")]
        assert ((await loom.api.get_session(loom.session)).revert, files_below(root)) == (mark, before)
        # The conversation alone can be had.
        await loom.api.unrevert(loom.session, files=())
        assert ((await loom.api.get_session(loom.session)).revert, files_below(root)) == (None, before)


async def test_going_further_back_keeps_the_way_back_of_opencode(root: Path) -> None:
    async with open_loom(root) as loom:
        first = await loom.does(bash("echo early > early.txt"))
        _, mark = await taken_back_by_opencode(loom, root)
        await loom.api.revert(loom.session, first)
        now = (await loom.api.get_session(loom.session)).revert
        assert now is not None
        assert (now.message_id, now.snapshot) == (first, mark.snapshot)
        assert not exists(root / "early.txt")
        await loom.redoes()
        assert (text(root / "a.txt"), text(root / "early.txt")) == ("by opencode\n", "early\n")


# --- going on ---


async def test_going_on_removes_what_it_was_taken_back_from_and_all_that_hangs_on_it(root: Path) -> None:
    todo = {"content": "Weave", "status": "pending", "priority": "high", "id": "1"}
    later = {**todo, "content": "Weave more"}
    async with open_loom(root) as loom:
        await loom.does(Use(tool="todowrite", input={"todos": [todo]}), bash("echo two > a.txt"))
        kept = await loom.history()
        second = await loom.does(
            Use(tool="todowrite", input={"todos": [todo, later]}), bash("echo three > a.txt")
        )
        spent = await loom.api.get_spending(loom.session)
        await loom.undoes(second)
        assert len(await loom.api.list_todos(loom.session)) == 2

        await loom.works()

        history = await loom.history()
        assert history[: len(kept)] == kept
        assert len(history) == len(kept) + 2
        assert await loom.api.list_todos(loom.session) == [
            Todo(content="Weave", status="pending", priority="high", id="1")
        ]
        session = await loom.api.get_session(loom.session)
        assert session.revert is None
        assert get_weft_data(session).undo == ()
        assert session.summary == SessionSummary(additions=1, deletions=1, files=1)
        assert (await loom.api.get_spending(loom.session)).own.steps == spent.own.steps + 1
        named = {tree for patch in await loom.patches() if patch.weft for tree in trees(patch)}
        assert set(list_pins(snapshots(), loom.session)) == named
        assert orphans() == set()


def trees(part: PatchPart) -> tuple[str, str]:
    assert part.weft is not None
    return part.weft.patch.hash, part.weft.patch.until


def orphans() -> set[str]:
    """Parts whose message is not there."""
    storage = Path(paths_from(os.environ).storage)
    messages = {path.stem for path in storage.glob("message/*/*.json")}
    return {path.name for path in storage.glob("part/*") if any(path.iterdir())} - messages


async def test_a_prompt_that_makes_no_sense_removes_nothing(root: Path) -> None:
    async with open_loom(root) as loom:
        prompt = await loom.does(bash("echo two > a.txt"))
        await loom.undoes(prompt)
        before = await loom.history()
        with pytest.raises(NotFoundError):
            await loom.api.prompt(loom.session, say("Go on.", agent="nobody"))
        assert await loom.history() == before
        await loom.redoes()
        assert text(root / "a.txt") == "two\n"


async def test_a_command_by_hand_and_a_summary_go_on_too(root: Path) -> None:
    async with open_loom(root) as loom:
        first = await loom.does(bash("echo two > a.txt"))
        second = await loom.does(bash("echo three > a.txt"))
        await loom.undoes(second)
        await loom.api.shell(loom.session, ShellInput(command="true"))
        ids = [each.info.id for each in await loom.history()]
        assert first in ids
        assert second not in ids
        third = await loom.does(bash("echo four > a.txt"))
        await loom.undoes(third)
        await loom.api.compact(loom.session)
        assert third not in [each.info.id for each in await loom.history()]


async def test_opening_removes_nothing(root: Path) -> None:
    async with open_loom(root) as loom:
        prompt = await loom.does(bash("echo two > a.txt"))
        session = loom.session
        await loom.undoes(prompt)
    async with open_loom(root) as again:
        again.session = session
        assert prompt in [each.info.id for each in await again.history()]
        await again.redoes()
    assert text(root / "a.txt") == "two\n"


async def test_the_persons_own_command_is_theirs(root: Path) -> None:
    async with open_loom(root) as loom:
        await loom.begins()
        await loom.api.shell(loom.session, ShellInput(command="echo me > a.txt"))
        first = (await loom.history())[0].info.id
        assert await loom.undoes(first) == {}
        assert text(root / "a.txt") == "me\n"


# --- copies, and what is removed ---


async def test_a_fork_can_be_taken_back_when_the_original_is_gone(root: Path) -> None:
    async with open_loom(root) as loom:
        await loom.does(bash("echo two > a.txt"))
        fork = await loom.api.fork_session(loom.session)
        await loom.api.remove_session(loom.session, trash=False)
        assert list_sessions(snapshots()) == [fork.id]
        loom.session = fork.id

        assert await loom.undoes((await loom.history())[0].info.id) == {"a.txt": "restored"}

        assert text(root / "a.txt") == "one\n"


async def test_a_fork_of_what_was_taken_back_can_be_brought_forward(root: Path) -> None:
    async with open_loom(root) as loom:
        prompt = await loom.does(bash("echo two > a.txt"))
        await loom.undoes(prompt)
        loom.session = (await loom.api.fork_session(loom.session)).id
        assert await loom.redoes() == {"a.txt": "restored"}
        assert text(root / "a.txt") == "two\n"


async def test_the_trash_keeps_what_undoing_takes(root: Path) -> None:
    async with open_loom(root) as loom:
        prompt = await loom.does(bash("echo two > a.txt"))
        await loom.api.remove_session(loom.session)
        assert list_sessions(snapshots()) == [loom.session]
        await loom.api.restore_session(loom.session)
        assert await loom.undoes(prompt) == {"a.txt": "restored"}


# --- what is told ---


async def test_a_step_names_what_it_changed_at_both_its_ends(root: Path) -> None:
    async with open_loom(root) as loom:
        await loom.works([reads(root / "a.txt")], [bash("echo two > a.txt")])
        _, looked, changed, said = await loom.history()
        (patch,) = await loom.patches()
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


async def test_session_and_prompt_say_what_was_changed_after_every_step(root: Path) -> None:
    async with open_loom(root) as loom:
        heard = loom.api.bus.listen(None)
        first = await loom.works([bash("echo two > a.txt")], [bash("echo new > n.txt; echo three > a.txt")])
        second = await loom.works([bash("rm n.txt"), bash("echo more >> b.txt")])

        told = [each.event for each in await heard.take()]
        a = FileDiff(file="a.txt", before="one\n", after="two\n", additions=1, deletions=1)
        later = FileDiff(file="a.txt", before="one\n", after="three\n", additions=1, deletions=1)
        n = FileDiff(file="n.txt", before="", after="new\n", additions=1, deletions=0)
        gone = FileDiff(file="n.txt", before="new\n", after="", additions=0, deletions=1)
        b = FileDiff(file="b.txt", before="b\n", after="b\nmore\n", additions=1, deletions=0)
        assert [event.diff for event in told if isinstance(event, SessionDiffed)] == [
            (a,),
            (later, n),
            (later, b),
        ]
        assert await loom.api.list_diff(loom.session) == [later, b]
        assert await loom.api.list_diff(loom.session, message=first) == [later, n]
        assert await loom.api.list_diff(loom.session, message=second) == [b, gone]
        answers = [each.info.id for each in await loom.history() if not isinstance(each.info, UserMessage)]
        assert await loom.api.list_diff(loom.session, message=answers[0]) == [a]
        assert (await loom.api.get_session(loom.session)).summary == SessionSummary(
            additions=2, deletions=1, files=2
        )


async def test_taken_back_a_session_says_what_is_left_of_it(root: Path) -> None:
    async with open_loom(root) as loom:
        await loom.does(bash("echo two > a.txt"))
        second = await loom.does(bash("echo three > b.txt"))
        done = await loom.api.revert(loom.session, second)
        left = SessionSummary(additions=1, deletions=1, files=1)
        assert done.session.summary == left
        assert [diff.file for diff in await loom.api.list_diff(loom.session)] == ["a.txt"]
        assert done.session.revert is not None
        assert done.session.revert.diff is not None
        assert "-three\n+b\n" in done.session.revert.diff
        back = await loom.api.unrevert(loom.session)
        assert back.session.summary == SessionSummary(additions=2, deletions=2, files=2)


async def test_a_prompt_changed_by_hand_keeps_that_when_it_is_summed_up(root: Path) -> None:
    async with open_loom(root) as loom:
        changed: list[asyncio.Task[object]] = []

        def by_hand() -> None:
            async def change() -> None:
                prompt = (await loom.history())[0].info
                assert isinstance(prompt, UserMessage)
                await loom.api.update_message(
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

        prompt = await loom.works([by_hand, bash("echo two > a.txt")])
        await asyncio.gather(*changed)
        info = (await loom.api.get_message(loom.session, prompt)).info
        assert isinstance(info, UserMessage)
        assert info.system == "By hand."
        assert info.summary is not None
        assert [diff.file for diff in info.summary.diffs] == ["a.txt"]


async def test_a_step_that_changes_nothing_writes_nothing_about_files(root: Path) -> None:
    async with open_loom(root) as loom:
        heard = loom.api.bus.listen(None)
        await loom.works([reads(root / "a.txt"), bash("true")])
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
        assert (await loom.api.get_session(loom.session)).summary is None


async def test_in_memory_sessions_can_be_taken_back_too(root: Path) -> None:
    async with open_loom(root, store="memory:") as loom:
        prompt = await loom.does(bash("echo two > a.txt"))
        assert await loom.undoes(prompt) == {"a.txt": "restored"}
        assert [part.text for part in (await loom.history())[0].parts if isinstance(part, TextPart)] == [
            "Weave."
        ]


async def test_a_session_without_changes_is_taken_back_without_files(root: Path) -> None:
    async with open_loom(root) as loom:
        await loom.api.create_session(SessionInput())
        prompt = await loom.works()
        assert await loom.undoes(prompt) == {}
        assert await loom.redoes() == {}


async def test_numbers_stay_true_past_what_is_listed(root: Path) -> None:
    async with open_loom(root) as loom:
        await loom.does(bash("for i in $(seq 510); do echo $i > many-$i.txt; done"))
        await loom.does(bash("echo two > a.txt; echo more >> many-1.txt; rm many-2.txt"))
        listed = await loom.api.list_diff(loom.session)
        assert (await loom.api.get_session(loom.session)).summary == SessionSummary(
            additions=511, deletions=1, files=510
        )
        assert len(listed) == 500
        assert sum(diff.additions for diff in listed) == 511


# --- a disk that is full ---

LIMIT = 300_000
LARGE = "large\n" * 100_000


async def test_what_cannot_be_brought_back_whole_is_an_error_with_its_list_and_changes_nothing(
    root: Path,
) -> None:
    write(root / "big.txt", LARGE)
    write(root / "gone.txt", "mine, and not committed\n")
    async with open_loom(root) as loom:
        first = await loom.does(bash("echo two > a.txt; echo small > big.txt; rm gone.txt"))
        before = files_below(root)
        with no_file_over(LIMIT), pytest.raises(RestoreFailedError) as failed:
            await loom.api.revert(loom.session, first)
        assert (failed.value.files, failed.value.left) == ((str(root / "big.txt"),), ())
        assert "nothing was changed" in str(failed.value)
        assert files_below(root) == before
        assert (await loom.api.get_session(loom.session)).revert is None
        # Going on loses nothing: it can be done when there is room.
        await loom.does(bash("echo three > b.txt"))
        await loom.undoes(first)
        assert (text(root / "big.txt"), text(root / "gone.txt")) == (LARGE, "mine, and not committed\n")
        with no_file_over(LIMIT):
            await loom.redoes()
        assert (text(root / "big.txt"), exists(root / "gone.txt")) == ("small\n", False)


async def test_what_can_be_neither_brought_back_nor_put_as_it_was_is_settled_when_there_is_room(
    root: Path,
) -> None:
    write(root / "big.txt", LARGE)
    async with open_loom(root) as loom:
        first = await loom.does(bash("yes large | head -n 100000 > a.txt; echo small > big.txt"))
        with no_file_over(LIMIT):
            with pytest.raises(RestoreFailedError) as failed:
                await loom.api.revert(loom.session, first)
            assert (failed.value.files, failed.value.left) == (
                (str(root / "big.txt"),),
                (str(root / "a.txt"),),
            )
            assert "files stay restored" in str(failed.value)
            with pytest.raises(RestoreFailedError):
                await loom.api.revert(loom.session, first)
        assert (text(root / "a.txt"), text(root / "big.txt")) == ("one\n", "small\n")
        await loom.api.revert(loom.session, first)
        assert (text(root / "a.txt"), text(root / "big.txt")) == ("one\n", LARGE)
        await loom.redoes()
        assert (text(root / "a.txt"), text(root / "big.txt")) == (LARGE, "small\n")


async def test_a_redo_that_does_not_fit_is_an_error_and_can_be_done_later(root: Path) -> None:
    async with open_loom(root) as loom:
        first = await loom.does(bash("yes large | head -n 100000 > a.txt; echo new > n.txt"))
        await loom.undoes(first)
        with no_file_over(LIMIT), pytest.raises(RestoreFailedError) as failed:
            await loom.api.unrevert(loom.session)
        assert failed.value.files == (str(root / "a.txt"),)
        assert (text(root / "a.txt"), exists(root / "n.txt")) == ("one\n", False)
        assert (await loom.api.get_session(loom.session)).revert is not None
        await loom.redoes()
        assert (text(root / "a.txt"), text(root / "n.txt")) == (LARGE, "new\n")

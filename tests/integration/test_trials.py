"""Trials: several attempts at one prompt at the same time, compared, adopted, undone and discarded. With real git."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from given.long_session import (
    CHECK,
    LoomProvider,
    Script,
    bash_call,
    git,
    make_repository,
    open_loom,
    write_call,
)
from weft.errors import (
    ConflictError,
    DirectoryError,
    InvalidInputError,
    ModelNotFoundError,
    NotFoundError,
    SessionBusyError,
)
from weft.local.api import LocalApi
from weft.model.event import Event, SessionCreated, SessionDeleted
from weft.model.ids import SessionID
from weft.model.input import SessionInput, prompt
from weft.model.message import UserMessage
from weft.model.part import ModelRef
from weft.model.spending import Budget
from weft.model.trial import (
    AdoptedPath,
    AdoptInput,
    CompareInput,
    Comparison,
    Pick,
    Trial,
    TrialInput,
    Variant,
)
from weft.page.comparison import render_comparison
from weft.provider.chunk import AnyChunk
from weft.provider.contract import ModelRequest, TextContent
from weft.provider.scripted import Say, UseTool

LOOM, SHUTTLE = (ModelRef(provider_id="scripted", model_id=name) for name in ("loom", "shuttle"))
DONE = (Say(text="Done."),)
BOTH = (Variant(model=LOOM), Variant(model=SHUTTLE))


def edit_loom(factor: int) -> Script:
    """A script that changes the factor in `loom.py`, and adds a file."""
    text = f"def scale(thread):\n    return thread * {factor}\n"
    return [(write_call(f"by-{factor}.txt", "x\n"),), (bash_call(f"cat > loom.py <<'END'\n{text}END"),), DONE]


class TrialHarness:
    """An open engine, and its model."""

    def __init__(self, root: Path, api: LocalApi, provider: LoomProvider) -> None:
        self.root = root
        self.api = api
        self.provider = provider
        provider.scripts |= {"loom: scale it": edit_loom(2), "shuttle: scale it": edit_loom(5)}

    async def run(self, trials: list[Trial]) -> None:
        """Run all trials at the same time, each in the engine of its own directory."""
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
            for trial in trials:
                api = await stack.enter_async_context(open_loom(Path(trial.directory), self.provider))
                tasks.create_task(api.prompt(trial.session, trial.prompt))

    async def attempt(self, **more: object) -> list[Trial]:
        """Try one prompt with both models, and run the trials."""
        input = TrialInput(prompt=prompt("scale it"), variants=BOTH, **more)  # type: ignore[arg-type]
        trials = await self.api.trials.create(input)
        await self.run(trials)
        return trials

    async def compare(self, *ids: SessionID, **more: object) -> Comparison:
        return await self.api.trials.compare(CompareInput(sessions=ids, **more))  # type: ignore[arg-type]

    def files(self) -> dict[str, str]:
        paths = git(self.root, "ls-files", "-co", "--exclude-standard").splitlines()
        return {path: (self.root / path).read_text() for path in paths if (self.root / path).exists()}

    def worktrees(self) -> list[str]:
        return git(self.root, "worktree", "list").splitlines()[1:]

    def state(self) -> tuple[dict[str, str], list[str], str]:
        return self.files(), self.worktrees(), git(self.root, "for-each-ref")


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[TrialHarness]:
    provider, root = LoomProvider({}), make_repository(tmp_path / "cloth")
    async with open_loom(root, provider) as api:
        yield TrialHarness(root, api, provider)


async def test_trials_are_compared_and_one_is_adopted_and_undone(harness: TrialHarness) -> None:
    (harness.root / "mine.txt").write_text("my own\n")
    (harness.root / "check.py").write_text((harness.root / "check.py").read_text() + "# mine\n")
    trials = await harness.attempt(check=CHECK, check_seconds=60)
    one, other = trials
    compared = await harness.compare(one.session, run_check=True)
    rows = compared.sessions
    assert [row.session for row in rows] == [one.session, other.session], "one trial stands for its group"
    assert [(row.model, row.outcome, row.spent.steps, row.files) for row in rows] == [
        ("scripted/loom", "finished", 3, 1),
        ("scripted/shuttle", "finished", 3, 2),
    ]
    assert [row.check and row.check.outcome for row in rows] == ["passed", "failed"]
    assert rows[1].divergence is not None
    assert (rows[1].divergence.step, rows[1].divergence.what) == (1, "call")
    assert compared.spent.cost == rows[0].spent.cost + rows[1].spent.cost > 0
    assert b"scripted/shuttle" in render_comparison(compared)
    # The check runs again only on request.
    assert (await harness.compare()).sessions[0].check == rows[0].check

    before = harness.files()
    adopted = await harness.api.trials.adopt(AdoptInput(picks=(Pick(session=other.session),)))
    assert adopted.paths == (
        AdoptedPath(path="by-5.txt", how="added"),
        AdoptedPath(path="loom.py", how="changed"),
    )
    assert harness.files() == before | {
        "by-5.txt": "x\n",
        "loom.py": "def scale(thread):\n    return thread * 5\n",
    }
    (harness.root / "mine.txt").write_text("my own, later\n")
    undone = await harness.api.trials.undo_adoption()
    assert [each.path for each in undone.paths] == ["by-5.txt", "loom.py"]
    assert harness.files() == before | {"mine.txt": "my own, later\n"}
    with pytest.raises(NotFoundError, match="there is no adoption to undo in"):
        await harness.api.trials.undo_adoption()
    again = await harness.api.trials.adopt(AdoptInput(picks=(Pick(session=other.session),)))
    assert again.paths == adopted.paths, "what was undone can be adopted again"


async def test_adopting_conflicts_with_what_the_person_changed_and_then_changes_nothing(
    harness: TrialHarness,
) -> None:
    _, other = await harness.attempt()
    (harness.root / "loom.py").write_text("def scale(thread):\n    return thread * 7\n")
    before = harness.state()
    with pytest.raises(ConflictError, match=r"loom\.py"):
        await harness.api.trials.adopt(AdoptInput(picks=(Pick(session=other.session),), discard=True))
    assert harness.state() == before


async def test_undoing_an_adoption_keeps_later_changes_by_the_person(harness: TrialHarness) -> None:
    _, other = await harness.attempt()
    await harness.api.trials.adopt(AdoptInput(picks=(Pick(session=other.session),)))
    (harness.root / "loom.py").write_text("def scale(thread):\n    return thread * 7\n")
    before = harness.files()
    with pytest.raises(ConflictError, match="changed by you since"):
        await harness.api.trials.undo_adoption()
    assert harness.files() == before


async def test_files_are_picked_from_several_trials_and_all_worktrees_discarded(
    harness: TrialHarness,
) -> None:
    one, other = await harness.attempt()
    harness.provider.scripts["loom: scale it"] = edit_loom(2)
    picks = (Pick(session=one.session, paths=("by-2.txt",)), Pick(session=other.session, paths=("loom.py",)))
    adopted = await harness.api.trials.adopt(AdoptInput(picks=picks, commit="Scale it", discard=True))
    assert [each.path for each in adopted.paths] == ["by-2.txt", "loom.py"]
    assert (git(harness.root, "log", "-1", "--format=%s"), git(harness.root, "status", "--short")) == (
        "Scale it",
        "",
    )
    assert "thread * 5" in (harness.root / "loom.py").read_text()
    assert harness.worktrees() == []
    assert {each.name for each in adopted.discarded} == {one.worktree, other.worktree}
    assert (await harness.compare()).sessions[0].outcome == "finished", "the sessions are kept"
    with pytest.raises(NotFoundError, match="worktree"):
        await harness.api.trials.adopt(AdoptInput(picks=(Pick(session=one.session),)))


@pytest.mark.parametrize("path", ["nothing.txt", "../outside.txt", "/etc/passwd"])
async def test_a_file_that_a_trial_did_not_change_cannot_be_picked(harness: TrialHarness, path: str) -> None:
    one, _ = await harness.attempt()
    before = harness.state()
    with pytest.raises(InvalidInputError, match="did not change it"):
        await harness.api.trials.adopt(AdoptInput(picks=(Pick(session=one.session, paths=(path,)),)))
    assert harness.state() == before


async def test_a_trial_whose_branch_was_deleted_can_be_adopted(harness: TrialHarness) -> None:
    _, other = await harness.attempt()
    git(harness.root, "update-ref", "-d", f"refs/heads/opencode/{other.worktree}")
    adopted = await harness.api.trials.adopt(AdoptInput(picks=(Pick(session=other.session),), discard=True))
    assert [each.path for each in adopted.paths] == ["by-5.txt", "loom.py"]
    assert harness.worktrees() == []


# --- running at the same time, within one budget ---


class MeetingProvider(LoomProvider):
    """A model that answers the first request of each trial only when all trials have asked."""

    def __init__(self, scripts: dict[str, Script], count: int) -> None:
        super().__init__(scripts)
        self._waiting: set[str] = set()
        self.all_here = asyncio.Event()
        self._count = count
        self.asked = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        self._waiting.add(request.session)
        self.asked.set()
        if len(self._waiting) == self._count:
            self.all_here.set()
        await self.all_here.wait()
        async for chunk in super().stream(request):
            yield chunk


async def test_trials_run_concurrently_and_share_one_budget(tmp_path: Path) -> None:
    steps = [(bash_call(f"echo {number}"),) for number in range(10)]
    provider = MeetingProvider({"go": [*steps, DONE]}, 3)
    async with open_loom(make_repository(tmp_path / "cloth"), provider) as api:
        bench = TrialHarness(tmp_path / "cloth", api, provider)
        input = TrialInput(prompt=prompt("go"), count=3, budget=Budget(steps=7))
        trials = await api.trials.create(input)
        await bench.run(trials)
        compared = await bench.compare(trials[0].session)
    assert [row.outcome for row in compared.sessions] == ["stopped"] * 3
    assert compared.spent.steps == 7, "together, not each"
    assert all(row.spent.steps >= 1 for row in compared.sessions)
    assert "all trials together" in compared.sessions[0].detail


async def test_child_sessions_of_a_trial_share_its_budget(harness: TrialHarness) -> None:
    task = UseTool(tool="task", input={"description": "Help", "prompt": "help", "subagent_type": "general"})
    harness.provider.scripts |= {
        "delegate": [(task,), DONE],
        "help": [*((bash_call(f"echo {number}"),) for number in range(10)), DONE],
    }
    trials = await harness.api.trials.create(TrialInput(prompt=prompt("delegate"), budget=Budget(steps=4)))
    await harness.run(trials)
    row = (await harness.compare()).sessions[0]
    assert (row.outcome, row.spent.steps) == ("stopped", 4)


async def test_a_running_trial_can_be_compared_but_not_adopted(tmp_path: Path) -> None:
    provider = MeetingProvider({"go": [(write_call("one.txt", "1\n"),), DONE]}, 2)
    root = make_repository(tmp_path / "cloth")
    async with open_loom(root, provider) as api:
        trials = await api.trials.create(TrialInput(prompt=prompt("go"), count=1, check="true"))
        async with open_loom(Path(trials[0].directory), provider) as other, asyncio.TaskGroup() as tasks:
            running = tasks.create_task(other.prompt(trials[0].session, trials[0].prompt))
            await provider.asked.wait()
            compared = await api.trials.compare(CompareInput(run_check=True))
            assert [(row.outcome, row.check) for row in compared.sessions] == [("running", None)]
            for refused in (
                api.trials.adopt(AdoptInput(picks=(Pick(session=trials[0].session),))),
                api.trials.discard(trials[0].session),
            ):
                with pytest.raises(SessionBusyError):
                    await refused
            provider.all_here.set()
            await running
        assert [row.outcome for row in (await api.trials.compare(CompareInput())).sessions] == ["finished"]


# --- from a message of a session ---


async def test_trials_from_a_message_start_with_its_files_and_history(harness: TrialHarness) -> None:
    harness.provider.scripts |= {
        "begin": [(write_call("cloth.txt", "begun\n"),), DONE],
        "go on": [(write_call("cloth.txt", "finished\n"),), DONE],
        "otherwise": [(bash_call("cat cloth.txt > seen.txt"),), DONE],
    }
    session = await harness.api.create_session(SessionInput(title="A cloth"))
    for text in ("begin", "go on"):
        await harness.api.prompt(session.id, prompt(text))
    prompts = [
        each.info.id
        for each in await harness.api.list_messages(session.id)
        if isinstance(each.info, UserMessage)
    ]
    before = harness.files()
    input = TrialInput(prompt=prompt("otherwise"), count=2, session=session.id, at=prompts[1])
    trials = await harness.api.trials.create(input)
    await harness.run(trials)
    assert harness.files() == before
    for trial in trials:
        assert (Path(trial.directory) / "seen.txt").read_text() == "begun\n"
    compared = await harness.compare(trials[0].session)
    assert [(row.changed, row.spent.steps) for row in compared.sessions] == [(("seen.txt",), 2)] * 2
    await harness.api.trials.adopt(AdoptInput(picks=(Pick(session=trials[1].session),), discard=True))
    assert harness.files() == before | {"seen.txt": "begun\n"}, "what the session did later stays"


# --- the check, and the judge ---


async def test_a_check_that_changes_the_worktree_is_reported_and_cleaned_up(harness: TrialHarness) -> None:
    _, other = await harness.attempt(check="echo more >> loom.py; rm by-5.txt; echo new > new.txt")
    row = (await harness.compare(other.session, run_check=True)).sessions[1]
    assert row.check is not None
    assert row.check.dirtied == ("by-5.txt", "loom.py", "new.txt")
    assert row.changed == ("by-5.txt", "loom.py"), "as before the check"


async def test_a_check_that_hangs_is_ended(harness: TrialHarness) -> None:
    trials = await harness.attempt(check="sleep 1000", check_seconds=1)
    rows = (await harness.compare(trials[0].session, run_check=True)).sessions
    assert [row.check and row.check.outcome for row in rows] == ["hung", "hung"]


async def test_a_judge_ranks_the_trials_and_its_cost_is_counted(harness: TrialHarness) -> None:
    trials = await harness.attempt(budget=Budget(steps=100))

    ranking = '{"rankings": [{"attempt": 1, "rank": 2, "reasons": "It changes nothing."}, {"attempt": 2, "rank": 1, "reasons": "It does the job."}]}'
    harness.provider.default = [(Say(text=ranking),)]
    judgement = (await harness.compare(trials[0].session, judge=SHUTTLE)).judgement
    assert judgement is not None
    assert [(each.session, each.rank, each.reasons) for each in judgement.rankings] == [
        (trials[1].session, 1, "It does the job."),
        (trials[0].session, 2, "It changes nothing."),
    ]
    assert judgement.spent.cost == (await harness.api.get_spending(judgement.session)).tree.cost > 0
    shown = harness.provider.requests[-1].messages[0].content[0]
    assert isinstance(shown, TextContent)
    assert "+    return thread * 5" in shown.text


# --- bad input ---


@pytest.mark.parametrize(
    ("input", "error"),
    [
        (TrialInput(prompt=prompt("go"), count=99), InvalidInputError),
        (TrialInput(prompt=prompt("go"), count=10**100), InvalidInputError),  # more than memory holds
        (
            TrialInput(
                prompt=prompt("go"), variants=(Variant(model=ModelRef(provider_id="no", model_id="such")),)
            ),
            ModelNotFoundError,
        ),
        (TrialInput(prompt=prompt("go"), variants=(*BOTH, Variant(agent="nobody"))), NotFoundError),
        (TrialInput(prompt=prompt("go"), session=SessionID("ses_of_another_store00000000")), NotFoundError),
    ],
)
async def test_trials_that_cannot_start_leave_nothing_behind(
    harness: TrialHarness, input: TrialInput, error: type[Exception]
) -> None:
    before = harness.state()
    with pytest.raises(error):
        await harness.api.trials.create(input)
    assert harness.state() == before
    assert await harness.api.list_sessions() == []


async def test_listeners_are_told_that_cancelled_trials_are_deleted(harness: TrialHarness) -> None:
    before, heard = harness.state(), list[tuple[str, str]]()

    def watch(event: Event) -> None:
        if isinstance(event, SessionCreated | SessionDeleted):
            heard.append((event.type, event.info.title))
            if event.info.title.endswith("(trial 2 of 3)"):
                creating.cancel()

    harness.api.bus.watch(watch)
    creating = asyncio.ensure_future(harness.api.trials.create(TrialInput(prompt=prompt("go"), count=3)))
    with pytest.raises(asyncio.CancelledError):
        await creating

    assert heard == [
        ("session.created", "go (trial 1 of 3)"),
        ("session.created", "go (trial 2 of 3)"),
        ("session.deleted", "go (trial 1 of 3)"),
        ("session.deleted", "go (trial 2 of 3)"),
    ]
    assert harness.state() == before
    assert await harness.api.list_sessions() == []


async def test_trials_need_a_repository_with_a_commit(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    async with open_loom(tmp_path / "plain", LoomProvider({})) as api:
        with pytest.raises(DirectoryError, match="not in a git repository"):
            await api.trials.create(TrialInput(prompt=prompt("go")))


async def test_a_session_that_is_not_a_trial_is_not_discarded_or_adopted(harness: TrialHarness) -> None:
    session = await harness.api.create_session(SessionInput(title="Plain"))
    with pytest.raises(InvalidInputError, match="is no trial"):
        await harness.api.trials.discard(session.id)
    with pytest.raises(ConflictError, match="did not work in a worktree"):
        await harness.api.trials.adopt(AdoptInput(picks=(Pick(session=session.id),)))
    with pytest.raises(InvalidInputError, match="this project has none yet"):
        await harness.compare()

"""Replay and bisect a real session of 36 steps over a real repository; the answers are known beforehand."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from given.long_session import (
    BREAKING_STEP,
    CHECK,
    PROMPTS,
    STEPS,
    LoomProvider,
    bash_call,
    git,
    make_repository,
    make_scripts,
    open_loom,
    weave,
    write_call,
)
from weft.errors import ConflictError, InvalidInputError, ModelNotFoundError, NotFoundError
from weft.local.api import LocalApi
from weft.local.replay import to_key
from weft.model.ids import MessageID, SessionID
from weft.model.input import SessionInput, prompt
from weft.model.message import UserMessage
from weft.model.part import ModelRef
from weft.model.trial import BisectInput, ReplayInput
from weft.provider.scripted import Say
from weft.session.steps import list_steps

OTHER = ModelRef(provider_id="scripted", model_id="shuttle")


class ReplayHarness:
    """An open engine, the session that it wove, and the scripts of its model."""

    def __init__(self, root: Path, api: LocalApi, provider: LoomProvider, session: SessionID) -> None:
        self.root = root
        self.api = api
        self.provider = provider
        self.session = session

    def state(self) -> str:
        """Everything that must not change: the person's files, the checkouts and the refs."""
        return "\n".join(
            git(self.root, *words)
            for words in (["status", "--short", "-uall"], ["worktree", "list"], ["for-each-ref"], ["diff"])
        )

    async def run(self, *moves: object, text: str = "go") -> SessionID:
        """Run a new session with one prompt, whose answers are these moves."""
        self.provider.scripts[text] = [moves, (Say(text="Done."),)]  # type: ignore[list-item]
        session = await self.api.create_session(SessionInput(title="A thread"))
        await self.api.prompt(session.id, prompt(text))
        return session.id


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ReplayHarness]:
    """A repository in which nothing was woven yet."""
    provider, root = LoomProvider(make_scripts()), make_repository(tmp_path / "cloth")
    async with open_loom(root, provider) as api:
        yield ReplayHarness(root, api, provider, SessionID(""))


async def test_a_long_session_is_bisected_and_replayed(harness: ReplayHarness) -> None:
    session = await weave(harness.api)
    before, trials = harness.state(), harness.api.trials
    steps = list_steps(await harness.api.list_messages(session))
    assert len(steps) == STEPS

    found = await trials.bisect(session, BisectInput(check=CHECK, seconds=60))
    assert found.verdict == "found"
    assert found.culprit is not None
    assert (found.culprit.step, found.culprit.tool) == (BREAKING_STEP, "edit")
    assert found.culprit.prompt == PROMPTS[1]
    assert "-    return thread * 2\n+    return thread * 3" in found.culprit.diff
    assert "scale(2) is 6" in found.output
    assert len(found.runs) <= found.changes.bit_length() + 4

    requests = len(harness.provider.requests)
    exact = await trials.replay(session, ReplayInput())
    assert (exact.divergence, exact.steps, exact.session) == (None, STEPS, None)
    assert len(harness.provider.requests) == requests, "recorded answers ask no model"

    # Another model answers as before up to step 13, and differently from then on.
    harness.provider.scripts[f"shuttle: {PROMPTS[1]}"] = [(Say(text="I would rather not."),)]
    other = await trials.replay(session, ReplayInput(model=OTHER, tools="recorded"))
    assert other.divergence is not None
    assert (other.divergence.step, other.divergence.what) == (13, "call")
    assert "read" in other.divergence.one
    assert other.divergence.other == "I would rather not."
    assert other.session is not None
    assert (await harness.api.get_spending(other.session)).tree.steps == other.steps

    assert harness.state() == before


async def test_a_part_of_a_session_is_replayed_with_its_files_of_the_time(harness: ReplayHarness) -> None:
    harness.provider.scripts["more"] = [(bash_call("cat one.txt; echo 2 >> one.txt"),), (Say(text="Done."),)]
    session = await harness.run(bash_call("echo 1 >> one.txt"))
    for _ in range(2):
        await harness.api.prompt(session, prompt("more"))
    prompts = [
        each.info.id
        for each in await harness.api.list_messages(session)
        if isinstance(each.info, UserMessage)
    ]
    answers = [step.info.id for step in list_steps(await harness.api.list_messages(session))]
    turn = await harness.api.trials.replay(session, ReplayInput(start=prompts[1], end=prompts[1]))
    assert (turn.divergence, turn.recorded_steps, turn.steps) == (None, 2, 2)
    step = await harness.api.trials.replay(session, ReplayInput(start=prompts[2], end=answers[4]))
    assert (step.divergence, step.recorded_steps, step.steps) == (None, 1, 1)


async def test_a_replay_names_the_step_whose_result_differs_now(
    harness: ReplayHarness, tmp_path: Path
) -> None:
    outside = tmp_path / "weather.txt"
    outside.write_text("rain\n")
    session = await harness.run(bash_call("echo dry > cloth.txt"), bash_call(f"cat {outside}"))
    outside.write_text("sun\n")
    report = await harness.api.trials.replay(session, ReplayInput())
    assert report.divergence is not None
    assert (report.divergence.step, report.divergence.what) == (1, "result")
    assert "rain" in report.divergence.one
    assert "sun" in report.divergence.other


async def test_a_replay_does_not_change_the_persons_files(harness: ReplayHarness) -> None:
    target = harness.root / "cloth.txt"
    session = await harness.run(write_call(str(target), "woven\n"))
    target.write_text("my own\n")
    report = await harness.api.trials.replay(session, ReplayInput())
    assert report.divergence is None
    assert target.read_text() == "my own\n"


async def test_a_replay_with_another_model_ends_at_the_first_call_without_a_recorded_result(
    harness: ReplayHarness,
) -> None:
    session = await harness.run(bash_call("echo one"))
    harness.provider.scripts["shuttle: go"] = [
        (bash_call("echo one"),),
        (bash_call("touch never"),),
        (Say(text="No."),),
    ]
    report = await harness.api.trials.replay(session, ReplayInput(model=OTHER, tools="recorded"))
    assert report.divergence is not None
    assert (report.divergence.step, report.steps) == (2, 2)
    assert "touch never" in report.divergence.other


async def test_a_replay_with_real_tools_changes_only_the_scratch_worktree(harness: ReplayHarness) -> None:
    session = await harness.run(write_call("cloth.txt", "woven\n"))
    harness.provider.scripts["shuttle: go"] = [(write_call("cloth.txt", "knitted\n"),), (Say(text="Done."),)]
    before = harness.state()
    report = await harness.api.trials.replay(session, ReplayInput(model=OTHER))
    assert report.divergence is not None
    assert (report.divergence.step, report.divergence.what) == (1, "call")
    assert report.comparison.sessions[1].outcome == "finished"
    assert harness.state() == before


@pytest.mark.parametrize(
    ("input", "error", "said"),
    [
        (
            ReplayInput(model=ModelRef(provider_id="scripted", model_id="gone")),
            ModelNotFoundError,
            "scripted/gone",
        ),
        (ReplayInput(start=MessageID("msg_none")), NotFoundError, "msg_none"),
        (ReplayInput(tools="recorded"), InvalidInputError, "compare the recording with itself"),
    ],
)
async def test_a_replay_that_cannot_start_says_so_and_leaves_nothing(
    harness: ReplayHarness, input: ReplayInput, error: type[Exception], said: str
) -> None:
    session = await harness.run(bash_call("echo one > one.txt"))
    before = harness.state()
    with pytest.raises(error, match=said):
        await harness.api.trials.replay(session, input)
    assert harness.state() == before


async def test_a_part_with_nothing_to_replay_is_refused_with_a_hint(harness: ReplayHarness) -> None:
    session = await harness.run(bash_call("echo one > one.txt"))
    first, last = (step.info.id for step in list_steps(await harness.api.list_messages(session)))
    unanswered = await harness.api.submit(session, replace(prompt("later"), no_reply=True))
    for input, hint in (
        (ReplayInput(start=last, end=first), "name a later one; weft session show lists the messages"),
        (ReplayInput(start=unanswered.info.id), f"weft session show {session} shows which prompts have one"),
    ):
        with pytest.raises((InvalidInputError, ConflictError)) as refused:
            await harness.api.trials.replay(session, input)
        assert refused.value.hint == hint


# --- bisect ---


async def test_a_check_that_passes_at_the_end_or_fails_at_the_beginning_blames_no_call(
    harness: ReplayHarness,
) -> None:
    session = await harness.run(write_call("one.txt", "1\n"), write_call("two.txt", "2\n"))
    good = await harness.api.trials.bisect(session, BisectInput(check="true"))
    bad = await harness.api.trials.bisect(session, BisectInput(check="false"))
    assert [(each.verdict, each.culprit, len(each.runs)) for each in (good, bad)] == [
        ("good", None, 1),
        ("bad", None, 2),
    ]


async def test_a_flaky_check_is_named(harness: ReplayHarness, tmp_path: Path) -> None:
    session = await harness.run(write_call("one.txt", "1\n"))
    counter = tmp_path / "counter"
    # It fails the first time it sees the file, and passes the second time.
    check = f"test ! -e one.txt || test -e {counter} || {{ touch {counter}; false; }}"
    report = await harness.api.trials.bisect(session, BisectInput(check=check))
    assert (report.verdict, report.culprit) == ("flaky", None)


async def test_a_check_that_hangs_is_ended_and_named(harness: ReplayHarness) -> None:
    session = await harness.run(write_call("one.txt", "1\n"))
    check = "test ! -e one.txt || sleep 100"
    report = await harness.api.trials.bisect(session, BisectInput(check=check, seconds=3))
    assert report.verdict == "found"
    assert [run.outcome for run in report.runs] == ["hung", "passed", "hung", "passed"]
    assert any("did not end within 3 s" in note for note in report.notes)


async def test_a_check_that_writes_files_is_reported_and_does_not_disturb_the_next_run(
    harness: ReplayHarness,
) -> None:
    session = await harness.run(write_call("one.txt", "1\n"), write_call("two.txt", "2\n"))
    check = "test ! -e two.txt; code=$?; test -e trace && exit 9; echo x > trace; echo y >> one.txt; rm -f check.py; exit $code"
    report = await harness.api.trials.bisect(session, BisectInput(check=check))
    assert (report.verdict, report.culprit and report.culprit.diff.splitlines()[0]) == (
        "found",
        "diff --git a/two.txt b/two.txt",
    )
    assert report.dirtied == ("check.py", "one.txt", "trace")


async def test_files_that_the_session_did_not_touch_have_the_content_of_that_time(
    harness: ReplayHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    (harness.root / "mine.txt").write_text("uncommitted\n")
    session = await harness.run(write_call("one.txt", "1\n"))
    (harness.root / "loom.py").write_text("later\n")
    (harness.root / "newer.txt").write_text("newer\n")
    git(harness.root, "add", "-A")
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2040-01-01T00:00:00Z")
    git(harness.root, "commit", "-qm", "Later work")
    check = "grep -q uncommitted mine.txt && grep -q 'thread \\* 2' loom.py && test ! -e newer.txt && test ! -e one.txt"
    report = await harness.api.trials.bisect(session, BisectInput(check=check))
    assert (report.verdict, report.culprit and report.culprit.tool) == ("found", "write")


@pytest.mark.parametrize(
    ("check", "said"), [("", "there is no command"), ("no-such-program-here", "cannot be run")]
)
async def test_a_check_that_cannot_run_is_refused(harness: ReplayHarness, check: str, said: str) -> None:
    session = await harness.run(write_call("one.txt", "1\n"))
    before = harness.state()
    with pytest.raises(InvalidInputError, match=said):
        await harness.api.trials.bisect(session, BisectInput(check=check))
    assert harness.state() == before


async def test_a_session_without_changes_or_snapshots_cannot_be_bisected(tmp_path: Path) -> None:
    provider, root = LoomProvider({}), make_repository(tmp_path / "cloth")
    async with open_loom(root, provider) as api:
        cloth = ReplayHarness(root, api, provider, SessionID(""))
        idle = await cloth.run(Say(text="Nothing to do."))
        with pytest.raises(ConflictError, match="changed no file"):
            await api.trials.bisect(idle, BisectInput(check="true"))
        changed = await cloth.run(write_call("one.txt", "1\n"), text="other")
        await api.runtime.undo_context.snapshots.release(changed)
        snapshots = Path(api.parts.sources.paths.data) / "weft" / "snapshot"
        for pack in snapshots.rglob("objects"):
            pack.rename(pack.with_name("gone"))
        with pytest.raises(ConflictError, match="its snapshots are gone"):
            await api.trials.bisect(changed, BisectInput(check="true"))
        assert git(root, "worktree", "list").count("\n") == 0


def test_equal_arguments_have_the_same_key_in_every_checkout() -> None:
    one, other = {"b": 1, "path": "/one/a \ud83d"}, {"path": "/other/a \ud83d", "b": 1}
    assert to_key(one, "/one") == to_key(other, "/other")

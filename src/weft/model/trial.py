"""Trials, comparisons, replays and bisections of sessions: their inputs and their results."""

from typing import Literal

from weft.model.ids import MessageID, SessionID
from weft.model.input import PromptInput
from weft.model.part import ModelRef
from weft.model.session import DEFAULT_CHECK_SECONDS, CheckOutcome, CheckResult
from weft.model.spending import Budget, Spent
from weft.model.wire import Wire, always

Outcome = Literal["running", "finished", "failed", "stopped", "aborted", "empty"]
MAX_TRIALS = 16


class Variant(Wire, frozen=True, kw_only=True):
    """What is different about a trial: its model, agent and variant of the model. None means the usual one."""

    model: ModelRef | None = None
    agent: str | None = None
    variant: str | None = None


class TrialInput(Wire, frozen=True, kw_only=True):
    """A prompt to try several times, each in its own worktree: once for each of `variants`, `count` times over.

    With `session`, each trial is a fork of it, from its end or before the message `at`, with the files as they were then.
    `budget` is for all trials together.
    """

    prompt: PromptInput
    count: int = 1
    variants: tuple[Variant, ...] = ()
    session: SessionID | None = None
    at: MessageID | None = None
    budget: Budget | None = None
    check: str = ""
    check_seconds: int = DEFAULT_CHECK_SECONDS


class Trial(Wire, frozen=True, kw_only=True):
    """A trial that was created: its session, the directory in which to run it, and the prompt to send."""

    session: SessionID
    directory: str
    worktree: str
    prompt: PromptInput


class Divergence(Wire, frozen=True, kw_only=True):
    """Where two sessions first differ: the step, counted from where they are compared, and what each did there.

    `what` is the kind of difference: the text of the model, its calls, the result of a call, the files after the step,
    or that one session has no such step (`end`).
    """

    step: int
    what: Literal["text", "call", "result", "files", "end"]
    one: str
    other: str


class ComparedSession(Wire, frozen=True, kw_only=True):
    """One session in a comparison. `detail` says why it failed or stopped. `divergence` is where it differs from the first session."""

    session: SessionID
    title: str
    model: str = always("")
    agent: str = always("")
    worktree: str = always("")
    outcome: Outcome
    detail: str = always("")
    check: CheckResult | None = None
    files: int = always(0)
    additions: int = always(0)
    deletions: int = always(0)
    spent: Spent = always(Spent())
    ms: int = always(0)
    divergence: Divergence | None = None
    changed: tuple[str, ...] = always(())


class Ranking(Wire, frozen=True, kw_only=True):
    """The place of a session in the opinion of a judge, from 1, and the judge's reasons."""

    session: SessionID
    rank: int
    reasons: str


class TrialJudgement(Wire, frozen=True, kw_only=True):
    """What a judge model says about the sessions, best first. `session` holds its answer, `spent` is its cost."""

    model: str
    session: SessionID
    rankings: tuple[Ranking, ...]
    spent: Spent


class Comparison(Wire, frozen=True, kw_only=True):
    """Several sessions side by side, what they cost together, and the opinion of a judge if one was asked."""

    sessions: tuple[ComparedSession, ...]
    spent: Spent
    judgement: TrialJudgement | None = None


class CompareInput(Wire, frozen=True, kw_only=True):
    """Which sessions to compare; a single trial stands for its whole group.

    With `run_check`, the check command runs where there is no result for the present files, or everywhere if `check`
    gives another command. `judge` is a model that ranks the sessions.
    """

    sessions: tuple[SessionID, ...] = ()
    run_check: bool = False
    check: str = ""
    seconds: int | None = None
    judge: ModelRef | None = None


class Pick(Wire, frozen=True, kw_only=True):
    """What to adopt of a session: all of its changes, or only those of these files and directories."""

    session: SessionID
    paths: tuple[str, ...] = ()


class AdoptInput(Wire, frozen=True, kw_only=True):
    """What to bring into the checkout.

    With `commit`, it is committed with this message. With `discard`, the worktrees of all trials of the group are removed
    afterwards.
    """

    picks: tuple[Pick, ...]
    commit: str | None = None
    discard: bool = False


class AdoptedPath(Wire, frozen=True, kw_only=True):
    """A file that was adopted, and how it changed."""

    path: str
    how: Literal["added", "changed", "deleted"]


class DiscardedWorktree(Wire, frozen=True, kw_only=True):
    """A worktree that was removed, and the commit that keeps its last state, or "" if it held nothing."""

    name: str
    commit: str = always("")


class TrialAdoption(Wire, frozen=True, kw_only=True):
    """What was adopted. `left_out` are submodules, `commit` is set if one was asked for."""

    paths: tuple[AdoptedPath, ...] = always(())
    left_out: tuple[str, ...] = always(())
    commit: str = always("")
    discarded: tuple[DiscardedWorktree, ...] = always(())


class ReplayInput(Wire, frozen=True, kw_only=True):
    """How to replay a session: from the first prompt or `start`, up to the last or `end` (which is replayed too).

    Without `model`, the recorded answers are used. With `model`, that model answers again. If `tools` is "recorded", calls get
    their recorded results, and the replay ends at the first call that has none.
    """

    model: ModelRef | None = None
    start: MessageID | None = None
    end: MessageID | None = None
    tools: Literal["real", "recorded"] = "real"
    budget: Budget | None = None


class ReplayReport(Wire, frozen=True, kw_only=True):
    """A replay: how many steps it had, where it first differs from the recording, and both side by side.

    `session` is the stored replay; a replay of recorded answers costs nothing and is not stored. `notes` say what may make
    the replay differ, such as files whose contents were not recorded.
    """

    steps: int
    recorded_steps: int
    divergence: Divergence | None = None
    comparison: Comparison
    session: SessionID | None = None
    notes: tuple[str, ...] = always(())


class BisectInput(Wire, frozen=True, kw_only=True):
    """The command that tells good files from bad ones, and how long it may take."""

    check: str
    seconds: int = DEFAULT_CHECK_SECONDS


class BisectRun(Wire, frozen=True, kw_only=True):
    """One run of the check, on the files after a call (named by its tool) of a step; step 0 is before the first one."""

    step: int
    call: str = always("")
    outcome: CheckOutcome
    ms: int = always(0)


class Culprit(Wire, frozen=True, kw_only=True):
    """The call that broke the check: its step, message and tool, what it changed, and the prompt it was for."""

    step: int
    message: MessageID
    call_id: str = always("")
    tool: str = always("")
    title: str = always("")
    model: str = always("")
    prompt: str = always("")
    diff: str = always("")


class BisectReport(Wire, frozen=True, kw_only=True):
    """The result of a bisection.

    `found`: `culprit` broke the check. `good`: the check passes on the last files. `bad`: it fails already before the
    first step. `flaky`: it gave two results for the same files.

    `changes` is the number of calls that changed files. `output` is the end of what the check printed where it failed, `dirtied` are
    files that the check changed.
    """

    verdict: Literal["found", "good", "bad", "flaky"]
    steps: int
    changes: int
    runs: tuple[BisectRun, ...]
    culprit: Culprit | None = None
    output: str = always("")
    dirtied: tuple[str, ...] = always(())
    notes: tuple[str, ...] = always(())

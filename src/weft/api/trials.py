"""Try a prompt several times, compare sessions, adopt one, replay a session, and find the call that broke something."""

from typing import Protocol

from weft.model.ids import SessionID
from weft.model.trial import (
    AdoptInput,
    BisectInput,
    BisectReport,
    CompareInput,
    Comparison,
    DiscardedWorktree,
    ReplayInput,
    ReplayReport,
    Trial,
    TrialAdoption,
    TrialInput,
)


class Trials(Protocol):
    """Several attempts at one prompt, and what can be learned from stored sessions.

    * `create` makes a session and a worktree for each trial, all or nothing, and runs nothing. The caller sends the prompt of
      each trial to the `Api` of its directory. All trials share one budget, also with the sessions that they start.
    * `compare` works while sessions run. A check runs only in the worktrees of trials that do not run; files that it changes are
      put back, and named.
    * `adopt` is a three-way merge into the checkout of this `Api`, all or nothing: `ConflictError` if it would touch lines or files
      that the person changed. It commits only what it merged, and only if asked to. `undo_adoption` takes the last one back.
    * `discard` removes the worktrees of all trials of a group; git keeps their contents as commits for a while.
    * `replay` and `bisect` work in a scratch worktree that is removed when they end. They change neither the session nor the
      person's files.
    """

    async def create(self, input: TrialInput) -> list[Trial]: ...

    async def compare(self, input: CompareInput) -> Comparison: ...

    async def adopt(self, input: AdoptInput) -> TrialAdoption: ...

    async def undo_adoption(self) -> TrialAdoption: ...

    async def discard(self, session: SessionID) -> list[DiscardedWorktree]: ...

    async def replay(self, session: SessionID, input: ReplayInput) -> ReplayReport: ...

    async def bisect(self, session: SessionID, input: BisectInput) -> BisectReport: ...

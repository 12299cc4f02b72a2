"""Try a prompt several times, each in its own worktree, and adopt one of the results."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from msgspec.structs import replace

from weft.errors import ConflictError, InvalidInputError, SessionBusyError
from weft.host.tasks import run_to_completion
from weft.local.comparison import compare_sessions, find_existing_top, get_top
from weft.local.step_checkout import check_project, get_place_repository, open_step_checkout
from weft.local.workspace_sources import WorkspaceSources
from weft.local.worktrees import (
    EnteredWorktree,
    copy_trust,
    delete_worktree,
    get_directory_in,
    is_trusted_in,
    run_silently,
    works_in,
)
from weft.model.ids import SessionID, check_id
from weft.model.input import PromptInput, SessionInput, TextInput
from weft.model.message import MessageWithParts
from weft.model.session import CheckResult, SessionInfo, TrialData, get_weft_data, make_slug, with_weft_data
from weft.model.session_query import SessionQuery
from weft.model.spending import UNLIMITED, SharedBudget
from weft.model.trial import (
    MAX_TRIALS,
    AdoptedPath,
    AdoptInput,
    BisectInput,
    BisectReport,
    CompareInput,
    Comparison,
    DiscardedWorktree,
    Pick,
    ReplayInput,
    ReplayReport,
    Trial,
    TrialAdoption,
    TrialInput,
    Variant,
)
from weft.provider.session_tape import rename_paths
from weft.run.admit import choose_models
from weft.session.fork import fork
from weft.session.lifecycle import create
from weft.session.revert_point import choose_message
from weft.store.url import is_persistent
from weft.worktree.check import run_check
from weft.worktree.git import WorktreeGit
from weft.worktree.merge import MergeResult, WorktreePick, merge_picks, undo_merge
from weft.worktree.repository import (
    MERGED_PREFIX,
    Worktree,
    WorktreeRepository,
    create_worktree,
    find_worktree,
    list_worktrees,
    lock_worktree,
    read_state,
)
from weft.worktree.scratch import remove_dead_scratches

if TYPE_CHECKING:  # for types alone: starting up is faster without these
    from weft.run.runner import Runner
    from weft.run.runtime import Runtime

MAX_TITLE_LENGTH = 50


class LocalTrials:
    """The `Trials` of a directory. Git runs in threads, because it blocks."""

    def __init__(self, runtime: Runtime, sources: WorkspaceSources, runner: Runner) -> None:
        self._runtime = runtime
        self._sources = sources
        self._runner = runner

    # --- create ---

    async def create(self, input: TrialInput) -> list[Trial]:
        prompts = self._plan(input)
        repository = await self._get_repository()
        await asyncio.to_thread(remove_dead_scratches, repository)
        source = None if input.session is None else await self._get_session(input.session)
        base = await self._commit_base(repository, source, input)
        name = make_slug(self._runtime.maker.random)
        group = f"{name}-{self._runtime.clock.now()}"
        made: list[tuple[Worktree, Trial | None]] = []
        try:
            for number, prompt in enumerate(prompts, start=1):
                data = TrialData(
                    group=group,
                    number=number,
                    count=len(prompts),
                    base=base,
                    worktree=f"{name}-{number}",
                    check=input.check,
                    check_seconds=input.check_seconds,
                )
                await run_to_completion(self._add_trial(repository, source, input, prompt, data, made))
        except BaseException:
            await run_to_completion(self._remove_made(repository, made))
            raise
        await self._prepare(repository, [worktree for worktree, _ in made])
        return [trial for _, trial in made if trial is not None]

    def _plan(self, input: TrialInput) -> list[PromptInput]:
        """Return the prompt of each trial. Raise an error if one of them cannot be run."""
        if not is_persistent(self._sources.store or "memory:"):
            raise InvalidInputError(
                "store", "trials need a store that outlives the process", hint="leave out memory:"
            )
        variants = input.variants or (Variant(),)
        number = len(variants) * input.count
        if not 1 <= number <= MAX_TRIALS:
            raise InvalidInputError("count", f"{number} trials at a time; at most {MAX_TRIALS} are possible")
        prompts = [
            replace(
                input.prompt,
                model=variant.model or input.prompt.model,
                agent=variant.agent or input.prompt.agent,
                variant=variant.variant or input.prompt.variant,
            )
            for variant in variants
            for _ in range(input.count)
        ]
        for prompt in prompts:
            choose_models(self._runtime, prompt, ())
        return prompts

    async def _commit_base(
        self, repository: WorktreeRepository, source: SessionInfo | None, input: TrialInput
    ) -> str:
        """Return a commit with the files that the trials start from."""
        if source is None:
            return await asyncio.to_thread(_commit_present, repository.checkouts)
        check_project(self._runtime, source)
        if input.at is None:
            top = await asyncio.to_thread(find_existing_top, source.directory) or repository.top
            return await asyncio.to_thread(_commit_present, WorktreeGit(self._sources.env, top))
        async with open_step_checkout(self._runtime, self._sources, source) as checkout:
            history = await self._runtime.store.list_messages(source.id)
            ids = [message.info.id for message in history]
            cut = ids.index(choose_message(history, input.at))
            before = [step for step in checkout.recorded.steps if step.info.id in ids[:cut]]
            await checkout.fill(checkout.recorded.files.find_last_place(before[-1].number if before else 0))
            return await asyncio.to_thread(_commit_present, WorktreeGit(self._sources.env, checkout.root))

    async def _add_trial(
        self,
        repository: WorktreeRepository,
        source: SessionInfo | None,
        input: TrialInput,
        prompt: PromptInput,
        data: TrialData,
        made: list[tuple[Worktree, Trial | None]],
    ) -> None:
        """Make a worktree and the session of a trial, and add them to `made`, so that a failure can remove them."""
        worktree = await asyncio.to_thread(self._make_worktree, repository, data.worktree, data.base)
        made.append((worktree, None))
        data = replace(data, worktree=worktree.name)
        made[-1] = (worktree, await self._make_trial(repository, worktree, source, input, prompt, data))

    def _make_worktree(self, repository: WorktreeRepository, name: str, base: str) -> Worktree:
        worktree = create_worktree(repository, name, self._runtime.maker.random, commit=base)
        copy_trust(repository, worktree)
        # Only what comes after the starting commit is the work of the trial, and is merged.
        repository.checkouts.put_ref(MERGED_PREFIX + worktree.name, base)
        return worktree

    async def _make_trial(
        self,
        repository: WorktreeRepository,
        worktree: Worktree,
        source: SessionInfo | None,
        input: TrialInput,
        prompt: PromptInput,
        data: TrialData,
    ) -> Trial:
        runtime, directory = self._runtime, get_directory_in(repository, worktree)
        title = (
            f"{_make_title(prompt) if source is None else source.title} (trial {data.number} of {data.count})"
        )
        shared = None
        if input.budget is not None and input.budget != UNLIMITED:
            shared = SharedBudget(group=data.group, budget=input.budget, since=runtime.clock.now())

        def edit(session: SessionInfo) -> SessionInfo:
            own = replace(get_weft_data(session), trial=data, shared_budget=shared, titled=True)
            return with_weft_data(replace(session, title=title, directory=directory), own)

        if source is None:
            made = await create(runtime.maker, SessionInput(title=title), directory=directory)
            session = await runtime.journal.edit(made.id, edit)
        else:
            top = await asyncio.to_thread(find_existing_top, source.directory) or source.directory
            renamed = {top: worktree.directory}

            def edit_fork(
                session: SessionInfo, messages: Sequence[MessageWithParts]
            ) -> tuple[SessionInfo, Sequence[MessageWithParts]]:
                return edit(session), [rename_paths(message, renamed) for message in messages]

            history = await runtime.store.list_messages(source.id)
            at = None if input.at is None else choose_message(history, input.at)
            session = await fork(runtime.maker, runtime.store, source, at=at, edit=edit_fork)
        return Trial(session=session.id, directory=directory, worktree=worktree.name, prompt=prompt)

    async def _prepare(self, repository: WorktreeRepository, worktrees: list[Worktree]) -> None:
        """Run the start command of the project in each worktree, if the project is trusted."""
        commands = self._runtime.place.project.commands
        if commands is None or not commands.start:
            return
        for worktree in worktrees:
            if await asyncio.to_thread(is_trusted_in, repository, worktree):
                entered = EnteredWorktree(worktree=worktree, directory=worktree.directory)
                await run_silently(entered, commands.start, self._sources.env)

    async def _remove_made(
        self, repository: WorktreeRepository, made: list[tuple[Worktree, Trial | None]]
    ) -> None:
        for worktree, trial in made:
            await asyncio.to_thread(delete_worktree, repository, worktree)
            if trial is not None:
                await self._runtime.journal.discard([trial.session], at=self._runtime.clock.now())

    # --- compare ---

    async def compare(self, input: CompareInput) -> Comparison:
        sessions = await self._choose_sessions(input)
        if input.run_check or input.check:
            sessions = [await self._check(session, input) for session in sessions]
        comparison = await compare_sessions(self._runtime, self._sources, sessions)
        if input.judge is None:
            return comparison
        from weft.local.trial_judge import judge_sessions  # noqa: PLC0415  few comparisons have a judge

        choose_models(self._runtime, PromptInput(model=input.judge, parts=()), ())
        judgement = await judge_sessions(self._runtime, self._sources, self._runner, comparison, input.judge)
        return replace(comparison, judgement=judgement)

    async def _choose_sessions(self, input: CompareInput) -> list[SessionInfo]:
        sessions = [await self._get_session(id) for id in dict.fromkeys(input.sessions)]
        if len(sessions) > 1:
            return sessions
        if not sessions:
            trials = await self._list_trials()
            if not trials:
                raise InvalidInputError(
                    "trials", "this project has none yet", hint='weft try -n 3 "…" makes some'
                )
            sessions = trials[:1]
        trial = get_weft_data(sessions[0]).trial
        if trial is None:
            return sessions
        return await self._list_group(trial.group)

    async def _list_trials(self) -> list[SessionInfo]:
        """Return all trials of the project, the newest first."""
        query = SessionQuery(roots=True, project_id=self._runtime.place.project.id)
        found = await self._runtime.store.query_sessions(query)
        return [session for session in found if get_weft_data(session).trial is not None]

    async def _list_group(self, group: str) -> list[SessionInfo]:
        members = []
        for session in await self._list_trials():
            trial = get_weft_data(session).trial
            if trial is not None and trial.group == group:
                members.append((trial.number, session))
        return [session for _, session in sorted(members, key=lambda member: member[0])]

    async def _check(self, session: SessionInfo, input: CompareInput) -> SessionInfo:
        """Run the check of a trial, unless the trial is running or its own check has run on these files already. Return it with the result."""
        trial = get_weft_data(session).trial
        if trial is None or await self._runtime.store.find_holder(session.id) is not None:
            return session
        command = input.check or trial.check
        if not command:
            raise InvalidInputError("check", "there is no command", hint="name one, such as make test")
        top = await asyncio.to_thread(find_existing_top, session.directory)
        if top is None:
            return session
        git = WorktreeGit(self._sources.env, top)
        seconds = input.seconds or trial.check_seconds
        if not input.check and await _is_checked(git, trial.checked, command):
            return session
        repository = await self._get_repository()
        worktree = Worktree(name=trial.worktree, branch="", directory=top)
        with lock_worktree(repository, worktree):
            result = await run_check(
                git, command, self._sources.env, directory=session.directory, seconds=seconds
            )
        return await self._runtime.journal.edit(session.id, lambda it: _with_check(it, result))

    # --- adopt and discard ---

    async def adopt(self, input: AdoptInput) -> TrialAdoption:
        if not input.picks:
            raise InvalidInputError("picks", "they are missing", hint="weft compare lists the trials")
        repository = await self._get_repository()
        sessions = {pick.session: await self._get_session(pick.session) for pick in input.picks}
        group = await self._list_members(list(sessions.values())) if input.discard else []
        await self._require_idle([*sessions.values(), *group])
        picks = [
            await asyncio.to_thread(self._find_pick, repository, sessions[pick.session], pick)
            for pick in input.picks
        ]
        merged = await run_to_completion(asyncio.to_thread(_merge_locked, repository, picks, input.commit))
        discarded = [] if merged.left_out else await self._discard(repository, group)
        return replace(_to_adoption(merged), discarded=tuple(discarded))

    async def undo_adoption(self) -> TrialAdoption:
        repository = await self._get_repository()
        return _to_adoption(await run_to_completion(asyncio.to_thread(undo_merge, repository)))

    async def discard(self, session: SessionID) -> list[DiscardedWorktree]:
        found = await self._get_session(session)
        if get_weft_data(found).trial is None:
            raise InvalidInputError(
                "session", f"{found.id} is no trial", hint="weft worktree discard removes a worktree"
            )
        group = await self._list_members([found])
        await self._require_idle(group)
        return await self._discard(await self._get_repository(), group)

    async def _list_members(self, sessions: list[SessionInfo]) -> list[SessionInfo]:
        """Return the sessions with all other trials of their groups."""
        members = {session.id: session for session in sessions}
        for session in sessions:
            trial = get_weft_data(session).trial
            if trial is not None:
                members |= {each.id: each for each in await self._list_group(trial.group)}
        return list(members.values())

    async def _require_idle(self, sessions: list[SessionInfo]) -> None:
        for session in sessions:
            holder = await self._runtime.store.find_holder(session.id)
            if holder is not None:
                raise SessionBusyError(session.id, holder or "another process")

    async def _discard(
        self, repository: WorktreeRepository, sessions: list[SessionInfo]
    ) -> list[DiscardedWorktree]:
        def discard() -> list[DiscardedWorktree]:
            discarded = []
            for session in sessions:
                for worktree in list_worktrees(repository):
                    if works_in(session, worktree):
                        with lock_worktree(repository, worktree):
                            merged = read_state(repository, worktree).merged
                            commit = delete_worktree(repository, worktree)
                        discarded.append(
                            DiscardedWorktree(name=worktree.name, commit="" if merged else commit)
                        )
            return discarded

        return await run_to_completion(asyncio.to_thread(discard))

    def _find_pick(self, repository: WorktreeRepository, session: SessionInfo, pick: Pick) -> WorktreePick:
        """Find the worktree of a session that is picked. Raise `ConflictError` if it did not work in one."""
        check_project(self._runtime, session)
        trial = get_weft_data(session).trial
        worktree = find_worktree(repository, trial.worktree) if trial is not None else None
        if worktree is None:
            worktree = next((each for each in list_worktrees(repository) if works_in(session, each)), None)
        if worktree is None or not os.path.isdir(worktree.directory):
            get_top(session)
            raise ConflictError(
                "session",
                session.id,
                "did not work in a worktree, so there is nothing to adopt",
                hint="its changes are in its directory already",
            )
        return WorktreePick(worktree=worktree, paths=pick.paths)

    # --- replay and bisect ---

    async def replay(self, session: SessionID, input: ReplayInput) -> ReplayReport:
        from weft.local.replay import replay_session  # noqa: PLC0415  few sessions are replayed

        return await replay_session(self._runtime, self._sources, await self._get_session(session), input)

    async def bisect(self, session: SessionID, input: BisectInput) -> BisectReport:
        from weft.local.bisect import bisect_session  # noqa: PLC0415  few sessions are bisected

        return await bisect_session(self._runtime, self._sources, await self._get_session(session), input)

    async def _get_session(self, id: SessionID) -> SessionInfo:
        return await self._runtime.store.get_session(SessionID(check_id("session", id)))

    async def _get_repository(self) -> WorktreeRepository:
        return await asyncio.to_thread(get_place_repository, self._runtime.place, self._sources)


def _commit_present(git: WorktreeGit) -> str:
    """Return a commit with all files as they are now, which is the checked-out one if nothing is uncommitted."""
    head, tree = git.find_commit() or "", git.capture(untracked=True)
    return (
        head if tree == git.get_tree(head) else git.commit_tree(tree, head, message="Files before the trials")
    )


def _merge_locked(
    repository: WorktreeRepository, picks: list[WorktreePick], message: str | None
) -> MergeResult:
    with ExitStack() as stack:
        for worktree in {pick.worktree.name: pick.worktree for pick in picks}.values():
            stack.enter_context(lock_worktree(repository, worktree))
        return merge_picks(repository, picks, message=message)


def _to_adoption(merged: MergeResult) -> TrialAdoption:
    return TrialAdoption(
        paths=tuple(AdoptedPath(path=each.path, how=each.how) for each in merged.brought),
        left_out=merged.left_out,
        commit=merged.commit,
    )


async def _is_checked(git: WorktreeGit, checked: CheckResult | None, command: str) -> bool:
    """Return True if the command was run on the present files already."""
    if checked is None or checked.command != command:
        return False
    return checked.tree == await asyncio.to_thread(git.capture, untracked=True)


def _with_check(session: SessionInfo, result: CheckResult) -> SessionInfo:
    data = get_weft_data(session)
    if data.trial is None:
        return session
    return with_weft_data(session, replace(data, trial=replace(data.trial, checked=result)))


def _make_title(prompt: PromptInput) -> str:
    text = " ".join(part.text for part in prompt.parts if isinstance(part, TextInput))
    line = " ".join(text.split())
    return line if len(line) <= MAX_TITLE_LENGTH else line[: MAX_TITLE_LENGTH - 1] + "…"

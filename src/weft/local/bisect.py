"""Find the call of a session that broke a check, by running the check on the files after some of its changes."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from msgspec import Struct

from weft.errors import ConflictError, InvalidInputError
from weft.local.step_checkout import StepCheckout, open_step_checkout
from weft.local.workspace_sources import WorkspaceSources
from weft.model.session import CheckResult, SessionInfo
from weft.model.trial import BisectInput, BisectReport, BisectRun, Culprit
from weft.run.runtime import Runtime
from weft.session.steps import SessionStep
from weft.worktree.check import run_check
from weft.worktree.git import WorktreeGit

MAX_DIFF_LENGTH: Final = 200_000

# Runs the check on the files after the changes up to a place.
CheckPlace = Callable[[int], Awaitable[CheckResult]]
OnRun = Callable[[BisectRun], None]


class Search(Struct, frozen=True, kw_only=True):
    """What a search found: the first `bad` place, or why there is none. `failed` is the result at the bad place."""

    verdict: str
    bad: int = 0
    failed: CheckResult | None = None


async def search_first_bad(places: list[int], check: CheckPlace) -> Search:
    """Find the first place at which the check does not pass, by halving the places.

    `places` are in order and begin with a place before all changes. The check also runs at both ends, and once more on each
    side of what was found, because it may be flaky.
    """
    last = await check(places[-1])
    if last.outcome == "passed":
        return Search(verdict="good")
    first = await check(places[0])
    if first.outcome != "passed":
        return Search(verdict="bad", bad=places[0], failed=first)
    good, bad, failed = 0, len(places) - 1, last
    while bad - good > 1:
        middle = (good + bad) // 2
        result = await check(places[middle])
        if result.outcome == "passed":
            good = middle
        else:
            bad, failed = middle, result
    again = await check(places[bad])
    if again.outcome == "passed":
        return Search(verdict="flaky", bad=places[bad], failed=failed)
    before = await check(places[good])
    if before.outcome != "passed":
        return Search(verdict="flaky", bad=places[good], failed=before)
    return Search(verdict="found", bad=places[bad], failed=failed)


async def bisect_session(
    runtime: Runtime,
    sources: WorkspaceSources,
    session: SessionInfo,
    input: BisectInput,
    *,
    on_run: OnRun = lambda _: None,
) -> BisectReport:
    """Find the call that broke the check, in a scratch checkout that is removed at the end."""
    if not input.check.strip():
        raise InvalidInputError("check", "there is no command", hint="name one, such as make test")
    async with open_step_checkout(runtime, sources, session) as checkout:
        recorded = checkout.recorded
        if not recorded.files.places:
            raise ConflictError(
                "session",
                session.id,
                "changed no file, so there is nothing to bisect",
                hint="weft session diff shows its changes",
            )
        bisection = _Bisection(checkout, input, sources.env, on_run)
        await checkout.prepare(runtime.place, sources)
        found = await search_first_bad([0, *recorded.files.places], bisection.check)
        culprit = await bisection.make_culprit(found.bad) if found.verdict == "found" else None
        return BisectReport(
            verdict=found.verdict,  # type: ignore[arg-type]
            steps=len(recorded.steps),
            changes=len(recorded.files.places),
            runs=tuple(bisection.runs),
            culprit=culprit,
            output=found.failed.output if found.failed is not None else "",
            dirtied=tuple(sorted(bisection.dirtied)),
            notes=(*checkout.notes, *bisection.list_notes()),
        )


class _Bisection:
    """The runs of a check in a scratch checkout."""

    def __init__(
        self, checkout: StepCheckout, input: BisectInput, env: Mapping[str, str], on_run: OnRun
    ) -> None:
        self._checkout = checkout
        self._input = input
        self._env = env
        self._on_run = on_run
        self._git = WorktreeGit(env, checkout.root)
        self.runs: list[BisectRun] = []
        self.dirtied: set[str] = set()

    async def check(self, place: int) -> CheckResult:
        await self._checkout.fill(place)
        result = await run_check(
            self._git,
            self._input.check,
            self._env,
            directory=self._checkout.directory,
            seconds=self._input.seconds,
        )
        self.dirtied.update(result.dirtied)
        step, call_id = self._find_call(place)
        call = step.find_call(call_id) if step is not None else None
        run = BisectRun(
            step=step.number if step else 0,
            call=call.tool if call else "",
            outcome=result.outcome,
            ms=result.ms,
        )
        self.runs.append(run)
        self._on_run(run)
        return result

    def list_notes(self) -> list[str]:
        hung = [f"step {run.step}" for run in self.runs if run.outcome == "hung"]
        if not hung:
            return []
        where = ", ".join(dict.fromkeys(hung))
        return [f"the check did not end within {self._input.seconds} s after {where}; that counts as failed"]

    def _find_call(self, place: int) -> tuple[SessionStep | None, str]:
        changes = self._checkout.recorded.files.list_at(place)
        if not changes:
            return None, ""
        return self._checkout.recorded.steps[changes[0].step - 1], changes[0].call_id

    async def make_culprit(self, place: int) -> Culprit:
        step, call_id = self._find_call(place)
        assert step is not None, "place 0 is before the first change and is never the culprit"
        call = step.find_call(call_id)
        places = [0, *self._checkout.recorded.files.places]
        trees = []
        for each in (places[places.index(place) - 1], place):
            await self._checkout.fill(each)
            trees.append(await asyncio.to_thread(self._git.capture, untracked=True))
        diff = await asyncio.to_thread(self._git.make_patch, *trees)
        return Culprit(
            step=step.number,
            message=step.info.id,
            call_id=call_id,
            tool=call.tool if call is not None else "",
            title=getattr(call.state, "title", None) or "" if call is not None else "",
            model=f"{step.info.provider_id}/{step.info.model_id}",
            prompt=step.prompt_text,
            diff=diff[:MAX_DIFF_LENGTH],
        )

"""Spend within the budgets: reserve before every request to a model, and count after it.

Up to four kinds of budget limit a run: its own (and those of the runs that started it), its session's, that of the tree its
session is in, and the day's. `run/budget.py` decides; this module finds out what was spent, and acts on the decision.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import takewhile

from msgspec.structs import replace

from weft.context.history import iterate_since_compaction
from weft.context.tokens import get_counted_tokens, project_tokens
from weft.errors import DeadlineError
from weft.host.tasks import Deadline
from weft.model.event import SessionWarned
from weft.model.failure import BudgetFailure
from weft.model.ids import SessionID
from weft.model.message import AnyMessage, UserMessage
from weft.model.session import Session
from weft.model.spending import UNLIMITED, Budget, Spent, add_spent, total_spent
from weft.model.transcript import Transcript
from weft.run.answer import PendingAnswer, find_next_model
from weft.run.budget import (
    BudgetAccount,
    BudgetLine,
    BudgetVerdict,
    NearLimit,
    OverBudget,
    WithinBudget,
    check_budgets,
    estimate_call,
    find_seconds_left,
    has_uncounted,
    is_cost_unknown,
    to_budget_failure,
    to_warning,
)
from weft.run.decide import ModelStep, find_newest_prompt
from weft.run.failure import BudgetTimeError
from weft.run.runtime import Runtime
from weft.session.budget import Allowance, Reservation, subtract_spent
from weft.session.totals import get_ledger, is_behind, update_ledger

# The tokens of a request besides the conversation (system prompt and tools), before a provider has counted one.
DEFAULT_OVERHEAD = 8_000
BUDGET = "budget"


class Spender:
    """The spending of one run. For every step: `reserve`, run it within `limit_time`, `settle`. `close` ends it."""

    def __init__(self, runtime: Runtime, session: Session, transcript: Transcript) -> None:
        self._runtime = runtime
        self._ledger = runtime.budget
        self._session = session
        self._transcript = transcript
        self._began = _find_start(transcript)
        self._counted = transcript.newest_answer()
        self._until = get_ledger(session).until
        self._accounts: list[BudgetAccount] | None = None  # of the step under way; None if nothing is limited

    async def close(self) -> None:
        """Release all reservations. A step that was cut short still counts."""
        if self._transcript.newest_answer() != self._counted:
            await self._settle_all()
        self._ledger.release(self._session.id)
        self._ledger.allowances.pop(self._session.id, None)

    async def reserve(self, step: ModelStep) -> bool:
        """Reserve what the step is expected to cost. If a budget does not allow it, store that as the answer and return False."""
        self._accounts = None
        if not (self._ledger.is_limited or self._own_budget() != UNLIMITED):
            return True
        self._accounts, refusal = await self._reserve(step)
        if refusal is not None:
            await PendingAnswer(self._runtime, self._session, self._transcript, step).fail(refusal)
        return refusal is None

    @asynccontextmanager
    async def limit_time(self, deadline: Deadline) -> AsyncIterator[None]:
        """Limit the time of a step: to the deadline, and to the seconds that are left in the budgets.

        Raise `DeadlineError` if the deadline passes, and `BudgetTimeError` if a budget runs out.
        """
        seconds = None if self._accounts is None else find_seconds_left(self._accounts)
        try:
            async with deadline.running(), Deadline(BUDGET, seconds, self._runtime.clock).running():
                yield
        except DeadlineError as error:
            if error.limit != BUDGET or self._accounts is None:
                raise
            raise BudgetTimeError(_to_time_failure(self._accounts)) from error

    async def settle(self) -> None:
        """Count what the step cost, and release its reservation."""
        if self._accounts is None:
            await self._count()
        else:
            await self._settle_all()

    # --- before a step ---

    async def _reserve(self, step: ModelStep) -> tuple[list[BudgetAccount], BudgetFailure | None]:
        """Reserve the expected cost of the step. Return the state of the budgets, and why the step is refused if it is."""
        async with self._ledger.lock:
            expected = self._estimate(step)
            ancestry = await self._load_ancestry()
            accounts = self._list_accounts(ancestry)
            verdict = check_budgets(accounts, expected)
            if self._ledger.has_day_limit and not isinstance(verdict, OverBudget):
                accounts.append(await self._reserve_day(expected))
                verdict = check_budgets(accounts, expected)
            if not isinstance(verdict, OverBudget):
                reservation = Reservation(
                    line=tuple(each.id for each in ancestry), spent=expected, since=self._runtime.clock.now()
                )
                self._ledger.hold(self._session.id, reservation)
        await self._warn(accounts, expected, verdict)
        return accounts, to_budget_failure(verdict.line) if isinstance(verdict, OverBudget) else None

    async def _reserve_day(self, expected: Spent) -> BudgetAccount:
        def account(spent: Spent) -> BudgetAccount:
            return BudgetAccount(scope="day", budget=self._ledger.budgets.day, spent=spent)

        spent = await self._ledger.days.reserve(
            self._session,
            self._messages(),
            expected,
            now=self._runtime.clock.now(),
            allow=lambda spent: not isinstance(check_budgets([account(spent)], expected), OverBudget),
        )
        return account(spent)

    async def _load_ancestry(self) -> list[Session]:
        """Return the session and its ancestors as stored, the root last."""
        store, messages = self._runtime.store, self._messages()
        session = await store.get_session(self._session.id)
        if is_behind(session, messages):  # a crash prevented the count
            await update_ledger(self._runtime.journal, session.id, messages)
            session = await store.get_session(session.id)
        ancestry = [session]
        while (parent := ancestry[-1].parent_id) is not None and parent not in {each.id for each in ancestry}:
            ancestry.append(await store.get_session(parent))
        own = self._own_budget()
        if own != UNLIMITED:
            self._set_allowance(session, own)
        return ancestry

    def _set_allowance(self, session: Session, budget: Budget) -> None:
        known = self._ledger.allowances.get(session.id)
        now, before = self._runtime.clock.now(), total_spent(get_ledger(session))
        self._ledger.allowances[session.id] = (
            replace(known, budget=budget) if known else Allowance(budget=budget, before=before, since=now)
        )

    def _list_accounts(self, ancestry: list[Session]) -> list[BudgetAccount]:
        budgets, root = self._ledger.budgets, ancestry[-1]
        runs = [
            BudgetAccount(scope="run", budget=allowance.budget, spent=self._spent_by_run(each, allowance))
            for each in ancestry
            if (allowance := self._ledger.allowances.get(each.id)) is not None
        ]
        own = BudgetAccount(scope="session", budget=budgets.session, spent=get_ledger(ancestry[0]).own)
        tree = BudgetAccount(scope="tree", budget=budgets.tree, spent=self._spent_by_tree(root))
        return [*runs, own, tree]

    def _spent_by_run(self, session: Session, allowance: Allowance) -> Spent:
        """Return what a run and its child sessions have spent. Its time is the time since it began."""
        ledger = subtract_spent(total_spent(get_ledger(session)), allowance.before)
        spent = add_spent((ledger, self._reserved_below(session.id)))
        return replace(spent, ms=self._runtime.clock.now() - allowance.since)

    def _spent_by_tree(self, root: Session) -> Spent:
        spent = add_spent((total_spent(get_ledger(root)), self._reserved_below(root.id)))
        reservation = self._ledger.find(root.id)
        is_other = reservation is not None and root.id != self._session.id
        passed = self._runtime.clock.now() - reservation.since if reservation and is_other else 0
        return replace(spent, ms=spent.ms + passed)

    def _reserved_below(self, session: SessionID) -> Spent:
        return self._ledger.total_reserved(session, but=self._session.id)

    def _estimate(self, step: ModelStep) -> Spent:
        history = self._transcript.messages()
        counts = (get_counted_tokens(each) for each in iterate_since_compaction(history))
        last = next((found for found in counts if found is not None), None)
        request = project_tokens(history, overhead=DEFAULT_OVERHEAD)
        model = find_next_model(self._runtime, step.prompt, summary=step.summary)
        return Spent(steps=1, priced=False) if model is None else estimate_call(request, last, model)

    async def _warn(self, accounts: list[BudgetAccount], expected: Spent, verdict: BudgetVerdict) -> None:
        messages: list[str] = []
        match verdict:
            case NearLimit(lines=lines):
                messages += [to_warning(line) for line in lines if self._is_new(line)]
            case WithinBudget() | OverBudget():
                pass
        if is_cost_unknown(accounts, expected) and self._ledger.record_warning("blind", self._session.id):
            messages.append(
                "the price of the model is unknown, so its cost cannot be kept within the budget; "
                "limits of tokens, steps and seconds still hold"
            )
        if has_uncounted(accounts) and self._ledger.record_warning("uncounted", self._session.id):
            messages.append(
                "the provider did not report the usage of an answer, so the budget cannot be kept exactly; "
                "limits of steps and seconds still hold"
            )
        for message in messages:
            await self._runtime.journal.commit(SessionWarned(session_id=self._session.id, message=message))

    def _is_new(self, line: BudgetLine) -> bool:
        return self._ledger.record_warning(
            line.scope, line.measure, line.limit, self._session.id, self._began
        )

    # --- after a step ---

    async def _settle_all(self) -> None:
        await self._count()
        async with self._ledger.lock:
            self._ledger.release(self._session.id)
            if self._ledger.has_day_limit:
                now = self._runtime.clock.now()
                await self._ledger.days.settle(self._session, self._messages(), now=now)

    async def _count(self) -> None:
        # The session's ledger has all that this run counted before; only the newest messages are missing.
        until = self._until
        new = takewhile(lambda each: each.info.time.created > until, reversed(self._transcript.messages()))
        messages = [message.info for message in new]
        self._counted = self._transcript.newest_answer()
        await update_ledger(self._runtime.journal, self._session.id, messages)
        self._until = self._counted.time.created if self._counted is not None else until

    def _messages(self) -> list[AnyMessage]:
        return [message.info for message in self._transcript.messages()]

    def _own_budget(self) -> Budget:
        """Return the budget of this run: that of its newest prompt that sets one."""
        for each in reversed(self._transcript.messages()):
            message = each.info
            if message.time.created < self._began:
                break
            if isinstance(message, UserMessage) and message.budget is not None:
                return message.budget
        return UNLIMITED


def _find_start(transcript: Transcript) -> int:
    """Return the time of the prompt that began the run."""
    newest = find_newest_prompt(transcript.messages())
    return newest.time.created if newest is not None else 0


def _to_time_failure(accounts: list[BudgetAccount]) -> BudgetFailure:
    """Return the failure of the budget that had the least time left, and now has none."""
    timed = [account for account in accounts if account.budget.seconds is not None]
    least = min(timed, key=lambda each: find_seconds_left([each]) or 0)
    over = replace(least.spent, ms=(least.budget.seconds or 0) * 1000)
    verdict = check_budgets(
        [replace(least, budget=Budget(seconds=least.budget.seconds), spent=over)], Spent()
    )
    assert isinstance(verdict, OverBudget), "no time is left"
    return to_budget_failure(verdict.line)

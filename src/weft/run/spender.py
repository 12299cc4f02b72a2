"""Spend within the budgets: reserve before every request to a model, and count after it.

Up to five kinds of budget limit a run: its own (and those of the runs that started it), its session's, that of the tree its
session is in, that of its group of trials, and the day's. `run/budget.py` decides; this module finds out what was spent, and acts on the decision.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import takewhile

from msgspec.structs import replace

from weft.context.history import iterate_since_compaction
from weft.context.tokens import find_counted_tokens, project_tokens
from weft.errors import DeadlineError, NotFoundError
from weft.host.tasks import Deadline
from weft.model.event import SessionWarned
from weft.model.failure import BudgetFailure
from weft.model.ids import SessionID
from weft.model.message import AnyMessage, UserMessage
from weft.model.session import SessionInfo, get_ledger, get_weft_data
from weft.model.spending import (
    UNLIMITED,
    Budget,
    SharedBudget,
    Spent,
    add_spent,
    subtract_spent,
    total_spent,
)
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
    has_uncounted_usage,
    is_cost_unknown,
    to_budget_failure,
    to_warning,
)
from weft.run.decide import ModelStep, find_newest_prompt
from weft.run.failure import BudgetTimeError
from weft.run.runtime import Runtime
from weft.session.reservations import Allowance, Reservation
from weft.session.totals import is_behind, update_ledger

# The tokens of the system prompt and the tools, until a provider has counted a request.
DEFAULT_OVERHEAD = 8_000
BUDGET_LIMIT = "budget"


class Spender:
    """The spending of one run. Before a step, `reserve`; if that allows it, take it within `limit_time`, then `count`. `close` ends it."""

    def __init__(self, runtime: Runtime, session: SessionInfo, transcript: Transcript) -> None:
        self._runtime = runtime
        self._budgets = runtime.budgets
        self._session = session
        self._transcript = transcript
        self._run_start = _find_start(transcript)
        self._last_counted = transcript.newest_answer()
        self._counted_until = get_ledger(session).until
        self._shared = get_weft_data(session).shared_budget
        self._has_reserved = False  # of a budget that is shared with other processes
        self._accounts: list[BudgetAccount] | None = None  # of the step under way; None if nothing is limited

    async def close(self) -> None:
        """Release all reservations, after counting a step that was cut short or could not begin."""
        try:
            if self._has_reserved or self._transcript.newest_answer() != self._last_counted:
                await self._count_and_release()
        finally:
            self._budgets.release(self._session.id)
            self._budgets.allowances.pop(self._session.id, None)

    async def reserve(self, step: ModelStep) -> bool:
        """Reserve what the step is expected to cost. If a budget does not allow it, store that as the answer and return False."""
        self._accounts = None
        if not (self._budgets.is_limited or self._shared or self._get_run_budget() != UNLIMITED):
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
            async with deadline.running(), Deadline(BUDGET_LIMIT, seconds, self._runtime.clock).running():
                yield
        except DeadlineError as error:
            if error.limit != BUDGET_LIMIT or self._accounts is None:
                raise
            raise BudgetTimeError(_to_time_failure(self._accounts)) from error

    async def count(self) -> None:
        """Count what the step cost, and release its reservation."""
        if self._accounts is None:
            await self._count_messages()
        else:
            await self._count_and_release()

    # --- before a step ---

    async def _reserve(self, step: ModelStep) -> tuple[list[BudgetAccount], BudgetFailure | None]:
        """Reserve the expected cost of the step. Return the state of the budgets, and why the step is refused if it is."""
        async with self._budgets.lock:
            expected = self._estimate(step)
            session = await self._repair_ledger()
            ancestry = await self._load_ancestry(session)
            self._set_allowance(session)
            accounts = self._list_accounts(ancestry)
            verdict = check_budgets(accounts, expected)
            self._has_reserved = self._shared is not None or self._budgets.has_day_limit
            if self._shared is not None and not isinstance(verdict, OverBudget):
                accounts.append(await self._reserve_shared(self._shared, ancestry[0], expected))
                verdict = check_budgets(accounts, expected)
            if self._budgets.has_day_limit and not isinstance(verdict, OverBudget):
                accounts.append(await self._reserve_day(expected))
                verdict = check_budgets(accounts, expected)
                if self._shared is not None and isinstance(verdict, OverBudget):
                    # The step is not taken. Counting releases what was just reserved of the group.
                    await self._budgets.groups.count(self._shared.group, ancestry[0])
            if isinstance(verdict, OverBudget):
                self._has_reserved = False
            else:
                reservation = Reservation(
                    ancestry=tuple(session.id for session in ancestry),
                    spent=expected,
                    since=self._runtime.clock.now(),
                )
                self._budgets.hold(self._session.id, reservation)
        await self._warn(accounts, expected, verdict)
        return accounts, to_budget_failure(verdict.line) if isinstance(verdict, OverBudget) else None

    async def _reserve_day(self, expected: Spent) -> BudgetAccount:
        def make_account(spent: Spent) -> BudgetAccount:
            return BudgetAccount(scope="day", budget=self._budgets.limits.day, spent=spent)

        spent = await self._budgets.days.reserve(
            self._session,
            self._list_messages(),
            expected,
            now=self._runtime.clock.now(),
            allow=lambda spent: not isinstance(check_budgets([make_account(spent)], expected), OverBudget),
        )
        return make_account(spent)

    async def _reserve_shared(
        self, shared: SharedBudget, session: SessionInfo, expected: Spent
    ) -> BudgetAccount:
        now = self._runtime.clock.now()

        def make_account(spent: Spent) -> BudgetAccount:
            # The trials run at the same time, so their time is that since they were begun.
            timed = replace(spent, ms=now - shared.since)
            return BudgetAccount(scope="group", budget=shared.budget, spent=timed)

        spent = await self._budgets.groups.reserve(
            shared.group,
            session,
            expected,
            now=now,
            allow=lambda spent: not isinstance(check_budgets([make_account(spent)], expected), OverBudget),
        )
        return make_account(spent)

    async def _repair_ledger(self) -> SessionInfo:
        """Count the cost of answers that a crash kept from being counted. Return the stored session."""
        store, messages = self._runtime.store, self._list_messages()
        session = await store.get_session(self._session.id)
        if not is_behind(session, messages):
            return session
        await update_ledger(self._runtime.journal, session.id, messages)
        return await store.get_session(session.id)

    async def _load_ancestry(self, session: SessionInfo) -> list[SessionInfo]:
        """Return the session and its ancestors as stored, the root last. A parent that is gone ends the list."""
        ancestry = [session]
        with suppress(NotFoundError):
            while (parent := ancestry[-1].parent_id) is not None and parent not in {
                each.id for each in ancestry
            }:
                ancestry.append(await self._runtime.store.get_session(parent))
        return ancestry

    def _set_allowance(self, session: SessionInfo) -> None:
        """Set the point from which this run's own budget counts, if it has one."""
        budget = self._get_run_budget()
        if budget == UNLIMITED:
            return
        allowance = self._budgets.allowances.get(session.id)
        now, before = self._runtime.clock.now(), total_spent(get_ledger(session))
        self._budgets.allowances[session.id] = (
            replace(allowance, budget=budget)
            if allowance
            else Allowance(budget=budget, before=before, since=now)
        )

    def _list_accounts(self, ancestry: list[SessionInfo]) -> list[BudgetAccount]:
        budgets, root = self._budgets.limits, ancestry[-1]
        runs = [
            BudgetAccount(scope="run", budget=allowance.budget, spent=self._add_up_run(each, allowance))
            for each in ancestry
            if (allowance := self._budgets.allowances.get(each.id)) is not None
        ]
        own = BudgetAccount(scope="session", budget=budgets.session, spent=get_ledger(ancestry[0]).own)
        tree = BudgetAccount(scope="tree", budget=budgets.tree, spent=self._add_up_tree(root))
        return [*runs, own, tree]

    def _add_up_run(self, session: SessionInfo, allowance: Allowance) -> Spent:
        """Return what a run and its child sessions have spent. Its time is the time since it began."""
        counted = subtract_spent(total_spent(get_ledger(session)), allowance.before)
        spent = add_spent((counted, self._add_up_reserved(session.id)))
        return replace(spent, ms=self._runtime.clock.now() - allowance.since)

    def _add_up_tree(self, root: SessionInfo) -> Spent:
        spent = add_spent((total_spent(get_ledger(root)), self._add_up_reserved(root.id)))
        reservation = self._budgets.find_reservation(root.id)
        is_other_run = reservation is not None and root.id != self._session.id
        elapsed = self._runtime.clock.now() - reservation.since if reservation and is_other_run else 0
        return replace(spent, ms=spent.ms + elapsed)

    def _add_up_reserved(self, session: SessionID) -> Spent:
        return self._budgets.total_reserved(session, excluding=self._session.id)

    def _estimate(self, step: ModelStep) -> Spent:
        history = self._transcript.messages()
        counts = (find_counted_tokens(message) for message in iterate_since_compaction(history))
        last = next((tokens for tokens in counts if tokens is not None), None)
        request_tokens = project_tokens(history, overhead=DEFAULT_OVERHEAD)
        model = find_next_model(self._runtime, step.prompt, summary=step.summary)
        return Spent(steps=1, priced=False) if model is None else estimate_call(request_tokens, last, model)

    async def _warn(self, accounts: list[BudgetAccount], expected: Spent, verdict: BudgetVerdict) -> None:
        messages: list[str] = []
        match verdict:
            case NearLimit(lines=lines):
                messages += [to_warning(line) for line in lines if self._record_warning(line)]
            case WithinBudget() | OverBudget():
                pass
        if is_cost_unknown(accounts, expected) and self._budgets.record_warning("unpriced", self._session.id):
            messages.append(
                "the price of the model is unknown, so its cost cannot be kept within the budget; "
                "limits of tokens, steps and seconds still hold"
            )
        if has_uncounted_usage(accounts) and self._budgets.record_warning("uncounted", self._session.id):
            messages.append(
                "the usage of an answer is not known, so the budget cannot be kept exactly; "
                "limits of steps and seconds still hold"
            )
        for message in messages:
            await self._runtime.journal.commit(SessionWarned(session_id=self._session.id, message=message))

    def _record_warning(self, line: BudgetLine) -> bool:
        return self._budgets.record_warning(
            line.scope, line.measure, line.limit, self._session.id, self._run_start
        )

    # --- after a step ---

    async def _count_and_release(self) -> None:
        await self._count_messages()
        async with self._budgets.lock:
            self._budgets.release(self._session.id)
            if self._shared is not None:
                with suppress(NotFoundError):  # a session that was removed meanwhile
                    session = await self._runtime.store.get_session(self._session.id)
                    await self._budgets.groups.count(self._shared.group, session)
            if self._budgets.has_day_limit:
                now = self._runtime.clock.now()
                await self._budgets.days.count(self._session, self._list_messages(), now=now)
        self._has_reserved = False

    async def _count_messages(self) -> None:
        # The session's ledger has all that this run counted before; only the newest messages are missing.
        until = self._counted_until
        new = takewhile(lambda each: each.info.time.created > until, reversed(self._transcript.messages()))
        messages = [message.info for message in new]
        self._last_counted = self._transcript.newest_answer()
        await update_ledger(self._runtime.journal, self._session.id, messages)
        self._counted_until = self._last_counted.time.created if self._last_counted is not None else until

    def _list_messages(self) -> list[AnyMessage]:
        return [message.info for message in self._transcript.messages()]

    def _get_run_budget(self) -> Budget:
        """Return the budget of this run: that of its newest prompt that sets one."""
        for each in reversed(self._transcript.messages()):
            message = each.info
            if message.time.created < self._run_start:
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
    account = min(timed, key=lambda each: find_seconds_left([each]) or 0)
    spent = replace(account.spent, ms=(account.budget.seconds or 0) * 1000)
    verdict = check_budgets(
        [replace(account, budget=Budget(seconds=account.budget.seconds), spent=spent)], Spent()
    )
    assert isinstance(verdict, OverBudget), "no time is left"
    return to_budget_failure(verdict.line)

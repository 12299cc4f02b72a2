"""Spend within the budgets: ask before every call of a model, and count after it.

A run has up to four budgets over it: its own (and those of the runs that sent it out), its session's, that of the tree
its session is in, and the day's. `budget.py` decides; here it is found out what was spent, and what is decided is done.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import takewhile

from msgspec.structs import replace

from weft.context.history import newest_first
from weft.context.tokens import counted, projected
from weft.errors import DeadlineError
from weft.host.tasks import Deadline
from weft.model.event import SessionWarned
from weft.model.failure import BudgetFailure
from weft.model.ids import SessionID
from weft.model.message import AnyMessage, UserMessage
from weft.model.session import Session
from weft.model.spending import UNLIMITED, Budget, Spent, add_up, whole
from weft.model.transcript import Transcript
from weft.run.answer import Answer, next_model
from weft.run.budget import (
    Account,
    Go,
    Line,
    Stop,
    Verdict,
    Warn,
    check,
    expect,
    is_blind,
    is_uncounted,
    seconds_left,
    to_failure,
    to_warning,
)
from weft.run.decide import Step, newest_prompt
from weft.run.failure import OutOfTimeError
from weft.run.kit import Kit
from weft.run.step import Outcome, Within
from weft.session.budget import Allowance, Held, since
from weft.session.totals import is_behind, keep_count, ledger_of

# What a request holds beside the conversation, before a provider has counted one: instructions, and what tools take.
OVERHEAD = 8_000
BUDGET = "budget"

Take = Callable[[Within], Awaitable[Outcome]]


class Spender:
    """The spending of one run. Make one when it begins, and `close` it when it is over."""

    def __init__(self, kit: Kit, session: Session, transcript: Transcript) -> None:
        self._kit = kit
        self._purse = kit.purse
        self._session = session
        self._transcript = transcript
        self._began = _newest_time(transcript)
        self._counted = transcript.newest_answer()
        self._until = ledger_of(session).until

    async def close(self) -> None:
        """Nothing is held back any more. A step that was cut short was taken all the same, and counts."""
        if self._transcript.newest_answer() != self._counted:
            await self._settle()
        self._purse.release(self._session.id)
        self._purse.allowances.pop(self._session.id, None)

    async def take(self, step: Step, take: Take, deadline: Deadline) -> Outcome | None:
        """Take a step before the deadline, if the budgets allow it; None if not, and then it is stored why."""
        if not (self._purse.is_limited or self._own_budget() != UNLIMITED):
            outcome = await take(deadline.running)
            await self._count()
            return outcome
        accounts, refusal = await self._reserve(step)
        if refusal is not None:
            await Answer(self._kit, self._session, self._transcript, step).fail(refusal)
            return None
        outcome = await take(lambda: self._within(accounts, deadline))
        await self._settle()
        return outcome

    # --- before ---

    async def _reserve(self, step: Step) -> tuple[list[Account], BudgetFailure | None]:
        """How the budgets stand, and why the step must not be taken; if it may, what it will take is held back."""
        async with self._purse.lock:
            expected = self._expect(step)
            line = await self._line_up()
            accounts = self._accounts(line)
            verdict = check(accounts, expected)
            if self._purse.has_days and not isinstance(verdict, Stop):
                accounts.append(await self._reserve_day(expected))
                verdict = check(accounts, expected)
            if not isinstance(verdict, Stop):
                held = Held(line=tuple(each.id for each in line), spent=expected, since=self._kit.clock.now())
                self._purse.hold(self._session.id, held)
        await self._warn(accounts, expected, verdict)
        return accounts, to_failure(verdict.line) if isinstance(verdict, Stop) else None

    async def _reserve_day(self, expected: Spent) -> Account:
        def account(spent: Spent) -> Account:
            return Account(scope="day", budget=self._purse.budgets.day, spent=spent)

        spent = await self._purse.days.reserve(
            self._session,
            self._messages(),
            expected,
            now=self._kit.clock.now(),
            allow=lambda spent: not isinstance(check([account(spent)], expected), Stop),
        )
        return account(spent)

    async def _line_up(self) -> list[Session]:
        """The session and those above it as they stand in the store, the topmost last."""
        store, messages = self._kit.store, self._messages()
        session = await store.get_session(self._session.id)
        if is_behind(session, messages):  # a crash kept it from being counted
            await keep_count(self._kit.journal, session.id, messages)
            session = await store.get_session(session.id)
        line = [session]
        while (above := line[-1].parent_id) is not None and above not in {each.id for each in line}:
            line.append(await store.get_session(above))
        own = self._own_budget()
        if own != UNLIMITED:
            self._take_out(session, own)
        return line

    def _take_out(self, session: Session, budget: Budget) -> None:
        known = self._purse.allowances.get(session.id)
        now, before = self._kit.clock.now(), whole(ledger_of(session))
        self._purse.allowances[session.id] = (
            replace(known, budget=budget) if known else Allowance(budget=budget, before=before, since=now)
        )

    def _accounts(self, line: list[Session]) -> list[Account]:
        budgets, root = self._purse.budgets, line[-1]
        allowed = [
            Account(scope="run", budget=allowance.budget, spent=self._spent_since(each, allowance))
            for each in line
            if (allowance := self._purse.allowances.get(each.id)) is not None
        ]
        own = Account(scope="session", budget=budgets.session, spent=ledger_of(line[0]).own)
        tree = Account(scope="tree", budget=budgets.tree, spent=self._spent_below(root))
        return [*allowed, own, tree]

    def _spent_since(self, session: Session, allowance: Allowance) -> Spent:
        """What a run has spent with all below it. Its time is that since it began, whoever worked in it."""
        ledger = since(whole(ledger_of(session)), allowance.before)
        spent = add_up((ledger, self._held_below(session.id)))
        return replace(spent, ms=self._kit.clock.now() - allowance.since)

    def _spent_below(self, root: Session) -> Spent:
        spent = add_up((whole(ledger_of(root)), self._held_below(root.id)))
        going = self._purse.find(root.id)
        passed = self._kit.clock.now() - going.since if going and root.id != self._session.id else 0
        return replace(spent, ms=spent.ms + passed)

    def _held_below(self, session: SessionID) -> Spent:
        return self._purse.held_below(session, but=self._session.id)

    def _expect(self, step: Step) -> Spent:
        history = self._transcript.messages()
        last = next((found for each in newest_first(history) if (found := counted(each)) is not None), None)
        request = projected(history, overhead=OVERHEAD)
        model = next_model(self._kit, step.prompt, summary=step.summary)
        return Spent(steps=1, priced=False) if model is None else expect(request, last, model)

    async def _warn(self, accounts: list[Account], expected: Spent, verdict: Verdict) -> None:
        said: list[str] = []
        match verdict:
            case Warn(lines=lines):
                said += [to_warning(line) for line in lines if self._is_new(line)]
            case Go() | Stop():
                pass
        if is_blind(accounts, expected) and self._purse.is_new("blind", self._session.id):
            said.append(
                "the price of the model is unknown, so what it costs cannot be kept within the budget; "
                "tokens, steps and seconds can"
            )
        if is_uncounted(accounts) and self._purse.is_new("uncounted", self._session.id):
            said.append(
                "the provider did not say what an answer took, so the budget cannot be kept exactly; "
                "limits of steps and seconds can"
            )
        for message in said:
            await self._kit.journal.commit(SessionWarned(session_id=self._session.id, message=message))

    def _is_new(self, line: Line) -> bool:
        return self._purse.is_new(line.scope, line.measure, line.limit, self._session.id, self._began)

    # --- while ---

    @asynccontextmanager
    async def _within(self, accounts: list[Account], deadline: Deadline) -> AsyncIterator[None]:
        """Until the deadline, and no longer than the budgets allow: an answer that takes longer ends with that."""
        try:
            async with (
                deadline.running(),
                Deadline(BUDGET, seconds_left(accounts), self._kit.clock).running(),
            ):
                yield
        except DeadlineError as error:
            if error.limit != BUDGET:
                raise
            raise OutOfTimeError(_out_of_time(accounts)) from error

    # --- after ---

    async def _settle(self) -> None:
        await self._count()
        async with self._purse.lock:
            self._purse.release(self._session.id)
            if self._purse.has_days:
                now = self._kit.clock.now()
                await self._purse.days.settle(self._session, self._messages(), now=now)

    async def _count(self) -> None:
        # What this run has counted is in the ledger; what it has yet to count is at the end of the history.
        until = self._until
        new = takewhile(lambda each: each.info.time.created > until, reversed(self._transcript.messages()))
        messages = [message.info for message in new]
        self._counted = self._transcript.newest_answer()
        await keep_count(self._kit.journal, self._session.id, messages)
        self._until = self._counted.time.created if self._counted is not None else until

    # --- what is known ---

    def _messages(self) -> list[AnyMessage]:
        return [message.info for message in self._transcript.messages()]

    def _own_budget(self) -> Budget:
        """What the newest prompt of this run that says so allows it."""
        for each in reversed(self._transcript.messages()):
            message = each.info
            if message.time.created < self._began:
                break
            if isinstance(message, UserMessage) and message.budget is not None:
                return message.budget
        return UNLIMITED


def _newest_time(transcript: Transcript) -> int:
    """When the prompt that began the run was made."""
    newest = newest_prompt(transcript.messages())
    return newest.time.created if newest is not None else 0


def _out_of_time(accounts: list[Account]) -> BudgetFailure:
    """Of the budgets with a limit of time, the one that had least left; it has nothing left now."""
    timed = [account for account in accounts if account.budget.seconds is not None]
    least = min(timed, key=lambda each: seconds_left([each]) or 0)
    over = replace(least.spent, ms=(least.budget.seconds or 0) * 1000)
    verdict = check([replace(least, budget=Budget(seconds=least.budget.seconds), spent=over)], Spent())
    assert isinstance(verdict, Stop), "what has nothing left is over"
    return to_failure(verdict.line)

"""Simulated users who work with an engine whose models fail at random, and the invariants that must hold."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from given.chaos import TOOLS, ChaosModel
from given.engine import ALLOW, MODEL, NOW, Engine, open_engine
from given.provider_wires import SUMMARISER, WIRES, RequestChecker, next_requests
from given.simulated_time import SimulatedClock
from given.unfinished import list_unfinished
from weft.errors import ConflictError, InvalidInputError, NotFoundError, SessionBusyError
from weft.local.permissions import PermissionSettings
from weft.model.agent import AgentInfo
from weft.model.catalog import Limit, Model, to_ref
from weft.model.event import Durable, Event, PermissionAsked, SessionDeleted, SessionIdled, session_of
from weft.model.ids import MessageID, PermissionID, SessionID
from weft.model.input import AnyPartInput, PromptInput, SessionInput, SubtaskInput, TextInput
from weft.model.message import AssistantMessage, JsonFormat, MessageWithParts, UserMessage
from weft.model.part import (
    Moment,
    StepFinishPart,
)
from weft.model.permission import Rule
from weft.model.session import SessionInfo, get_weft_data
from weft.model.spending import Budget, Budgets, add_spent, to_child_spent
from weft.model.transcript import Transcript
from weft.permission.policy import AskPolicy
from weft.provider.contract import ModelRequest
from weft.provider.registry import ServedModel
from weft.run.decide import find_newest_prompt
from weft.run.request import make_parameters
from weft.run.runtime import RunDeadlines, SubtaskLimits
from weft.session.totals import to_message_spent
from weft.store.contract import NO_LEASES
from weft.store.lease import LeaseToken
from weft.store.memory import MemoryStore
from weft.tool.registry import INVALID, TASK

PEOPLE = 3
ASKED_FIRST = (*ALLOW, Rule(permission="echo", pattern="*", action="ask"))
SECOND = replace(MODEL, id="second", cost=None)
SMALL = replace(MODEL, id="small")
FORMAT = JsonFormat(schema={"type": "object", "properties": {"done": {"type": "boolean"}}}, retry_count=1)


class RequestCheckers:
    """Fake servers of all APIs, which only check whether they would accept a request."""

    def __init__(self, readers: dict[str, RequestChecker]) -> None:
        self._readers = readers
        asked = UserMessage(id=MessageID("msg_x"), session_id=SessionID("ses_x"), time=Moment(created=NOW))
        agent = AgentInfo(name="build", mode="primary")
        self._parameters = {
            name: make_parameters(wire.model, agent, asked, output_limit=32_000)
            for name, wire in WIRES.items()
        }
        self.refused: list[str] = []
        self.asked = 0

    def check(self, request: ModelRequest) -> None:
        """Check whether two other APIs, in turn, would accept the request."""
        self.asked += 1
        for number in (self.asked, self.asked + 2):
            name = [*self._readers][number % len(self._readers)]
            instead = replace(request, model=WIRES[name].model, parameters=self._parameters[name])
            self._record(f"request {self.asked} over {name}", self._readers[name].problem(instead))

    def check_next(self, engine: Engine, history: Sequence[MessageWithParts]) -> None:
        """Check whether all APIs would accept every possible next request, also if the run had died here."""
        if find_newest_prompt(history) is None:
            return
        for name, reader in self._readers.items():
            for kind, request in next_requests(engine.api.runtime, history, WIRES[name].model):
                self._record(f"next {kind} over {name}", reader.problem(request))

    def _record(self, what: str, problem: str | None) -> None:
        if problem is not None:
            self.refused.append(f"{what}: {problem}")


class WorldSettings(Struct, frozen=True, kw_only=True):
    """The settings of a world, all chosen at random."""

    model: Model
    budgets: Budgets
    deadlines: RunDeadlines
    rules: tuple[Rule, ...]
    steps: int | None


def draw(random: Random) -> WorldSettings:
    window = random.choice([6_000, 20_000, 100_000])
    limited = Budgets(
        session=Budget(steps=random.choice([None, 30]), cost=random.choice([None, Decimal("0.5")])),
        tree=Budget(tokens=random.choice([None, 400_000])),
        day=Budget(seconds=random.choice([None, 40_000])),
    )
    return WorldSettings(
        model=replace(MODEL, limit=Limit(context=window, output=1_000)),
        budgets=limited if random.random() < 0.3 else Budgets(),
        deadlines=RunDeadlines(tool=60, turn=random.choice([300, 3600])),
        rules=random.choice([ALLOW, ASKED_FIRST]),
        steps=random.choice([None, None, 4]),
    )


class SlowStore(MemoryStore):
    """A store that waits before and after each write, so that other tasks can run in between."""

    def __init__(self, random: Random, clock: SimulatedClock) -> None:
        super().__init__()
        self._random = random
        self._clock = clock

    async def apply(self, *events: Durable, leases: Sequence[LeaseToken] = NO_LEASES) -> None:
        await self._clock.sleep(self._random.choice((0, 0.001, 0.02)))
        await super().apply(*events, leases=leases)
        await self._clock.sleep(self._random.choice((0, 0.001, 0.02)))

    async def edit(
        self,
        session: SessionID,
        editor: Callable[[SessionInfo], SessionInfo],
        *events: Durable,
        leases: Sequence[LeaseToken] = NO_LEASES,
    ) -> SessionInfo:
        await self._clock.sleep(self._random.choice((0, 0.002)))
        return await super().edit(session, editor, *events, leases=leases)


class World:
    """An engine with users, for one seed. `wrong` lists every violated invariant."""

    def __init__(self, seed: int, readers: RequestCheckers) -> None:
        self.random = Random(seed)
        self.wrong: list[str] = []
        self.turns = 0
        self.messages = 0
        self._readers = readers
        self._heard: dict[SessionID, Transcript] = {}
        self._known: list[SessionID] = []
        self._gone: set[SessionID] = set()
        self._cuts: Counter[SessionID] = Counter()
        self._waiting: list[PermissionID] = []
        self.chaos = ChaosModel(Random(seed), SimulatedClock(NOW), readers.check)

    async def run(self, turns: int) -> None:
        """Run some `turns`, then check everything."""
        settings, before, clock = draw(self.random), asyncio.all_tasks(), SimulatedClock(NOW)
        build = AgentInfo(
            name="chained",
            mode="primary",
            permission=ALLOW,
            model=to_ref(settings.model),
            fallback=(to_ref(SECOND),),
        )
        async with open_engine(
            clock=clock,
            store=SlowStore(self.random, clock),
            provider=self.chaos,
            model=settings.model,
            small=ServedModel(SMALL, self.chaos),
            more_models=(ServedModel(SECOND, self.chaos),),
            tools=(INVALID, TASK, *TOOLS),
            agents=(build, SUMMARISER, AgentInfo(name="general", mode="subagent", permission=ALLOW)),
            rules=settings.rules,
            steps=settings.steps,
            budgets=settings.budgets,
            deadlines=settings.deadlines,
            subtasks=SubtaskLimits(seconds=600),
            permissions=PermissionSettings(policy=AskPolicy(can_ask=True)),
            seed=self.random.randrange(1000),
        ) as engine:
            engine.api.bus.watch(self._check_event)
            async with asyncio.TaskGroup() as people:
                answering = people.create_task(self._answer(engine))
                async with asyncio.TaskGroup() as working:
                    for _ in range(PEOPLE):
                        working.create_task(self._work(engine, working, turns))
                answering.cancel()
            await self._check_everything(engine)
        left = asyncio.all_tasks() - before
        self._expect(not left, f"tasks left behind: {left}")

    def _expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.wrong.append(otherwise)

    # --- during the run ---

    def _check_event(self, event: Event) -> None:
        session = session_of(event)
        match event:
            case SessionIdled(session_id=rested):
                for problem in list_unfinished(self._heard.setdefault(rested, Transcript()).messages()):
                    self._expect(False, f"idle, but {problem}")
            case SessionDeleted(info=info):
                self._gone.add(info.id)
            case PermissionAsked(request=request):
                self._waiting.append(request.id)
            case _:
                pass
        if session is not None:
            self._heard.setdefault(session, Transcript()).feed(event)

    async def _answer(self, engine: Engine) -> None:
        """Answer permission requests, some time after they were asked."""
        while True:
            await engine.api.runtime.clock.sleep(self.random.uniform(0.1, 20))
            for asked in self._waiting[:]:
                self._waiting.remove(asked)
                reply = self.random.choices(("once", "always", "reject"), (6, 2, 1))[0]
                with suppress(
                    NotFoundError, ConflictError
                ):  # its run was aborted, or another answer settled it
                    await engine.api.reply_permission(asked, reply)

    async def _work(self, engine: Engine, tasks: asyncio.TaskGroup, turns: int) -> None:
        while self.turns < turns:
            session = await self._session(engine)
            act = self.random.choices(
                ("ask", "ask and go", "abort", "compact", "fork", "remove", "rest"), (30, 12, 10, 4, 3, 1, 8)
            )[0]
            try:
                match act:
                    case "ask":
                        await self._ask(engine, session)
                    case "ask and go":
                        tasks.create_task(self._ask_and_forget(engine, session))
                    case "abort":
                        await engine.api.runtime.clock.sleep(self.random.uniform(0, 3))
                        self._cuts[session] += 1
                        await engine.api.abort(session)
                    case "compact":
                        await engine.api.compact(session)
                    case "fork":
                        await self._fork(engine, session)
                    case "remove":
                        self._known.remove(session)
                        self._cuts[session] += 1
                        await engine.api.remove_session(session, trash=self.random.random() < 0.5)
                    case "rest":
                        await engine.api.runtime.clock.sleep(self.random.uniform(0, 30))
            except (SessionBusyError, NotFoundError, InvalidInputError, ValueError):
                # Another task was faster: the session runs, was removed, or is still empty.
                await engine.api.runtime.clock.sleep(0.1)

    async def _session(self, engine: Engine) -> SessionID:
        if len(self._known) < 2 or (len(self._known) < 5 and self.random.random() < 0.05):
            self._known.append((await engine.api.create_session(SessionInput())).id)
        return self.random.choice(self._known)

    async def _ask_and_forget(self, engine: Engine, session: SessionID) -> None:
        with suppress(SessionBusyError, NotFoundError):
            await self._ask(engine, session)

    async def _ask(self, engine: Engine, session: SessionID) -> None:
        input, cuts = self._prompt(), self._cuts[session]
        again = 2 if input.message_id is not None and self.random.random() < 0.5 else 1
        answers = await asyncio.gather(*(engine.api.prompt(session, input) for _ in range(again)))
        if input.no_reply:
            return
        self.turns += 1
        for answer in answers:
            answered = isinstance(answer.info, AssistantMessage) and answer.info.time.completed is not None
            self._expect(answered or self._cuts[session] > cuts, f"no answer: {answer.info}")

    def _prompt(self) -> PromptInput:
        random = self.random
        parts: tuple[AnyPartInput, ...] = (TextInput(text=f"Weave {random.randrange(10_000)}."),)
        if random.random() < 0.07:
            task = SubtaskInput(prompt="Spin.", description="Spin", agent="general")
            parts = (*parts, *[task] * random.randint(1, 2))
        return PromptInput(
            parts=parts,
            message_id=MessageID(f"msg_{random.randrange(16**12):012x}{random.randrange(10**14):014}")
            if random.random() < 0.2
            else None,
            agent="chained" if random.random() < 0.2 else None,
            no_reply=random.random() < 0.05,
            budget=Budget(steps=random.randint(1, 4)) if random.random() < 0.05 else None,
            format=FORMAT if random.random() < 0.05 else None,
        )

    async def _fork(self, engine: Engine, session: SessionID) -> None:
        history = await engine.api.list_messages(session)
        at = self.random.choice([None, *(message.info.id for message in history)])
        fork = await engine.api.fork_session(session, at=at)
        copied = await engine.api.list_messages(fork.id)
        self._heard[fork.id] = Transcript(copied)
        self._expect(list_unfinished(copied) == [], f"open in a fork: {list_unfinished(copied)}")
        self._known.append(fork.id)

    # --- at the end ---

    async def _check_everything(self, engine: Engine) -> None:
        self._expect(await engine.api.list_status() == {}, f"busy: {await engine.api.list_status()}")
        self._expect(await engine.api.list_permissions() == [], "a question is open")
        for session in await engine.store.list_sessions():
            self._expect(session.id not in self._gone, f"removed, and there: {session.id}")
            history = await engine.store.list_messages(session.id)
            self.messages += len(history)
            self.wrong += list_unfinished(history)
            heard = self._heard.get(session.id, Transcript()).messages()
            self._expect(heard == history, f"told and stored differ in {session.id}")
            self.wrong += list_out_of_order(history)
            self.wrong += [problem async for problem in list_wrong_sums(engine, session, history)]
            self._readers.check_next(engine, history)
            async with engine.store.lease(session.id, "the test"):
                pass


def list_out_of_order(history: Sequence[MessageWithParts]) -> Iterator[str]:
    """Yield the messages that are not later than those before them, or that answer no earlier prompt."""
    prompts: set[MessageID] = set()
    last = 0
    for message in history:
        info = message.info
        if info.time.created <= last:
            yield f"{info.id} is not later than what stands before it"
        last = info.time.created
        if isinstance(info, UserMessage):
            prompts.add(info.id)
        elif info.parent_id not in prompts:
            yield f"{info.id} answers {info.parent_id}, which does not stand before it"


async def list_wrong_sums(
    engine: Engine, session: SessionInfo, history: Sequence[MessageWithParts]
) -> AsyncIterator[str]:
    """Yield sums that do not add up: of the steps in a message, the messages in a session, the sessions in a tree."""
    answers = [message for message in history if isinstance(message.info, AssistantMessage)]
    for message in answers:
        assert isinstance(message.info, AssistantMessage)
        steps = [part for part in message.parts if isinstance(part, StepFinishPart)]
        if sum((step.cost for step in steps), Decimal(0)) != message.info.cost:
            yield f"{message.info.id}: its steps do not make up its cost"
    own = [
        to_message_spent(message.info)
        for message in answers
        if message.info.time.created >= session.time.created
    ]
    spending = await engine.api.get_spending(session.id)
    ledger = get_weft_data(session).spent
    if spending.own != add_spent(own) or (own and (ledger is None or ledger.own != spending.own)):
        yield f"{session.id}: {spending.own} and {ledger} is not {add_spent(own)}"
    children = [each for each in await engine.store.list_sessions() if each.parent_id == session.id]
    below = [to_child_spent((await engine.api.get_spending(child.id)).tree) for child in children]
    if spending.tree != add_spent((spending.own, *below)):
        yield f"{session.id}: the tree is {spending.tree} and not {add_spent((spending.own, *below))}"

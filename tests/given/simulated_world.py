"""A world for one seed: processes with the whole engine on one simulated disk, people, models, tools, deaths; and what must hold.

Everything that happens follows from the seed. The lifetime of a process ends with a kill, a power failure or an
orderly exit. Then the store is compared with what was written (`simulated_records`), and the next process continues from it.
The last process has no failures: everything is settled, each session answers once more, and all sums are checked.
"""

import asyncio
import os
import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import suppress
from random import Random

from msgspec import Struct

from given.chaos_world import list_out_of_order, list_wrong_sums
from given.engine import NOW, Engine, open_engine, text_prompt
from given.simulated_disk import DiskFaults, Medium, SimulatedDisk
from given.simulated_process import (
    PROCESS,
    Process,
    RecordedStore,
    SeededLoop,
    is_expected,
    simulate_processes,
)
from given.simulated_records import Records
from given.simulated_time import SimulatedClock, StuckError
from given.unfinished import list_unfinished
from weft.errors import ConflictError, InvalidInputError, NotFoundError, SessionBusyError, StoreError
from weft.journal import GROWTH_SECONDS
from weft.maintenance.proof import check_session
from weft.model.ids import MessageID, SessionID
from weft.model.input import SessionInput
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import CompletedState, ErrorState, TextPart, ToolPart
from weft.model.session import SessionInfo
from weft.model.transfer import SessionExport
from weft.model.verdict import CallEvidence, CallResult, find_verdict
from weft.provider.chunk import (
    AnyChunk,
    Finished,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    Started,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    ToolInputStart,
    Usage,
)
from weft.provider.contract import ModelRequest
from weft.provider.faults import make_error
from weft.store.files.store import FileStore
from weft.tool.contract import AnyTool, Tool, ToolContext, ToolResult

WORDS = ("warp ", "weft ", "Schuss ", "織る ", "🧵\n", "x" * 40)
LONGEST_LIFE = 3_000
# About as many turns of the loop, operations on the disk and renames as a process makes in its lifetime.
TURNS, OPERATIONS, MOVES = 500, 250, 50
LIFE_SECONDS = 5.0
SHARED_MEMORY = "/dev/shm"


class MarkInput(Struct, frozen=True):
    mark: str


class World:
    """The world of one seed. `records.wrong` lists every violated invariant."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.records = Records()
        self.root = ""
        self.ends: list[str] = []
        self._clock = SimulatedClock(NOW)
        self._requests = 0
        self._usages: dict[int, Usage] = {}
        self._effects: Counter[str] = Counter()
        self._doubtful: set[str] = set()  # marks of calls that a power failure may have made unknown
        self._asking: dict[SessionID, Process] = {}
        self._prompts: dict[MessageID, tuple[SessionID, str]] = {}
        self._lives = 0
        self._failed = False
        self._death: asyncio.TimerHandle | None = None
        self._is_calm = False

    def run(self) -> list[str]:
        """Run the world to its end. Return every violated invariant."""
        place = SHARED_MEMORY if os.path.isdir(SHARED_MEMORY) else None
        scratch = tempfile.mkdtemp(prefix="weft-world-", dir=place)
        self.root = f"{scratch}/storage"
        try:
            simulate_processes(self._run_lives, self.random)
        except StuckError as error:
            self.records.expect(False, f"a run does not end: {error}")
        except Exception as error:  # noqa: BLE001  whatever breaks the engine is a finding
            self.records.expect(False, f"it breaks: {describe_error(error)}")
        finally:
            shutil.rmtree(scratch)
        return self.records.wrong

    def describe(self, last: int = 60) -> str:
        """Return what is wrong, what happened last, and how to see it again."""
        wrong = "\n".join(self.records.wrong) or "nothing is wrong"
        log = "\n".join(self.records.log[-last:])
        return f'{log}\n{wrong}\nrun it again: make simulate SIMULATE="--seed {self.seed}"'

    async def _run_lives(self, loop: SeededLoop) -> None:
        self._loop = loop
        self.records.now = loop.time
        self._medium = Medium(self.root)
        for _ in range(self.random.choice((1, 2, 2, 3))):
            await self._run_life()
            if self.records.wrong:
                return
        self._is_calm = True
        await self._run_process(self._make_process(), calm=True)

    # --- a life ---

    async def _run_life(self) -> None:
        end = self.random.choices(("kill", "power", "peace"), (5, 4, 2))[0]
        processes = [self._make_process() for _ in range(self.random.choice((1, 1, 2)))]
        rate = self.random.choices((0, 0.01, 0.05), (4, 2, 1))[0]
        for process in processes:
            process.trouble.rate = rate
        if end != "peace":
            self._plan_end(processes, end)
        async with asyncio.TaskGroup() as tasks:
            for process in processes:
                tasks.create_task(self._run_process(process))
        if end == "power" and any(process.dead for process in processes):
            lost = self._medium.fail_power(self.random)
            await self._clock.sleep(1)
            self._loop.powered_at = self._loop.time()
            self.records.tell(f"the power fails; {lost} changes of names are lost")
            self._doubtful |= set(self._effects)
        elif not any(process.dead for process in processes):
            end = "peace"
        self.ends.append(end)
        # A run whose end could not be stored leaves its session open; whoever opens it next settles it.
        self._failed |= any(process.trouble.failed for process in processes)
        self._asking.clear()
        self._loop.deaths.clear()
        if self._death is not None:
            self._death.cancel()
        await self._check_store(processes, end)

    def _make_process(self) -> Process:
        self._lives += 1
        return Process(f"P{self._lives}", self.random, self._medium, self.records)

    def _plan_end(self, processes: Sequence[Process], end: str) -> None:
        """Let the first process die at a turn of the event loop or at an operation on the disk, and at a power failure all of them."""
        doomed = processes if end == "power" else processes[:1]

        def die() -> None:
            for process in doomed:
                process.die()

        processes[0].trouble.die = die
        match self.random.choice(("moment", "moment", "turn", "operation", "move", "move", "move")):
            case "moment":  # most of the time, a model speaks or a tool works
                self._death = self._loop.call_later(self.random.uniform(0, LIFE_SECONDS), die)
            case "turn":
                self._loop.deaths[self._loop.turn + self._choose_end(TURNS)] = die
            case "operation":
                processes[0].trouble.dies_at = self._choose_end(OPERATIONS)
            case "move":
                processes[0].trouble.moves_left = self._choose_end(MOVES)

    def _choose_end(self, most: int) -> int:
        """Return a number up to `most`; a small one is more likely, because much happens while a process is opened."""
        return (
            int(most ** self.random.random()) if self.random.random() < 0.3 else self.random.randint(1, most)
        )

    async def _run_process(self, process: Process, *, calm: bool = False) -> None:
        async def run_engine() -> None:
            PROCESS.set(process)
            store = RecordedStore(self.root, process)
            await store.prepare(lambda _: None)
            async with open_engine(
                store=store,
                clock=self._clock,
                provider=SimulatedModel(self, process),
                tools=(self._make_tool(process, notes=True), self._make_tool(process, notes=False)),
                seed=self.random.randrange(10**6),
                owner=process.name,
            ) as engine:
                engine.api.bus.watch(process.see)
                self.records.listen()
                self.records.tell(f"{process.name} is open")
                await (self._finish(engine, store) if calm else self._work(engine, process))
            if not process.dead:
                self.records.tell(f"{process.name} ends")

        process.task = asyncio.create_task(run_engine())
        if process.dead:
            process.task.cancel()
        try:
            async with asyncio.timeout(LONGEST_LIFE * (10 if calm else 1)):
                await asyncio.wait([process.task])
        except TimeoutError:
            self.records.expect(False, f"{process.name} does not end")
            return
        error = None if process.task.cancelled() else process.task.exception()
        if error is not None and not is_expected(error, process):
            raise error

    # --- people ---

    async def _work(self, engine: Engine, process: Process) -> None:
        for _ in range(self.random.randint(1, 3)):
            act = self.random.choices(
                ("ask", "ask and abort", "ask twice", "again", "fork", "rename", "remove"),
                (10, 3, 3, 4, 1, 2, 1),
            )[0]
            try:
                await self._act(engine, process, act)
            except (SessionBusyError, NotFoundError, InvalidInputError, ConflictError) as error:
                self.records.tell(f"{process.name} cannot {act}: {error}")
            except StoreError as error:
                self.records.expect(is_expected(error, process), f"{act}: {error}")

    async def _act(self, engine: Engine, process: Process, act: str) -> None:
        session = await self._choose_session(engine)
        self.records.tell(f"{process.name}: {act} in {session[-6:]}")
        match act:
            case "ask":
                await self._ask(engine, process, session)
            case "ask and abort" | "ask twice":
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._ask_quietly(engine, process, session))
                    await self._clock.sleep(self.random.uniform(0, 3))
                    if act == "ask twice":
                        tasks.create_task(self._ask_quietly(engine, process, session))
                    else:
                        with suppress(SessionBusyError, NotFoundError):
                            await engine.api.abort(session)
            case "again":
                own = [(id, words) for id, (place, words) in self._prompts.items() if place == session]
                if own:
                    id, words = self.random.choice(own)
                    await engine.api.prompt(session, text_prompt(words, message_id=id))
            case "fork":
                await engine.api.fork_session(session)
            case "rename":
                await engine.api.rename_session(session, self.random.choice(WORDS))
            case "remove":
                await engine.api.remove_session(session, trash=self.random.random() < 0.5)

    async def _choose_session(self, engine: Engine) -> SessionID:
        found = [session.id for session in await engine.store.list_sessions()]
        if len(found) < 2 or self.random.random() < 0.1:
            created = await engine.api.create_session(SessionInput(title="Cloth"))
            return created.id
        return self.random.choice(found)

    async def _ask_quietly(self, engine: Engine, process: Process, session: SessionID) -> None:
        try:
            await self._ask(engine, process, session)
        except (SessionBusyError, NotFoundError, StoreError) as error:
            if isinstance(error, StoreError):
                self.records.expect(is_expected(error, process), str(error))

    async def _ask(self, engine: Engine, process: Process, session: SessionID) -> MessageWithParts:
        words = f"Weave {len(self._prompts)}."
        id = MessageID(f"msg_{len(self._prompts):012x}{self.random.randrange(10**14):014}")
        self._prompts[id] = (session, words)
        answer = await engine.api.prompt(session, text_prompt(words, message_id=id))
        answered = isinstance(answer.info, AssistantMessage) and answer.info.time.completed is not None
        self.records.expect(answered or process.dead, f"no answer: {answer.info}")
        return answer

    # --- tools ---

    def _make_tool(self, process: Process, *, notes: bool) -> AnyTool:
        """Return a tool whose effect is counted. With `notes`, it records its evidence before and its result after."""

        async def mark(wanted: MarkInput, ctx: ToolContext) -> ToolResult:
            await self._clock.sleep(self.random.choice((0, 0.01, 0.4)))
            if notes:
                await ctx.note(CallEvidence(server="loom"))
            if process.dead:
                raise make_error("network", "dead")
            self._effects[wanted.mark] += 1
            self.records.tell(f"{process.name} did {wanted.mark}")
            await self._clock.sleep(self.random.choice((0, 0.01, 2)))
            if notes:
                await ctx.note(CallEvidence(server="loom", result=CallResult(output=wanted.mark)))
            if self.random.random() < 0.1:
                raise ValueError("the thread broke")
            return ToolResult(title="Mark", output=wanted.mark)

        name = "noted" if notes else "mark"
        return Tool(name=name, about="Leave a mark.", takes=MarkInput, run=mark, notes=notes, watch_all=False)

    def begin_request(self, session: SessionID, process: Process) -> int:
        other = self._asking.get(session)
        self.records.expect(
            other is None or other.dead or other is process, f"{session} runs in two processes at once"
        )
        self._asking[session] = process
        self._requests += 1
        return self._requests

    def end_request(self, session: SessionID, process: Process) -> None:
        if self._asking.get(session) is process:
            del self._asking[session]

    def note_usage(self, number: int, usage: Usage) -> None:
        self._usages[number] = usage

    @property
    def is_calm(self) -> bool:
        return self._is_calm

    # --- what must hold ---

    async def _check_store(self, processes: Sequence[Process], end: str) -> None:
        """Compare what is stored with what was written, before a process settles anything."""
        store = FileStore(
            self.root, disk=SimulatedDisk(self._medium, DiskFaults(self.random, self.records.tell))
        )
        try:
            await store.prepare(lambda _: None)
            stored = {session.id: session for session in await store.list_sessions()}
            for id, record in self.records.sessions.items():
                history = await store.list_messages(id) if id in stored else []
                if end == "power":
                    for wrong in record.check_after_power_failure(history, stored.get(id)):
                        self.records.expect(False, wrong)
                    continue
                wrong = record.check_whole(history, stored.get(id))
                self.records.expect(wrong is None, wrong or "")
                for process in processes:
                    self._check_growth(process, history)
                if end == "peace" and not self._failed:
                    self.records.check_heard(id, history)
            if end != "power" and "power" not in self.ends:
                self.records.expect(not await store.damage(), f"damaged: {await store.damage()}")
        finally:
            store.close()
        self.records.expect(
            set(stored) <= set(self.records.sessions),
            f"sessions from nowhere: {set(stored) - set(self.records.sessions)}",
        )

    def _check_growth(self, process: Process, history: Sequence[MessageWithParts]) -> None:
        """What was published some time before the process died is stored."""
        if process.trouble.failed or not process.dead:
            return
        late = process.died_at - GROWTH_SECONDS - 3 * process.slowest - 0.1
        for message in history:
            for part in message.parts:
                if isinstance(part, TextPart) and part.time is not None and part.time.end is None:
                    due = max((end for at, end in process.grown.get(part.id, ()) if at < late), default=0)
                    self.records.expect(
                        len(part.text) >= due, f"{len(part.text)} of {due} characters are stored: {part}"
                    )

    async def _finish(self, engine: Engine, store: FileStore) -> None:
        """Check that all is settled, let each session answer once more, and check again."""
        sessions = await store.list_sessions()
        for session in [] if self._failed else sessions:
            self._check_settled(await store.list_messages(session.id))
        for session in sessions:
            answer = await self._ask(engine, PROCESS.get(), session.id)
            failed = isinstance(answer.info, AssistantMessage) and answer.info.error is not None
            self.records.expect(not failed, f"failed although nothing happened: {answer.info}")
        self.records.expect(await engine.api.list_status() == {}, "a session is busy")
        seen: set[str] = set()
        for session in await store.list_sessions():
            history = await store.list_messages(session.id)
            self._check_settled(history)
            seen |= set(self._check_calls(history))
            for wrong in [*list_out_of_order(history), *self._list_miscounted(history)]:
                self.records.expect(False, wrong)
            if not self.records.sessions[session.id].is_surprising:
                async for wrong in list_wrong_sums(engine, session, history):
                    self.records.expect(False, wrong)
            await self._check_chain(store, session, history)
        gone = {mark for mark in self._effects if mark not in seen and mark not in self._doubtful}
        is_removed = len(self.records.sessions) > len(await store.list_sessions())
        self.records.expect(not gone or is_removed, f"done, and in no transcript: {gone}")
        twice = [mark for mark, count in self._effects.items() if count > 1]
        self.records.expect(not twice, f"done twice: {twice}")
        self._check_leftovers()

    def _check_settled(self, history: Sequence[MessageWithParts]) -> None:
        for wrong in list_unfinished(history):
            self.records.expect(False, wrong)
        for message in history:
            is_whole = not isinstance(message.info, UserMessage) or len(message.parts) == 1
            if not is_whole and "power" not in self.ends:
                self.records.expect(False, f"not what was asked: {message}")

    def _check_calls(self, history: Sequence[MessageWithParts]) -> Iterator[str]:
        """Yield the marks of all calls, and check that the verdict on each is true."""
        for message in history:
            for part in message.parts:
                if not isinstance(part, ToolPart) or "mark" not in part.state.input:
                    continue
                mark = part.state.input["mark"]
                yield mark
                verdict = find_verdict(part.state.metadata) if isinstance(part.state, ErrorState) else None
                done = self._effects[mark]
                if isinstance(part.state, CompletedState):
                    self.records.expect(done == 1, f"not done, and said to be: {part}")
                elif verdict is not None and verdict.kind == "not-started":
                    self.records.expect(done == 0, f"done, and said not to have started: {part}")
                elif verdict is not None and verdict.kind == "finished":
                    self.records.expect(done == 1, f"not done, and said to be finished: {part}")

    def _list_miscounted(self, history: Sequence[MessageWithParts]) -> Iterator[str]:
        """Yield the answers whose tokens are not those that the model reported."""
        for message in history:
            info = message.info
            if not isinstance(info, AssistantMessage) or info.error is not None:
                continue
            texts = [part.text for part in message.parts if isinstance(part, TextPart) and not part.ignored]
            numbers = [int(text[1:].partition("]")[0]) for text in texts if text.startswith("[")]
            reported = [self._usages[number].output for number in numbers if number in self._usages]
            if info.tokens.output < sum(reported):
                yield f"{info.id}: {info.tokens}, and the model reported {reported}"

    async def _check_chain(
        self, store: FileStore, session: SessionInfo, history: Sequence[MessageWithParts]
    ) -> None:
        if "power" in self.ends or self.records.sessions[session.id].is_surprising:
            return  # it may lack what was not flushed, or know what was refused
        export = SessionExport(info=session, messages=tuple(history), diff=(), todos=())
        proof = check_session(session.id, await store.read_chain(session.id), export)
        for finding in proof.findings:
            self.records.expect(
                finding.kind == "diff" or not finding.is_fault, f"the chain of {session.id}: {finding}"
            )

    def _check_leftovers(self) -> None:
        for name in ("redo", "temp"):
            with suppress(FileNotFoundError):
                left = os.listdir(f"{self.root}/.weft/{name}")
                self.records.expect(not left, f"left in {name}: {left}")


def describe_error(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({os.path.basename(place.filename)}:{place.lineno})"


class SimulatedModel:
    """A model that speaks, thinks, calls tools and fails, by the seed of its world. Each of its answers begins with its number."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        number = self._world.begin_request(request.session, self._process)
        pace = self._world.random.choice((0.2, 0.6, 1))
        try:
            async for chunk in self._answer(number):
                yield chunk
                if self._world.random.random() < pace:
                    await asyncio.sleep(self._world.random.choice((0, 0.01, 0.3, 0.6)))
                if self._process.dead:
                    raise make_error("network", "dead")
        finally:
            self._world.end_request(request.session, self._process)

    async def _answer(self, number: int) -> AsyncGenerator[AnyChunk]:
        random = self._world.random
        kind = (
            "speaks"
            if self._world.is_calm
            else random.choices(("speaks", "calls", "breaks", "is limited", "refuses"), (9, 6, 2, 1, 1))[0]
        )
        if kind == "is limited":
            raise make_error("rate-limit", "Too Many Requests", status=429)
        if kind == "refuses":
            raise make_error("bad-request", "no")
        yield Started()
        if random.random() < 0.2:
            yield ReasoningStart(id=f"r{number}")
            yield ReasoningDelta(id=f"r{number}", text="hm")
            yield ReasoningEnd(id=f"r{number}")
        text = f"t{number}"
        yield TextStart(id=text)
        yield TextDelta(id=text, text=f"[{number}] ")
        for word in random.choices(WORDS, k=random.randint(0, 8)):
            yield TextDelta(id=text, text=word)
        if kind == "breaks":
            raise make_error("network", "the connection was reset")
        yield TextEnd(id=text)
        if kind == "calls":
            for place in range(random.randint(1, 2)):
                tool = random.choice(("mark", "noted"))
                yield ToolInputStart(call_id=f"c{number}.{place}", tool=tool)
                yield ToolCall(call_id=f"c{number}.{place}", tool=tool, raw=f'{{"mark": "{number}.{place}"}}')
        if kind == "calls" and random.random() < 0.25:
            raise make_error("network", "the connection was reset")
        usage = Usage(input=number, output=random.randint(1, 99))
        self._world.note_usage(number, usage)
        yield Finished(reason="tool-calls" if kind == "calls" else "stop", usage=usage)

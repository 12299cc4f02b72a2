"""A simulated cluster: nodes with the real code on a simulated Postgres, clients, readers, trouble, and what must hold.

Time is simulated, and the same seed gives the same run.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any

from msgspec import Struct

from given.engine import ALLOW, PLACE, EchoInput, open_engine
from given.simulated_driver import Machine, NetworkFaults, SimulatedDriver, SimulatedStore, make_address
from given.simulated_postgres import DeliveryRow, SimulatedPostgres
from given.unfinished import list_unfinished
from weft.api import Api
from weft.cluster.node import ClusterNode, open_node, run_node
from weft.errors import StoreError
from weft.host.tasks import open_tasks
from weft.model.event import (
    Durable,
    Event,
    MessageRemoved,
    MessageUpdated,
    PartGrew,
    PartRemoved,
    PartUpdated,
    session_of,
)
from weft.model.event_wire import encode_event, event_from_json, event_from_plain, is_shared
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import TextPart
from weft.model.transcript import Transcript
from weft.provider.chunk import (
    AnyChunk,
    Finished,
    Started,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    ToolInputStart,
    Usage,
)
from weft.provider.contract import (
    AssistantModelMessage,
    CallContent,
    ModelRequest,
    TextContent,
    UserModelMessage,
)
from weft.server.access import AccessPolicy
from weft.server.application import build_app
from weft.server.http_server import HttpServer, ServerSetup
from weft.server.routes.table import list_routes
from weft.store.postgres.connection import Database
from weft.store.postgres.event_log import PostgresLog
from weft.store.postgres.lease import LeaseKeeper
from weft.tool.contract import AnyTool, Tool, ToolContext, ToolResult

HERE = PLACE.directory
LEASE_SECONDS = 3.0
RETRY_SECONDS = 2.0
NODES = 3
READERS = 2
GRACE_SECONDS = 4.0
CLIENT_SECONDS = 8.0
QUIET_SECONDS = 120.0
MAX_ATTEMPTS = 100
MAX_SKEW = 600_000
NAME = re.compile(r"\[(\w+)\]")


class GoneError(Exception):
    """The node does not answer (any more)."""


# --- the model and its tool ---


class MarkingModel:
    """Marks each prompt once with a tool, then names every prompt that it has not named before, slowly."""

    def __init__(self, machine: Machine, random: Random) -> None:
        self._machine = machine
        self._random = random
        self._count = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[AnyChunk]:
        self._count += 1
        prompted, named = read_names(request, UserModelMessage), read_names(request, AssistantModelMessage)
        waiting = [name for name in prompted if name not in named]
        marked = {
            part.input.get("words")
            for message in request.messages
            if isinstance(message, AssistantModelMessage)
            for part in message.content
            if isinstance(part, CallContent)
        }
        pace = self._random.choice((0.001, 0.05, 0.5))
        yield Started()
        if waiting and waiting[-1] not in marked and self._random.random() < 0.7:
            call = f"call_{self._machine.now()}_{self._count}"
            yield ToolInputStart(call_id=call, tool="mark")
            await self._machine.sleep(pace)
            yield ToolCall(call_id=call, tool="mark", raw=json.dumps({"words": waiting[-1]}))
            yield Finished(reason="tool-calls", raw_reason="tool-calls", usage=Usage(input=1, output=1))
            return
        yield TextStart(id="t")
        for word in (*(f"[{name}] " for name in waiting), *["and so on "] * self._random.randint(1, 20)):
            await self._machine.sleep(pace)
            yield TextDelta(id="t", text=word)
        yield TextEnd(id="t")
        yield Finished(reason="stop", raw_reason="stop", usage=Usage(input=1, output=1))


def read_names(request: ModelRequest, of: type[Any]) -> list[str]:
    texts = [
        part.text
        for message in request.messages
        if isinstance(message, of)
        for part in message.content
        if isinstance(part, TextContent)
    ]
    return [name for text in texts for name in NAME.findall(text)]


# --- nodes ---


class SimulatedNode:
    """A process on a machine of its own, with everything that `weft serve` opens but the socket."""

    def __init__(self, world: "SimulatedCluster", name: str) -> None:
        self._world = world
        self.name = name
        self.machine = world.make_machine()
        self._random = Random(world.random.randrange(2**32))
        self._app: Any = None
        self._server: HttpServer | None = None
        self._node: ClusterNode | None = None
        self.ready = asyncio.Event()
        self._ending = asyncio.Event()
        self.task = world.tasks.create_task(self._run())

    @property
    def is_up(self) -> bool:
        return self.ready.is_set() and not self.machine.died.is_set() and not self._ending.is_set()

    async def _run(self) -> None:
        try:
            await self._serve()
        except asyncio.CancelledError:
            if not self.machine.died.is_set():
                raise
        except Exception as error:  # noqa: BLE001  it is told to the test
            # A node that cannot reach the database when it starts exits. A dead one only has to be gone.
            if not self.machine.died.is_set() and (self.ready.is_set() or not isinstance(error, StoreError)):
                self._world.wrong.append(f"{self.name} failed: {error!r}")
        finally:
            self.machine.kill()

    async def _serve(self) -> None:
        machine = self.machine
        database = Database(make_address(LEASE_SECONDS, RETRY_SECONDS), SimulatedDriver(machine), machine)
        await database.open()
        keeper, log = LeaseKeeper(database, machine), PostgresLog(database, machine, writer=self.name)
        store = SimulatedStore(database, keeper, log)
        async with open_tasks() as tasks:
            background = [tasks.create_task(keeper.renew_forever()), tasks.create_task(log.keep_placing())]
            try:
                async with open_node(
                    store,
                    machine,
                    owner=self.name,
                    name=self.name,
                    url="",
                    roots=(HERE,),
                    note=self._world.note,
                ) as node:
                    await self._run_server(node, store)
            finally:
                for task in background:
                    task.cancel()
                await log.close()

    async def _run_server(self, node: ClusterNode, store: SimulatedStore) -> None:
        @asynccontextmanager
        async def open_api(directory: str) -> AsyncIterator[Api]:
            async with (
                open_engine(
                    store=store,
                    clock=self.machine,
                    provider=MarkingModel(self.machine, self._random),
                    tools=(self._make_tool(),),
                    rules=ALLOW,
                    seed=self._random.randrange(2**32),
                    owner=self.name,
                ) as engine,
                node.join_api(engine.api, directory) as api,
            ):
                yield api

        setup = ServerSetup(
            open=open_api,
            default_directory=HERE,
            access=AccessPolicy(password=None),
            name=self.name,
            note=self._world.note,
            now=self.machine.now,
            cluster=node,
        )
        self._server, self._node = server, _ = HttpServer(setup, list_routes(shell=False, files=False)), node
        self._app = build_app(server)
        async with server.run(self._app), open_tasks() as tasks:
            node.attach(server.get_api_of)
            async with run_node(node):
                self.ready.set()
                draining = tasks.create_task(node.draining.wait())
                ending = tasks.create_task(self._ending.wait())
                await asyncio.wait((draining, ending), return_when=asyncio.FIRST_COMPLETED)
                self._ending.set()
                ending.cancel()
                draining.cancel()
                with suppress(StoreError):
                    await node.drain()
                await server.shut_down(GRACE_SECONDS)

    def _make_tool(self) -> AnyTool:
        async def mark(wanted: EchoInput, ctx: ToolContext) -> ToolResult:
            if not self.machine.died.is_set():
                self._world.marks[wanted.words] += 1
            await ctx.clock.sleep(self._random.choice((0.01, 0.3, 2.0)))
            return ToolResult(title="Mark", output="marked")

        return Tool(name="mark", about="Mark.", takes=EchoInput, run=mark)

    # --- what happens to it ---

    def kill(self) -> None:
        self.machine.kill()
        self.task.cancel()

    def end(self) -> None:
        """Send SIGTERM."""
        self._ending.set()

    # --- requests ---

    async def request(
        self, method: str, path: str, body: Any = None, *, seconds: float = CLIENT_SECONDS
    ) -> Any:
        """Send a request and return the answer. Raise `GoneError` if none arrives in time."""
        answered: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        work = self._world.tasks.create_task(self._call(method, path, body, answered))
        died = self._world.tasks.create_task(self.machine.died.wait())
        await asyncio.wait((answered, died), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        died.cancel()
        if not answered.done():
            work.cancel()
            raise GoneError
        status, raw = answered.result()
        # A node that ends while it has a request refuses it: nothing was done, and another node is asked.
        if status >= 500:
            raise GoneError
        assert status < 400, raw
        return json.loads(raw) if raw else None

    async def _call(
        self, method: str, path: str, body: Any, answered: asyncio.Future[tuple[int, bytes]]
    ) -> None:
        raw, status = b"" if body is None else json.dumps(body).encode(), 0
        pieces: list[bytes] = []
        messages = [{"type": "http.request", "body": raw, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if messages:
                return messages.pop()
            await asyncio.Event().wait()
            raise AssertionError("unreachable")

        async def send(message: Any) -> None:
            nonlocal status
            await self.machine.running.wait()
            status = message.get("status", status)
            pieces.append(message.get("body", b""))

        await asyncio.sleep(self._random.uniform(0.001, 0.2))  # so that requests overtake each other
        await self.machine.running.wait()
        if self.is_up:
            await self._app(make_scope(method, path, {"content-type": "application/json"}), receive, send)
            if not answered.done() and not self.machine.died.is_set():
                answered.set_result((status, b"".join(pieces)))

    async def listen(self, after: str, take: Callable[[str], None], left: asyncio.Event) -> None:
        """Pass on the lines of the event stream until the node ends or dies, or the reader has left."""
        gone = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            await self.machine.running.wait()
            for line in message.get("body", b"").decode().splitlines():
                if not self.machine.died.is_set() and not left.is_set():
                    take(line)

        scope = make_scope("GET", "/event", {"last-event-id": after}, b"deltas=1")
        async with open_tasks() as tasks:
            streaming = tasks.create_task(self._app(scope, receive, send))
            died = tasks.create_task(self.machine.died.wait())
            leaving = tasks.create_task(left.wait())
            try:
                await asyncio.wait((streaming, died, leaving), return_when=asyncio.FIRST_COMPLETED)
            finally:
                gone.set()
                for task in (streaming, died, leaving):
                    task.cancel()


def make_scope(method: str, path: str, headers: dict[str, str], query: bytes = b"") -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "root_path": "",
        "headers": [
            (name.encode(), value.encode()) for name, value in {"host": "127.0.0.1", **headers}.items()
        ],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }


class EventReader:
    """A client that follows all events from the beginning of the log, and goes to another node when its own is gone.

    A node that cannot reach the database does not know what a reader saw on another node, and tells it to start again.
    """

    def __init__(self, world: "SimulatedCluster") -> None:
        self._world = world
        self.last = "simulated.0"
        self.events: list[Event] = []
        self.resyncs = 0
        self._left = asyncio.Event()

    async def run(self) -> None:
        while True:
            node = await self._world.choose_node()
            self._left.clear()
            with suppress(StoreError):  # the node cannot reach the database, and the stream breaks off
                await node.listen(self.last, self._read_line, self._left)
            await asyncio.sleep(self._world.random.uniform(0.01, 1))

    def _read_line(self, line: str) -> None:
        kind, _, rest = line.partition(": ")
        if kind == "id":
            self.last = rest
        elif kind == "data":
            event = json.loads(rest)
            if event["type"] == "server.resync":
                self.resyncs += 1
                self.last, self.events = "simulated.0", []
                self._left.set()
                return
            found = event_from_plain(event)
            if is_shared(found):
                self.events.append(found)

    @property
    def position(self) -> int:
        return int(self.last.partition("~")[0].rpartition(".")[2])


# --- the world ---


class TroubleSettings(Struct, frozen=True, kw_only=True):
    """What a seed chooses: how many sessions, prompts and failures there are, and how bad the network is."""

    sessions: int
    prompts: int
    actions: tuple[str, ...]
    faults: NetworkFaults
    late: float


def draw_settings(random: Random) -> TroubleSettings:
    """Choose what happens. Some seeds are without failures: every prompt gets a complete answer."""
    sessions, prompts = random.randint(1, 3), random.randint(2, 6)
    if random.random() < 0.3:
        return TroubleSettings(sessions=1, prompts=prompts, actions=(), faults=NetworkFaults(), late=0.02)
    kinds = ("kill", "pause", "cut", "blip", "end")
    return TroubleSettings(
        sessions=sessions,
        prompts=prompts,
        actions=tuple(random.choices(kinds, (4, 4, 4, 3, 2), k=random.randint(1, 6))),
        faults=NetworkFaults(
            lost=random.choice((0.0, 0.01, 0.05)),
            lost_notifications=random.choice((0.0, 0.3, 1.0)),
            doubled_notifications=random.choice((0.0, 0.3)),
            slow=random.choice((0.0, 0.1)),
        ),
        late=random.choice((0.0, 0.05, 0.2)),
    )


class SimulatedCluster:
    """Nodes, clients and readers for one seed. `wrong` lists every violated invariant."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.settings = draw_settings(self.random)
        self.wrong: list[str] = []
        self.notes: list[str] = []
        self.marks: Counter[str] = Counter()
        self.acknowledged: dict[str, str] = {}
        self._sessions: list[str] = []
        self._nodes: list[SimulatedNode] = []
        self._started = 0
        self.plant: Callable[[SimulatedCluster], None] = lambda _: None

    def note(self, line: str) -> None:
        self.notes.append(line)

    @property
    def is_calm(self) -> bool:
        return not self.settings.actions

    def make_machine(self) -> Machine:
        skew = self.random.randint(-MAX_SKEW, MAX_SKEW)
        return Machine(self.server, Random(self.random.randrange(2**32)), self.settings.faults, skew=skew)

    def _draw_commit_delay(self) -> float:
        if self.random.random() < self.settings.late:
            return self.random.choice((0.02, 0.3, 1.0, LEASE_SECONDS * 1.5 if self.settings.actions else 0.3))
        return self.random.uniform(0, 0.002)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as self.tasks:
            self.server = SimulatedPostgres(self.tasks, commit_delay=self._draw_commit_delay)
            self.server.on_write = self._check_write
            self.server.on_take = self._check_take
            self.plant(self)
            self._nodes = [self._start_node() for _ in range(NODES)]
            try:
                await self._run()
            finally:
                for node in self._nodes:
                    node.kill()

    async def _run(self) -> None:
        readers = [EventReader(self) for _ in range(READERS)]
        reading = [self.tasks.create_task(reader.run()) for reader in readers]
        try:
            await self._make_sessions()
            async with asyncio.TaskGroup() as acting:
                acting.create_task(self._make_trouble())
                for number in range(self.settings.prompts):
                    acting.create_task(self._send(f"p{number}"))
            await self._heal()
            await self._wait_for_quiet(readers)
        finally:
            for task in reading:
                task.cancel()
        self._check(readers)

    # --- what people do ---

    async def choose_node(self) -> SimulatedNode:
        """Return a node that takes requests, once there is one."""
        while True:
            found = [node for node in self._nodes if node.is_up]
            if found:
                return self.random.choice(found)
            await asyncio.sleep(0.1)

    async def _make_sessions(self) -> None:
        while len(self._sessions) < self.settings.sessions:
            with suppress(GoneError):
                made = await (await self.choose_node()).request("POST", "/session", {})
                self._sessions.append(made["id"])

    async def _send(self, name: str) -> None:
        """Send a prompt until a node has acknowledged it, sometimes to two nodes at once."""
        session = self.random.choice(self._sessions)
        message = f"msg_{self.random.randrange(16**12):012x}{self.random.randrange(10**14):014}"
        body = {"messageID": message, "parts": [{"type": "text", "text": f"Do [{name}]."}]}
        await asyncio.sleep(self.random.uniform(0, 12))
        for _ in range(MAX_ATTEMPTS):
            if message in self.acknowledged:
                break
            many = 2 if self.random.random() < 0.2 else 1
            async with asyncio.TaskGroup() as attempts:
                for _ in range(many):
                    attempts.create_task(self._send_once(session, message, body))
        else:
            self.wrong.append(f"{name} was sent {MAX_ATTEMPTS} times and never acknowledged")
        self.acknowledged[message] = name

    async def _send_once(self, session: str, message: str, body: Any) -> None:
        node = await self.choose_node()
        try:
            await node.request("POST", f"/weft/session/{session}/submit", body)
        except GoneError:
            await asyncio.sleep(0.2)
        else:
            self.acknowledged[message] = ""

    # --- trouble ---

    def _start_node(self) -> SimulatedNode:
        self._started += 1
        return SimulatedNode(self, f"node {self._started}")

    async def _make_trouble(self) -> None:
        async with asyncio.TaskGroup() as acting:
            for action in self.settings.actions:
                await asyncio.sleep(self.random.uniform(0, 5))
                acting.create_task(self._act(action, self.random.randrange(NODES)))

    async def _act(self, action: str, place: int) -> None:
        node, seconds = self._nodes[place], self.random.choice((0.5, LEASE_SECONDS * 1.2, LEASE_SECONDS * 3))
        match action:
            case "kill":
                node.kill()
            case "end":
                node.end()
                await node.machine.died.wait()
            case "pause":
                node.machine.running.clear()
                await asyncio.sleep(seconds)
                node.machine.running.set()
            case "cut":
                node.machine.cut()
                await asyncio.sleep(seconds)
                node.machine.join()
            case _:
                for each in self._nodes:
                    each.machine.cut()
                    each.machine.join()
        await asyncio.sleep(self.random.uniform(0, 3))
        if self._nodes[place].machine.died.is_set():
            self._nodes[place] = self._start_node()

    async def _heal(self) -> None:
        for place, node in enumerate(self._nodes):
            node.machine.faults = NetworkFaults()
            if node.machine.died.is_set():
                self._nodes[place] = self._start_node()

    async def _wait_for_quiet(self, readers: Sequence[EventReader]) -> None:
        """Wait until nothing is left to do and every reader has received it."""
        deadline = asyncio.get_running_loop().time() + QUIET_SECONDS
        while why := self._find_activity(readers):
            if asyncio.get_running_loop().time() > deadline:
                self.wrong.append(f"it never became quiet: {why}")
                return
            await asyncio.sleep(0.5)
            for place, node in enumerate(self._nodes):
                if node.machine.died.is_set():
                    self._nodes[place] = self._start_node()

    def _find_activity(self, readers: Sequence[EventReader]) -> str:
        server = self.server
        if any(row.done is None for row in server.deliveries.values()):
            return "deliveries are open"
        if any(held.till is not None for held in server.leases.values()):
            return "leases are held"
        if server.unplaced:
            return "events have no position"
        last = max((row.position or 0 for row in server.placed if row.directory), default=0)
        return "" if all(reader.position >= last for reader in readers) else "readers are behind"

    # --- what must hold ---

    def _check_write(self, leases: dict[str, int], events: Sequence[Durable]) -> None:
        """Check a write when it commits: the newest lease of its session was the one that it names."""
        for event in events:
            session = session_of(event)
            about_messages = MessageUpdated | MessageRemoved | PartUpdated | PartRemoved | PartGrew
            if session is not None and isinstance(event, about_messages) and session not in leases:
                self.wrong.append(f"{type(event).__name__} was written without a lease")
        for session, generation in leases.items():
            newest = self.server.leases[session].generation
            if generation != newest:
                self.wrong.append(f"{session}: generation {generation} wrote after {newest} took over")

    def _check_take(self, row: DeliveryRow, node: str) -> None:
        self.wrong.append(f"{row.key} was taken by {node} although {row.taker} has it")

    def _check(self, readers: Sequence[EventReader]) -> None:
        logged = [event_from_json(row.body) for row in self.server.placed if row.directory]
        positions = [row.position for row in self.server.placed]
        if positions != list(range(1, len(positions) + 1)):
            self.wrong.append("positions have gaps or repeats")
        names = dict(self.acknowledged)
        for session in self._sessions:
            history = read_now(self.server.documents.list_messages(session))
            self.wrong += self._list_broken_promises(history, names)
            if fold(logged, session) != history:
                self.wrong.append(f"{session}: the fold of the log is not what is stored")
            for reader in readers:
                if fold(reader.events, session) != history:
                    self.wrong.append(f"{session}: what a reader was told is not what is stored")
        self.wrong += [f"the acknowledged prompt {name} is lost" for name in names.values()]
        self.wrong += [f"{name} was marked {many} times" for name, many in self.marks.items() if many > 1]
        told = list_encoded(logged)
        for reader in readers:
            if reader.resyncs and self.is_calm:
                self.wrong.append("a reader was told to read everything again")
            if list_encoded(reader.events) != told:
                self.wrong.append("a reader missed an event, or got one twice or in another order")

    def _list_broken_promises(self, history: Sequence[MessageWithParts], names: dict[str, str]) -> list[str]:
        """Return what is wrong with the answers to the prompts of a session, and remove these prompts from `names`."""
        wrong = list_unfinished(history)
        answers = [message for message in history if isinstance(message.info, AssistantMessage)]
        named = Counter(
            name
            for answer in answers
            for part in answer.parts
            if isinstance(part, TextPart)
            for name in NAME.findall(part.text)
        )
        for place, message in enumerate(history):
            if not isinstance(message.info, UserMessage):
                continue
            name = names.pop(message.info.id, None)
            if name is None:
                wrong.append(f"{message.info.id} was not sent, or stands there twice")
                continue
            later = [each.info for each in history[place:] if isinstance(each.info, AssistantMessage)]
            interrupted = any(info.error is not None for info in later)
            if named[name] > 1:
                wrong.append(f"{name} is answered {named[name]} times")
            if not named[name] and (self.is_calm or not interrupted):
                wrong.append(f"{name} is not answered")
        for answer in answers:
            assert isinstance(answer.info, AssistantMessage)
            if self.is_calm and answer.info.error is not None:
                wrong.append(f"{answer.info.id} failed although nothing happened: {answer.info.error}")
        return wrong


def fold(events: Sequence[Event], session: str) -> list[MessageWithParts]:
    transcript = Transcript()
    transcript.feed(*(event for event in events if session_of(event) == session))
    return transcript.messages()


def list_encoded(events: Sequence[Event]) -> list[bytes]:
    """Return the events but growth, which readers get in smaller pieces."""
    return [encode_event(event) for event in events if not isinstance(event, PartGrew)]


def read_now(work: Any) -> Any:
    try:
        work.send(None)
    except StopIteration as stopped:
        return stopped.value
    raise AssertionError("a `MemoryStore` waits for nothing")

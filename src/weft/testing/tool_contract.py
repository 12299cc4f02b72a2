"""Checks that every tool must pass, and a bench to run tools on, with real files and processes."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from weft.errors import DeniedError, NotPermittedError, ToolError
from weft.host.clock import Clock, SystemClock
from weft.host.processes import tool_environment
from weft.model.agent import Agent
from weft.model.ids import MessageID, SessionID
from weft.model.search import RecallMatch
from weft.model.session import Todo
from weft.testing.ids import seeded_mint
from weft.tool.contract import (
    AnyTool,
    ChildResult,
    ChildTask,
    ReadGuard,
    ToolContext,
    ToolResources,
    ToolResult,
    schema_of,
    to_input,
)
from weft.tool.spill import Spill
from weft.tool.truncate import MAX_BYTES, MAX_LINES, truncate_result

# Bytes that a tool may add to the limit of its output: frames, notes, paths.
MAX_FRAMING: Final = 4096


class AskedPermission(Struct, frozen=True, kw_only=True):
    """A permission that a tool requested."""

    permission: str
    patterns: tuple[str, ...]
    always: tuple[str, ...] = ()


class MemoryTodos:
    """A todo list in memory."""

    def __init__(self) -> None:
        self._todos: tuple[Todo, ...] = ()

    async def read(self) -> Sequence[Todo]:
        return self._todos

    async def write(self, todos: Sequence[Todo]) -> None:
        self._todos = tuple(todos)


class Bench:
    """Runs tools in a directory. Everything is allowed except what is in `denied`. All requests are recorded."""

    def __init__(
        self, directory: Path, *, outside: Path, environment: Mapping[str, str], clock: Clock | None = None
    ) -> None:
        self.directory = directory
        self.clock = clock or SystemClock()
        self.asked: list[AskedPermission] = []
        self.metadata: list[dict[str, Any]] = []
        self.edited: list[str] = []
        self.called: list[tuple[str, str]] = []
        self.denied: set[str] = set()
        self.todos = MemoryTodos()
        self.cut: list[str] = []
        self.spill = Spill(str(outside / "tool-output"), seeded_mint(self.clock.now))
        self.desk = ToolResources(
            guard=ReadGuard(),
            spill=self.spill,
            todos=self.todos,
            after_edit=self._note_edit,
            recall=self._recall,
            environment=tool_environment(environment),
        )

    def context(self) -> ToolContext:
        return ToolContext(
            session_id=SessionID("ses_bench"),
            message_id=MessageID("msg_bench"),
            call_id="call_bench",
            agent="build",
            directory=str(self.directory),
            worktree=str(self.directory),
            clock=self.clock,
            ask=self._ask,
            report=self._report,
            resources=self.desk,
            agents={"explore": Agent(name="explore", mode="subagent")},
            spawn=self._spawn,
            call=self._call_also,
        )

    async def _recall(self, words: str, *, limit: int) -> list[RecallMatch]:
        found = [text for text in self.cut if all(word in text for word in words.split())]
        return [
            RecallMatch(message_id=MessageID("msg_cut"), by="user", excerpt=text) for text in found[:limit]
        ]

    async def call(self, tool: AnyTool, /, **given: Any) -> ToolResult:
        """Call a tool as a run does: check its arguments, and limit its output."""
        return await truncate_result(await tool.run(to_input(tool, given), self.context()), self.spill)

    async def _ask(
        self,
        permission: str,
        *patterns: str,
        always: tuple[str, ...] = (),
        metadata: dict[str, Any] | None = None,
    ) -> None:
        del metadata
        self.asked.append(AskedPermission(permission=permission, patterns=patterns, always=always))
        if permission in self.denied or "*" in self.denied:
            raise DeniedError(permission, " ".join(patterns), "denied by the bench")

    async def _report(self, *, title: str | None = None, metadata: dict[str, Any] | None = None) -> None:
        del title
        self.metadata.append(metadata or {})

    async def _spawn(self, child_task: ChildTask) -> ChildResult:
        return ChildResult(session_id=SessionID("ses_child"), text=child_task.prompt * 20_000, metadata={})

    async def _call_also(self, tool: str, arguments: dict[str, Any], *, error: str = "") -> bool:
        """Record a call of another tool without running it. Return False if `error` prevents it."""
        del arguments
        self.called.append((tool, error))
        return not error

    async def _note_edit(self, path: str) -> None:
        self.edited.append(path)


class Trial(Struct, frozen=True, kw_only=True):
    """A tool, arguments that work on the bench, and arguments that do not fit (None if it accepts all)."""

    tool: AnyTool
    given: dict[str, Any]
    misfit: dict[str, Any] | None


Check = Callable[[Trial, Bench], Awaitable[None]]


async def it_says_what_it_is_for(trial: Trial, bench: Bench) -> None:
    del bench
    assert trial.tool.about.strip()


async def it_takes_an_object(trial: Trial, bench: Bench) -> None:
    del bench
    schema = schema_of(trial.tool)
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert set(trial.given) <= set(schema["properties"])


async def every_argument_is_described(trial: Trial, bench: Bench) -> None:
    del bench
    assert all(each.get("description") for each in schema_of(trial.tool)["properties"].values())


async def arguments_that_do_not_fit_are_refused_by_name(trial: Trial, bench: Bench) -> None:
    if trial.misfit is None:
        return
    said = ""
    try:
        await bench.call(trial.tool, **trial.misfit)
    except ToolError as error:
        said = str(error)
    assert said.startswith(f"The {trial.tool.name} tool was called with invalid arguments: ")
    assert bench.asked == []


async def it_does_what_it_can(trial: Trial, bench: Bench) -> None:
    result = await bench.call(trial.tool, **trial.given)
    assert isinstance(result.title, str)
    assert "truncated" in result.metadata


async def its_output_is_bounded(trial: Trial, bench: Bench) -> None:
    result = await bench.call(trial.tool, **trial.given)
    assert len(result.output.encode()) <= MAX_BYTES + MAX_FRAMING
    assert result.output.count("\n") <= MAX_LINES + 20


async def what_is_denied_changes_nothing(trial: Trial, bench: Bench) -> None:
    bench.denied = {"*"}
    before = contents(bench.directory)
    try:
        await bench.call(trial.tool, **trial.given)
    except NotPermittedError:
        pass
    else:
        assert bench.asked == [], "it was denied the permission and continued"
    assert contents(bench.directory) == before


async def cancelled_it_leaves_no_process(trial: Trial, bench: Bench) -> None:
    calling = asyncio.ensure_future(bench.call(trial.tool, **trial.given))
    await asyncio.sleep(0)
    while not calling.done() and not processes_in(bench.directory):  # noqa: ASYNC110  there is no event for processes that start or end
        await asyncio.sleep(0)
    calling.cancel()
    await asyncio.wait([calling])
    assert processes_in(bench.directory) == []


TOOL_CHECKS: Final[tuple[Check, ...]] = (
    it_says_what_it_is_for,
    it_takes_an_object,
    every_argument_is_described,
    arguments_that_do_not_fit_are_refused_by_name,
    it_does_what_it_can,
    its_output_is_bounded,
    what_is_denied_changes_nothing,
    cancelled_it_leaves_no_process,
)


def contents(directory: Path) -> dict[str, bytes]:
    """Return the content of every file below a directory."""
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def processes_in(directory: Path) -> list[int]:
    """Return the other living processes that work in a directory (Linux only)."""
    return [
        int(entry)
        for entry in _list_pids("/proc")
        if int(entry) != os.getpid() and _works_in(entry, directory)
    ]


def _list_pids(path: str) -> list[str]:
    return [name for name in os.listdir(path) if name.isdigit()] if os.path.isdir(path) else []


def _works_in(pid: str, directory: Path) -> bool:
    try:
        where = os.readlink(f"/proc/{pid}/cwd")
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    gone = stat.rpartition(")")[2].split()[0] in "ZX"
    return not gone and (where == str(directory) or where.startswith(f"{directory}/"))

"""Checks that every tool must pass, and a harness that runs tools on real files and with real processes."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from weft.errors import DeniedError, NotFoundError, NotPermittedError, ToolError
from weft.host.clock import Clock, SystemClock
from weft.host.processes import tool_environment
from weft.model.agent import AgentInfo
from weft.model.ids import MessageID, SessionID
from weft.model.search import HistoryMatch, RecallMatch
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


def _to_history(text: str) -> HistoryMatch:
    return HistoryMatch(
        session_id=SessionID("ses_earlier"),
        title="Earlier",
        message_id=MessageID("msg_cut"),
        by="user",
        at=0,
        excerpt=text,
    )


class ToolHarness:
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
        self.resources = ToolResources(
            guard=ReadGuard(),
            spill=self.spill,
            todos=self.todos,
            after_edit=self._note_edit,
            recall=self._recall,
            history=lambda: self,
            environment=tool_environment(environment),
        )

    def context(self) -> ToolContext:
        return ToolContext(
            session_id=SessionID("ses_harness"),
            message_id=MessageID("msg_harness"),
            call_id="call_harness",
            agent="build",
            directory=str(self.directory),
            worktree=str(self.directory),
            clock=self.clock,
            ask=self._ask,
            report=self._report,
            resources=self.resources,
            agents={"explore": AgentInfo(name="explore", mode="subagent")},
            spawn=self._spawn,
            call=self._call_nested,
        )

    async def _recall(self, words: str, *, limit: int) -> list[RecallMatch]:
        found = [text for text in self.cut if all(word in text for word in words.split())]
        return [
            RecallMatch(message_id=MessageID("msg_cut"), by="user", excerpt=text) for text in found[:limit]
        ]

    async def search(self, words: str, *, limit: int) -> list[HistoryMatch]:
        """Return the earlier messages that contain all words, for the `history` tool."""
        return [_to_history(each) for each in self.cut if all(word in each for word in words.split())][:limit]

    async def read(self, session: str, message: str) -> HistoryMatch:
        del session
        found = [each for each in self.cut if message == "msg_cut"]
        if not found:
            raise NotFoundError("message", message)
        return _to_history(found[0])

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
            raise DeniedError(permission, " ".join(patterns), "denied by the harness")

    async def _report(self, *, title: str | None = None, metadata: dict[str, Any] | None = None) -> None:
        del title
        self.metadata.append(metadata or {})

    async def _spawn(self, child_task: ChildTask) -> ChildResult:
        return ChildResult(session_id=SessionID("ses_child"), text=child_task.prompt * 20_000, metadata={})

    async def _call_nested(self, tool: str, arguments: dict[str, Any], *, error: str = "") -> bool:
        """Record a call of another tool without running it. Return False if `error` prevents it."""
        del arguments
        self.called.append((tool, error))
        return not error

    async def _note_edit(self, path: str) -> None:
        self.edited.append(path)


class ToolCase(Struct, frozen=True, kw_only=True):
    """A tool, arguments with which a harness can run it, and arguments that it refuses (None if it accepts all)."""

    tool: AnyTool
    valid: dict[str, Any]
    invalid: dict[str, Any] | None


Check = Callable[[ToolCase, ToolHarness], Awaitable[None]]


async def the_tool_has_a_description(tool_case: ToolCase, harness: ToolHarness) -> None:
    del harness
    assert tool_case.tool.about.strip()


async def the_schema_is_an_object(tool_case: ToolCase, harness: ToolHarness) -> None:
    del harness
    schema = schema_of(tool_case.tool)
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert set(tool_case.valid) <= set(schema["properties"])


async def every_argument_is_described(tool_case: ToolCase, harness: ToolHarness) -> None:
    del harness
    assert all(each.get("description") for each in schema_of(tool_case.tool)["properties"].values())


async def invalid_arguments_are_refused_by_name(tool_case: ToolCase, harness: ToolHarness) -> None:
    if tool_case.invalid is None:
        return
    said = ""
    try:
        await harness.call(tool_case.tool, **tool_case.invalid)
    except ToolError as error:
        said = str(error)
    assert said.startswith(f"The {tool_case.tool.name} tool was called with invalid arguments: ")
    assert harness.asked == []


async def valid_arguments_give_a_result(tool_case: ToolCase, harness: ToolHarness) -> None:
    result = await harness.call(tool_case.tool, **tool_case.valid)
    assert isinstance(result.title, str)
    assert "truncated" in result.metadata


async def the_output_is_bounded(tool_case: ToolCase, harness: ToolHarness) -> None:
    result = await harness.call(tool_case.tool, **tool_case.valid)
    assert len(result.output.encode()) <= MAX_BYTES + MAX_FRAMING
    assert result.output.count("\n") <= MAX_LINES + 20


async def a_denied_call_changes_nothing(tool_case: ToolCase, harness: ToolHarness) -> None:
    harness.denied = {"*"}
    before = read_files(harness.directory)
    try:
        await harness.call(tool_case.tool, **tool_case.valid)
    except NotPermittedError:
        pass
    else:
        assert harness.asked == [], "permission was denied, and the tool continued"
    assert read_files(harness.directory) == before


async def a_cancelled_call_leaves_no_process(tool_case: ToolCase, harness: ToolHarness) -> None:
    calling = asyncio.ensure_future(harness.call(tool_case.tool, **tool_case.valid))
    await asyncio.sleep(0)
    while not calling.done() and not list_processes(harness.directory):  # noqa: ASYNC110  there is no event for processes that start or end
        await asyncio.sleep(0)
    calling.cancel()
    await asyncio.wait([calling])
    assert list_processes(harness.directory) == []


TOOL_CHECKS: Final[tuple[Check, ...]] = (
    the_tool_has_a_description,
    the_schema_is_an_object,
    every_argument_is_described,
    invalid_arguments_are_refused_by_name,
    valid_arguments_give_a_result,
    the_output_is_bounded,
    a_denied_call_changes_nothing,
    a_cancelled_call_leaves_no_process,
)


def read_files(directory: Path) -> dict[str, bytes]:
    """Return the content of every file below a directory."""
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def list_processes(directory: Path) -> list[int]:
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

"""Language servers: started for a file, asked for diagnostics, and ended. The server is a real process."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from weft.errors import DeniedError, ToolError
from weft.host.tasks import open_tasks
from weft.testing.tool_contract import AskedPermission, ToolHarness, list_processes
from weft.tool.language_servers import (
    Diagnostic,
    DiagnosticPosition,
    DiagnosticRange,
    Diagnostics,
    NoLanguageServers,
    format_errors,
    format_other_errors,
)
from weft.tool.lsp.known_servers import KnownServer, find_launches
from weft.tool.lsp.pool import LanguageServerPool, LspTimeouts
from weft.tool.programs import ProgramContext
from weft.tool.registry import EDIT, LSP, READ, WRITE

SERVER = Path(__file__).parents[1] / "given" / "language_server.py"
# Long enough for the answers of a server on a busy machine.
LONG = LspTimeouts(start=60, diagnosis=60, silent=60)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


def fake(project: Path, manner: str = "good", **more: Any) -> KnownServer:
    log = project.parent / f"{manner}.log"
    argv = (sys.executable, "-S", "-E", str(SERVER), manner, str(log))
    return KnownServer(name=manner, extensions=(".fake",), argv=argv, safe_without_trust=True, **more)


def make_context(project: Path, *, trusted: bool = False) -> ProgramContext:
    environment = {"PATH": os.environ["PATH"]}
    return ProgramContext(
        directory=str(project), worktree=str(project), environment=environment, trusted=trusted
    )


@asynccontextmanager
async def open_harness(
    project: Path, *servers: KnownServer, patience: LspTimeouts = LONG
) -> AsyncIterator[ToolHarness]:
    async with open_tasks() as tasks:
        pool = LanguageServerPool(servers, make_context(project), tasks, patience)
        harness = ToolHarness(project, outside=project.parent, environment=os.environ)
        harness.resources = replace(harness.resources, language_servers=pool)
        try:
            yield harness
        finally:
            pool.close()
    assert list_processes(project) == []


def read_log(project: Path, manner: str = "good") -> list[dict[str, Any]]:
    log = project.parent / f"{manner}.log"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def block(path: Path, *lines: str) -> str:
    return "\n".join([f'<diagnostics file="{path}">', *lines, "</diagnostics>"])


async def test_diagnostics_are_added_to_the_output(project: Path) -> None:
    async with open_harness(project, fake(project)) as harness:
        path = project / "a.fake"
        result = await harness.call(WRITE, filePath="a.fake", content="fine\n  wrong\nrather wrong\n")
        assert result.output == (
            "Wrote file successfully.\n\nLSP errors detected in this file, please fix:\n"
            + block(path, "ERROR [2:3] wrong is not right")
        )
        assert [each["severity"] for each in result.metadata["diagnostics"][str(path)]] == [1, 2]
        result = await harness.call(EDIT, filePath="a.fake", oldString="  wrong", newString="right")
        assert result.output == "Edit applied successfully."


async def test_a_file_without_a_server_starts_none(project: Path) -> None:
    async with open_harness(project, fake(project)) as harness:
        result = await harness.call(WRITE, filePath="a.txt", content="wrong\n")
        assert result.output == "Wrote file successfully."
        assert result.metadata["diagnostics"] == {}
        assert list_processes(project) == []


async def test_writing_reports_diagnostics_of_other_files_and_editing_does_not(project: Path) -> None:
    async with open_harness(project, fake(project)) as harness:
        await harness.call(WRITE, filePath="a.fake", content="wrong\n")
        result = await harness.call(WRITE, filePath="b.fake", content="fine\n")
        assert result.output == (
            "Wrote file successfully.\n\nLSP errors detected in other files:\n"
            + block(project / "a.fake", "ERROR [1:1] wrong is not right")
        )
        result = await harness.call(EDIT, filePath="b.fake", oldString="fine", newString="good")
        assert result.output == "Edit applied successfully."
        assert list(result.metadata["diagnostics"]) == [str(project / "a.fake")]


async def test_a_server_is_initialised_and_told_of_every_version(project: Path) -> None:
    async with open_harness(project, fake(project, options={"level": 3})) as harness:
        await harness.call(WRITE, filePath="a b.fake", content="one\n")
        await harness.call(EDIT, filePath="a b.fake", oldString="one", newString="two")
    uri = f"file://{project}/a%20b.fake"
    messages = [
        message for message in read_log(project) if message.get("method", "").startswith("textDocument/did")
    ]
    assert [(each["method"], each["params"]["textDocument"]["uri"]) for each in messages] == [
        ("textDocument/didOpen", uri),
        ("textDocument/didSave", uri),
        ("textDocument/didChange", uri),
        ("textDocument/didSave", uri),
    ]
    assert messages[2]["params"]["contentChanges"] == [{"text": "two\n"}]
    capture_request = read_log(project)[0]["params"]
    assert (capture_request["rootUri"], capture_request["initializationOptions"]) == (
        f"file://{project}",
        {"level": 3},
    )
    replies = {message["id"]: message for message in read_log(project) if message.get("id") in ("a", "b")}
    assert replies["a"]["result"] == [{"level": 3}, {"level": 3}]
    assert replies["b"]["error"]["code"] == -32601


async def test_reading_a_file_starts_its_server(project: Path) -> None:
    (project / "a.fake").write_text("wrong\n")
    async with open_harness(project, fake(project)) as harness:
        await harness.call(READ, filePath="a.fake")
        while "textDocument/didOpen" not in [message.get("method") for message in read_log(project)]:  # noqa: ASYNC110  a process tells nobody
            await asyncio.sleep(0)


@pytest.mark.parametrize("manner", ["dying", "noisy"])
async def test_a_broken_server_is_not_used_again(project: Path, manner: str) -> None:
    async with open_harness(project, fake(project, manner)) as harness:
        for text in ("wrong\n", "more wrong\n"):
            result = await harness.call(WRITE, filePath="a.fake", content=text)
            assert result.output == "Wrote file successfully."
        assert [message["method"] for message in read_log(project, manner)] == ["initialize"]


async def test_a_server_whose_program_is_missing_is_skipped(project: Path) -> None:
    missing = KnownServer(
        name="none", extensions=(".fake",), argv=("/nonexistent/server",), safe_without_trust=True
    )
    async with open_harness(project, missing) as harness:
        result = await harness.call(WRITE, filePath="a.fake", content="wrong\n")
        assert result.output == "Wrote file successfully."


@pytest.mark.parametrize("manner", ["deaf", "silent"])
async def test_a_silent_server_does_not_delay_a_call_for_long(project: Path, manner: str) -> None:
    """The waits of a call add up to less than the timeout of this test, and the unresponsive server is waited for once."""
    short = LspTimeouts(start=0.1, diagnosis=0.1, silent=0.05)
    async with open_harness(project, fake(project, manner), patience=short) as harness, asyncio.timeout(60):
        for number in range(3):
            result = await harness.call(WRITE, filePath="a.fake", content=f"wrong {number}\n")
            assert result.output == "Wrote file successfully."
        other = project / "other.fake"
        await harness.call(WRITE, filePath=str(other), content="wrong\n")


async def test_several_servers_report_on_one_file(project: Path) -> None:
    async with open_harness(project, fake(project), replace(fake(project), name="second")) as harness:
        result = await harness.call(WRITE, filePath="a.fake", content="wrong\n")
        assert result.output.count("ERROR [1:1] wrong is not right") == 2


# --- which servers ---


def names(project: Path, path: str, *servers: KnownServer, trusted: bool = False) -> list[tuple[str, str]]:
    found = find_launches(str(project / path), servers, make_context(project, trusted=trusted))
    return [(launch.name, os.path.relpath(launch.root, project)) for launch in found]


def test_a_server_works_in_the_nearest_directory_with_its_files(project: Path) -> None:
    (project / "deep/er").mkdir(parents=True)
    (project / "deep/fake.toml").touch()
    server = replace(fake(project), roots=("fake.toml",))
    assert names(project, "deep/er/a.FAKE", server) == [("good", "deep")]
    assert names(project, "a.fake", server) == [("good", ".")]
    assert names(project, "a.fake", replace(server, requires_root=True)) == []
    assert names(project, "deep/a.fake", replace(server, excluded_by=("fake.toml",))) == []
    assert names(project, "a.txt", server) == []


def test_a_server_of_a_project_runs_only_if_the_project_is_trusted(project: Path) -> None:
    program = project / "node_modules/.bin/loom-ls"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    safe_without_trust = KnownServer(
        name="loom", extensions=(".fake",), argv=("loom-ls",), safe_without_trust=True
    )
    assert names(project, "a.fake", safe_without_trust) == []
    assert names(project, "a.fake", safe_without_trust, trusted=True) == [("loom", ".")]
    builds = replace(fake(project), safe_without_trust=False)
    assert names(project, "a.fake", builds) == []
    assert names(project, "a.fake", builds, trusted=True) == [("good", ".")]


# --- the tool ---


@pytest.mark.parametrize(
    ("operation", "count", "word"),
    [
        ("goToDefinition", 1, "there.fake"),
        ("findReferences", 2, "there.fake"),
        ("hover", 1, "a word"),
        ("documentSymbol", 1, "word"),
        ("workspaceSymbol", 10, "second"),
        ("prepareCallHierarchy", 1, "caller"),
        ("incomingCalls", 1, "caller"),
    ],
)
async def test_each_request_to_a_server_returns_what_it_found(
    project: Path, operation: str, count: int, word: str
) -> None:
    (project / "a.fake").write_text("first second\n")
    async with open_harness(project, fake(project)) as harness:
        result = await harness.call(LSP, operation=operation, filePath="a.fake", line=1, character=8)
        assert result.title == f"{operation} a.fake:1:8"
        assert len(json.loads(result.output)) == count
        assert word in result.output
        assert harness.asked == [AskedPermission(permission="lsp", patterns=("*",), always=("*",))]


@pytest.mark.parametrize("operation", ["goToImplementation", "outgoingCalls"])
async def test_finding_nothing_is_reported(project: Path, operation: str) -> None:
    (project / "a.fake").write_text("first\n")
    async with open_harness(project, fake(project)) as harness:
        result = await harness.call(LSP, operation=operation, filePath="a.fake", line=9, character=99)
        assert result.output == f"No results found for {operation}"


async def test_a_request_without_a_server_is_an_error(project: Path) -> None:
    (project / "a.txt").write_text("x")
    async with open_harness(project, fake(project)) as harness:
        given = {"operation": "hover", "line": 1, "character": 1}
        with pytest.raises(ToolError, match="No LSP server available for this file type"):
            await harness.call(LSP, filePath="a.txt", **given)
        with pytest.raises(ToolError, match="File not found"):
            await harness.call(LSP, filePath="b.fake", **given)
        with pytest.raises(ToolError, match="invalid arguments"):
            await harness.call(LSP, filePath="a.txt", operation="rename", line=1, character=1)
        harness.denied = {"lsp"}
        with pytest.raises(DeniedError):
            await harness.call(LSP, filePath="a.txt", **given)


async def test_without_servers_there_are_no_results() -> None:
    nobody = NoLanguageServers()
    nobody.warm_up("/a.fake")
    assert await nobody.diagnose("/a.fake") == {}
    assert await nobody.request("/a.fake", "hover", {}) is None


# --- words ---


def make_diagnostics(count: int, *paths: str) -> Diagnostics:
    start = DiagnosticPosition(0, 0)
    each = Diagnostic(range=DiagnosticRange(start, start), message="odd")
    return dict.fromkeys(paths, (each,) * count)


def test_the_list_of_diagnostics_is_bounded() -> None:
    said = format_errors("/a", make_diagnostics(25, "/a"))
    assert said.count("ERROR [1:1] odd") == 20
    assert "\n... and 5 more\n</diagnostics>" in said
    others = format_other_errors("/a", make_diagnostics(1, *(f"/{number}" for number in range(9))))
    assert others.count("<diagnostics file=") == 5

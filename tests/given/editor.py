"""An editor (a client of the official ACP SDK) at the other end of a pipe, and an engine with a scripted model that serves it."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from acp import PROTOCOL_VERSION, RequestError, connect_to_agent, text_block
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    CreateTerminalResponse,
    DeniedOutcome,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    FileSystemCapabilities,
    KillTerminalResponse,
    ReadTextFileResponse,
    ReleaseTerminalResponse,
    RequestPermissionResponse,
    TerminalOutputResponse,
    ToolCallProgress,
    ToolCallStart,
    WaitForTerminalExitResponse,
    WriteTextFileResponse,
)
from msgspec.structs import replace

from given.http_server import make_project
from weft.acp.agent import AgentSetup
from weft.acp.connection import serve_editor
from weft.host.clock import SystemClock
from weft.local.open import OpenOptions, open_directory
from weft.provider.catalog.offers import make_scripted_model
from weft.provider.contract import Provider
from weft.provider.registry import ServedModel
from weft.provider.scripted import AnyMove, ScriptedProvider

FORMS = ClientCapabilities(elicitation=ElicitationCapabilities(form=ElicitationFormCapabilities()))
FILES = ClientCapabilities(fs=FileSystemCapabilities(read_text_file=True, write_text_file=True))
TERMINALS = ClientCapabilities(terminal=True)
Choose = Callable[[Any, list[Any]], str | None]


def allow(_: Any, options: list[Any]) -> str | None:
    return "once"


def _read_file(path: str) -> str | None:
    return Path(path).read_text(errors="replace") if Path(path).exists() else None


class Terminal:
    """A running command and its output so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.said = b""
        self._over = asyncio.ensure_future(self._read_output())

    async def _read_output(self) -> int:
        assert self._process.stdout is not None
        while piece := await self._process.stdout.read(65536):
            self.said += piece
        return await self._process.wait()

    async def wait(self) -> int | None:
        code = await asyncio.shield(self._over)
        return code if code >= 0 else None

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()


class Editor:
    """Records the updates and requests it receives; `choose` answers requests, with None for a dialogue that is closed."""

    def __init__(self, choose: Choose = allow) -> None:
        self.choose = choose
        self.received: list[tuple[str, Any]] = []
        self.permission_requests: list[tuple[str, Any, list[Any]]] = []
        self.forms: list[Any] = []
        self.form_answer: dict[str, Any] | None = None
        self.update_arrived = asyncio.Event()
        self.permission_asked = asyncio.Event()
        self.hold: asyncio.Event | None = None
        self.agent: Any = None
        self.buffers: dict[str, str] = {}
        self.read: list[tuple[str, str]] = []
        self.written: list[tuple[str, str, str]] = []
        self.read_only = False
        self.terminals: dict[str, Terminal] = {}
        self.opened: list[tuple[str, str, list[str]]] = []
        self.released: list[str] = []

    def on_connect(self, conn: Any) -> None:
        pass

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.received.append((session_id, update))
        self.update_arrived.set()

    async def request_permission(self, session_id: str, tool_call: Any, options: list[Any], **_: Any) -> Any:
        self.permission_requests.append((session_id, tool_call, options))
        self.permission_asked.set()
        if self.hold is not None:
            await self.hold.wait()
        chosen = self.choose(tool_call, options)
        if chosen is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen))

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> Any:
        self.forms.append((message, mode))
        if self.form_answer is None:
            return {"action": "decline"}
        return {"action": "accept", "content": self.form_answer}

    # --- open files ---

    async def read_text_file(self, session_id: str, path: str, **_: Any) -> Any:
        self.read.append((session_id, path))
        text = self.buffers.get(path) or await asyncio.to_thread(_read_file, path)
        if text is None:
            raise RequestError.resource_not_found(path)
        return ReadTextFileResponse(content=text)

    async def write_text_file(self, session_id: str, path: str, content: str, **_: Any) -> Any:
        if self.read_only:
            raise RequestError.internal_error({"why": "read-only"})
        self.written.append((session_id, path, content))
        self.buffers.pop(path, None)
        await asyncio.to_thread(Path(path).write_text, content)
        return WriteTextFileResponse()

    # --- terminals ---

    async def create_terminal(self, session_id: str, command: str, args: list[str], **more: Any) -> Any:
        id = f"term_{len(self.terminals)}"
        process = await asyncio.create_subprocess_exec(
            command, *args, cwd=more["cwd"], stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        self.terminals[id] = Terminal(process)
        self.opened.append((session_id, command, args))
        return CreateTerminalResponse(terminal_id=id)

    async def terminal_output(self, session_id: str, terminal_id: str, **_: Any) -> Any:  # noqa: ARG002  as the SDK calls it
        return TerminalOutputResponse(output=self.terminals[terminal_id].said.decode(), truncated=False)

    async def wait_for_terminal_exit(self, session_id: str, terminal_id: str, **_: Any) -> Any:  # noqa: ARG002
        return WaitForTerminalExitResponse(exit_code=await self.terminals[terminal_id].wait())

    async def kill_terminal(self, session_id: str, terminal_id: str, **_: Any) -> Any:  # noqa: ARG002
        self.terminals[terminal_id].kill()
        return KillTerminalResponse()

    async def release_terminal(self, session_id: str, terminal_id: str, **_: Any) -> Any:  # noqa: ARG002
        self.released.append(terminal_id)
        return ReleaseTerminalResponse()

    # --- received updates ---

    def updates(self, kind: str, session: str | None = None) -> list[Any]:
        return [
            update for id, update in self.received if update.session_update == kind and session in (None, id)
        ]

    def words(self, kind: str = "agent_message_chunk") -> str:
        return "".join(update.content.text for update in self.updates(kind))

    def calls(self) -> dict[str, dict[str, Any]]:
        """Return the tool calls, with all updates applied."""
        found: dict[str, dict[str, Any]] = {}
        for _, update in self.received:
            if isinstance(update, ToolCallStart | ToolCallProgress):
                said = update.model_dump(exclude_none=True, exclude={"session_update"})
                found.setdefault(update.tool_call_id, {}).update(said)
        return found

    def call(self, kind: str) -> dict[str, Any]:
        [found] = [call for call in self.calls().values() if call["kind"] == kind]
        return found

    async def wait_for_update(self, kind: str) -> None:
        """Wait for an update of this kind."""
        while not self.updates(kind):
            self.update_arrived.clear()
            await self.update_arrived.wait()

    async def prompt(self, session: str, *words: str) -> Any:
        return await self.agent.prompt(session_id=session, prompt=[text_block(each) for each in words])


class EditorConnection:
    """A project, an editor that works on it, and the notes of the agent."""

    def __init__(self, project: Path, editor: Editor, notes: list[str]) -> None:
        self.project = project
        self.editor = editor
        self.agent = editor.agent
        self.notes = notes

    async def new_session(self, **more: Any) -> str:
        made = await self.agent.new_session(cwd=str(self.project), **{"mcp_servers": [], **more})
        id: str = made.session_id
        return id


@asynccontextmanager
async def open_pipe(
    tmp_path: Path,
    script: Sequence[Sequence[AnyMove]] | Provider = (),
    *,
    config: dict[str, Any] | None = None,
    notes: list[str] | None = None,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Yield the editor's end of a pipe to an agent. On exit the pipe is closed and all runs are settled."""
    own = Path(os.environ["XDG_CONFIG_HOME"]) / "opencode"
    own.mkdir(parents=True, exist_ok=True)
    (own / "opencode.json").write_text(json.dumps({"model": "scripted/test", **(config or {})}))
    provider = ScriptedProvider(script, SystemClock()) if isinstance(script, list | tuple) else script
    env = dict(os.environ)
    # The second model gets the patch tool, like OpenAI's models.
    models = tuple(ServedModel(make_scripted_model(name), provider) for name in ("test", "gpt-test"))
    store = f"file:{tmp_path / 'storage'}"

    def options_for(directory: str) -> OpenOptions:
        return OpenOptions(directory=directory, env=env, store=store, can_ask=True, models=models)

    noted = [] if notes is None else notes
    setup = AgentSetup(
        open=lambda directory, editor: open_directory(replace(options_for(directory), editor=editor)),
        default_directory=str(tmp_path / "project"),
        note=noted.append,
        version="1",
    )
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    served = asyncio.ensure_future(serve_editor(setup, *await asyncio.open_connection(sock=theirs)))
    try:
        yield reader, writer
    finally:
        writer.close()
        await served


@asynccontextmanager
async def open_editor(
    tmp_path: Path,
    *script: Sequence[AnyMove],
    provider: Provider | None = None,
    editor: Editor | None = None,
    config: dict[str, Any] | None = None,
    capabilities: ClientCapabilities | None = None,
) -> AsyncIterator[EditorConnection]:
    project = tmp_path / "project"
    if not project.exists():
        make_project(project)
    editor, notes = editor or Editor(), []
    async with open_pipe(tmp_path, provider or script, config=config, notes=notes) as (reader, writer):
        agent = connect_to_agent(editor, writer, reader, use_unstable_protocol=True)
        editor.agent = agent
        await agent.initialize(protocol_version=PROTOCOL_VERSION, client_capabilities=capabilities)
        try:
            yield EditorConnection(project, editor, notes)
        finally:
            await agent.close()


async def expect_error(calling: Any) -> RequestError:
    """Return the error that a call raises."""
    try:
        await calling
    except RequestError as error:
        return error
    raise AssertionError("it was not refused")

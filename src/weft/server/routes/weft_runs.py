"""weft's own HTTP routes for messages, runs, tools of clients and undo."""

from typing import Annotated

from msgspec import Meta

from weft.errors import InvalidInputError
from weft.model.client_tool import (
    ClientTool,
    ClientToolAsk,
    ClientToolReport,
    ClientToolRequest,
    ClientToolResult,
)
from weft.model.ids import MessageID, PartID, ToolRequestID
from weft.model.input import PromptInput
from weft.model.message import AnyMessage, MessageWithParts
from weft.model.part import AnyPart, ModelRef
from weft.model.session import AnyStatus, Idle, RevertResult
from weft.model.wire import Wire
from weft.server.route import DirectoryCall, route
from weft.server.routes.permissions import choose_owner, list_open_requests
from weft.server.routes.runs import make_idempotent, read_prompt
from weft.server.routes.sessions import read_session_id
from weft.server.routes.weft_sessions import SESSION

MESSAGE = f"{SESSION}/message/{{messageID}}"
PART = f"{MESSAGE}/part/{{partID}}"
CLIENT_TOOL = "/weft/client-tool"
TOOL_REQUEST = f"{CLIENT_TOOL}/{{requestID}}"
MAX_FILES = 10_000
WRONG_IDS = "its ids are not those in the address"

Paths = Annotated[tuple[str, ...], Meta(max_length=MAX_FILES)]


class PutPartInput(Wire, frozen=True, kw_only=True):
    """A part, and the text it has just grown by."""

    part: AnyPart
    delta: str | None = None


class CompactInput(Wire, frozen=True, kw_only=True):
    model: ModelRef | None = None


class InitializeInput(Wire, frozen=True, kw_only=True):
    model: ModelRef | None = None
    message_id: MessageID | None = None


class FileRevertInput(Wire, frozen=True, kw_only=True):
    """With `files` (absolute paths) only those are touched; a `dry_run` changes nothing."""

    message_id: MessageID
    part_id: PartID | None = None
    files: Paths | None = None
    dry_run: bool = False


class UnrevertInput(Wire, frozen=True, kw_only=True):
    files: Paths | None = None
    dry_run: bool = False


class ClientToolsInput(Wire, frozen=True, kw_only=True):
    """All tools that a client offers to a session; none withdraws what it offered before."""

    client: str
    tools: tuple[ClientTool, ...]


async def put_message(call: DirectoryCall) -> AnyMessage:
    """Add a message, or replace the one with its id."""
    message: AnyMessage = call.body
    if (message.session_id, message.id) != (call.path_params["sessionID"], call.path_params["messageID"]):
        raise InvalidInputError("message", WRONG_IDS)
    return await call.api.update_message(message)


async def put_part(call: DirectoryCall) -> AnyPart:
    """Add a part, or replace the one with its id, and publish what it grew by."""
    input: PutPartInput = call.body
    part = input.part
    ids = part.session_id, part.message_id, part.id
    if ids != (call.path_params["sessionID"], call.path_params["messageID"], call.path_params["partID"]):
        raise InvalidInputError("part", WRONG_IDS)
    return await call.api.update_part(part, delta=input.delta)


async def check_prompt(call: DirectoryCall) -> None:
    """Check that the agent and the model of a prompt exist. Nothing is stored."""
    await call.api.check_prompt(read_prompt(call))


async def submit(call: DirectoryCall) -> MessageWithParts:
    """Send a prompt and return it as it was stored; events report what follows."""
    return await call.api.submit(read_session_id(call), await make_idempotent(call, read_prompt(call)))


async def compact(call: DirectoryCall) -> MessageWithParts:
    """Compact a conversation now, with the given model or its own; return the summary."""
    return await call.api.compact(read_session_id(call), model=(call.body or CompactInput()).model)


async def uncompact(call: DirectoryCall) -> bool:
    """Undo the last compaction, so that the model sees the full history again; return whether there was one."""
    return await call.api.uncompact(read_session_id(call))


async def initialize(call: DirectoryCall) -> MessageWithParts:
    """Let an agent write an AGENTS.md; return its last message."""
    input: InitializeInput = call.body or InitializeInput()
    return await call.api.initialize(read_session_id(call), model=input.model, message_id=input.message_id)


async def abort(call: DirectoryCall) -> bool:
    """End the run of a session; return whether there was one."""
    api = await call.server.find_runner(read_session_id(call)) or call.api
    return await api.abort(read_session_id(call))


async def get_status(call: DirectoryCall) -> AnyStatus:
    """Return the status of a session."""
    session = read_session_id(call)
    status = await call.api.get_status(session)
    directory = (await call.api.get_session(session)).directory
    others = await call.server.list_other_status(directory) if isinstance(status, Idle) else {}
    return others.get(session, status)


async def offer_tools(call: DirectoryCall) -> bool:
    """Offer tools of the client to the model of a session."""
    offer: ClientToolsInput = call.body
    await call.api.offer_tools(read_session_id(call), offer.client, offer.tools)
    return True


async def list_tool_requests(call: DirectoryCall) -> list[ClientToolRequest]:
    """List the calls that wait for the client that offered the tool."""
    return await list_open_requests(call, lambda api: api.list_tool_requests())


async def accept_tool(call: DirectoryCall) -> bool:
    """Say that the client runs a tool. Repeat it at least once a minute while the tool runs."""
    id = ToolRequestID(call.path_params["requestID"])
    api = await choose_owner(call, lambda api: api.list_tool_requests(), id)
    await api.accept_tool(id)
    return True


async def ask_for_tool(call: DirectoryCall) -> bool:
    """Ask for a permission on behalf of a tool that a client runs; answer when it is granted, 403 if it is refused."""
    id = ToolRequestID(call.path_params["requestID"])
    api = await choose_owner(call, lambda api: api.list_tool_requests(), id)
    await api.ask_for_tool(id, call.body)
    return True


async def report_tool(call: DirectoryCall) -> bool:
    """Show the progress of a tool that a client runs."""
    id = ToolRequestID(call.path_params["requestID"])
    api = await choose_owner(call, lambda api: api.list_tool_requests(), id)
    await api.report_tool(id, call.body)
    return True


async def finish_tool(call: DirectoryCall) -> bool:
    """End a call with the result of the tool, or with its error."""
    id = ToolRequestID(call.path_params["requestID"])
    api = await choose_owner(call, lambda api: api.list_tool_requests(), id)
    await api.finish_tool(id, call.body)
    return True


async def revert(call: DirectoryCall) -> RevertResult:
    """Take a session back to before a message and report each file; with `dryRun`, only report."""
    input: FileRevertInput = call.body
    return await call.api.revert(
        read_session_id(call), input.message_id, input.part_id, files=input.files, dry_run=input.dry_run
    )


async def unrevert(call: DirectoryCall) -> RevertResult:
    """Restore what was reverted and report each file; with `dryRun`, only report."""
    input: UnrevertInput = call.body or UnrevertInput()
    return await call.api.unrevert(read_session_id(call), files=input.files, dry_run=input.dry_run)


ROUTES = (
    route("PUT", MESSAGE, "weft.message.put", put_message, takes=AnyMessage),
    route("PUT", PART, "weft.part.put", put_part, takes=PutPartInput),
    route("POST", "/weft/prompt/check", "weft.prompt.check", check_prompt, takes=PromptInput),
    route(
        "POST",
        f"{SESSION}/submit",
        "weft.session.submit",
        submit,
        takes=PromptInput,
        session_directory="required",
    ),
    route(
        "POST",
        f"{SESSION}/compact",
        "weft.session.compact",
        compact,
        takes=CompactInput,
        optional=True,
        session_directory="required",
    ),
    route("POST", f"{SESSION}/uncompact", "weft.session.uncompact", uncompact, session_directory="required"),
    route(
        "POST",
        f"{SESSION}/initialize",
        "weft.session.initialize",
        initialize,
        takes=InitializeInput,
        optional=True,
        session_directory="required",
    ),
    route("POST", f"{SESSION}/abort", "weft.session.abort", abort),
    route("GET", f"{SESSION}/status", "weft.session.status", get_status),
    route(
        "PUT",
        f"{SESSION}/client-tool",
        "weft.clientTool.offer",
        offer_tools,
        takes=ClientToolsInput,
        session_directory="required",
    ),
    route("GET", CLIENT_TOOL, "weft.clientTool.list", list_tool_requests),
    route("POST", f"{TOOL_REQUEST}/accept", "weft.clientTool.accept", accept_tool),
    route("POST", f"{TOOL_REQUEST}/ask", "weft.clientTool.ask", ask_for_tool, takes=ClientToolAsk),
    route("POST", f"{TOOL_REQUEST}/report", "weft.clientTool.report", report_tool, takes=ClientToolReport),
    route("POST", f"{TOOL_REQUEST}/finish", "weft.clientTool.finish", finish_tool, takes=ClientToolResult),
    route(
        "POST",
        f"{SESSION}/revert",
        "weft.session.revert",
        revert,
        takes=FileRevertInput,
        session_directory="required",
    ),
    route(
        "POST",
        f"{SESSION}/unrevert",
        "weft.session.unrevert",
        unrevert,
        takes=UnrevertInput,
        optional=True,
        session_directory="required",
    ),
)

"""HTTP routes for messages, prompts, slash commands, shell commands and undo."""

from collections.abc import Sequence

from msgspec import UNSET, Struct
from msgspec.structs import replace

from weft.errors import InvalidInputError, NotPermittedError
from weft.model.agent import Command
from weft.model.ids import MessageID, PartID
from weft.model.input import AnyPartInput, CommandInput, FileInput, PromptInput, ShellInput
from weft.model.message import MessageWithParts
from weft.model.part import AnyPart, ModelRef
from weft.model.session import SessionInfo
from weft.model.wire import Wire, encode
from weft.server.route import DirectoryCall, RouteResult, route
from weft.server.routes.sessions import SESSION, read_session_id

MESSAGE = f"{SESSION}/message/{{messageID}}"
PART = f"{MESSAGE}/part/{{partID}}"
MAX_PARTS = 1000
FILE_SCHEME = "file:"


class MessagesQuery(Struct, frozen=True, kw_only=True):
    """The last `limit` messages, or the last `limit` before a message."""

    limit: int | None = None
    before: str | None = None


class SummarizeInput(Wire, frozen=True, kw_only=True):
    provider_id: str
    model_id: str
    auto: bool = False


class InitInput(Wire, frozen=True, kw_only=True):
    provider_id: str
    model_id: str
    message_id: MessageID


def read_message_id(call: DirectoryCall) -> MessageID:
    return MessageID(call.path_params["messageID"])


async def list_messages(call: DirectoryCall) -> RouteResult:
    """List the messages of a session, oldest first."""
    query: MessagesQuery = call.query
    limit = query.limit or None
    before = MessageID(query.before) if query.before else None
    if limit is not None and limit < 0:
        raise InvalidInputError("limit", "it is negative")
    if before is not None and limit is None:
        raise InvalidInputError("before", "it needs a limit")
    session = read_session_id(call)
    if limit is None:
        return RouteResult(value=await call.api.list_messages(session))
    # One more than requested tells whether there are more.
    messages = await call.api.list_messages(session, limit=limit + 1, before=before)
    return to_page(call, messages[1:], limit) if len(messages) > limit else RouteResult(value=messages)


def to_page(call: DirectoryCall, messages: list[MessageWithParts], limit: int) -> RouteResult:
    """Return a page of messages with the headers that link to the next page."""
    cursor = messages[0].info.id
    link = f'<{call.path}?limit={limit}&before={cursor}>; rel="next"'
    headers = {"x-next-cursor": cursor, "link": link, "access-control-expose-headers": "Link, X-Next-Cursor"}
    return RouteResult(value=messages, headers=headers)


async def get_message(call: DirectoryCall) -> MessageWithParts:
    """Return a message with its parts."""
    return await call.api.get_message(read_session_id(call), read_message_id(call))


async def remove_message(call: DirectoryCall) -> bool:
    """Remove a message with its parts."""
    await call.api.remove_message(read_session_id(call), read_message_id(call))
    return True


async def update_part(call: DirectoryCall) -> AnyPart:
    """Replace the part with this id."""
    part: AnyPart = call.body
    ids = (part.session_id, part.message_id, part.id)
    if ids != (call.path_params["sessionID"], call.path_params["messageID"], call.path_params["partID"]):
        raise InvalidInputError("part", "its ids are not those in the address")
    return await call.api.update_part(part)


async def remove_part(call: DirectoryCall) -> bool:
    """Remove a part of a message."""
    await call.api.remove_part(
        read_session_id(call), read_message_id(call), PartID(call.path_params["partID"])
    )
    return True


async def prompt(call: DirectoryCall) -> MessageWithParts:
    """Send a prompt and wait for the final answer."""
    return await call.api.prompt(read_session_id(call), await make_idempotent(call, read_prompt(call)))


async def prompt_async(call: DirectoryCall) -> None:
    """Send a prompt. It is stored when this returns; events report what follows."""
    await call.api.submit(read_session_id(call), await make_idempotent(call, read_prompt(call)))


async def abort(call: DirectoryCall) -> bool:
    """End the run of a session, if there is one."""
    api = await call.server.find_runner(read_session_id(call)) or call.api
    await api.abort(read_session_id(call))
    return True


async def summarize(call: DirectoryCall) -> bool:
    """Compact a conversation now."""
    input: SummarizeInput = call.body
    model = ModelRef(provider_id=input.provider_id, model_id=input.model_id)
    await call.api.compact(read_session_id(call), model=model)
    return True


async def initialize(call: DirectoryCall) -> bool:
    """Let an agent write an AGENTS.md."""
    input: InitInput = call.body
    model = ModelRef(provider_id=input.provider_id, model_id=input.model_id)
    await call.api.initialize(read_session_id(call), model=model, message_id=input.message_id)
    return True


async def make_idempotent(call: DirectoryCall, input: PromptInput) -> PromptInput:
    """Give a prompt the id of its `Idempotency-Key`, so that the same request sent twice is one prompt."""
    key = call.headers.get("idempotency-key")
    if key is None or input.message_id is not None:
        return input
    id = await call.server.idempotency_keys.id_for(call.api, read_session_id(call), key, encode(input))
    return replace(input, message_id=id)


def read_prompt(call: DirectoryCall) -> PromptInput:
    """Return the prompt of a call. Raise `InvalidInputError` or `NotPermittedError` if it may not be sent."""
    input: PromptInput = call.body
    check_parts(call, input.parts)
    return apply_flat_fields(input)


def check_parts(call: DirectoryCall, parts: Sequence[AnyPartInput]) -> None:
    """Raise `InvalidInputError` if a prompt has too many parts, `NotPermittedError` if it attaches a file by its path
    on a server that shows no files: attached files are read at once."""
    if len(parts) > MAX_PARTS:
        raise InvalidInputError("parts", f"more than {MAX_PARTS}")
    names_file = any(
        isinstance(part, FileInput) and part.url.lower().startswith(FILE_SCHEME) for part in parts
    )
    if names_file and not call.server.shows_files:
        raise NotPermittedError(
            "this server shows no files, and so attaches none", hint="send its content: data:…;base64,…"
        )


def apply_flat_fields(input: PromptInput) -> PromptInput:
    """Accept model and agent in the fields that OpenCode's Python package sends."""
    extra = {} if input.extra_ is UNSET else input.extra_
    provider, model, mode = (extra.get(name) for name in ("providerID", "modelID", "mode"))
    if input.model is None and isinstance(provider, str) and isinstance(model, str):
        input = replace(input, model=ModelRef(provider_id=provider, model_id=model))
    if input.agent is None and isinstance(mode, str):
        input = replace(input, agent=mode)
    return input


ROUTES = (
    route(
        "GET",
        f"{SESSION}/message",
        "session.messages",
        list_messages,
        query=MessagesQuery,
        returns=list[MessageWithParts],
    ),
    route(
        "POST",
        f"{SESSION}/message",
        "session.prompt",
        prompt,
        takes=PromptInput,
        session_directory="required",
    ),
    route("GET", MESSAGE, "session.message", get_message),
    route("DELETE", MESSAGE, "session.deleteMessage", remove_message),
    route("PATCH", PART, "part.update", update_part, takes=AnyPart),
    route("DELETE", PART, "part.delete", remove_part),
    route(
        "POST",
        f"{SESSION}/prompt_async",
        "session.prompt_async",
        prompt_async,
        takes=PromptInput,
        session_directory="required",
    ),
    route("POST", f"{SESSION}/abort", "session.abort", abort),
    route(
        "POST",
        f"{SESSION}/summarize",
        "session.summarize",
        summarize,
        takes=SummarizeInput,
        session_directory="required",
    ),
    route(
        "POST", f"{SESSION}/init", "session.init", initialize, takes=InitInput, session_directory="required"
    ),
)


async def list_commands(call: DirectoryCall) -> list[Command]:
    """List the commands."""
    return await call.api.list_commands()


async def command(call: DirectoryCall) -> MessageWithParts:
    """Run a command and wait for the final answer."""
    input: CommandInput = call.body
    check_parts(call, input.parts)
    key = call.headers.get("idempotency-key")
    if key is not None and input.message_id is None:
        id = await call.server.idempotency_keys.id_for(call.api, read_session_id(call), key, encode(input))
        input = replace(input, message_id=id)
    return await call.api.command(read_session_id(call), input)


async def shell(call: DirectoryCall) -> MessageWithParts:
    """Run a shell command for the user and add it to the session."""
    input: ShellInput = call.body
    return await call.api.shell(read_session_id(call), input)


COMMAND_ROUTES = (
    route("GET", "/command", "command.list", list_commands),
    route(
        "POST",
        f"{SESSION}/command",
        "session.command",
        command,
        takes=CommandInput,
        session_directory="required",
    ),
)

SHELL_ROUTES = (
    route("POST", f"{SESSION}/shell", "session.shell", shell, takes=ShellInput, session_directory="required"),
)


class RevertInput(Wire, frozen=True, kw_only=True):
    message_id: MessageID
    part_id: PartID | None = None


async def revert(call: DirectoryCall) -> SessionInfo:
    """Take a session back to before a message, with the files it changed."""
    input: RevertInput = call.body
    return (await call.api.revert(read_session_id(call), input.message_id, input.part_id)).session


async def unrevert(call: DirectoryCall) -> SessionInfo:
    """Restore what was reverted."""
    return (await call.api.unrevert(read_session_id(call))).session


UNDO_ROUTES = (
    route(
        "POST", f"{SESSION}/revert", "session.revert", revert, takes=RevertInput, session_directory="required"
    ),
    route("POST", f"{SESSION}/unrevert", "session.unrevert", unrevert, session_directory="required"),
)

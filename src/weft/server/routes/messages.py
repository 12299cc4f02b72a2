"""HTTP for messages, runs, slash commands, shell commands and undo."""

from collections.abc import Sequence

from msgspec import UNSET, Struct
from msgspec.structs import replace

from weft.errors import InvalidInputError, NotPermittedError
from weft.model.agent import Command
from weft.model.ids import MessageID, PartID
from weft.model.input import AnyPartInput, CommandInput, FileInput, PromptInput, ShellInput
from weft.model.message import MessageWithParts
from weft.model.part import AnyPart, ModelRef
from weft.model.session import Session
from weft.model.wire import Wire, encode
from weft.server.route import Answer, Call, route
from weft.server.routes.sessions import SESSION, session_in

MESSAGE = f"{SESSION}/message/{{messageID}}"
PART = f"{MESSAGE}/part/{{partID}}"
MOST_PARTS = 1000
LOCAL = "file:"


class MessagesQuery(Struct, frozen=True, kw_only=True):
    """The newest so many, of those before one."""

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


def message_in(call: Call) -> MessageID:
    return MessageID(call.names["messageID"])


async def list_messages(call: Call) -> Answer:
    """What was said in a session, the oldest first."""
    asked: MessagesQuery = call.query
    limit = asked.limit or None
    before = MessageID(asked.before) if asked.before else None
    if limit is not None and limit < 0:
        raise InvalidInputError("limit", "it is negative")
    if before is not None and limit is None:
        raise InvalidInputError("before", "it needs a limit")
    session = session_in(call)
    if limit is None:
        return Answer(value=await call.api.list_messages(session))
    # One more than was asked for tells whether there are more.
    found = await call.api.list_messages(session, limit=limit + 1, before=before)
    return paged(call, found[1:], limit) if len(found) > limit else Answer(value=found)


def paged(call: Call, found: list[MessageWithParts], limit: int) -> Answer:
    """The messages, and where to go on: before the oldest of them."""
    cursor = found[0].info.id
    more = f'<{call.path}?limit={limit}&before={cursor}>; rel="next"'
    shown = {"x-next-cursor": cursor, "link": more, "access-control-expose-headers": "Link, X-Next-Cursor"}
    return Answer(value=found, headers=shown)


async def get_message(call: Call) -> MessageWithParts:
    """One message with its parts."""
    return await call.api.get_message(session_in(call), message_in(call))


async def remove_message(call: Call) -> bool:
    """Take a message out, with its parts."""
    await call.api.remove_message(session_in(call), message_in(call))
    return True


async def update_part(call: Call) -> AnyPart:
    """Put a part in place of the one with its id."""
    part: AnyPart = call.body
    place = (part.session_id, part.message_id, part.id)
    if place != (call.names["sessionID"], call.names["messageID"], call.names["partID"]):
        raise InvalidInputError("part", "its ids are not those in the address")
    return await call.api.update_part(part)


async def remove_part(call: Call) -> bool:
    """Take a part out of a message."""
    await call.api.remove_part(session_in(call), message_in(call), PartID(call.names["partID"]))
    return True


async def prompt(call: Call) -> MessageWithParts:
    """Send a prompt, and wait for the last answer to it."""
    return await call.api.prompt(session_in(call), await once(call, checked(call)))


async def prompt_async(call: Call) -> None:
    """Send a prompt. It is on disk when this answers; what comes of it is told as events."""
    await call.api.submit(session_in(call), await once(call, checked(call)))


async def abort(call: Call) -> bool:
    """End the run of a session, if there is one."""
    api = await call.premises.find_runner(session_in(call)) or call.api
    await api.abort(session_in(call))
    return True


async def summarize(call: Call) -> bool:
    """Sum a conversation up now."""
    asked: SummarizeInput = call.body
    model = ModelRef(provider_id=asked.provider_id, model_id=asked.model_id)
    await call.api.compact(session_in(call), model=model)
    return True


async def initialize(call: Call) -> bool:
    """Have an agent write an AGENTS.md."""
    asked: InitInput = call.body
    model = ModelRef(provider_id=asked.provider_id, model_id=asked.model_id)
    await call.api.initialize(session_in(call), model=model, message_id=asked.message_id)
    return True


async def once(call: Call, input: PromptInput) -> PromptInput:
    """The same request sent twice is one prompt: by its own id, or by an `Idempotency-Key`."""
    key = call.headers.get("idempotency-key")
    if key is None or input.message_id is not None:
        return input
    id = await call.premises.repeats.id_for(call.api, session_in(call), key, encode(input))
    return replace(input, message_id=id)


def checked(call: Call) -> PromptInput:
    """The prompt of a call, if it is one that may be sent."""
    input: PromptInput = call.body
    check_parts(call, input.parts)
    return with_flat_model(input)


def check_parts(call: Call, parts: Sequence[AnyPartInput]) -> None:
    """What is attached to a prompt is read at once and shown in it: a server that shows no files takes none by name.

    Raises `InvalidInputError` and `NotPermittedError`."""
    if len(parts) > MOST_PARTS:
        raise InvalidInputError("parts", f"more than {MOST_PARTS}")
    named = any(isinstance(part, FileInput) and part.url.lower().startswith(LOCAL) for part in parts)
    if named and not call.premises.shows_files:
        raise NotPermittedError(
            "this server shows no files, and attaches none of its own", hint="send it along: data:…;base64,…"
        )


def with_flat_model(input: PromptInput) -> PromptInput:
    """The Python package of OpenCode says which model, and which agent, as its servers once wanted it."""
    more = {} if input.extra_ is UNSET else input.extra_
    provider, model, mode = (more.get(name) for name in ("providerID", "modelID", "mode"))
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
        gives=list[MessageWithParts],
    ),
    route("POST", f"{SESSION}/message", "session.prompt", prompt, takes=PromptInput, home="needs"),
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
        home="needs",
    ),
    route("POST", f"{SESSION}/abort", "session.abort", abort),
    route("POST", f"{SESSION}/summarize", "session.summarize", summarize, takes=SummarizeInput, home="needs"),
    route("POST", f"{SESSION}/init", "session.init", initialize, takes=InitInput, home="needs"),
)


async def list_commands(call: Call) -> list[Command]:
    """The commands there are."""
    return await call.api.list_commands()


async def command(call: Call) -> MessageWithParts:
    """Carry out a command, and wait for the last answer to it."""
    input: CommandInput = call.body
    check_parts(call, input.parts)
    key = call.headers.get("idempotency-key")
    if key is not None and input.message_id is None:
        id = await call.premises.repeats.id_for(call.api, session_in(call), key, encode(input))
        input = replace(input, message_id=id)
    return await call.api.command(session_in(call), input)


async def shell(call: Call) -> MessageWithParts:
    """Run a shell command as the person would, for the session to know of."""
    input: ShellInput = call.body
    return await call.api.shell(session_in(call), input)


COMMAND_ROUTES = (
    route("GET", "/command", "command.list", list_commands),
    route("POST", f"{SESSION}/command", "session.command", command, takes=CommandInput, home="needs"),
)

SHELL_ROUTES = (route("POST", f"{SESSION}/shell", "session.shell", shell, takes=ShellInput, home="needs"),)


class RevertInput(Wire, frozen=True, kw_only=True):
    message_id: MessageID
    part_id: PartID | None = None


async def revert(call: Call) -> Session:
    """Take a session back to before a message, and the files it changed with it."""
    asked: RevertInput = call.body
    return (await call.api.revert(session_in(call), asked.message_id, asked.part_id)).session


async def unrevert(call: Call) -> Session:
    """Bring back what was taken back."""
    return (await call.api.unrevert(session_in(call))).session


UNDO_ROUTES = (
    route("POST", f"{SESSION}/revert", "session.revert", revert, takes=RevertInput, home="needs"),
    route("POST", f"{SESSION}/unrevert", "session.unrevert", unrevert, home="needs"),
)

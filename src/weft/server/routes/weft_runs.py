"""HTTP of our own for messages, runs and undo."""

from typing import Annotated

from msgspec import Meta

from weft.errors import InvalidInputError
from weft.model.ids import MessageID, PartID
from weft.model.input import PromptInput
from weft.model.message import AnyMessage, MessageWithParts
from weft.model.part import AnyPart, ModelRef
from weft.model.session import AnyStatus, Reverted
from weft.model.wire import Wire
from weft.server.route import Call, route
from weft.server.routes.messages import checked, once
from weft.server.routes.sessions import session_in
from weft.server.routes.weft_sessions import SESSION

MESSAGE = f"{SESSION}/message/{{messageID}}"
PART = f"{MESSAGE}/part/{{partID}}"
MOST_FILES = 10_000
NOT_THE_ADDRESS = "its ids are not those in the address"

Paths = Annotated[tuple[str, ...], Meta(max_length=MOST_FILES)]


class PutPartInput(Wire, frozen=True, kw_only=True):
    """A part, and the text it just grew by."""

    part: AnyPart
    delta: str | None = None


class CompactInput(Wire, frozen=True, kw_only=True):
    model: ModelRef | None = None


class InitializeInput(Wire, frozen=True, kw_only=True):
    model: ModelRef | None = None
    message_id: MessageID | None = None


class RevertInput(Wire, frozen=True, kw_only=True):
    """With `files` (absolute paths) only those are touched; a `dry_run` changes nothing."""

    message_id: MessageID
    part_id: PartID | None = None
    files: Paths | None = None
    dry_run: bool = False


class UnrevertInput(Wire, frozen=True, kw_only=True):
    files: Paths | None = None
    dry_run: bool = False


async def put_message(call: Call) -> AnyMessage:
    """Add a message, or put it in place of the one with its id."""
    message: AnyMessage = call.body
    if (message.session_id, message.id) != (call.names["sessionID"], call.names["messageID"]):
        raise InvalidInputError("message", NOT_THE_ADDRESS)
    return await call.api.update_message(message)


async def put_part(call: Call) -> AnyPart:
    """Add a part, or put it in place of the one with its id; and say what it grew by."""
    asked: PutPartInput = call.body
    part = asked.part
    place = part.session_id, part.message_id, part.id
    if place != (call.names["sessionID"], call.names["messageID"], call.names["partID"]):
        raise InvalidInputError("part", NOT_THE_ADDRESS)
    return await call.api.update_part(part, delta=asked.delta)


async def check_prompt(call: Call) -> None:
    """Whether there are the agent and the model that a prompt names. Nothing is stored."""
    await call.api.check_prompt(checked(call))


async def submit(call: Call) -> MessageWithParts:
    """Send a prompt, and be given it as it was stored; what comes of it is told as events."""
    return await call.api.submit(session_in(call), await once(call, checked(call)))


async def compact(call: Call) -> MessageWithParts:
    """Sum a conversation up now, by the model that is named or by its own; gives the summary."""
    return await call.api.compact(session_in(call), model=(call.body or CompactInput()).model)


async def uncompact(call: Call) -> bool:
    """Show the model again what the last summary cut off; gives whether there was one."""
    return await call.api.uncompact(session_in(call))


async def initialize(call: Call) -> MessageWithParts:
    """Have an agent write an AGENTS.md; gives its last message."""
    asked: InitializeInput = call.body or InitializeInput()
    return await call.api.initialize(session_in(call), model=asked.model, message_id=asked.message_id)


async def abort(call: Call) -> bool:
    """End the run of a session; gives whether there was one."""
    api = await call.premises.find_runner(session_in(call)) or call.api
    return await api.abort(session_in(call))


async def get_status(call: Call) -> AnyStatus:
    """What a session is doing."""
    return await call.api.get_status(session_in(call))


async def revert(call: Call) -> Reverted:
    """Take a session back to before a message, and say what became of each file; or only what would."""
    asked: RevertInput = call.body
    return await call.api.revert(
        session_in(call), asked.message_id, asked.part_id, files=asked.files, dry_run=asked.dry_run
    )


async def unrevert(call: Call) -> Reverted:
    """Bring back what was taken back, and say what became of each file; or only what would."""
    asked: UnrevertInput = call.body or UnrevertInput()
    return await call.api.unrevert(session_in(call), files=asked.files, dry_run=asked.dry_run)


ROUTES = (
    route("PUT", MESSAGE, "weft.message.put", put_message, takes=AnyMessage),
    route("PUT", PART, "weft.part.put", put_part, takes=PutPartInput),
    route("POST", "/weft/prompt/check", "weft.prompt.check", check_prompt, takes=PromptInput),
    route("POST", f"{SESSION}/submit", "weft.session.submit", submit, takes=PromptInput, home="needs"),
    route(
        "POST",
        f"{SESSION}/compact",
        "weft.session.compact",
        compact,
        takes=CompactInput,
        optional=True,
        home="needs",
    ),
    route("POST", f"{SESSION}/uncompact", "weft.session.uncompact", uncompact, home="needs"),
    route(
        "POST",
        f"{SESSION}/initialize",
        "weft.session.initialize",
        initialize,
        takes=InitializeInput,
        optional=True,
        home="needs",
    ),
    route("POST", f"{SESSION}/abort", "weft.session.abort", abort),
    route("GET", f"{SESSION}/status", "weft.session.status", get_status),
    route("POST", f"{SESSION}/revert", "weft.session.revert", revert, takes=RevertInput, home="needs"),
    route(
        "POST",
        f"{SESSION}/unrevert",
        "weft.session.unrevert",
        unrevert,
        takes=UnrevertInput,
        optional=True,
        home="needs",
    ),
)

"""HTTP for prompts that have a name, and for the person's own shell commands."""

from msgspec.structs import replace

from weft.model.agent import Command
from weft.model.input import CommandInput, ShellInput
from weft.model.message import MessageWithParts
from weft.model.wire import encode
from weft.server.route import Call, route
from weft.server.routes.messages import check_parts
from weft.server.routes.sessions import SESSION, session_in


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


ROUTES = (
    route("GET", "/command", "command.list", list_commands),
    route("POST", f"{SESSION}/command", "session.command", command, takes=CommandInput, home="needs"),
)

SHELL_ROUTES = (route("POST", f"{SESSION}/shell", "session.shell", shell, takes=ShellInput, home="needs"),)

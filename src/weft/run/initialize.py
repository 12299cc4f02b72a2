"""Initialise a project: have an agent write down what others need to know of it."""

from weft.config.command.known import INIT
from weft.model.ids import MessageID, SessionID
from weft.model.input import CommandInput
from weft.model.message import MessageWithParts
from weft.model.part import ModelRef
from weft.run.command.acting import Runs, execute
from weft.run.kit import Kit


async def initialize(
    kit: Kit, runs: Runs, session: SessionID, *, model: ModelRef | None, message_id: MessageID | None
) -> MessageWithParts:
    """Carry out the command for it; once it is answered, the project's record says when."""
    named = None if model is None else f"{model.provider_id}/{model.model_id}"
    asked = CommandInput(command=INIT, model=named, message_id=message_id)
    return await execute(kit, runs, session, asked)

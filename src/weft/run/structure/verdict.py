"""Whether the value a prompt asks for was handed over, and when to stop asking for it."""

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Struct

from weft.model.failure import StructureData, StructureFailure
from weft.model.message import AssistantMessage, JsonFormat, MessageWithParts
from weft.model.part import ErrorState, ToolPart
from weft.run.decide import Step
from weft.run.processor import CallDone, CallFailed, CallStarted
from weft.run.structure.offer import from_arguments, retries
from weft.run.structure.schema import list_faults
from weft.window.valued import NAME, ended_in_words, wanted

TAKEN = "The value was taken."


class Handed(Struct, frozen=True, kw_only=True):
    """What came of a call that hands over a value, and the value; `UNSET` if it does not keep to the schema."""

    outcome: CallDone | CallFailed
    value: Any = UNSET


def hand_over(call: CallStarted, format: JsonFormat) -> Handed:
    """Judge what a call brings. What is wrong with it is told to the model, which may call again."""
    value = from_arguments(format.schema, call.input)
    faults = ['the argument "value" is missing'] if value is UNSET else list_faults(value, format.schema)
    if not faults:
        done = CallDone(call_id=call.call_id, title=NAME, output=TAKEN, metadata={"valid": True})
        return Handed(outcome=done, value=value)
    said = "The value does not keep to the schema:\n" + "\n".join(f"- {fault}" for fault in faults)
    return Handed(outcome=CallFailed(call_id=call.call_id, error=f"{said}\nMend it, and call {NAME} again."))


def find_failure(history: Sequence[MessageWithParts], step: Step) -> StructureFailure | None:
    """Why there will be no value, once the last answer to the step's prompt leaves no hope of one."""
    format = wanted(step.prompt)
    if format is None or step.summary:
        return None
    answers = [
        message
        for message in history
        if isinstance(message.info, AssistantMessage)
        and message.info.parent_id == step.prompt.id
        and not message.info.summary
    ]
    if not answers or _has_value(answers[-1]):
        return None
    misses = [reason for message in answers if (reason := _missed(message)) is not None]
    if _missed(answers[-1]) is None and not step.last:
        return None  # it is at work
    if len(misses) <= retries(format) and not step.last:
        return None
    reason = misses[-1] if misses else "the steps it may take were used up"
    return StructureFailure(
        data=StructureData(
            message=f"the model did not give the value that was asked for: {reason}",
            retries=max(len(misses) - 1, 0),
        )
    )


def _has_value(message: MessageWithParts) -> bool:
    return isinstance(message.info, AssistantMessage) and message.info.structured is not UNSET


def _missed(message: MessageWithParts) -> str | None:
    """How an answer failed to hand the value over; None if it did, or did not try yet."""
    if _has_value(message):
        return None
    if ended_in_words(message):
        return "it ended in words"
    for part in message.parts:
        if not isinstance(part, ToolPart):
            continue
        if part.tool == NAME and isinstance(part.state, ErrorState):
            return part.state.error
        if part.state.input.get("tool") == NAME and part.tool == "invalid":
            return str(part.state.input.get("error", "its call could not be read"))
    return None

"""Whether the value a prompt asks for was handed over, and when to stop asking for it."""

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Struct

from weft.model.failure import StructureData, StructureFailure
from weft.model.message import AssistantMessage, JsonFormat, MessageWithParts
from weft.model.part import ErrorState, TextPart, ToolPart
from weft.provider.contract import ModelRequest
from weft.run.decide import Step
from weft.run.processor import CallDone, CallFailed, CallStarted
from weft.run.structure.offer import (
    from_arguments,
    from_text,
    retries,
    takes_format,
    with_format,
    with_tool,
)
from weft.run.structure.schema import list_faults
from weft.window.refused import is_refused
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


def ask_for_value(request: ModelRequest, history: Sequence[MessageWithParts], step: Step) -> ModelRequest:
    """The request for the value that the step's prompt wants, or as it is if it wants none.

    A model whose API has a format is asked by it. Once that was refused, or did not bring the value, the model has to call
    the tool; and whatever it did, it has to call it now if it missed before, or may not take another step.
    """
    format = wanted(step.prompt)
    if format is None or step.summary:
        return request
    answers = _answers(history, step)
    missed = any(_missed(message, format) is not None for message in answers)
    refused = is_refused(answers, request.model)
    if takes_format(request.model, tools=bool(request.tools)) and not missed and not refused:
        return with_format(request, format)
    return with_tool(request, format, forced=missed or step.last)


def find_value(text: str, format: JsonFormat) -> Any:
    """The value in the text of an answer; `UNSET` if it holds none that keeps to the schema."""
    value = from_text(format.schema, text)
    return UNSET if value is UNSET or list_faults(value, format.schema) else value


def find_failure(history: Sequence[MessageWithParts], step: Step) -> StructureFailure | None:
    """Why there will be no value, once the last answer to the step's prompt leaves no hope of one."""
    format = wanted(step.prompt)
    if format is None or step.summary:
        return None
    answers = _answers(history, step)
    if not answers or _has_value(answers[-1]):
        return None
    misses = [reason for message in answers if (reason := _missed(message, format)) is not None]
    if _missed(answers[-1], format) is None and not step.last:
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


def _answers(history: Sequence[MessageWithParts], step: Step) -> list[MessageWithParts]:
    return [
        message
        for message in history
        if isinstance(message.info, AssistantMessage)
        and message.info.parent_id == step.prompt.id
        and not message.info.summary
    ]


def _has_value(message: MessageWithParts) -> bool:
    return isinstance(message.info, AssistantMessage) and message.info.structured is not UNSET


def _missed(message: MessageWithParts, format: JsonFormat) -> str | None:
    """How an answer failed to hand the value over; None if it did, or did not try yet."""
    if _has_value(message):
        return None
    if ended_in_words(message):
        said = "".join(part.text for part in message.parts if isinstance(part, TextPart))
        value = from_text(format.schema, said)
        faults = [] if value is UNSET else list_faults(value, format.schema)
        return (
            f"its answer does not keep to the schema: {'; '.join(faults)}" if faults else "it ended in words"
        )
    for part in message.parts:
        if not isinstance(part, ToolPart):
            continue
        if part.tool == NAME and isinstance(part.state, ErrorState):
            return part.state.error
        if part.state.input.get("tool") == NAME and part.tool == "invalid":
            return str(part.state.input.get("error", "its call could not be read"))
    return None

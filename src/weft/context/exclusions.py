"""Leave out what a model's API refused before: signatures of old thoughts, and files (pure)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from weft.context.history import SHOWN_AS_TEXT
from weft.errors import FaultKind
from weft.model.catalog import Model, ref
from weft.model.failure import ApiFailure
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import (
    AnyPart,
    CompletedState,
    FilePart,
    ModelRef,
    ReasoningPart,
    RetryPart,
    TextPart,
    ToolPart,
)

SIGNATURE: FaultKind = "signature"
MEDIA: FaultKind = "media"
BAD_REQUEST: FaultKind = "bad-request"


def mark(kind: FaultKind, model: ModelRef) -> dict[str, str]:
    """What is kept with the failure of an attempt, to know it by."""
    return {"kind": kind, "providerID": model.provider_id, "modelID": model.model_id}


class LeftOut(Struct, frozen=True, kw_only=True):
    """Before which places of a history signatures are left out, and files; 0 where nothing was refused."""

    unsigned: int = 0
    unseen: int = 0


Refusal = tuple[int, Mapping[str, Any]]


def as_taken(history: Sequence[MessageWithParts], model: Model) -> Sequence[MessageWithParts]:
    """The history without what this model's API refused to take."""
    refusals = [(at, told) for at, message in enumerate(history) for told in refusals_in(message)]
    left_out = left_out_for(model, refusals)
    if left_out == LeftOut():
        return history
    return [without(message, at, left_out) for at, message in enumerate(history)]


def refusals_in(message: MessageWithParts) -> list[Mapping[str, Any]]:
    """The marks of the attempts at an answer that failed."""
    return [
        part.error.data.metadata
        for part in message.parts
        if isinstance(part, RetryPart) and isinstance(part.error, ApiFailure) and part.error.data.metadata
    ]


def is_refused(answers: Iterable[MessageWithParts], model: Model) -> bool:
    """Whether a model's API took a request for one of these answers to be wrong as a whole."""
    refused = mark(BAD_REQUEST, ref(model))
    return any(refused.items() <= told.items() for message in answers for told in refusals_in(message))


def left_out_for(model: Model, refusals: Iterable[Refusal]) -> LeftOut:
    """All before the last message for which the model was asked in vain because of this."""
    asked = ModelRef(provider_id=model.provider_id, model_id=model.id)
    unsigned, unseen = mark(SIGNATURE, asked), mark(MEDIA, asked)
    found = list(refusals)
    return LeftOut(
        unsigned=max((at for at, told in found if unsigned.items() <= told.items()), default=0),
        unseen=max((at for at, told in found if unseen.items() <= told.items()), default=0),
    )


def can_leave_out(history: Sequence[MessageWithParts], kind: FaultKind, model: Model) -> bool:
    """Whether there is anything of this kind that the model is shown and could do without."""
    shown = as_taken(history, model)
    if kind == SIGNATURE:
        own = (message for message in shown if _is_of(message, model))
        return any(_is_signed(part) for message in own for part in message.parts)
    return kind == MEDIA and any(_has_media(part) for message in shown for part in message.parts)


def without(message: MessageWithParts, at: int, left_out: LeftOut) -> MessageWithParts:
    """The message at that place of a history, without what is left out there."""
    signatures, media = at < left_out.unsigned, at < left_out.unseen
    parts: Iterable[AnyPart] = message.parts
    if signatures and isinstance(message.info, AssistantMessage):
        parts = map(_unsigned, parts)
    if media:
        parts = map(_unseen, parts)
    return replace(message, parts=tuple(parts)) if signatures or media else message


def _is_of(message: MessageWithParts, model: Model) -> bool:
    """Whether it is an answer of this model. What another signed, it is not shown."""
    info = message.info
    return isinstance(info, AssistantMessage) and (info.provider_id, info.model_id) == (
        model.provider_id,
        model.id,
    )


def _is_signed(part: AnyPart) -> bool:
    return isinstance(part, TextPart | ReasoningPart | ToolPart) and bool(part.metadata)


def _unsigned(part: AnyPart) -> AnyPart:
    if isinstance(part, TextPart | ReasoningPart | ToolPart) and part.metadata:
        return replace(part, metadata=None)
    return part


def _has_media(part: AnyPart) -> bool:
    match part:
        case FilePart(mime=mime):
            return mime not in SHOWN_AS_TEXT
        case ToolPart(state=CompletedState(attachments=attachments)):
            return bool(attachments)
        case _:
            return False


def _unseen(part: AnyPart) -> AnyPart:
    match part:
        case FilePart() if _has_media(part):
            return TextPart(
                id=part.id,
                session_id=part.session_id,
                message_id=part.message_id,
                text=_stub(part),
                synthetic=True,
            )
        case ToolPart(state=CompletedState(attachments=attachments) as state) if attachments:
            output = "\n\n".join((state.output, *map(_stub, attachments)))
            return replace(part, state=replace(state, output=output, attachments=None))
        case _:
            return part


def _stub(file: FilePart) -> str:
    return f"[{file.filename or file.mime} is not shown: the model's API refused it]"

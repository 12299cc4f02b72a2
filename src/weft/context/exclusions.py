"""Exclude content that a model's API refused before: signatures of old reasoning, and files (pure)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from weft.context.history import SHOWN_AS_TEXT
from weft.errors import FaultKind
from weft.model.catalog import Model, to_ref
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


def make_attempt_mark(kind: FaultKind, model: ModelRef) -> dict[str, str]:
    """Return the metadata that is stored with the failure of an attempt, to recognise it later."""
    return {"kind": kind, "providerID": model.provider_id, "modelID": model.model_id}


class Exclusions(Struct, frozen=True, kw_only=True):
    """The positions in a history before which signatures and media are excluded; 0 if nothing was refused."""

    signatures_before: int = 0
    media_before: int = 0


# The position of a message, and the metadata of a failed attempt at it.
Refusal = tuple[int, Mapping[str, Any]]


def exclude_refused(history: Sequence[MessageWithParts], model: Model) -> Sequence[MessageWithParts]:
    """Return the history without the content that this model's API refused."""
    refusals = [(index, mark) for index, message in enumerate(history) for mark in list_refusals(message)]
    exclusions = find_exclusions(model, refusals)
    if exclusions == Exclusions():
        return history
    return [exclude_from(message, index, exclusions) for index, message in enumerate(history)]


def list_refusals(message: MessageWithParts) -> list[Mapping[str, Any]]:
    """Return the metadata of the failed attempts at an answer."""
    return [
        part.error.data.metadata
        for part in message.parts
        if isinstance(part, RetryPart) and isinstance(part.error, ApiFailure) and part.error.data.metadata
    ]


def is_refused(answers: Iterable[MessageWithParts], model: Model) -> bool:
    """Return True if the model's API refused a request for one of these answers as a bad request."""
    bad_request = make_attempt_mark(BAD_REQUEST, to_ref(model))
    return any(bad_request.items() <= mark.items() for message in answers for mark in list_refusals(message))


def find_exclusions(model: Model, refusals: Iterable[Refusal]) -> Exclusions:
    """Return what to exclude: everything before the last message for which the API refused such content."""
    ref = to_ref(model)
    signature_mark, media_mark = make_attempt_mark(SIGNATURE, ref), make_attempt_mark(MEDIA, ref)
    positions = list(refusals)
    return Exclusions(
        signatures_before=max(
            (index for index, mark in positions if signature_mark.items() <= mark.items()), default=0
        ),
        media_before=max(
            (index for index, mark in positions if media_mark.items() <= mark.items()), default=0
        ),
    )


def can_exclude(history: Sequence[MessageWithParts], kind: FaultKind, model: Model) -> bool:
    """Return True if the model is shown content of the refused kind that can be excluded."""
    if kind not in (SIGNATURE, MEDIA):
        return False
    shown = exclude_refused(history, model)
    if kind == SIGNATURE:
        answers = (message for message in shown if _is_answer_of(message, model))
        return any(_is_signed(part) for message in answers for part in message.parts)
    return any(_has_media(part) for message in shown for part in message.parts)


def exclude_from(message: MessageWithParts, index: int, exclusions: Exclusions) -> MessageWithParts:
    """Return the message at this position without the excluded content."""
    excludes_signatures = index < exclusions.signatures_before
    excludes_media = index < exclusions.media_before
    parts: Iterable[AnyPart] = message.parts
    if excludes_signatures and isinstance(message.info, AssistantMessage):
        parts = map(_remove_signature, parts)
    if excludes_media:
        parts = map(_remove_media, parts)
    return replace(message, parts=tuple(parts)) if excludes_signatures or excludes_media else message


def _is_answer_of(message: MessageWithParts, model: Model) -> bool:
    """Return True for an answer of this model. Signatures of other models are never shown to it."""
    info = message.info
    return isinstance(info, AssistantMessage) and (info.provider_id, info.model_id) == (
        model.provider_id,
        model.id,
    )


def _is_signed(part: AnyPart) -> bool:
    return isinstance(part, TextPart | ReasoningPart | ToolPart) and bool(part.metadata)


def _remove_signature(part: AnyPart) -> AnyPart:
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


def _remove_media(part: AnyPart) -> AnyPart:
    match part:
        case FilePart() if _has_media(part):
            return TextPart(
                id=part.id,
                session_id=part.session_id,
                message_id=part.message_id,
                text=_to_placeholder(part),
                synthetic=True,
            )
        case ToolPart(state=CompletedState(attachments=attachments) as state) if attachments:
            output = "\n\n".join((state.output, *map(_to_placeholder, attachments)))
            return replace(part, state=replace(state, output=output, attachments=None))
        case _:
            return part


def _to_placeholder(file: FilePart) -> str:
    return f"[{file.filename or file.mime} is not shown: the model's API refused it]"

"""What others see of a session, as a value without anything about this machine (pure)."""

from typing import TypeVar

from msgspec import UNSET
from msgspec.structs import replace

from weft.model.failure import AnyFailure, ApiFailure
from weft.model.message import AnyMessage, AssistantMessage, MessagePath, MessageWithParts, UserMessage
from weft.model.parcel import Parcel
from weft.model.part import (
    AgentPart,
    AnyPart,
    CompactionPart,
    CompletedState,
    ErrorState,
    FilePart,
    PatchPart,
    PendingState,
    ReasoningPart,
    RetryPart,
    RunningState,
    SnapshotPart,
    StepFinishPart,
    StepStartPart,
    SubtaskPart,
    TextPart,
    ToolPart,
    UnknownPart,
)
from weft.model.session import Session, SessionRevert, SessionShare

F = TypeVar("F", bound=AnyFailure | None)


def to_shown(parcel: Parcel, *, attachments: bool = True) -> Parcel:
    """The session without what was taken back, what is unfinished, and what is nobody else's business."""
    messages = (
        _message(message, attachments=attachments) for message in _standing(parcel.messages, parcel.info)
    )
    return Parcel(info=_session(parcel.info), messages=tuple(messages), diff=parcel.diff)


def is_busy(parcel: Parcel) -> bool:
    """Whether the last prompt is not answered to the end."""
    last = parcel.messages[-1].info if parcel.messages else None
    return isinstance(last, UserMessage) or (
        isinstance(last, AssistantMessage) and last.time.completed is None
    )


def count_pictures(parcel: Parcel) -> int:
    """Files that go along as they are: nobody looks into them for secrets."""
    files = [part for message in parcel.messages for part in message.parts if isinstance(part, FilePart)]
    calls = [part for message in parcel.messages for part in message.parts if isinstance(part, ToolPart)]
    for call in calls:
        if isinstance(call.state, CompletedState):
            files += call.state.attachments or ()
    return sum(1 for file in files if file.url and not file.mime.startswith("text/"))


def _session(info: Session) -> Session:
    return Session(
        id=info.id,
        slug=info.slug,
        version=info.version,
        project_id=info.project_id,
        directory=_last_name(info.directory),
        parent_id=info.parent_id,
        title=info.title,
        time=replace(info.time, extra_=UNSET),
        summary=None if info.summary is None else replace(info.summary, diffs=None, extra_=UNSET),
        # Anew: OpenCode's auto-share leaves the secret in here.
        share=None if info.share is None else SessionShare(url=info.share.url),
        revert=None
        if info.revert is None
        else SessionRevert(message_id=info.revert.message_id, part_id=info.revert.part_id),
    )


def _standing(messages: tuple[MessageWithParts, ...], info: Session) -> list[MessageWithParts]:
    """Those that were not taken back."""
    if info.revert is None:
        return list(messages)
    standing: list[MessageWithParts] = []
    for message in messages:
        if message.info.id != info.revert.message_id:
            standing.append(message)
            continue
        ids = [part.id for part in message.parts]
        if info.revert.part_id in ids:
            standing.append(replace(message, parts=message.parts[: ids.index(info.revert.part_id)]))
        break
    return standing


def _message(message: MessageWithParts, *, attachments: bool) -> MessageWithParts:
    over = not isinstance(message.info, AssistantMessage) or message.info.time.completed is not None
    parts = (_part(part, over=over, attachments=attachments) for part in message.parts)
    return MessageWithParts(info=_info(message.info), parts=tuple(part for part in parts if part is not None))


def _info(info: AnyMessage) -> AnyMessage:
    match info:
        case UserMessage():
            summary = info.summary
            return replace(
                info,
                system=None,
                tools=None,
                budget=None,
                summary=None if summary is None else replace(summary, diffs=(), extra_=UNSET),
                extra_=UNSET,
            )
        case AssistantMessage():
            path = info.path
            shown = path and MessagePath(cwd=_last_name(path.cwd), root=_last_name(path.root))
            return replace(info, path=shown, error=_failure(info.error), extra_=UNSET)


def _failure(failure: F) -> F:
    """What was said, without what the API's answer carried."""
    if not isinstance(failure, ApiFailure):
        return failure
    return replace(
        failure, data=replace(failure.data, response_headers=None, response_body=None, metadata=None)
    )


def _part(part: AnyPart, *, over: bool, attachments: bool) -> AnyPart | None:
    """The part as it is shown; None for one that is not."""
    match part:
        case TextPart():
            if part.synthetic or not (over or _is_whole(part)):
                return None
            return replace(part, metadata=None, extra_=UNSET)
        case ReasoningPart():
            whole = over or part.time.end is not None
            return replace(part, metadata=None, extra_=UNSET) if whole else None
        case FilePart():
            return _file(part, attachments=attachments)
        case ToolPart():
            return _call(part, attachments=attachments)
        case StepStartPart():
            return replace(part, snapshot=None, extra_=UNSET)
        case StepFinishPart():
            return replace(part, snapshot=None, weft=None, extra_=UNSET)
        case AgentPart():
            return replace(part, source=None, extra_=UNSET)
        case RetryPart():
            return replace(part, error=_failure(part.error), extra_=UNSET)
        case SubtaskPart() | CompactionPart():
            return replace(part, extra_=UNSET)
        case PatchPart() | SnapshotPart() | UnknownPart():
            return None


def _is_whole(part: TextPart) -> bool:
    return part.time is None or part.time.end is not None


def _file(part: FilePart, *, attachments: bool) -> FilePart:
    """Its name, and what is in it if it came along. Where it lies on this machine is left out."""
    url = part.url if attachments and part.url.startswith("data:") else ""
    return replace(part, url=url, source=None, extra_=UNSET)


def _call(part: ToolPart, *, attachments: bool) -> ToolPart | None:
    match part.state:
        case PendingState():
            return None  # the model is still writing it
        case RunningState() as running:
            # What it has said so far stands in the metadata, and is not whole.
            state = replace(running, metadata=None, extra_=UNSET)
            return replace(part, state=state, metadata=None, extra_=UNSET)
        case CompletedState() as done:
            files = tuple(_file(file, attachments=attachments) for file in done.attachments or ())
            done = replace(done, attachments=files or None, extra_=UNSET)
            return replace(part, state=done, metadata=None, extra_=UNSET)
        case ErrorState() as failed:
            return replace(part, state=replace(failed, extra_=UNSET), metadata=None, extra_=UNSET)


def _last_name(path: str) -> str:
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2]

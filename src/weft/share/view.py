"""Make the view of a session that others get: without anything about this machine, and with its secrets redacted (pure)."""

from collections import Counter
from typing import TypeVar

from msgspec import UNSET
from msgspec.structs import replace

from weft.model.failure import AnyFailure, ApiFailure
from weft.model.ids import MessageID
from weft.model.message import AnyMessage, AssistantMessage, MessagePath, MessageWithParts, UserMessage
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
from weft.model.session import SessionInfo, SessionRevert, SessionShare
from weft.model.share import SharePreview, ShareRedaction, ShareTerms
from weft.model.transfer import SessionExport
from weft.transfer.redact import RedactedSecret, Redactor

F = TypeVar("F", bound=AnyFailure | None)


def to_shared_view(export: SessionExport, *, attachments: bool = True) -> SessionExport:
    """Return the session without everything that was reverted, is unfinished, or is private."""
    messages = (
        _strip_message(message, attachments=attachments)
        for message in _drop_reverted(export.messages, export.info)
    )
    return SessionExport(info=_strip_session(export.info), messages=tuple(messages), diff=export.diff)


def is_busy(export: SessionExport) -> bool:
    """Return True if the last prompt is not fully answered."""
    last = export.messages[-1].info if export.messages else None
    return isinstance(last, UserMessage) or (
        isinstance(last, AssistantMessage) and last.time.completed is None
    )


def _strip_session(info: SessionInfo) -> SessionInfo:
    return SessionInfo(
        id=info.id,
        slug=info.slug,
        version=info.version,
        project_id=info.project_id,
        directory=_get_last_name(info.directory),
        parent_id=info.parent_id,
        title=info.title,
        time=replace(info.time, extra_=UNSET),
        summary=None if info.summary is None else replace(info.summary, diffs=None, extra_=UNSET),
        # Built anew: OpenCode's auto-share leaves the secret in here.
        share=None if info.share is None else SessionShare(url=info.share.url),
        revert=None
        if info.revert is None
        else SessionRevert(message_id=info.revert.message_id, part_id=info.revert.part_id),
    )


def _drop_reverted(messages: tuple[MessageWithParts, ...], info: SessionInfo) -> list[MessageWithParts]:
    """Return the messages that were not reverted."""
    if info.revert is None:
        return list(messages)
    remaining: list[MessageWithParts] = []
    for message in messages:
        if message.info.id != info.revert.message_id:
            remaining.append(message)
            continue
        ids = [part.id for part in message.parts]
        if info.revert.part_id in ids:
            remaining.append(replace(message, parts=message.parts[: ids.index(info.revert.part_id)]))
        break
    return remaining


def _strip_message(message: MessageWithParts, *, attachments: bool) -> MessageWithParts:
    is_finished = not isinstance(message.info, AssistantMessage) or message.info.time.completed is not None
    parts = (_strip_part(part, is_finished=is_finished, attachments=attachments) for part in message.parts)
    return MessageWithParts(
        info=_strip_info(message.info), parts=tuple(part for part in parts if part is not None)
    )


def _strip_info(info: AnyMessage) -> AnyMessage:
    match info:
        case UserMessage():
            summary = info.summary
            return replace(
                info,
                system=None,
                tools=None,
                budget=None,
                summary=None if summary is None else replace(summary, diffs=(), extra_=UNSET),
                metadata=None,
                extra_=UNSET,
            )
        case AssistantMessage():
            path = info.path
            short_path = path and MessagePath(cwd=_get_last_name(path.cwd), root=_get_last_name(path.root))
            return replace(
                info, path=short_path, error=_strip_failure(info.error), metadata=None, extra_=UNSET
            )


def _strip_failure(failure: F) -> F:
    """Return a failure without the headers and body of the API's answer."""
    if not isinstance(failure, ApiFailure):
        return failure
    return replace(
        failure, data=replace(failure.data, response_headers=None, response_body=None, metadata=None)
    )


def _strip_part(part: AnyPart, *, is_finished: bool, attachments: bool) -> AnyPart | None:
    """Return a part as others see it, None if they do not."""
    match part:
        case TextPart():
            if part.synthetic or not (is_finished or _is_complete(part)):
                return None
            return replace(part, metadata=None, extra_=UNSET)
        case ReasoningPart():
            is_complete = is_finished or part.time.end is not None
            return replace(part, metadata=None, extra_=UNSET) if is_complete else None
        case FilePart():
            return _strip_file(part, attachments=attachments)
        case ToolPart():
            return _strip_call(part, attachments=attachments)
        case StepStartPart():
            return replace(part, snapshot=None, extra_=UNSET)
        case StepFinishPart():
            return replace(part, snapshot=None, weft=None, extra_=UNSET)
        case AgentPart():
            return replace(part, source=None, extra_=UNSET)
        case RetryPart():
            return replace(part, error=_strip_failure(part.error), extra_=UNSET)
        case SubtaskPart() | CompactionPart():
            return replace(part, extra_=UNSET)
        case PatchPart() | SnapshotPart() | UnknownPart():
            return None


def _is_complete(part: TextPart) -> bool:
    return part.time is None or part.time.end is not None


def _strip_file(part: FilePart, *, attachments: bool) -> FilePart:
    """Return a file's name and, if `attachments` are shared, its content. Its place on this machine is left out."""
    url = part.url if attachments and part.url.startswith("data:") else ""
    return replace(part, url=url, source=None, extra_=UNSET)


def _strip_call(part: ToolPart, *, attachments: bool) -> ToolPart | None:
    match part.state:
        case PendingState():
            return None  # the model is still writing it
        case RunningState() as running:
            # Its output so far is in the metadata, and incomplete.
            state = replace(running, metadata=None, extra_=UNSET)
            return replace(part, state=state, metadata=None, extra_=UNSET)
        case CompletedState() as completed:
            files = tuple(_strip_file(file, attachments=attachments) for file in completed.attachments or ())
            completed = replace(completed, attachments=files or None, extra_=UNSET)
            return replace(part, state=completed, metadata=None, extra_=UNSET)
        case ErrorState() as failed:
            return replace(part, state=replace(failed, extra_=UNSET), metadata=None, extra_=UNSET)


def _get_last_name(path: str) -> str:
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2]


# --- redaction ---


class SessionRedactor:
    """Redacts one session as it grows. With `redact=False`, it returns everything unchanged.

    Only new messages are scanned. If they contain a new secret, all messages are redacted again.
    """

    def __init__(self, *, redact: bool = True) -> None:
        self._redactor = Redactor() if redact else None
        self._secret_count = 0
        self._scanned: dict[MessageID, MessageWithParts] = {}
        self._redacted: dict[MessageID, MessageWithParts] = {}
        self._header: tuple[SessionExport, SessionExport] | None = None

    def redact(self, export: SessionExport) -> SessionExport:
        """Return the session with its secrets redacted."""
        if self._redactor is None:
            return export
        changed = [message for message in export.messages if self._scanned.get(message.info.id) != message]
        header = replace(export, messages=())
        if self._header is None or self._header[0] != header:
            self._redactor.scan(header)
            self._header = None
        for message in changed:
            self._redactor.scan(_to_single(export, message))
            self._scanned[message.info.id] = message
        secret_count = len(self._redactor.findings())
        if secret_count > self._secret_count:
            self._secret_count, self._header, changed = secret_count, None, list(export.messages)
        for message in changed:
            [self._redacted[message.info.id]] = self._redactor.redact(_to_single(export, message)).messages
        if self._header is None:
            self._header = header, self._redactor.redact(header)
        messages = tuple(self._redacted[message.info.id] for message in export.messages)
        return replace(self._header[1], messages=messages)

    def findings(self) -> list[RedactedSecret]:
        return [] if self._redactor is None else self._redactor.findings()


def _to_single(export: SessionExport, message: MessageWithParts) -> SessionExport:
    """Return a session with one message only, so that the rest of the session is not searched with each message."""
    return SessionExport(info=SessionInfo(id=export.info.id, time=export.info.time), messages=(message,))


# --- a share before it is made ---


def to_preview(export: SessionExport, terms: ShareTerms) -> SharePreview:
    """Return what a share on these terms would show and redact."""
    view = to_shared_view(export, attachments=terms.attachments)
    redactor = SessionRedactor(redact=terms.redact)
    redactor.redact(view)
    covered = tuple(_to_redaction(redaction) for redaction in redactor.findings())
    return SharePreview(
        to=terms.to,
        messages=len(view.messages),
        parts=_count_parts(view),
        pictures=_count_binary_files(view),
        left_out=_count_parts(export) - _count_parts(view),
        kinds=dict(Counter(redaction.kind for redaction in covered)),
        covered=covered,
    )


def _count_binary_files(export: SessionExport) -> int:
    """Count attached files that are not text: they are not searched for secrets."""
    files = [part for message in export.messages for part in message.parts if isinstance(part, FilePart)]
    calls = [part for message in export.messages for part in message.parts if isinstance(part, ToolPart)]
    for call in calls:
        if isinstance(call.state, CompletedState):
            files += call.state.attachments or ()
    return sum(1 for file in files if file.url and not file.mime.startswith("text/"))


def _count_parts(export: SessionExport) -> int:
    return sum(len(message.parts) for message in export.messages)


def _to_redaction(secret: RedactedSecret) -> ShareRedaction:
    return ShareRedaction(
        kind=secret.kind,
        where=secret.where,
        placeholder=secret.placeholder,
        glimpse=secret.glimpse,
        times=secret.times,
    )

"""Convert a stored history into messages for a model (pure). They are valid even if calls or answers were interrupted."""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from weft.model.catalog import Model
from weft.model.failure import AbortedFailure, DeadlineFailure, StorageFailure, StructureFailure
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import (
    AnyPart,
    CompactionPart,
    CompletedState,
    ErrorState,
    FilePart,
    PendingState,
    ReasoningPart,
    RetryPart,
    RunningState,
    StepFinishPart,
    StepStartPart,
    SubtaskPart,
    TextPart,
    ToolPart,
)
from weft.provider.contract import (
    AssistantContent,
    AssistantModelMessage,
    CallContent,
    MediaContent,
    ModelMessage,
    ReasoningContent,
    ResultContent,
    TextContent,
    ToolModelMessage,
    UserContent,
    UserModelMessage,
)

COMPACTION_REQUEST = "What did we do so far?"
# OpenCode's sentence. Both engines write it as the prompt of a manual command, and recognise such a command by it.
USER_RAN_TOOL = "The following tool was executed by the user"
CLEARED = "[Old tool result content cleared]"
INTERRUPTED = "[Tool execution was interrupted]"
PARTS_WITHOUT_CONTENT = (StepStartPart, StepFinishPart, ReasoningPart, RetryPart)
SHOWN_AS_TEXT = ("text/plain", "application/x-directory")


def since_compaction(history: Sequence[MessageWithParts]) -> Sequence[MessageWithParts]:
    """Return the history from the last complete compaction on: its request, its summary and all that follows."""
    count = sum(1 for _ in iterate_since_compaction(history))
    return history if count == len(history) else history[len(history) - count :]


def iterate_since_compaction(history: Sequence[MessageWithParts]) -> Iterator[MessageWithParts]:
    """Yield the messages since the last complete compaction lazily, the newest first."""
    summarised: set[str] = set()
    for message in reversed(history):
        yield message
        info = message.info
        if isinstance(info, AssistantMessage):
            if info.summary and info.finish:
                summarised.add(info.parent_id)
        elif info.id in summarised and asks_for_summary(message):
            return


def find_last_cut(history: Sequence[MessageWithParts]) -> CompactionPart | None:
    """Return the part that marks the last compaction, or None if the model sees the full history."""
    shown = since_compaction(history)
    first_parts = shown[0].parts if shown else ()
    cuts = (part for part in first_parts if isinstance(part, CompactionPart) and not part.undone)
    return next(cuts, None) if len(shown) < len(history) else None


def asks_for_summary(message: MessageWithParts) -> bool:
    """Return True if the message requests a compaction that was not undone."""
    return any(isinstance(part, CompactionPart) and not part.undone for part in message.parts)


def is_undone(message: MessageWithParts) -> bool:
    """Return True if the message requests a compaction that was undone."""
    return any(isinstance(part, CompactionPart) and part.undone for part in message.parts)


def to_model_messages(history: Iterable[MessageWithParts], model: Model) -> tuple[ModelMessage, ...]:
    """Return the messages for the model, oldest first. Every call has exactly one result, and no message is empty."""
    converted: list[ModelMessage] = []
    undone: set[str] = set()
    for message in history:
        # A compaction that was undone shows neither its request nor its summary: the messages themselves are shown again.
        if is_undone(message):
            undone.add(message.info.id)
        elif not isinstance(message.info, AssistantMessage) or message.info.parent_id not in undone:
            converted.extend(convert_message(message, model))
    return tuple(converted)


def convert_message(message: MessageWithParts, model: Model) -> Iterable[ModelMessage]:
    """Return the messages for the model that one stored message becomes."""
    match message.info:
        case UserMessage():
            return _convert_user(message.parts)
        case AssistantMessage() as info:
            shown = _is_shown(info, message.parts)
            return _convert_assistant(info, message.parts, model) if shown else ()


def _convert_user(parts: Iterable[AnyPart]) -> list[UserModelMessage]:
    content = [converted for part in parts if (converted := _to_user_content(part)) is not None]
    return [UserModelMessage(content=tuple(content))] if content else []


def _to_user_content(part: AnyPart) -> UserContent | None:
    match part:
        case TextPart(ignored=False, text=text) if text:
            return TextContent(text=text)
        case FilePart() if part.mime not in SHOWN_AS_TEXT:
            return MediaContent(url=part.url, mime=part.mime, filename=part.filename)
        case CompactionPart():
            return TextContent(text=COMPACTION_REQUEST)
        case SubtaskPart():
            return TextContent(text=USER_RAN_TOOL)
        case _:
            return None


def _is_shown(info: AssistantMessage, parts: Iterable[AnyPart]) -> bool:
    """Return False for a failed answer, unless it is complete, or was interrupted from outside and has content."""
    if info.error is None or isinstance(info.error, StructureFailure):
        return True
    has_content = any(not isinstance(part, PARTS_WITHOUT_CONTENT) for part in parts)
    return isinstance(info.error, AbortedFailure | DeadlineFailure | StorageFailure) and has_content


def _convert_assistant(
    info: AssistantMessage, parts: Iterable[AnyPart], model: Model
) -> Iterable[ModelMessage]:
    # Metadata of one provider (signatures) means nothing to another model, which may refuse it.
    same_model = (info.provider_id, info.model_id) == (model.provider_id, model.id)
    block: list[TextPart | ReasoningPart | ToolPart] = []
    for part in parts:
        match part:
            case StepStartPart():
                yield from _convert_block(block, same_model=same_model)
                block = []
            case TextPart(ignored=False) | ReasoningPart(ignored=False) | ToolPart():
                block.append(part)
            case _:
                pass
    yield from _convert_block(block, same_model=same_model)


def _convert_block(
    block: list[TextPart | ReasoningPart | ToolPart], *, same_model: bool
) -> Iterable[ModelMessage]:
    content = [
        _to_content(part, same_model=same_model)
        for part in block
        if isinstance(part, ToolPart) or part.text or part.metadata
    ]
    if content:
        yield AssistantModelMessage(content=tuple(content))
    results = [_to_result(part, same_model=same_model) for part in block if isinstance(part, ToolPart)]
    if results:
        yield ToolModelMessage(content=tuple(results))


def _to_content(part: TextPart | ReasoningPart | ToolPart, *, same_model: bool) -> AssistantContent:
    metadata = part.metadata if same_model else None
    match part:
        case TextPart():
            return TextContent(text=part.text, metadata=metadata)
        case ReasoningPart():
            return ReasoningContent(text=part.text, metadata=metadata)
        case ToolPart():
            return CallContent(
                call_id=part.call_id, tool=part.tool, input=part.state.input, metadata=metadata
            )


def _to_result(part: ToolPart, *, same_model: bool) -> ResultContent:
    output, failed = "", False
    files: tuple[MediaContent, ...] = ()
    match part.state:
        case CompletedState(time=time) if time.compacted is not None:
            output = CLEARED
        case CompletedState() as state:
            output, files = state.output, _to_media(state.attachments or ())
        case ErrorState(error=error):
            output, failed = error, True
        case PendingState() | RunningState():
            output, failed = INTERRUPTED, True
    return ResultContent(
        call_id=part.call_id,
        tool=part.tool,
        output=output,
        error=failed,
        files=files,
        metadata=part.metadata if same_model else None,
    )


def _to_media(attachments: Iterable[FilePart]) -> tuple[MediaContent, ...]:
    """Return the files of a result that have their content in a data URL. APIs do not fetch files of tool results."""
    return tuple(
        MediaContent(url=file.url, mime=file.mime, filename=file.filename)
        for file in attachments
        if file.url.startswith("data:") and "," in file.url
    )


def without_media(messages: Iterable[ModelMessage]) -> tuple[ModelMessage, ...]:
    """Return the conversation without files: a summary does not need them, and they are large."""
    return tuple(_without_files(message) for message in messages)


def _without_files(message: ModelMessage) -> ModelMessage:
    match message:
        case UserModelMessage(content=content):
            return UserModelMessage(
                content=tuple(
                    _to_placeholder(part) if isinstance(part, MediaContent) else part for part in content
                )
            )
        case ToolModelMessage(content=results):
            return ToolModelMessage(content=tuple(replace(result, files=()) for result in results))
        case AssistantModelMessage():
            return message


def _to_placeholder(file: MediaContent) -> TextContent:
    return TextContent(text=f"[a file was shown here: {file.filename or file.mime}]")

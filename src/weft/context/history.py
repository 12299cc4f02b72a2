"""Stored history to what the model is shown of it, valid whatever was interrupted (spec 7.6, 7.7)."""

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
    AssistantTurn,
    CallContent,
    FileContent,
    ModelMessage,
    ReasoningContent,
    ResultContent,
    TextContent,
    ToolTurn,
    UserContent,
    UserTurn,
)

COMPACTION_REQUEST = "What did we do so far?"
USER_RAN_TOOL = "The following tool was executed by the user"
CLEARED = "[Old tool result content cleared]"
INTERRUPTED = "[Tool execution was interrupted]"
NOT_SAID = (StepStartPart, StepFinishPart, ReasoningPart, RetryPart)
SHOWN_AS_TEXT = ("text/plain", "application/x-directory")


def since_compaction(history: Sequence[MessageWithParts]) -> Sequence[MessageWithParts]:
    """From the last compaction that came to its end: the request for it, its summary, and all after."""
    many = sum(1 for _ in newest_first(history))
    return history if many == len(history) else history[len(history) - many :]


def newest_first(history: Sequence[MessageWithParts]) -> Iterator[MessageWithParts]:
    """The messages since the last compaction that came to its end, back to the request for it. Whoever needs only the
    last few pays for no more."""
    summarised: set[str] = set()
    for message in reversed(history):
        yield message
        info = message.info
        if isinstance(info, AssistantMessage):
            if info.summary and info.finish:
                summarised.add(info.parent_id)
        elif info.id in summarised and asks_for_summary(message):
            return


def last_cut(history: Sequence[MessageWithParts]) -> CompactionPart | None:
    """The mark where the model's view begins; None when it sees everything."""
    window = since_compaction(history)
    first = window[0].parts if window else ()
    marks = (part for part in first if isinstance(part, CompactionPart) and not part.undone)
    return next(marks, None) if len(window) < len(history) else None


def asks_for_summary(message: MessageWithParts) -> bool:
    """Whether a message marks a cut. One that was undone cuts no more."""
    return any(isinstance(part, CompactionPart) and not part.undone for part in message.parts)


def is_undone(message: MessageWithParts) -> bool:
    return any(isinstance(part, CompactionPart) and part.undone for part in message.parts)


def to_model_messages(history: Iterable[MessageWithParts], model: Model) -> tuple[ModelMessage, ...]:
    """Oldest first in, oldest first out. Every call has exactly one result; nothing is empty."""
    turns: list[ModelMessage] = []
    undone: set[str] = set()
    for message in history:
        # Of a cut that was undone neither the mark is shown nor the summary: what they stood for is there again.
        if is_undone(message):
            undone.add(message.info.id)
        elif not isinstance(message.info, AssistantMessage) or message.info.parent_id not in undone:
            turns.extend(to_turns(message, model))
    return tuple(turns)


def to_turns(message: MessageWithParts, model: Model) -> Iterable[ModelMessage]:
    """What the model is shown of one message."""
    match message.info:
        case UserMessage():
            return _user_turn(message.parts)
        case AssistantMessage() as info:
            worth = _worth_showing(info, message.parts)
            return _assistant_turns(info, message.parts, model) if worth else ()


def _user_turn(parts: Iterable[AnyPart]) -> list[UserTurn]:
    content = [shown for part in parts if (shown := _shown_to_model(part)) is not None]
    return [UserTurn(content=tuple(content))] if content else []


def _shown_to_model(part: AnyPart) -> UserContent | None:
    match part:
        case TextPart(ignored=False, text=text) if text:
            return TextContent(text=text)
        case FilePart() if part.mime not in SHOWN_AS_TEXT:
            return FileContent(url=part.url, mime=part.mime, filename=part.filename)
        case CompactionPart():
            return TextContent(text=COMPACTION_REQUEST)
        case SubtaskPart():
            return TextContent(text=USER_RAN_TOOL)
        case _:
            return None


def _worth_showing(info: AssistantMessage, parts: Iterable[AnyPart]) -> bool:
    """What failed is left out, unless it was whole, or broken off from without after something was said or done."""
    if info.error is None or isinstance(info.error, StructureFailure):
        return True
    said = any(not isinstance(part, NOT_SAID) for part in parts)
    return isinstance(info.error, AbortedFailure | DeadlineFailure | StorageFailure) and said


def _assistant_turns(
    info: AssistantMessage, parts: Iterable[AnyPart], model: Model
) -> Iterable[ModelMessage]:
    # What a provider wants to see again means nothing to another model, and may be refused by it.
    same = (info.provider_id, info.model_id) == (model.provider_id, model.id)
    block: list[TextPart | ReasoningPart | ToolPart] = []
    for part in parts:
        match part:
            case StepStartPart():
                yield from _block_turns(block, same=same)
                block = []
            case TextPart(ignored=False) | ReasoningPart(ignored=False) | ToolPart():
                block.append(part)
            case _:
                pass
    yield from _block_turns(block, same=same)


def _block_turns(block: list[TextPart | ReasoningPart | ToolPart], *, same: bool) -> Iterable[ModelMessage]:
    content = [
        _content(part, same=same)
        for part in block
        if isinstance(part, ToolPart) or part.text or part.metadata
    ]
    if content:
        yield AssistantTurn(content=tuple(content))
    results = [_result(part, same=same) for part in block if isinstance(part, ToolPart)]
    if results:
        yield ToolTurn(content=tuple(results))


def _content(part: TextPart | ReasoningPart | ToolPart, *, same: bool) -> AssistantContent:
    metadata = part.metadata if same else None
    match part:
        case TextPart():
            return TextContent(text=part.text, metadata=metadata)
        case ReasoningPart():
            return ReasoningContent(text=part.text, metadata=metadata)
        case ToolPart():
            return CallContent(
                call_id=part.call_id, tool=part.tool, input=part.state.input, metadata=metadata
            )


def _result(part: ToolPart, *, same: bool) -> ResultContent:
    output, failed = "", False
    files: tuple[FileContent, ...] = ()
    match part.state:
        case CompletedState(time=time) if time.compacted is not None:
            output = CLEARED
        case CompletedState() as state:
            output, files = state.output, _media(state.attachments or ())
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
        metadata=part.metadata if same else None,
    )


def _media(attachments: Iterable[FilePart]) -> tuple[FileContent, ...]:
    """Only what is carried in full can be shown: a result has no way to fetch."""
    return tuple(
        FileContent(url=file.url, mime=file.mime, filename=file.filename)
        for file in attachments
        if file.url.startswith("data:") and "," in file.url
    )


def without_media(turns: Iterable[ModelMessage]) -> tuple[ModelMessage, ...]:
    """The same conversation in words alone: a summary has no use for pictures, and they take most room."""
    return tuple(_in_words(turn) for turn in turns)


def _in_words(turn: ModelMessage) -> ModelMessage:
    match turn:
        case UserTurn(content=content):
            return UserTurn(
                content=tuple(_named(part) if isinstance(part, FileContent) else part for part in content)
            )
        case ToolTurn(content=results):
            return ToolTurn(content=tuple(replace(result, files=()) for result in results))
        case AssistantTurn():
            return turn


def _named(file: FileContent) -> TextContent:
    return TextContent(text=f"[a file was shown here: {file.filename or file.mime}]")

"""The parts of a message, and the states of a tool call."""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any, ClassVar, Literal

from weft.model.diff import Patch
from weft.model.failure import AnyFailure
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.wire import Wire, always, check_finite


class Span(Wire, frozen=True, kw_only=True):
    """A period in ms. It has no `end` while it lasts."""

    start: int
    end: int | None = None


class CacheTokens(Wire, frozen=True, kw_only=True):
    read: int = always(0)
    write: int = always(0)


class Tokens(Wire, frozen=True, kw_only=True):
    """The tokens of a step. `input` excludes cached tokens; `output` excludes `reasoning`."""

    input: int = always(0)
    output: int = always(0)
    reasoning: int = always(0)
    cache: CacheTokens = always(CacheTokens())


def count_input(tokens: Tokens) -> int:
    """Return the tokens of a request, with those that the provider had cached."""
    return tokens.input + tokens.cache.read + tokens.cache.write


def count_used(tokens: Tokens) -> int:
    """Return the tokens of a request and its answer, which the next request contains."""
    return count_input(tokens) + tokens.output + tokens.reasoning


def add_tokens(pieces: Iterable[Tokens]) -> Tokens:
    counts = list(pieces)
    return Tokens(
        input=sum(each.input for each in counts),
        output=sum(each.output for each in counts),
        reasoning=sum(each.reasoning for each in counts),
        cache=CacheTokens(
            read=sum(each.cache.read for each in counts), write=sum(each.cache.write for each in counts)
        ),
    )


class ModelRef(Wire, frozen=True, kw_only=True):
    """A reference to a model."""

    provider_id: str
    model_id: str


# --- sources of prompt parts ---


class SourceText(Wire, frozen=True, kw_only=True):
    """The text in the prompt that stands for an attachment, and its position in characters."""

    value: str
    start: int
    end: int


class Position(Wire, frozen=True, kw_only=True):
    line: int
    character: int


class Range(Wire, frozen=True, kw_only=True):
    start: Position
    end: Position


class Source(Wire, frozen=True, kw_only=True, tag_field="type"):
    text: SourceText


class FileSource(Source, frozen=True, kw_only=True, tag="file"):
    path: str


class SymbolSource(Source, frozen=True, kw_only=True, tag="symbol"):
    path: str
    range: Range
    name: str
    kind: int


class ResourceSource(Source, frozen=True, kw_only=True, tag="resource"):
    client_name: str
    uri: str


class OtherSource(Source, frozen=True, kw_only=True, tag="$other"):
    """A source of an unknown type."""


AnySource = FileSource | SymbolSource | ResourceSource | OtherSource


# --- parts ---


class Part(Wire, frozen=True, kw_only=True, tag_field="type"):
    """A piece of a message."""

    id: PartID
    session_id: SessionID
    message_id: MessageID


class TextPart(Part, frozen=True, kw_only=True, tag="text"):
    """Text of a person or a model. `synthetic` text was added by weft; `ignored` text is not sent to the model."""

    type: ClassVar[Literal["text"]] = "text"
    text: str
    synthetic: bool = False
    ignored: bool = False
    time: Span | None = None
    metadata: dict[str, Any] | None = None


class ReasoningPart(Part, frozen=True, kw_only=True, tag="reasoning"):
    """Reasoning of the model. `metadata` holds data that the provider expects back, such as signatures."""

    type: ClassVar[Literal["reasoning"]] = "reasoning"
    text: str
    ignored: bool = False
    metadata: dict[str, Any] | None = None
    time: Span


class FilePart(Part, frozen=True, kw_only=True, tag="file"):
    """A file for the model, by URL (`data:`, `file:`, `http:`)."""

    type: ClassVar[Literal["file"]] = "file"
    mime: str
    filename: str | None = None
    url: str
    source: AnySource | None = None


class CallTime(Wire, frozen=True, kw_only=True):
    """When a call ran. `compacted` is the time when its output was removed from the context."""

    start: int
    end: int
    compacted: int | None = None


class ToolState(Wire, frozen=True, kw_only=True, tag_field="status"):
    input: dict[str, Any]


class PendingState(ToolState, frozen=True, kw_only=True, tag="pending"):
    """The model is still writing the call."""

    raw: str


class RunningState(ToolState, frozen=True, kw_only=True, tag="running"):
    """The call is running."""

    title: str | None = None
    metadata: dict[str, Any] | None = None
    time: Span


class CompletedState(ToolState, frozen=True, kw_only=True, tag="completed"):
    """The call succeeded."""

    output: str
    title: str
    metadata: dict[str, Any]
    time: CallTime
    attachments: tuple[FilePart, ...] | None = None


class ErrorState(ToolState, frozen=True, kw_only=True, tag="error"):
    """The call failed, was refused or was interrupted."""

    error: str
    metadata: dict[str, Any] | None = None
    time: CallTime


AnyToolState = PendingState | RunningState | CompletedState | ErrorState
OpenState = PendingState | RunningState


class ToolPart(Part, frozen=True, kw_only=True, tag="tool"):
    """One call of a tool."""

    type: ClassVar[Literal["tool"]] = "tool"
    call_id: str
    tool: str
    state: AnyToolState
    metadata: dict[str, Any] | None = None


class StepStartPart(Part, frozen=True, kw_only=True, tag="step-start"):
    """The model began to answer. `snapshot` is the earlier state of the files, in weft only of those that the step changed."""

    type: ClassVar[Literal["step-start"]] = "step-start"
    snapshot: str | None = None


class WeftStepData(Wire, frozen=True, kw_only=True):
    """The usage of an answer as the provider reported it."""

    usage: dict[str, Any]


class StepFinishPart(Part, frozen=True, kw_only=True, tag="step-finish"):
    """The model ended its answer, with the reason, the tokens and the cost.

    If `priced` is False, `cost` is only the known part; if `counted` is False, so are `tokens`.
    """

    type: ClassVar[Literal["step-finish"]] = "step-finish"
    reason: str
    snapshot: str | None = None
    cost: Decimal
    tokens: Tokens
    priced: bool = True
    counted: bool = True
    weft: WeftStepData | None = None

    def __post_init__(self) -> None:
        check_finite(self.cost)


class WeftPatchData(Wire, frozen=True, kw_only=True):
    """The complete patch, and the tool call that made it, if known."""

    patch: Patch
    call_id: str = ""


class PatchPart(Part, frozen=True, kw_only=True, tag="patch"):
    """Files that differ from snapshot `hash` after a call or a step (absolute paths).

    weft leaves `files` empty and stores the change in `weft`. OpenCode deletes the listed files when it reverts a step whose
    snapshot it does not have, and it never has the snapshots of weft.
    """

    type: ClassVar[Literal["patch"]] = "patch"
    hash: str
    files: tuple[str, ...]
    weft: WeftPatchData | None = None


class AgentPart(Part, frozen=True, kw_only=True, tag="agent"):
    """An agent that is mentioned in a prompt."""

    type: ClassVar[Literal["agent"]] = "agent"
    name: str
    source: SourceText | None = None


class SubtaskPart(Part, frozen=True, kw_only=True, tag="subtask"):
    """Work for a child session."""

    type: ClassVar[Literal["subtask"]] = "subtask"
    prompt: str
    description: str
    agent: str
    model: ModelRef | None = None
    command: str | None = None


class CompactionPart(Part, frozen=True, kw_only=True, tag="compaction"):
    """A request to summarise the history up to here. `auto` if weft decided it; `undone` if the full history is used again."""

    type: ClassVar[Literal["compaction"]] = "compaction"
    auto: bool
    undone: bool = False


class SnapshotPart(Part, frozen=True, kw_only=True, tag="snapshot"):
    """The hash of a tracked tree. Only old versions write it."""

    type: ClassVar[Literal["snapshot"]] = "snapshot"
    snapshot: str


class Moment(Wire, frozen=True, kw_only=True):
    created: int


class RetryPart(Part, frozen=True, kw_only=True, tag="retry"):
    """A failed attempt that was retried."""

    type: ClassVar[Literal["retry"]] = "retry"
    attempt: int
    error: AnyFailure
    time: Moment


class UnknownPart(Part, frozen=True, kw_only=True, tag="$unknown"):
    """A part of an unknown type, kept unchanged."""

    type: ClassVar[Literal["$unknown"]] = "$unknown"


AnyPart = (
    TextPart
    | ReasoningPart
    | FilePart
    | ToolPart
    | StepStartPart
    | StepFinishPart
    | PatchPart
    | AgentPart
    | SubtaskPart
    | CompactionPart
    | SnapshotPart
    | RetryPart
    | UnknownPart
)


def list_patch_files(part: PatchPart) -> tuple[str, ...]:
    """Return the files of a patch, whether weft or OpenCode wrote it."""
    return part.files if part.weft is None else part.weft.patch.files

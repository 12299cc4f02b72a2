"""The twelve parts a message is made of, and the four states of a tool call."""

from decimal import Decimal
from typing import Any

from weft.model.diff import Patch
from weft.model.failure import AnyFailure
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.wire import Wire, always


class Span(Wire, frozen=True, kw_only=True):
    """From when to when (ms); no `end` while it goes on."""

    start: int
    end: int | None = None


class CacheTokens(Wire, frozen=True, kw_only=True):
    read: int = always(0)
    write: int = always(0)


class Tokens(Wire, frozen=True, kw_only=True):
    """What a step used. `input` is what the cache did not hold; `reasoning` is not in `output`."""

    input: int = always(0)
    output: int = always(0)
    reasoning: int = always(0)
    cache: CacheTokens = always(CacheTokens())


class ModelRef(Wire, frozen=True, kw_only=True):
    """A model by name."""

    provider_id: str
    model_id: str


# --- where a piece of a prompt came from ---


class SourceText(Wire, frozen=True, kw_only=True):
    """The token in the prompt's text that stands for something, and where it stands (characters)."""

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
    """A source of a kind we do not know."""


AnySource = FileSource | SymbolSource | ResourceSource | OtherSource


# --- parts ---


class Part(Wire, frozen=True, kw_only=True, tag_field="type"):
    """A piece of a message."""

    id: PartID
    session_id: SessionID
    message_id: MessageID


class TextPart(Part, frozen=True, kw_only=True, tag="text"):
    """Words, from the model or (`synthetic`) put in by us; `ignored` ones are not sent to the model."""

    text: str
    synthetic: bool = False
    ignored: bool = False
    time: Span | None = None
    metadata: dict[str, Any] | None = None


class ReasoningPart(Part, frozen=True, kw_only=True, tag="reasoning"):
    """What the model thought aloud; `metadata` holds what the provider wants back (signatures). See `TextPart`."""

    text: str
    ignored: bool = False
    metadata: dict[str, Any] | None = None
    time: Span


class FilePart(Part, frozen=True, kw_only=True, tag="file"):
    """A file shown to the model, by URL (`data:`, `file:`, `http:`)."""

    mime: str
    filename: str | None = None
    url: str
    source: AnySource | None = None


class CallTime(Wire, frozen=True, kw_only=True):
    """When a call ran; `compacted` is when its output was forgotten."""

    start: int
    end: int
    compacted: int | None = None


class ToolState(Wire, frozen=True, kw_only=True, tag_field="status"):
    input: dict[str, Any]


class PendingState(ToolState, frozen=True, kw_only=True, tag="pending"):
    """The model is still writing the call."""

    raw: str


class RunningState(ToolState, frozen=True, kw_only=True, tag="running"):
    """The call is being carried out."""

    title: str | None = None
    metadata: dict[str, Any] | None = None
    time: Span


class CompletedState(ToolState, frozen=True, kw_only=True, tag="completed"):
    """It was done, and this came of it."""

    output: str
    title: str
    metadata: dict[str, Any]
    time: CallTime
    attachments: tuple[FilePart, ...] | None = None


class ErrorState(ToolState, frozen=True, kw_only=True, tag="error"):
    """It was not done, or not to the end."""

    error: str
    metadata: dict[str, Any] | None = None
    time: CallTime


AnyToolState = PendingState | RunningState | CompletedState | ErrorState
OpenState = PendingState | RunningState


class ToolPart(Part, frozen=True, kw_only=True, tag="tool"):
    """One call of a tool."""

    call_id: str
    tool: str
    state: AnyToolState
    metadata: dict[str, Any] | None = None


class StepStartPart(Part, frozen=True, kw_only=True, tag="step-start"):
    """The model began to answer; the files stood as in `snapshot`: in ours, those that this step changed and that were
    there."""

    snapshot: str | None = None


class StepOwn(Wire, frozen=True, kw_only=True):
    """What an answer used in the provider's own words, as it came."""

    usage: dict[str, Any]


class StepFinishPart(Part, frozen=True, kw_only=True, tag="step-finish"):
    """The model ended its answer: why, what it used, what it cost.

    When not `priced`, `cost` is only what is known of it; when not `counted`, so are `tokens`.
    """

    reason: str
    snapshot: str | None = None
    cost: Decimal
    tokens: Tokens
    priced: bool = True
    counted: bool = True
    weft: StepOwn | None = None


class PatchOwn(Wire, frozen=True, kw_only=True):
    """What was changed, in full, and by which call if that is known."""

    patch: Patch
    call_id: str = ""


class PatchPart(Part, frozen=True, kw_only=True, tag="patch"):
    """Files that differ from snapshot `hash` after a call or a step (absolute paths).

    In ours `files` is empty, and what was changed stands in `weft`: OpenCode deletes the files that are listed here
    when it is to take a step back whose snapshot it does not have, and it never has ours.
    """

    hash: str
    files: tuple[str, ...]
    weft: PatchOwn | None = None


class AgentPart(Part, frozen=True, kw_only=True, tag="agent"):
    """An agent named in a prompt."""

    name: str
    source: SourceText | None = None


class SubtaskPart(Part, frozen=True, kw_only=True, tag="subtask"):
    """Work to be done by a child session."""

    prompt: str
    description: str
    agent: str
    model: ModelRef | None = None
    command: str | None = None


class CompactionPart(Part, frozen=True, kw_only=True, tag="compaction"):
    """Here the history is to be summarised; `auto` when we decided it, `undone` when the whole is shown again."""

    auto: bool
    undone: bool = False


class SnapshotPart(Part, frozen=True, kw_only=True, tag="snapshot"):
    """A tracked tree by hash. Written by old versions."""

    snapshot: str


class Moment(Wire, frozen=True, kw_only=True):
    created: int


class RetryPart(Part, frozen=True, kw_only=True, tag="retry"):
    """An attempt that failed and was made again."""

    attempt: int
    error: AnyFailure
    time: Moment


class UnknownPart(Part, frozen=True, kw_only=True, tag="$unknown"):
    """A part of a type we do not know, kept as it came."""


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


def changed_by(part: PatchPart) -> tuple[str, ...]:
    """The files a patch is about, whoever wrote it."""
    return part.files if part.weft is None else part.weft.patch.files

"""Messages as our page shows them: text as rendered blocks, calls as one line each, everything else on request (pure).

A view is small: it does not have what the page shows collapsed. `render_details` renders that when a part is expanded.
"""

import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final
from urllib.parse import quote

from msgspec.structs import replace

from weft.model.display import (
    describe_failure,
    find_call_error,
    get_called_tool,
    make_call_title,
    strip_tags,
)
from weft.model.ids import MessageID, PartID, SessionID
from weft.model.message import AnyMessage, AssistantMessage, MessageWithParts, UserMessage
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
from weft.model.wire import Wire, encode_pretty
from weft.page.code import DiffStyle, parse_diff, render_code, render_diff
from weft.page.html import Html, clean, escape, join, tag, void
from weft.page.markdown import MarkdownStream, MarkdownTail, render_blocks, render_markdown

MAX_TITLE: Final = 200
MAX_OUTPUT: Final = 200_000
MAX_CACHED: Final = 2000
LONG_INPUT: Final = 500
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
# Types that contain only a picture: an SVG is a document.
PICTURE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_LANGUAGE_BY_ENDING: Final = {
    "py": "python", "js": "javascript", "ts": "typescript", "tsx": "tsx", "rs": "rust", "go": "go", "rb": "ruby",
    "sh": "bash", "c": "c", "h": "c", "cpp": "cpp", "java": "java", "kt": "kotlin", "css": "css", "html": "html",
    "json": "json", "toml": "toml", "yaml": "yaml", "yml": "yaml", "sql": "sql", "md": "markdown", "xml": "xml",
}  # fmt: skip


class PartView(Wire, frozen=True, kw_only=True):
    """A part as the page shows it while it is collapsed.

    Of a text, `blocks` are the blocks that have ended; while the text is being written (`open`), `tail` is the last block. Of a
    call, `title`, `status`, `error` and the times make the line; `child` is the session that it started. A file that is `stored`
    is in the session, not behind a link, so it can be saved; a `picture` can be shown. `note` is a sentence about anything else.
    """

    id: PartID
    type: str
    blocks: tuple[str, ...] = ()
    tail: str = ""
    open: bool = False
    synthetic: bool = False
    title: str = ""
    tool: str = ""
    status: str = ""
    error: str = ""
    note: str = ""
    started: int | None = None
    ended: int | None = None
    child: SessionID | None = None
    additions: int | None = None
    deletions: int | None = None
    mime: str = ""
    filename: str = ""
    stored: bool = False
    picture: bool = False


class MessageView(Wire, frozen=True, kw_only=True):
    """A message as the page shows it. `failure` says in words why an answer failed."""

    info: AnyMessage
    parts: tuple[PartView, ...]
    failure: str = ""


class PartGrowth(Wire, frozen=True, kw_only=True):
    """What a text grew by: `blocks` that follow the first `at` ones, and the last block, which is still being written.

    `tail` replaces the last block, `append` adds to the code in it.
    """

    session_id: SessionID
    message_id: MessageID
    part_id: PartID
    at: int
    blocks: tuple[str, ...] = ()
    tail: str | None = None
    append: str | None = None


class BlockCache:
    """Blocks of texts that have ended, by part and content: each is rendered once, for all who ask for it."""

    def __init__(self, size: int = MAX_CACHED) -> None:
        self._size = size
        self._blocks: OrderedDict[tuple[str, bytes], tuple[Html, ...]] = OrderedDict()

    def render(self, part: PartID, text: str) -> tuple[Html, ...]:
        """Return the blocks of a text."""
        key = part, blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        blocks = self._blocks.get(key)
        if blocks is None:
            blocks = self._blocks[key] = render_blocks(text)
            while len(self._blocks) > self._size:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end(key)
        return blocks


def to_message_view(message: MessageWithParts, cache: BlockCache) -> MessageView:
    """Return the view of a message. Parts of which nothing is shown are left out."""
    parts = (to_part_view(part, cache) for part in message.parts)
    return MessageView(
        info=to_info_view(message.info),
        parts=tuple(part for part in parts if part is not None),
        failure=to_failure(message.info),
    )


def to_info_view(info: AnyMessage) -> AnyMessage:
    """Return a message without the texts of changed files, which are shown on request."""
    if not isinstance(info, UserMessage) or info.summary is None or not info.summary.diffs:
        return info
    diffs = tuple(replace(diff, before="", after="") for diff in info.summary.diffs)
    return replace(info, summary=replace(info.summary, diffs=diffs))


def to_failure(info: AnyMessage) -> str:
    if not isinstance(info, AssistantMessage) or info.error is None:
        return ""
    return clean(describe_failure(info.error))[:MAX_OUTPUT]


def to_part_view(part: AnyPart, cache: BlockCache) -> PartView | None:
    """Return the view of a part, None if nothing of it is shown."""
    match part:
        case TextPart() | ReasoningPart():
            return _to_text_view(part, cache)
        case ToolPart():
            return _to_call_view(part)
        case FilePart():
            return _to_file_view(part)
        case SubtaskPart():
            title = clean(f"{part.agent}: {part.description}")[:MAX_TITLE]
            return PartView(id=part.id, type="subtask", title=title)
        case AgentPart():
            return PartView(id=part.id, type="note", note=clean(f"@{part.name}")[:MAX_TITLE])
        case CompactionPart(undone=undone):
            note = "A compaction here was undone" if undone else "Earlier messages were summarised here"
            return PartView(id=part.id, type="compaction", note=note)
        case RetryPart():
            reason = clean(describe_failure(part.error))[:MAX_TITLE]
            note = f"Attempt {part.attempt} failed and was repeated: {reason}"
            return PartView(id=part.id, type="retry", note=note)
        case StepStartPart() | StepFinishPart() | PatchPart() | SnapshotPart() | UnknownPart():
            return None


def is_open(part: TextPart | ReasoningPart) -> bool:
    """Return True if a text is still being written."""
    return part.time is not None and part.time.end is None


def _to_text_view(part: TextPart | ReasoningPart, cache: BlockCache) -> PartView | None:
    is_reasoning = isinstance(part, ReasoningPart)
    if not part.text.strip() and not is_open(part):
        return None
    span = part.time
    view = PartView(
        id=part.id,
        type="reasoning" if is_reasoning else "text",
        synthetic=isinstance(part, TextPart) and part.synthetic,
        started=span.start if span else None,
        ended=span.end if span else None,
    )
    if is_open(part):
        stream = MarkdownStream(part.text)
        blocks, tail = stream.settle(), stream.tail().html
        return replace(view, open=True, blocks=tuple(blocks), tail=tail or "")
    # Reasoning is collapsed at first: its blocks are sent when it is expanded.
    if is_reasoning:
        return replace(view, title=_first_line(part.text))
    return replace(view, blocks=cache.render(part.id, part.text))


def _first_line(text: str) -> str:
    return clean(text.strip().partition("\n")[0].strip("*# "))[:MAX_TITLE]


def _to_call_view(part: ToolPart) -> PartView:
    state = part.state
    error = find_call_error(part)
    metadata = _get_metadata(part)
    child = metadata.get("sessionId")
    title = getattr(state, "title", None) or make_call_title(state.input)
    diff = metadata.get("filediff")
    changed = diff if isinstance(diff, dict) else {}
    started, ended = _get_times(part)
    return PartView(
        id=part.id,
        type="tool",
        tool=clean(get_called_tool(part))[:MAX_TITLE],
        title=clean(title)[:MAX_TITLE],
        status="error" if error is not None else _get_status(part),
        error="" if error is None else _first_line(error),
        started=started,
        ended=ended,
        child=SessionID(child) if isinstance(child, str) else None,
        additions=_to_count(changed.get("additions")),
        deletions=_to_count(changed.get("deletions")),
    )


def _get_metadata(part: ToolPart) -> Mapping[str, Any]:
    return getattr(part.state, "metadata", None) or {}


def _to_count(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _get_status(part: ToolPart) -> str:
    match part.state:
        case PendingState():
            return "pending"
        case RunningState():
            return "running"
        case CompletedState():
            return "completed"
        case ErrorState():
            return "error"


def _get_times(part: ToolPart) -> tuple[int | None, int | None]:
    match part.state:
        case PendingState():
            return None, None
        case RunningState(time=span):
            return span.start, span.end
        case CompletedState(time=time) | ErrorState(time=time):
            return time.start, time.end


def _to_file_view(part: FilePart) -> PartView:
    mime = part.mime.partition(";")[0].strip().lower()
    return PartView(
        id=part.id,
        type="file",
        mime=clean(part.mime)[:MAX_TITLE],
        filename=clean(part.filename or "a file")[:MAX_TITLE],
        stored=part.url.startswith("data:"),
        picture=mime in PICTURE_TYPES and part.url.startswith("data:"),
    )


# --- what is shown of a part when it is expanded ---


def render_details(part: AnyPart, cache: BlockCache, style: DiffStyle = "unified") -> Html:
    """Render everything about a part that its collapsed view leaves out."""
    match part:
        case ToolPart():
            return join(_render_call(part, style))
        case TextPart() | ReasoningPart():
            return join(cache.render(part.id, part.text))
        case SubtaskPart():
            return render_markdown(part.prompt)
        case _:
            return render_code(encode_pretty(part).decode("utf-8", "replace")[:MAX_OUTPUT], "json")


def _render_call(part: ToolPart, style: DiffStyle) -> Iterator[Html]:
    state, metadata = part.state, _get_metadata(part)
    input = dict(state.input)
    command = input.pop("command", None) if part.tool == "bash" else None
    if isinstance(command, str):
        yield _label("Command")
        yield render_code(command, "bash")
    diff = metadata.get("diff")
    if isinstance(diff, str) and diff:
        yield _label("Change")
        yield render_diff(parse_diff(diff), style)
        for name in ("content", "oldString", "newString", "patchText", "edits"):
            input.pop(name, None)
    if input:
        yield _label("Input")
        yield render_input(input)
    error = find_call_error(part)
    if error is not None:
        yield _label("Error")
        yield tag("pre", escape(_cut(error)), class_="output failed", tabindex="0")
    elif isinstance(state, CompletedState) and state.output:
        yield _label("Output")
        yield _render_output(part, state)
    elif isinstance(state, RunningState) and isinstance(metadata.get("output"), str):
        yield _label("Output so far")
        yield tag("pre", escape(_cut(metadata["output"])), class_="output", tabindex="0")
    if isinstance(state, CompletedState):
        yield from (_render_attachment(part, file) for file in state.attachments or ())


def _render_attachment(call: ToolPart, file: FilePart) -> Html:
    """Render a file that a call returned: a picture is shown, any other file can be saved."""
    view = _to_file_view(file)
    ids = (quote(id, safe="") for id in (call.session_id, call.message_id, file.id))
    address = "/weft/session/{}/message/{}/part/{}/file".format(*ids)
    if not view.picture:
        name = escape(view.filename)
        saved = tag("a", name, href=address, download=view.filename) if view.stored else name
        return tag("p", saved, class_="file")
    picture = void("img", src=address, alt=view.filename, loading="lazy")
    return tag("figure", picture, tag("figcaption", escape(view.filename), class_="about"), class_="picture")


def _label(words: str) -> Html:
    return tag("p", escape(words), class_="label")


def render_input(input: Mapping[str, Any]) -> Html:
    """Render the arguments of a call as a list of names and values."""
    rows: list[Html] = []
    for name, value in input.items():
        text = value if isinstance(value, str) else encode_pretty(value).decode("utf-8", "replace")
        # A long text scrolls, so the keyboard must reach it.
        attributes = {"class_": "long", "tabindex": "0"} if len(text) > LONG_INPUT else {}
        rows += [tag("dt", escape(str(name))), tag("dd", escape(_cut(text)), **attributes)]
    return tag("dl", *rows, class_="input")


def _render_output(part: ToolPart, state: CompletedState) -> Html:
    output = _cut(strip_tags(part.tool, state.output))
    if part.tool in ("task", "webfetch"):
        return tag("div", render_markdown(output), class_="prose")
    path = state.input.get("filePath")
    ending = path.rpartition(".")[2].lower() if part.tool == "read" and isinstance(path, str) else ""
    language = _LANGUAGE_BY_ENDING.get(ending, "")
    if language:
        return render_code(output, language)
    return tag("pre", escape(strip_ansi(output)), class_="output", tabindex="0")


def strip_ansi(text: str) -> str:
    """Remove the escape sequences by which programs colour their output. Other control characters stay visible."""
    return _COLOUR.sub("", text)


def _cut(text: str) -> str:
    return (
        text
        if len(text) <= MAX_OUTPUT
        else f"{text[:MAX_OUTPUT]}\n… {len(text) - MAX_OUTPUT:,} characters more"
    )


# --- parts that grow ---


class GrowingView:
    """The blocks of a text that is being written, and the text that was added since the page was last updated."""

    def __init__(self, part: TextPart | ReasoningPart) -> None:
        self.part = part
        self._length = len(part.text)
        self._stream = MarkdownStream(part.text)
        self._stream.settle()

    def grow(self, delta: str, offset: int) -> None:
        """Add text at an offset. Text that is known already is left out."""
        overlap = self._length - offset
        text = delta[overlap:] if overlap >= 0 else ""
        self._stream.feed(text)
        self._length += len(text)

    def take(self) -> PartGrowth:
        """Return what was added since the last call."""
        at = self._stream.settled
        blocks = tuple(self._stream.settle())
        tail: MarkdownTail = self._stream.tail()
        return PartGrowth(
            session_id=self.part.session_id,
            message_id=self.part.message_id,
            part_id=self.part.id,
            at=at,
            blocks=blocks,
            tail=tail.html,
            append=tail.append,
        )

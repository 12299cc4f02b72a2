"""The parts of a message as markup, one function a kind."""

import re
from collections.abc import Iterator
from typing import Final

from weft.model.part import (
    AgentPart,
    AnyPart,
    AnyToolState,
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
from weft.model.readable import fault_of, name_of, readable
from weft.model.wire import encode_pretty
from weft.page.markup import NOTHING, Html, join, tag, text, void
from weft.page.prose import prose

LONGEST: Final = 64 * 1024
LARGEST_PICTURE: Final = 4 * 1024 * 1024
# Kinds that are nothing but pictures: an SVG is a document.
_PICTURE: Final = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}")


def part(shown: AnyPart) -> Html:
    match shown:
        case TextPart():
            return prose(cut(shown.text)) if shown.text.strip() and not shown.synthetic else NOTHING
        case ReasoningPart():
            return _folded(text("thought"), prose(cut(shown.text))) if shown.text.strip() else NOTHING
        case FilePart():
            return _file(shown)
        case ToolPart():
            return _call(shown)
        case SubtaskPart():
            named = text(f"task for {shown.agent}: {shown.description}")
            return _folded(named, prose(cut(shown.prompt)))
        case AgentPart():
            return _about(f"@{shown.name}")
        case CompactionPart():
            return _about("the conversation so far was summed up here")
        case RetryPart():
            return _about(f"attempt {shown.attempt} failed, and was made again")
        case StepStartPart() | StepFinishPart() | PatchPart() | SnapshotPart() | UnknownPart():
            return NOTHING


def cut(said: str) -> str:
    """The beginning of what is very long, and that it is."""
    return said if len(said) <= LONGEST else f"{said[:LONGEST]}\n… {len(said) - LONGEST} characters more"


def _about(said: str) -> Html:
    return tag("p", text(said), class_="about")


def _folded(head: Html, *inner: Html) -> Html:
    return tag("details", tag("summary", head), *inner)


def _file(file: FilePart) -> Html:
    named = tag("p", text(f"{file.filename or 'a file'} ({file.mime})"), class_="about")
    if len(file.url) > LARGEST_PICTURE or _PICTURE.fullmatch(file.url) is None:
        return named
    return join((named, tag("p", void("img", src=file.url, alt=file.filename or "a picture"))))


def _call(call: ToolPart) -> Html:
    state = call.state
    title = getattr(state, "title", None) or ""
    failed = fault_of(call) is not None
    said = (name_of(call), "" if failed else title, "(failed)" if failed else _fate(state))
    head = tag("span", text(" ".join(filter(None, said))), class_="failed" if failed else "call")
    return _folded(head, *_told(call))


def _fate(state: AnyToolState) -> str:
    match state:
        case PendingState() | RunningState():
            return "(under way)"
        case CompletedState() | ErrorState():
            return ""


def _told(call: ToolPart) -> Iterator[Html]:
    state = call.state
    if state.input:
        yield tag("pre", text(cut(encode_pretty(state.input).decode("utf-8", "replace"))))
    match state:
        case CompletedState():
            if state.output:
                yield tag("pre", text(cut(readable(call.tool, state.output))))
            yield from (_file(file) for file in state.attachments or ())
        case ErrorState():
            yield tag("pre", text(cut(readable(call.tool, state.error))))
        case PendingState() | RunningState():
            pass

"""Find again what a compaction cut off (pure). Nothing stored is changed by a cut, so all of it can be found."""

import re
from collections.abc import Iterator, Sequence

from weft.model.finding import Recalled
from weft.model.message import MessageWithParts, UserMessage
from weft.model.part import AnyPart, CompletedState, ErrorState, TextPart, ToolPart
from weft.window.history import since_compaction

AROUND = 300


def cut_off(history: Sequence[MessageWithParts]) -> Sequence[MessageWithParts]:
    """What the model no longer sees; empty when nothing was cut."""
    return history[: len(history) - len(since_compaction(history))]


def recall(history: Sequence[MessageWithParts], words: str, *, limit: int) -> list[Recalled]:
    """The places in what was cut off that have every one of the words, the newest first."""
    wanted = [re.compile(re.escape(word), re.IGNORECASE) for word in words.split()]
    found: list[Recalled] = []
    for message in reversed(cut_off(history)):
        for by, text in _texts(message):
            places = [pattern.search(text) for pattern in wanted]
            first = min((place.start() for place in places if place), default=0)
            if all(places):
                found.append(Recalled(message_id=message.info.id, by=by, excerpt=excerpt(text, first)))
            if len(found) == limit:
                return found
    return found


def excerpt(text: str, at: int) -> str:
    start, end = max(0, at - AROUND), at + AROUND
    return ("…" if start else "") + text[start:end].strip() + ("…" if end < len(text) else "")


def _texts(message: MessageWithParts) -> Iterator[tuple[str, str]]:
    role = "user" if isinstance(message.info, UserMessage) else "assistant"
    for part in message.parts:
        if found := _text_of(part, role):
            yield found


def _text_of(part: AnyPart, role: str) -> tuple[str, str] | None:
    match part:
        case TextPart(text=text, ignored=False) if text:
            return role, text
        case ToolPart(tool=tool, state=CompletedState() as state):
            return tool, f"{state.input}\n{state.output}"
        case ToolPart(tool=tool, state=ErrorState() as state):
            return tool, f"{state.input}\n{state.error}"
        case _:
            return None

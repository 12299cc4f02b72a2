"""A message as the index keeps it (pure): its words, what it used, and the tools it called."""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from msgspec import Struct

from weft.model.ids import MessageID
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import (
    AnyPart,
    CompletedState,
    ErrorState,
    FilePart,
    ReasoningPart,
    SubtaskPart,
    TextPart,
    ToolPart,
)
from weft.model.spent import Spent

LONGEST = 1_000_000
NANO = 10**9
BEFORE, AFTER = "\x02", "\x03"  # around what is found
_UNSPEAKABLE = re.compile("[\x00\x02\x03\ud800-\udfff]")  # what SQLite stops at, our marks, half characters
MAX_NANO = 2**62


class Entry(Struct, frozen=True, kw_only=True):
    """`said` is what person and model said, `done` what was thought, read and done."""

    id: MessageID
    created: int
    open: bool
    provider: str
    model: str
    spent: Spent
    said: str
    done: str
    calls: dict[str, tuple[int, int]]


def to_entry(message: MessageWithParts) -> Entry:
    info = message.info
    answer = info if isinstance(info, AssistantMessage) else None
    said: list[str] = []
    done: list[str] = []
    for part in message.parts:
        (said if _is_said(part) else done).extend(_words(part))
    return Entry(
        id=info.id,
        created=info.time.created,
        open=answer is not None and answer.time.completed is None,
        provider=answer.provider_id if answer else "",
        model=answer.model_id if answer else "",
        spent=_spent(answer) if answer else Spent(),
        said=clean("\n".join(said)),
        done=clean("\n".join(done)),
        calls=_calls(message.parts),
    )


def clean(text: str) -> str:
    return _UNSPEAKABLE.sub(" ", text[:LONGEST])


def to_whole_numbers(dollars: Decimal) -> tuple[int, int]:
    """Billionths of a dollar, and billionths of those; what is smaller still is rounded."""
    atto = int((dollars * NANO * NANO).to_integral_value())
    nano, rest = divmod(atto, NANO)
    return max(-MAX_NANO, min(nano, MAX_NANO)), rest


def to_dollars(nano: int, atto: int) -> Decimal:
    return (Decimal(nano) + Decimal(atto) / NANO) / NANO


def _spent(answer: AssistantMessage) -> Spent:
    tokens = answer.tokens
    return Spent(
        cost=answer.cost,
        input=tokens.input,
        output=tokens.output,
        reasoning=tokens.reasoning,
        cache_read=tokens.cache.read,
        cache_write=tokens.cache.write,
        priced=answer.priced,
        counted=answer.counted,
    )


def _is_said(part: AnyPart) -> bool:
    return isinstance(part, SubtaskPart) or (isinstance(part, TextPart) and not part.synthetic)


def _words(part: AnyPart) -> Iterator[str]:
    match part:
        case TextPart(text=text) | ReasoningPart(text=text):
            yield text
        case FilePart(filename=name):
            yield name or ""
        case SubtaskPart(prompt=prompt, description=description):
            yield from (description, prompt)
        case ToolPart(tool=tool, state=state):
            yield tool
            yield from _strings(state.input)
            if isinstance(state, CompletedState):
                yield from (state.title, state.output)
            if isinstance(state, ErrorState):
                yield state.error
        case _:
            pass


def _strings(value: Any) -> Iterator[str]:
    """Every string in the input of a call, however deep."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            waiting.extend(reversed(each.values()))
        elif isinstance(each, list | tuple):
            waiting.extend(reversed(each))


def _calls(parts: tuple[AnyPart, ...]) -> dict[str, tuple[int, int]]:
    """How often each tool was called, and how often in vain."""
    found: dict[str, tuple[int, int]] = {}
    for part in parts:
        if isinstance(part, ToolPart):
            name = clean(part.tool)
            calls, failed = found.get(name, (0, 0))
            found[name] = calls + 1, failed + isinstance(part.state, ErrorState)
    return found

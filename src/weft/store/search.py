"""What the search of every store shares: the text of messages, typed words, and the marks of a match (pure)."""

import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, NamedTuple

from msgspec import Struct

from weft.errors import IndexFailedError
from weft.model.ids import MessageID, SessionID
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
from weft.model.search import Hit
from weft.model.session import SessionInfo, is_archived
from weft.model.spending import Spent, to_spent

# Called with how many sessions were indexed, and how many there are to index.
IndexProgress = Callable[[int, int], None]
IndexWarning = Callable[[IndexFailedError], None]

MAX_TEXT_LENGTH = 1_000_000
NANO = 10**9
# They surround a match in a snippet.
MATCH_START, MATCH_END = "\x02", "\x03"
# SQLite stops at NUL, the next two surround matches, and lone surrogates cannot be encoded.
_FORBIDDEN_CHARACTERS = (
    "[\x00\x02\x03\ud800-\udfff]"  # compiled when it is first used, which takes a millisecond
)
# A database adds up thousands of these without an overflow.
MAX_NANO = 2**50


class IndexEntry(Struct, frozen=True, kw_only=True):
    """A message in the index. `said` is the text of the conversation, `done` that of reasoning and tool calls."""

    id: MessageID
    created: int
    open: bool
    provider: str
    model: str
    spent: Spent
    said: str
    done: str
    calls: dict[str, tuple[int, int]]


def to_entry(message: MessageWithParts) -> IndexEntry:
    """Return what the index stores of a message."""
    info = message.info
    answer = info if isinstance(info, AssistantMessage) else None
    said: list[str] = []
    done: list[str] = []
    for part in message.parts:
        (said if _is_conversation(part) else done).extend(_list_texts(part))
    return IndexEntry(
        id=info.id,
        created=info.time.created,
        open=answer is not None and answer.time.completed is None,
        provider=answer.provider_id if answer else "",
        model=answer.model_id if answer else "",
        spent=to_spent(answer) if answer else Spent(),
        said=clean_text("\n".join(said)),
        done=clean_text("\n".join(done)),
        calls=_count_calls(message.parts),
    )


def clean_text(text: str) -> str:
    """Return a text that SQLite can store: bounded, and without forbidden characters."""
    return re.sub(_FORBIDDEN_CHARACTERS, " ", text[:MAX_TEXT_LENGTH])


def to_nano_and_atto(dollars: Decimal) -> tuple[int, int]:
    """Return billionths of a dollar, and billionths of those for the rest, rounded."""
    atto = int((dollars * NANO * NANO).to_integral_value())
    nano, rest = divmod(atto, NANO)
    return max(-MAX_NANO, min(nano, MAX_NANO)), rest


def to_dollars(nano: int, atto: int) -> Decimal:
    return (Decimal(nano) + Decimal(atto) / NANO) / NANO


def _is_conversation(part: AnyPart) -> bool:
    return isinstance(part, SubtaskPart) or (isinstance(part, TextPart) and not part.synthetic)


def _list_texts(part: AnyPart) -> Iterator[str]:
    match part:
        case TextPart(text=text) | ReasoningPart(text=text):
            yield text
        case FilePart(filename=name):
            yield name or ""
        case SubtaskPart(prompt=prompt, description=description):
            yield from (description, prompt)
        case ToolPart(tool=tool, state=state):
            yield tool
            yield from _list_strings(state.input)
            if isinstance(state, CompletedState):
                yield from (state.title, state.output)
            if isinstance(state, ErrorState):
                yield state.error
        case _:
            pass


def _list_strings(value: Any) -> Iterator[str]:
    """Yield every string in the input of a call, at any depth."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            pending.extend(reversed(item.values()))
        elif isinstance(item, list | tuple):
            pending.extend(reversed(item))


def _count_calls(parts: tuple[AnyPart, ...]) -> dict[str, tuple[int, int]]:
    """Count the calls of each tool, and how many of them failed."""
    counts: dict[str, tuple[int, int]] = {}
    for part in parts:
        if isinstance(part, ToolPart):
            name = clean_text(part.tool)
            calls, failed = counts.get(name, (0, 0))
            counts[name] = calls + 1, failed + isinstance(part.state, ErrorState)
    return counts


MAX_QUERY_LENGTH = 4_000
MAX_WORDS = 32
_QUERY_PIECE = r'"([^"]*)"|(\S+)'


class SearchTerm(NamedTuple):
    """Text that must occur: literally if it was quoted, else as a word or the beginning of a word."""

    text: str
    quoted: bool


def parse_words(words: str) -> list[SearchTerm]:
    """Split typed words into terms. Text in double quotes is one term. A piece without a letter or digit is left out."""
    terms = []
    for phrase, word in re.findall(_QUERY_PIECE, clean_text(words[:MAX_QUERY_LENGTH])):
        text = phrase or word.replace('"', " ")
        if any(char.isalnum() for char in text):
            terms.append(SearchTerm(text, bool(phrase)))
    return terms[:MAX_WORDS]


def to_match_query(words: str) -> str:
    """Convert typed words to an FTS5 query. Return "" if there is no word."""
    return " ".join(f'"{text}"' if quoted else f'"{text}"*' for text, quoted in parse_words(words))


def to_hit(session: SessionInfo, message: MessageID | None, created: int | None, marked: str) -> Hit:
    """Return the hit for a message, or for the title without one. `marked` is the snippet with its marks."""
    snippet, marks = _extract_marks(marked)
    return Hit(
        session_id=SessionID(session.id),
        project_id=session.project_id,
        message_id=message,
        title=session.title,
        updated=session.time.updated,
        archived=is_archived(session),
        at=session.time.created if created is None else created,
        snippet=snippet,
        marks=marks,
    )


def _extract_marks(marked: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Return the text without marks, and the ranges that were marked."""
    text, marks = "", []
    for piece in marked.split(MATCH_START):
        match, mark, rest = piece.partition(MATCH_END)
        if mark:
            marks.append((len(text), len(text) + len(match)))
        text += match + rest
    return text, tuple(marks)

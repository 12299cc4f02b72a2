"""Make a conversation take less room, and find again what was cut off (pure)."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from msgspec.structs import replace

from weft.context.history import CLEARED, since_compaction, without_media
from weft.context.tokens import estimate, weigh
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import AnyPart, CompletedState, ErrorState, PatchPart, TextPart, ToolPart, changed_by
from weft.model.search import Recalled
from weft.model.session import Todo
from weft.provider.contract import ModelMessage, TextContent, ToolTurn, UserTurn

LONGEST_REQUEST = 8_000
MOST_FILES = 50
EDITING = frozenset({"edit", "write", "multiedit", "patch", "apply_patch"})
DONE = frozenset({"completed", "cancelled"})


def carried(history: Sequence[MessageWithParts], todos: Iterable[Todo]) -> str:
    """The goal, the last request, what is still to be done, and which files were changed.

    `history` is all there ever was: the goal stood at its beginning, whatever has been summed up since.
    """
    requests = list(list_requests(history))
    sections = [
        ("The goal, as it was first put:", requests[:1] if len(requests) > 1 else []),
        ("The last request, word for word:", requests[-1:]),
        (
            "Still to be done:",
            [f"- [{todo.status}] {todo.content}" for todo in todos if todo.status not in DONE],
        ),
        ("Files changed so far:", [f"- {file}" for file in changed_files(history)[-MOST_FILES:]]),
    ]
    return "\n\n".join("\n".join((head, *lines)) for head, lines in sections if any(lines))


def list_requests(history: Iterable[MessageWithParts]) -> Iterator[str]:
    """What the person asked for, in their own words."""
    for message in history:
        if isinstance(message.info, UserMessage):
            words = "\n".join(
                part.text
                for part in message.parts
                if isinstance(part, TextPart) and not part.synthetic and not part.ignored
            ).strip()
            if words:
                yield words if len(words) <= LONGEST_REQUEST else words[:LONGEST_REQUEST] + " […]"


def changed_files(history: Iterable[MessageWithParts]) -> list[str]:
    """In the order they were last changed."""
    found: dict[str, None] = {}
    for message in history:
        if isinstance(message.info, AssistantMessage):
            for part in message.parts:
                for file in _changed_by(part):
                    found.pop(file, None)
                    found[file] = None
    return list(found)


def _changed_by(part: object) -> Sequence[str]:
    match part:
        case PatchPart():
            return changed_by(part)
        case ToolPart(tool=tool, state=CompletedState(input=input)) if tool in EDITING:
            path = input.get("filePath")
            return [path] if isinstance(path, str) else []
        case _:
            return []


# An estimate may be off: a piece that just fits by it may not fit.
SAFE_SHARE: Final = 0.7
NEWEST_RESULTS: Final = 2
LITTLE: Final = 0.1
SHORT: Final = 2_000


def leaner(turns: Sequence[ModelMessage]) -> Iterator[tuple[ModelMessage, ...]]:
    """The same conversation with less and less in it; what would be no smaller is passed over."""
    before = tuple(turns)
    for smaller in (without_media, without_old_results):
        made = smaller(before)
        if made != before:
            yield made
        before = made


def without_old_results(turns: Sequence[ModelMessage]) -> tuple[ModelMessage, ...]:
    """Only the newest results are shown; of the others, that there were some."""
    results = [number for number, turn in enumerate(turns) if isinstance(turn, ToolTurn)]
    old = set(results[:-NEWEST_RESULTS])
    return tuple(_cleared(turn) if number in old else turn for number, turn in enumerate(turns))


def _cleared(turn: ModelMessage) -> ModelMessage:
    if not isinstance(turn, ToolTurn):
        return turn
    return ToolTurn(content=tuple(replace(each, output=CLEARED, files=()) for each in turn.content))


def shortened(turns: Sequence[ModelMessage]) -> tuple[ModelMessage, ...]:
    """Of everything only the beginning: the last resort for what fits in no other way."""
    return tuple(_short(turn) for turn in turns)


def _short(turn: ModelMessage) -> ModelMessage:
    match turn:
        case ToolTurn(content=results):
            return ToolTurn(
                content=tuple(replace(each, output=cut(each.output), files=()) for each in results)
            )
        case UserTurn(content=content):
            return UserTurn(
                content=tuple(
                    TextContent(text=cut(each.text)) if isinstance(each, TextContent) else each
                    for each in content
                )
            )
        case _:
            return turn


def cut(text: str) -> str:
    return text if len(text) <= SHORT else f"{text[:SHORT]} […]"


def pieces(window: Sequence[MessageWithParts], most: int | None) -> list[Sequence[MessageWithParts]]:
    """The history in pieces of about so many tokens, each beginning with a prompt where that can be. One, if it fits."""
    if most is None:
        return [window]
    limit = int(most * SAFE_SHARE)
    made: list[list[MessageWithParts]] = []
    size = 0
    for unit in _units(window, limit):
        heavy = sum(map(weigh, unit))
        # Too little to be worth a question of its own goes along with what follows.
        if not made or (size + heavy > limit and size > limit * LITTLE):
            made.append([])
            size = 0
        made[-1].extend(unit)
        size += heavy
    return list(made) or [window]


def _units(window: Sequence[MessageWithParts], limit: int) -> Iterator[Sequence[MessageWithParts]]:
    """What is not torn apart: a prompt with all its answers, or each message of one that is too long for itself."""
    prompts = [number for number, message in enumerate(window) if isinstance(message.info, UserMessage)]
    for start, end in pairwise([0, *(number for number in prompts if number), len(window)]):
        turn = window[start:end]
        if sum(map(weigh, turn)) > limit:
            yield from ([message] for message in turn)
        elif turn:
            yield turn


KEPT_TURNS = 2
PROTECTED_TOKENS = 40_000
WORTHWHILE_TOKENS = 20_000
PROTECTED_TOOLS = frozenset({"skill"})


def to_forget(history: Sequence[MessageWithParts]) -> list[ToolPart]:
    """Outputs beyond the newest forty thousand tokens of them, none of the last two turns, if it is worth the bother."""
    seen = total = 0
    found: list[tuple[ToolPart, int]] = []
    for message in reversed(history):
        if isinstance(message.info, UserMessage):
            seen += 1
        if seen < KEPT_TURNS:
            continue
        if isinstance(message.info, AssistantMessage) and message.info.summary:
            break
        for part in reversed(message.parts):
            if not isinstance(part, ToolPart) or not isinstance(part.state, CompletedState):
                continue
            if part.tool in PROTECTED_TOOLS:
                continue
            if part.state.time.compacted is not None:
                return _worthwhile(found)
            size = estimate(part.state.output)
            total += size
            if total > PROTECTED_TOKENS:
                found.append((part, size))
    return _worthwhile(found)


def _worthwhile(found: list[tuple[ToolPart, int]]) -> list[ToolPart]:
    worth = sum(size for _, size in found) > WORTHWHILE_TOKENS
    return [part for part, _ in found] if worth else []


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

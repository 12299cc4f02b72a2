"""Make a conversation smaller, and search what was cut off (pure)."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from msgspec.structs import replace

from weft.context.history import CLEARED, since_compaction, without_media
from weft.context.tokens import estimate, estimate_message
from weft.model.message import AssistantMessage, MessageWithParts, UserMessage
from weft.model.part import (
    AnyPart,
    CompletedState,
    ErrorState,
    PatchPart,
    TextPart,
    ToolPart,
    list_patch_files,
)
from weft.model.search import RecallMatch
from weft.model.session import Todo
from weft.provider.contract import ModelMessage, TextContent, ToolTurn, UserTurn

LONGEST_REQUEST = 8_000
MOST_FILES = 50
EDITING = frozenset({"edit", "write", "multiedit", "patch", "apply_patch"})
DONE = frozenset({"completed", "cancelled"})


def format_carryover(history: Sequence[MessageWithParts], todos: Iterable[Todo]) -> str:
    """Return what a summary must not lose: the goal, the last request, open todos and changed files.

    `history` is the full history, since the goal is at its beginning, before any compaction.
    """
    requests = list(list_requests(history))
    sections = [
        ("The goal, as it was first put:", requests[:1] if len(requests) > 1 else []),
        ("The last request, word for word:", requests[-1:]),
        (
            "Still to be done:",
            [f"- [{todo.status}] {todo.content}" for todo in todos if todo.status not in DONE],
        ),
        ("Files changed so far:", [f"- {file}" for file in list_changed_files(history)[-MOST_FILES:]]),
    ]
    return "\n\n".join("\n".join((head, *lines)) for head, lines in sections if any(lines))


def list_requests(history: Iterable[MessageWithParts]) -> Iterator[str]:
    """Yield the text of each prompt that a person wrote."""
    for message in history:
        if isinstance(message.info, UserMessage):
            text = "\n".join(
                part.text
                for part in message.parts
                if isinstance(part, TextPart) and not part.synthetic and not part.ignored
            ).strip()
            if text:
                yield text if len(text) <= LONGEST_REQUEST else text[:LONGEST_REQUEST] + " […]"


def list_changed_files(history: Iterable[MessageWithParts]) -> list[str]:
    """Return the files that were changed, in the order of their last change."""
    found: dict[str, None] = {}
    for message in history:
        if isinstance(message.info, AssistantMessage):
            for part in message.parts:
                for file in _list_changed(part):
                    found.pop(file, None)
                    found[file] = None
    return list(found)


def _list_changed(part: object) -> Sequence[str]:
    match part:
        case PatchPart():
            return list_patch_files(part)
        case ToolPart(tool=tool, state=CompletedState(input=input)) if tool in EDITING:
            path = input.get("filePath")
            return [path] if isinstance(path, str) else []
        case _:
            return []


# The estimate of tokens may be too low, so a piece uses only this share of the context.
SAFE_SHARE: Final = 0.7
NEWEST_RESULTS: Final = 2
MIN_PIECE_SHARE: Final = 0.1
MAX_SHORTENED_CHARS: Final = 2_000


def list_smaller_versions(turns: Sequence[ModelMessage]) -> Iterator[tuple[ModelMessage, ...]]:
    """Yield ever smaller versions of a conversation. A version that would be no smaller is skipped."""
    before = tuple(turns)
    for smaller in (without_media, without_old_results):
        made = smaller(before)
        if made != before:
            yield made
        before = made


def without_old_results(turns: Sequence[ModelMessage]) -> tuple[ModelMessage, ...]:
    """Return the conversation with a placeholder for all but the newest tool results."""
    results = [number for number, turn in enumerate(turns) if isinstance(turn, ToolTurn)]
    old = set(results[:-NEWEST_RESULTS])
    return tuple(_clear(turn) if number in old else turn for number, turn in enumerate(turns))


def _clear(turn: ModelMessage) -> ModelMessage:
    if not isinstance(turn, ToolTurn):
        return turn
    return ToolTurn(content=tuple(replace(each, output=CLEARED, files=()) for each in turn.content))


def shorten_turns(turns: Sequence[ModelMessage]) -> tuple[ModelMessage, ...]:
    """Return the conversation with every text cut short: the last resort if nothing else fits."""
    return tuple(_shorten(turn) for turn in turns)


def _shorten(turn: ModelMessage) -> ModelMessage:
    match turn:
        case ToolTurn(content=results):
            return ToolTurn(
                content=tuple(replace(each, output=cut_text(each.output), files=()) for each in results)
            )
        case UserTurn(content=content):
            return UserTurn(
                content=tuple(
                    TextContent(text=cut_text(each.text)) if isinstance(each, TextContent) else each
                    for each in content
                )
            )
        case _:
            return turn


def cut_text(text: str) -> str:
    return text if len(text) <= MAX_SHORTENED_CHARS else f"{text[:MAX_SHORTENED_CHARS]} […]"


def split_history(history: Sequence[MessageWithParts], most: int | None) -> list[Sequence[MessageWithParts]]:
    """Split a history into pieces of at most about `most` tokens. A piece begins with a prompt if possible."""
    if most is None:
        return [history]
    limit = int(most * SAFE_SHARE)
    made: list[list[MessageWithParts]] = []
    size = 0
    for unit in _list_units(history, limit):
        weight = sum(map(estimate_message, unit))
        # A piece that would be tiny is merged with the next one.
        if not made or (size + weight > limit and size > limit * MIN_PIECE_SHARE):
            made.append([])
            size = 0
        made[-1].extend(unit)
        size += weight
    return list(made) or [history]


def _list_units(history: Sequence[MessageWithParts], limit: int) -> Iterator[Sequence[MessageWithParts]]:
    """Yield the units that are not split: a prompt with its answers, or single messages if these are too long together."""
    prompts = [number for number, message in enumerate(history) if isinstance(message.info, UserMessage)]
    for start, end in pairwise([0, *(number for number in prompts if number), len(history)]):
        turn = history[start:end]
        if sum(map(estimate_message, turn)) > limit:
            yield from ([message] for message in turn)
        elif turn:
            yield turn


KEPT_TURNS = 2
PROTECTED_TOKENS = 40_000
WORTHWHILE_TOKENS = 20_000
PROTECTED_TOOLS = frozenset({"skill"})


def list_prunable_calls(history: Sequence[MessageWithParts]) -> list[ToolPart]:
    """Return the tool outputs to drop: those older than the newest 40,000 tokens of output and the last two turns.

    Return none if dropping them would save less than 20,000 tokens.
    """
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
                return _keep_if_worthwhile(found)
            size = estimate(part.state.output)
            total += size
            if total > PROTECTED_TOKENS:
                found.append((part, size))
    return _keep_if_worthwhile(found)


def _keep_if_worthwhile(found: list[tuple[ToolPart, int]]) -> list[ToolPart]:
    worth = sum(size for _, size in found) > WORTHWHILE_TOKENS
    return [part for part, _ in found] if worth else []


AROUND = 300


def list_cut_off(history: Sequence[MessageWithParts]) -> Sequence[MessageWithParts]:
    """Return the messages that the model no longer sees; empty if there was no compaction."""
    return history[: len(history) - len(since_compaction(history))]


def recall(history: Sequence[MessageWithParts], words: str, *, limit: int) -> list[RecallMatch]:
    """Search the cut-off history for texts that contain all the words. Return excerpts, the newest first."""
    wanted = [re.compile(re.escape(word), re.IGNORECASE) for word in words.split()]
    found: list[RecallMatch] = []
    for message in reversed(list_cut_off(history)):
        for by, text in _list_texts(message):
            places = [pattern.search(text) for pattern in wanted]
            first = min((place.start() for place in places if place), default=0)
            if all(places):
                found.append(
                    RecallMatch(message_id=message.info.id, by=by, excerpt=make_excerpt(text, first))
                )
            if len(found) == limit:
                return found
    return found


def make_excerpt(text: str, at: int) -> str:
    start, end = max(0, at - AROUND), at + AROUND
    return ("…" if start else "") + text[start:end].strip() + ("…" if end < len(text) else "")


def _list_texts(message: MessageWithParts) -> Iterator[tuple[str, str]]:
    role = "user" if isinstance(message.info, UserMessage) else "assistant"
    for part in message.parts:
        if found := _find_text(part, role):
            yield found


def _find_text(part: AnyPart, role: str) -> tuple[str, str] | None:
    match part:
        case TextPart(text=text, ignored=False) if text:
            return role, text
        case ToolPart(tool=tool, state=CompletedState() as state):
            return tool, f"{state.input}\n{state.output}"
        case ToolPart(tool=tool, state=ErrorState() as state):
            return tool, f"{state.input}\n{state.error}"
        case _:
            return None

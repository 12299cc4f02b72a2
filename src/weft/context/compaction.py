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
from weft.model.permission import EDIT_TOOLS
from weft.model.search import RecallMatch
from weft.model.session import Todo
from weft.provider.contract import ModelMessage, TextContent, ToolModelMessage, UserModelMessage

MAX_REQUEST_CHARS = 8_000
MAX_CHANGED_FILES = 50
CLOSED_STATUSES = frozenset({"completed", "cancelled"})


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
            [f"- [{todo.status}] {todo.content}" for todo in todos if todo.status not in CLOSED_STATUSES],
        ),
        ("Files changed so far:", [f"- {file}" for file in list_changed_files(history)[-MAX_CHANGED_FILES:]]),
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
                yield text if len(text) <= MAX_REQUEST_CHARS else text[:MAX_REQUEST_CHARS] + " […]"


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
        case ToolPart(tool=tool, state=CompletedState(input=input)) if tool in EDIT_TOOLS:
            path = input.get("filePath")
            return [path] if isinstance(path, str) else []
        case _:
            return []


# The estimate of tokens may be too low, so a piece uses only this share of the context.
SAFE_SHARE: Final = 0.7
# A piece below this share of the largest piece is merged with the next one.
MIN_PIECE_SHARE: Final = 0.1
KEPT_RESULTS: Final = 2
MAX_SHORTENED_CHARS: Final = 2_000


def list_smaller_versions(messages: Sequence[ModelMessage]) -> Iterator[tuple[ModelMessage, ...]]:
    """Yield ever smaller versions of a conversation. A version that would be no smaller is skipped."""
    current = tuple(messages)
    for shrink in (without_media, without_old_results):
        smaller = shrink(current)
        if smaller != current:
            yield smaller
        current = smaller


def without_old_results(messages: Sequence[ModelMessage]) -> tuple[ModelMessage, ...]:
    """Return the conversation with a placeholder for all but the newest tool results."""
    results = [index for index, message in enumerate(messages) if isinstance(message, ToolModelMessage)]
    old = set(results[:-KEPT_RESULTS])
    return tuple(
        _clear_results(message) if index in old else message for index, message in enumerate(messages)
    )


def _clear_results(message: ModelMessage) -> ModelMessage:
    if not isinstance(message, ToolModelMessage):
        return message
    return ToolModelMessage(
        content=tuple(replace(result, output=CLEARED, files=()) for result in message.content)
    )


def shorten_messages(messages: Sequence[ModelMessage]) -> tuple[ModelMessage, ...]:
    """Return the conversation with prompts and results of calls cut short: the last resort if nothing else fits."""
    return tuple(_shorten(message) for message in messages)


def _shorten(message: ModelMessage) -> ModelMessage:
    match message:
        case ToolModelMessage(content=results):
            return ToolModelMessage(
                content=tuple(replace(each, output=cut_text(each.output), files=()) for each in results)
            )
        case UserModelMessage(content=content):
            return UserModelMessage(
                content=tuple(
                    TextContent(text=cut_text(each.text)) if isinstance(each, TextContent) else each
                    for each in content
                )
            )
        case _:
            return message


def cut_text(text: str) -> str:
    return text if len(text) <= MAX_SHORTENED_CHARS else f"{text[:MAX_SHORTENED_CHARS]} […]"


def split_history(
    history: Sequence[MessageWithParts], max_tokens: int | None
) -> list[Sequence[MessageWithParts]]:
    """Split a history into pieces of at most about `max_tokens`. A piece begins with a prompt if possible."""
    if max_tokens is None:
        return [history]
    limit = int(max_tokens * SAFE_SHARE)
    pieces: list[list[MessageWithParts]] = []
    size = 0
    for unit in _list_units(history, limit):
        tokens = sum(map(estimate_message, unit))
        if not pieces or (size + tokens > limit and size > limit * MIN_PIECE_SHARE):
            pieces.append([])
            size = 0
        pieces[-1].extend(unit)
        size += tokens
    return list(pieces) or [history]


def _list_units(history: Sequence[MessageWithParts], limit: int) -> Iterator[Sequence[MessageWithParts]]:
    """Yield the units that are not split: a prompt with its answers, or single messages if these are too long together."""
    prompts = [index for index, message in enumerate(history) if isinstance(message.info, UserMessage)]
    for start, end in pairwise([0, *(index for index in prompts if index), len(history)]):
        whole_turn = history[start:end]
        if sum(map(estimate_message, whole_turn)) > limit:
            yield from ([message] for message in whole_turn)
        elif whole_turn:
            yield whole_turn


PROTECTED_TURNS = 2
PROTECTED_TOKENS = 40_000
MIN_SAVED_TOKENS = 20_000
PROTECTED_TOOLS = frozenset({"skill"})


def list_prunable_calls(history: Sequence[MessageWithParts]) -> list[ToolPart]:
    """Return the calls whose outputs to drop: those older than the last `PROTECTED_TURNS` and the newest `PROTECTED_TOKENS` of output.

    Return none if dropping them would save no more than `MIN_SAVED_TOKENS`.
    """
    prompt_count = output_tokens = 0
    found: list[tuple[ToolPart, int]] = []
    for message in reversed(history):
        if isinstance(message.info, UserMessage):
            prompt_count += 1
        if prompt_count < PROTECTED_TURNS:
            continue
        if isinstance(message.info, AssistantMessage) and message.info.summary:
            break
        for part in reversed(message.parts):
            if not isinstance(part, ToolPart) or not isinstance(part.state, CompletedState):
                continue
            if part.tool in PROTECTED_TOOLS:
                continue
            if part.state.time.compacted is not None:
                return _to_worthwhile(found)
            tokens = estimate(part.state.output)
            output_tokens += tokens
            if output_tokens > PROTECTED_TOKENS:
                found.append((part, tokens))
    return _to_worthwhile(found)


def _to_worthwhile(found: list[tuple[ToolPart, int]]) -> list[ToolPart]:
    worth = sum(size for _, size in found) > MIN_SAVED_TOKENS
    return [part for part, _ in found] if worth else []


EXCERPT_RADIUS = 300


def list_cut_off(history: Sequence[MessageWithParts]) -> Sequence[MessageWithParts]:
    """Return the messages that the model no longer sees; empty if there was no compaction."""
    return history[: len(history) - len(since_compaction(history))]


def recall(history: Sequence[MessageWithParts], words: str, *, limit: int) -> list[RecallMatch]:
    """Search the cut-off history for texts that contain all the words. Return excerpts, the newest first."""
    return search_messages(list_cut_off(history), words, limit=limit)


def search_messages(messages: Sequence[MessageWithParts], words: str, *, limit: int) -> list[RecallMatch]:
    """Search messages for texts that contain all the words. Return excerpts, the newest first."""
    patterns = [re.compile(re.escape(word), re.IGNORECASE) for word in words.split()]
    found: list[RecallMatch] = []
    for message in reversed(messages):
        for source, text in _list_texts(message):
            matches = [pattern.search(text) for pattern in patterns]
            first = min((match.start() for match in matches if match), default=0)
            if all(matches):
                found.append(
                    RecallMatch(message_id=message.info.id, by=source, excerpt=make_excerpt(text, first))
                )
            if len(found) == limit:
                return found
    return found


def make_excerpt(text: str, at: int) -> str:
    """Return the text around a position."""
    start, end = max(0, at - EXCERPT_RADIUS), at + EXCERPT_RADIUS
    return ("…" if start else "") + text[start:end].strip() + ("…" if end < len(text) else "")


def _list_texts(message: MessageWithParts) -> Iterator[tuple[str, str]]:
    """Yield who wrote a text (the user, the assistant or a tool), and the text."""
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

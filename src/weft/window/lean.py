"""Requests that take less room: without media, without old results, cut; and a long history in pieces that fit (pure)."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from msgspec.structs import replace

from weft.model.message import MessageWithParts, UserMessage
from weft.provider.contract import ModelMessage, TextContent, ToolTurn, UserTurn
from weft.window.history import CLEARED, without_media
from weft.window.projection import weigh

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

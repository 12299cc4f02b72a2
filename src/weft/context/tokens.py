"""Estimate tokens: how much fits a model, and how much the next request takes (pure)."""

import re
from collections.abc import Iterable, Sequence

from weft.context.history import newest_first
from weft.model.catalog import Model
from weft.model.message import AssistantMessage, MessageWithParts
from weft.model.part import (
    AnyPart,
    CompletedState,
    ErrorState,
    FilePart,
    ReasoningPart,
    TextPart,
    Tokens,
    ToolPart,
)

# A number of tokens, or a share of what is usable.
Threshold = int | float

# Counted on the tokenizers in use today: Latin prose about four characters a token, digits and the marks of JSON and
# code fewer, the scripts of East Asia about one. OpenCode takes four for all of them, and is far off for the rest.
DENSE = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")
MARKS = re.compile(r"[0-9{}\[\]()<>\"'`:;,=+*/\\|&^%$#@!?~_-]")
PER_LETTER = 1 / 4.2
PER_MARK = 1 / 2.2
PER_DENSE = 1.0


def estimate(text: str) -> int:
    """About how many tokens a text is."""
    dense = len(DENSE.findall(text)) if not text.isascii() else 0
    marks = len(MARKS.findall(text))
    letters = len(text) - dense - marks
    return round(letters * PER_LETTER + marks * PER_MARK + dense * PER_DENSE)


def usable(model: Model, output_limit: int) -> int | None:
    """How many tokens a request may hold; None if the model's window is unknown."""
    limit = model.limit
    if limit.context == 0:
        return None
    answer = min(limit.output, output_limit) or output_limit
    return limit.input or limit.context - answer


def room(model: Model, output_limit: int, threshold: Threshold | None = None) -> int | None:
    """How many tokens a request may hold before we sum up: what is usable, or less if a threshold says so."""
    most = usable(model, output_limit)
    if most is None or threshold is None:
        return most
    wanted = threshold if isinstance(threshold, int) else round(most * threshold)
    return min(most, wanted)


def used(tokens: Tokens) -> int:
    """All that an answer took in and gave out: the next request holds it."""
    return tokens.input + tokens.cache.read + tokens.cache.write + tokens.output + tokens.reasoning


IMAGE_TOKENS = 1_600
BYTES_PER_PAGE, PAGE_TOKENS = 50_000, 2_000
LOOK_BACK = 8
ENOUGH_TO_TELL = 200
LEAST_BIAS, MOST_BIAS = 0.5, 4.0


def projected(history: Sequence[MessageWithParts], *, overhead: int = 0) -> int:
    """What of a history is since the last cut, and what comes with it. `overhead` is the estimate of all beside the
    conversation; it counts only where nothing was counted yet."""
    added = 0
    for message in newest_first(history):
        if (tokens := counted(message)) is not None:
            return used(tokens) + round((added + results(message.parts)) * bias(history))
        added += weigh(message)
    return overhead + added


def is_counted(history: Sequence[MessageWithParts]) -> bool:
    """Whether a provider has counted a request since the last cut."""
    return any(counted(message) is not None for message in newest_first(history))


def bias(history: Sequence[MessageWithParts]) -> float:
    """How many tokens came for each that we estimated, in the last few answers; one when there is too little to tell."""
    came = estimated = added = answers = 0
    later: Tokens | None = None
    for message in newest_first(history):
        tokens = counted(message)
        if tokens is None:
            added += weigh(message)
            continue
        added += results(message.parts)
        # A difference that shrank tells of something that was taken out, not of what was put in.
        if later is not None and (grown := taken_in(later) - used(tokens)) > 0:
            came, estimated = came + grown, estimated + added
        later, added, answers = tokens, 0, answers + 1
        if answers > LOOK_BACK:
            break
    return min(max(came / estimated, LEAST_BIAS), MOST_BIAS) if estimated >= ENOUGH_TO_TELL else 1.0


def counted(message: MessageWithParts) -> Tokens | None:
    """What a provider counted for an answer. A summary was asked for with another request than the one to come."""
    info = message.info
    answered = isinstance(info, AssistantMessage) and not info.summary and used(info.tokens) > 0
    return info.tokens if isinstance(info, AssistantMessage) and answered else None


def taken_in(tokens: Tokens) -> int:
    return tokens.input + tokens.cache.read + tokens.cache.write


def weigh(message: MessageWithParts) -> int:
    """An estimate of all that a message brings into a request."""
    if isinstance(message.info, AssistantMessage) and message.info.error is not None:
        return 0
    return results(message.parts) + sum(_said(part) for part in message.parts)


def results(parts: Iterable[AnyPart]) -> int:
    """What the calls of an answer brought: it is not in the answer's own count."""
    total = 0
    for part in parts:
        match part:
            case ToolPart(state=CompletedState(output=output, time=time) as state) if time.compacted is None:
                total += estimate(output) + sum(media(file) for file in state.attachments or ())
            case ToolPart(state=ErrorState(error=error)):
                total += estimate(error)
            case _:
                pass
    return total


def _said(part: AnyPart) -> int:
    match part:
        case TextPart(ignored=False, text=text) | ReasoningPart(ignored=False, text=text):
            return estimate(text)
        case ToolPart(state=state):
            return estimate(str(state.input))
        case FilePart():
            return media(part)
        case _:
            return 0


def media(file: FilePart) -> int:
    if file.mime.startswith("image/"):
        return IMAGE_TOKENS
    if not file.url.startswith("data:") or file.mime.startswith("text/"):
        return 0  # shown as text beside it, or by an address
    return (1 + len(file.url) // BYTES_PER_PAGE) * PAGE_TOKENS

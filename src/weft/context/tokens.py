"""Estimate tokens: how many fit into a model's context, and how many the next request has (pure)."""

import re
from collections.abc import Iterable, Sequence

from weft.context.history import iterate_since_compaction
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
    count_input,
    count_used,
)

# When to compact: at a number of tokens (an int), or at a share of the usable ones (a float).
Threshold = int | float

# Measured with current tokenizers: about four characters per token for Latin text, about two for digits, JSON and code, about
# one for East Asian scripts. OpenCode assumes four for all of them.
# Not compiled yet, because that takes 4 ms and most texts have no such characters.
EAST_ASIAN = r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"
MARKS = b"0123456789{}[]()<>\"'`:;,=+*/\\|&^%$#@!?~_-"
TOKENS_PER_LETTER = 1 / 4.2
TOKENS_PER_MARK = 1 / 2.2
TOKENS_PER_EAST_ASIAN = 1.0


def estimate(text: str) -> int:
    """Return about how many tokens a text has."""
    east_asian = len(re.findall(EAST_ASIAN, text)) if not text.isascii() else 0
    encoded = text.encode(errors="surrogatepass")
    marks = len(encoded) - len(encoded.translate(None, MARKS))  # a tenth of the time that a pattern takes
    letters = len(text) - east_asian - marks
    return round(letters * TOKENS_PER_LETTER + marks * TOKENS_PER_MARK + east_asian * TOKENS_PER_EAST_ASIAN)


def find_usable_tokens(model: Model, output_limit: int) -> int | None:
    """Return how many tokens a request may have; None if the model's context size is unknown."""
    limit = model.limit
    if limit.context == 0:
        return None
    if limit.input:
        return limit.input
    # The rest of the context is for the answer. An output limit of 0 is an unknown one.
    answer = min(limit.output, output_limit) if limit.output else output_limit
    return limit.context - answer


def find_request_limit(model: Model, output_limit: int, threshold: Threshold | None = None) -> int | None:
    """Return how many tokens a request may have before compaction: the usable ones, or fewer with a threshold."""
    usable = find_usable_tokens(model, output_limit)
    if usable is None or threshold is None:
        return usable
    limit = threshold if isinstance(threshold, int) else round(usable * threshold)
    return min(usable, limit)


IMAGE_TOKENS = 1_600
BYTES_PER_PAGE, PAGE_TOKENS = 50_000, 2_000
MAX_BIAS_ANSWERS = 8  # the newest answers, from which the bias of the estimate is computed
MIN_BIAS_TOKENS = 200  # with fewer estimated tokens, the bias would be chance
MIN_BIAS, MAX_BIAS = 0.5, 4.0


def project_tokens(history: Sequence[MessageWithParts], *, overhead: int = 0) -> int:
    """Return the expected tokens of the next request.

    `overhead` is an estimate of everything besides the conversation. It is used only if no provider has counted a request yet.
    """
    added = 0
    for message in iterate_since_compaction(history):
        if (tokens := find_counted_tokens(message)) is not None:
            return count_used(tokens) + round(
                (added + estimate_results(message.parts)) * estimate_bias(history)
            )
        added += estimate_message(message)
    return overhead + added


def is_counted(history: Sequence[MessageWithParts]) -> bool:
    """Return True if a provider has counted a request since the last compaction."""
    return any(find_counted_tokens(message) is not None for message in iterate_since_compaction(history))


def estimate_bias(history: Sequence[MessageWithParts]) -> float:
    """Return the ratio of counted to estimated tokens in the last answers, or 1 if there are too few to tell."""
    counted = estimated = added = answers = 0
    next_tokens: Tokens | None = None
    for message in iterate_since_compaction(history):
        tokens = find_counted_tokens(message)
        if tokens is None:
            added += estimate_message(message)
            continue
        added += estimate_results(message.parts)
        # If the request shrank, something was removed, and the difference says nothing about the estimate.
        if next_tokens is not None and (growth := count_input(next_tokens) - count_used(tokens)) > 0:
            counted, estimated = counted + growth, estimated + added
        next_tokens, added, answers = tokens, 0, answers + 1
        if answers > MAX_BIAS_ANSWERS:
            break
    return min(max(counted / estimated, MIN_BIAS), MAX_BIAS) if estimated >= MIN_BIAS_TOKENS else 1.0


def find_counted_tokens(message: MessageWithParts) -> Tokens | None:
    """Return the tokens that a provider counted for an answer. A summary does not count: its request was of another kind."""
    info = message.info
    if not isinstance(info, AssistantMessage) or info.summary or count_used(info.tokens) == 0:
        return None
    return info.tokens


def estimate_message(message: MessageWithParts) -> int:
    """Estimate the tokens that a message adds to a request."""
    if isinstance(message.info, AssistantMessage) and message.info.error is not None:
        return 0
    return estimate_results(message.parts) + sum(_estimate_part(part) for part in message.parts)


def estimate_results(parts: Iterable[AnyPart]) -> int:
    """Estimate the tokens of the results of an answer's calls, which the answer's own count does not include."""
    total = 0
    for part in parts:
        match part:
            case ToolPart(state=CompletedState(output=output, time=time) as state) if time.compacted is None:
                total += estimate(output) + sum(estimate_media(file) for file in state.attachments or ())
            case ToolPart(state=ErrorState(error=error)):
                total += estimate(error)
            case _:
                pass
    return total


def _estimate_part(part: AnyPart) -> int:
    match part:
        case TextPart(ignored=False, text=text) | ReasoningPart(ignored=False, text=text):
            return estimate(text)
        case ToolPart(state=state):
            return estimate(str(state.input))
        case FilePart():
            return estimate_media(part)
        case _:
            return 0


def estimate_media(file: FilePart) -> int:
    if file.mime.startswith("image/"):
        return IMAGE_TOKENS
    if not file.url.startswith("data:") or file.mime.startswith("text/"):
        return 0  # its text is attached separately, or it is only an address
    return (1 + len(file.url) // BYTES_PER_PAGE) * PAGE_TOKENS

"""Claude's thoughts, over whichever API: how they are kept, how they go back, and how much of them is asked for (pure)."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from weft.provider.contract import Metadata, ModelRequest, ReasoningContent
from weft.provider.normalise import own_metadata

DEFAULT_OUTPUT: Final = 4096
LEAST_BUDGET: Final = 1024


class Kept(Struct, frozen=True, kw_only=True):
    """A thought that may go back: with the signature it came with, or redacted."""

    text: str = ""
    signature: str = ""
    redacted: str = ""


def ending(before: str, text: str) -> str:
    """The spaces at the end of what was thought so far."""
    bare = text.rstrip()
    return text[len(bare) :] if bare else before + text


def to_metadata(key: str, signature: str, tail: str) -> Metadata | None:
    """The store trims the end of a text, and the signature holds for every letter of it: the end is kept beside."""
    if not signature:
        return None
    return {key: {"signature": signature} | ({"tail": tail} if tail else {})}


def find_kept(item: ReasoningContent, key: str) -> Kept | None:
    """Only what Claude signed goes back to Claude; other thoughts it refuses."""
    kept = own_metadata(item.metadata, key)
    signature, redacted, tail = kept.get("signature"), kept.get("redactedData"), kept.get("tail")
    if isinstance(signature, str) and signature:
        return Kept(text=item.text + (tail if isinstance(tail, str) else ""), signature=signature)
    return Kept(redacted=redacted) if isinstance(redacted, str) and redacted else None


def asked_output(request: ModelRequest) -> int:
    return request.parameters.max_output or request.model.limit.output or DEFAULT_OUTPUT


def budgeted(request: ModelRequest, option: Mapping[str, Any]) -> tuple[int | None, int]:
    """How many tokens to think with, and the limit of the answer, in which Claude counts the thinking.

    None where there is no room for the least it can be asked for.
    """
    most, asked = request.model.limit.output, asked_output(request)
    budget = option.get("budgetTokens", option.get("budget_tokens"))
    budget = budget if isinstance(budget, int) else LEAST_BUDGET
    total = min(asked + budget, most) if most else asked + budget
    budget = min(budget, total - 1)
    return (budget, total) if budget >= LEAST_BUDGET else (None, asked)

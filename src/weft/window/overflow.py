"""How much fits: token estimates, and what is usable of a model's window (pure)."""

import re

from weft.model.catalog import Model
from weft.model.part import Tokens

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

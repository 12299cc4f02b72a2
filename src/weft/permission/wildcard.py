"""Wildcards of permission rules: `*` is any run of characters, `?` is one, all else is itself."""

import re
from functools import lru_cache

_PIECES = {"*": ".*", "?": "."}


def matches(text: str, pattern: str) -> bool:
    """Whether the whole text fits. A star crosses slashes and newlines; `ls *` also fits a bare `ls`."""
    return _compiled(pattern).fullmatch(text) is not None


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    head, tail = (pattern[:-2], "(?: .*)?") if pattern.endswith(" *") else (pattern, "")
    # Neighbouring stars mean what one means, and would make a failing match explode.
    head = re.sub(r"\*+", "*", head)
    return re.compile("".join(_PIECES.get(char) or re.escape(char) for char in head) + tail, re.DOTALL)

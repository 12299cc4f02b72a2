"""Asking before something is destroyed."""

import sys

from weft.errors import InvalidInputError


def confirmed(question: str, *, yes: bool) -> bool:
    """Whether to go on. Without a terminal nobody can be asked, so it has to have been said: `--yes`."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise InvalidInputError("--yes", "there is nobody to ask", hint="pass --yes to go on unasked")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")

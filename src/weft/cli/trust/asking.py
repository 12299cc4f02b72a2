"""Asking whether a project is to be trusted, once, where somebody is there to answer."""

import sys
from collections.abc import Mapping

from weft.cli.paint import Paint
from weft.cli.trust.telling import to_lines
from weft.errors import WeftError
from weft.host.now import now
from weft.trust.decision import Seal, Standing, Trusting, trusting_in


def offer_trust(directory: str, env: Mapping[str, str]) -> None:
    """Ask, if there is something to ask about that was not asked before. The answer is kept with the content it is of."""
    trusting = trusting_in(directory, env)
    standing = trusting.standing()
    if standing.trusted or standing.why == "refused":
        return
    if not trusting.held_back():
        return
    paint = Paint(sys.stderr)
    try:
        seen = (
            trusting.take_seal()
        )  # before it is shown: what changes while somebody reads is not vouched for
        _ask(trusting, standing, seen, paint)
    except (OSError, WeftError) as error:
        print(f"{paint.yellow('warning:')} this could not be remembered: {error}", file=sys.stderr)


def _ask(trusting: Trusting, standing: Standing, seen: Seal, paint: Paint) -> None:
    for line in to_lines(trusting.root, trusting.held_back(), standing, paint):
        print(line, file=sys.stderr)
    print("Trust this project, as it is now? [y/N] ", end="", file=sys.stderr, flush=True)
    typed = sys.stdin.readline()
    if not typed:
        return  # nobody is there after all
    if typed.strip().lower() in ("y", "yes"):
        trusting.trust(now(), seen)
    else:
        trusting.refuse(now(), seen)

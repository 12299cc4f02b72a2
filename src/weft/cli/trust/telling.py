"""What a project brings along, and what became of it since it was trusted, in lines for a person."""

import os
from collections.abc import Iterable, Iterator

from weft.cli.paint import Paint, plain
from weft.config.trust import Held
from weft.trust.decision import Standing

SHORT = 100
# What would be run is shown to its end, where anybody could read it: what matters may stand there.
WHOLE = 2000

WHYS = {
    "environment": "trusted for this once: WEFT_TRUST=1 is set",
    "configured": "trusted: it is named under experimental.weft.trusted in your configuration",
    "given": "trusted",
    "refused": "not trusted: you said no to what is there now",
    "changed": "not trusted: it has changed since you were asked",
    "unknown": "not trusted: you have not been asked",
}


def to_lines(root: str, held: Iterable[Held], standing: Standing, paint: Paint) -> Iterator[str]:
    yield f"{paint.bold(plain(root))}: {WHYS[standing.why]}"
    for change in standing.changes:
        yield f"  {paint.yellow(change.what.ljust(7))} {plain(change.name)}"
    found = list(held)
    if found:
        yield "it brings along:" if standing.trusted else "held back, until you trust it:"
    width = max((len(each.kind) for each in found), default=0)
    for each in found:
        where = os.path.relpath(each.path, root) if each.path.startswith(f"{root}{os.sep}") else each.path
        what = f"{plain(_short(each.name, root, SHORT))} {plain(_short(each.does, root, WHOLE))}"
        yield f"  {each.kind:<{width}}  {what}  {paint.dim('# ' + plain(where))}"


def _short(text: str, root: str, most: int) -> str:
    line = " ".join(text.replace(f"{root}{os.sep}", "").split())
    return line if len(line) <= most else f"{line[:most]}… and {len(line) - most:,} characters more"

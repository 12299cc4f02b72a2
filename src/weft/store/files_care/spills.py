"""Spilled outputs: files beside the tree that hold what was too long for a message, and whether any part names them."""

import os
import re
from collections.abc import Callable, Iterator

from weft.host.files import read_file
from weft.store.documents import LIMIT
from weft.store.files_care.heap import Heap, list_names, weigh
from weft.store.files_care.leftovers import Leftover
from weft.store.layout import Layout

Told = Callable[[int], None]

_NAME = re.compile(r"tool_[0-9A-Za-z]{20,40}")
_NAMED = re.compile(_NAME.pattern.encode())
TELL_EVERY = 1000


def find_spills(
    layout: Layout, directory: str, *, before: int, told: Told = lambda _: None
) -> list[Leftover]:
    """Outputs older than `before` (ms) that no part names any more. Parts are read only if there are old outputs."""
    old = {name: heap.bytes for name in list_names(directory) if (heap := _old(directory, name, before))}
    if not old:
        return []
    try:
        named = _named_in_parts(layout, told)
    except OSError:
        return []
    return [
        Leftover(kind="tool-output", path=f"{directory}/{name}", reason="no part names it", bytes=size)
        for name, size in old.items()
        if name not in named
    ]


def _old(directory: str, name: str, before: int) -> Heap | None:
    heap = weigh(f"{directory}/{name}", any_name=True)
    is_output = _NAME.fullmatch(name) is not None and os.path.isfile(f"{directory}/{name}")
    return heap if is_output and heap.known and heap.changed < before else None


def _named_in_parts(layout: Layout, told: Told) -> set[str]:
    named: set[str] = set()
    for number, raw in enumerate(_parts(layout)):
        named.update(found.decode() for found in _NAMED.findall(raw))
        if number % TELL_EVERY == 0:
            told(number)
    return named


def _parts(layout: Layout) -> Iterator[bytes]:
    shelf = layout.shelf("part")
    for message in list_names(shelf):
        for name in list_names(f"{shelf}/{message}"):
            # A part that cannot be read may name any of them: the error ends the search, and nothing is removed.
            yield read_file(f"{shelf}/{message}/{name}", limit=LIMIT)[0]

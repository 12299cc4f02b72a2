"""Plugins that installed packages offer: entry points of the group `weft.plugins`.

Read from the few files that say so. `importlib.metadata` would find the same and take longer than all else on opening.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

GROUP: Final = "[weft.plugins]"
ENDINGS: Final = (".dist-info", ".egg-info")
LIMIT: Final = 1 << 20


class EntryPoint(Struct, frozen=True, kw_only=True):
    """`name = module`, and the file that says it."""

    name: str
    module: str
    path: str


def list_entry_points(places: Sequence[str]) -> list[EntryPoint]:
    """Those of all packages in these places, in order. As in Python itself, the first place that has a package counts."""
    found: dict[str, EntryPoint] = {}
    for place in places:
        for path in _list_files(place):
            for point in _read(path):
                found.setdefault(point.name, point)
    return list(found.values())


def _list_files(place: str) -> Iterator[str]:
    try:
        names = sorted(os.listdir(place))
    except OSError:
        return
    for name in names:
        if name.endswith(ENDINGS):
            yield os.path.join(place, name, "entry_points.txt")


def _read(path: str) -> Iterator[EntryPoint]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(LIMIT)
    except OSError:
        return  # most packages have none
    here = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            here = line.replace(" ", "") == GROUP
        elif here and "=" in line and not line.startswith(("#", ";")):
            name, _, module = line.partition("=")
            yield EntryPoint(name=name.strip(), module=module.strip(), path=path)

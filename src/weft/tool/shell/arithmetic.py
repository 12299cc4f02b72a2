"""Counting in the shell: a text that is counted with may name a variable, that one another, and `a[$(…)]` runs."""

import re
from typing import Final

from weft.tool.shell.field import Listing, Number, Value, has_hole
from weft.tool.shell.scene import Scene
from weft.tool.shell.variables import NUMBERS

DEEPEST: Final = 5
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_ODD: Final = frozenset("[]$`\\'\"{}")


def is_countable(value: Value, scene: Scene, depth: int = 0) -> bool:
    """Whether nothing but a number comes of counting with a value."""
    if isinstance(value, Number):
        return True
    if isinstance(value, Listing) or has_hole(value) or not _ODD.isdisjoint(value) or depth > DEEPEST:
        return False
    return all(names_countable(name, scene, depth + 1) for name in _NAME.findall(value))


def names_countable(name: str, scene: Scene, depth: int = 0) -> bool:
    """Whether a variable holds nothing but what can be counted with."""
    if name in NUMBERS or scene.variables.is_unset(name):
        return True
    values = scene.lookup(name)
    return values is not None and all(is_countable(value, scene, depth) for value in values)

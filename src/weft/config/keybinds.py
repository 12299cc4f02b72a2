"""The keys a screen listens to unless told otherwise."""

import json
import os
from functools import cache


@cache
def default_keybinds() -> dict[str, str]:
    """Name to keys, as OpenCode 1.1.34 has them. Not to be changed: everyone gets the same one."""
    path = os.path.join(os.path.dirname(__file__), "keybinds.json")
    with open(path, encoding="utf-8") as file:
        found: dict[str, str] = json.load(file)
    return found

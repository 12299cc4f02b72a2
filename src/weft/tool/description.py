"""Read the description of a tool for the model from the text file beside its code."""

import os
from functools import cache


@cache
def about(name: str) -> str:
    """The text of `about/<name>.md`."""
    path = os.path.join(os.path.dirname(__file__), "about", f"{name}.md")
    with open(path, encoding="utf-8") as file:
        return file.read().strip()

"""What the model reads about each tool, kept as text beside the code."""

import os
from functools import cache


@cache
def about(name: str) -> str:
    """The text of `about/<name>.md`."""
    path = os.path.join(os.path.dirname(__file__), "about", f"{name}.md")
    with open(path, encoding="utf-8") as file:
        return file.read().strip()

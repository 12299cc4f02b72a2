"""The texts we wrote for models, kept as files."""

import os
from functools import cache


@cache
def written(name: str) -> str:
    path = os.path.join(os.path.dirname(__file__), "prompts", f"{name}.md")
    with open(path, encoding="utf-8") as file:
        return file.read().strip()

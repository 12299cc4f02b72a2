"""What the model is told when it is to sum up a conversation."""

from functools import cache
from importlib.resources import files


@cache
def summary_instruction() -> str:
    return files("weft.window").joinpath("prompts/summarise.md").read_text(encoding="utf-8").strip()

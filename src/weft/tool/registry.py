"""Which tools there are, and which of them an agent is shown."""

from collections.abc import Collection
from typing import Final

from weft.tool.bash import BASH
from weft.tool.contract import AnyTool
from weft.tool.edit import EDIT
from weft.tool.glob import GLOB
from weft.tool.grep import GREP
from weft.tool.invalid import INVALID
from weft.tool.list import LIST
from weft.tool.read import READ
from weft.tool.todo import TODOREAD, TODOWRITE
from weft.tool.write import WRITE

# In the order models are told of them.
TOOLS: Final[tuple[AnyTool, ...]] = (INVALID, BASH, READ, GLOB, GREP, EDIT, WRITE, TODOWRITE, TODOREAD, LIST)

# There for us to call, never for a model: where a broken call goes, and how a directory is attached.
UNSEEN: Final = frozenset({"invalid", "list"})


def find_tool(name: str) -> AnyTool | None:
    return next((tool for tool in TOOLS if tool.name == name), None)


def offered(disabled: Collection[str] = ()) -> tuple[AnyTool, ...]:
    """The tools an agent is shown, those left out that it may never use."""
    return tuple(tool for tool in TOOLS if tool.name not in UNSEEN and tool.name not in disabled)

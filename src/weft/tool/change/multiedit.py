"""Make several replacements in one file: all of them, or none."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from weft.errors import ToolError
from weft.tool.about import about
from weft.tool.change.edit import All, New, Old, check_differs, edited, rewrite
from weft.tool.contract import Tool, ToolContext, ToolResult


class OneEdit(Struct, frozen=True, kw_only=True, rename="camel"):
    old_string: Old
    new_string: New
    replace_all: All = False


class MultiEditInput(Struct, frozen=True, kw_only=True, rename="camel"):
    file_path: Annotated[
        str, Meta(description="The file: an absolute path, or one from the working directory.")
    ]
    edits: Annotated[
        tuple[OneEdit, ...],
        Meta(
            min_length=1,
            description="The replacements, made one after the other, each on what the last left.",
        ),
    ]


async def multiedit(wanted: MultiEditInput, ctx: ToolContext) -> ToolResult:
    # OpenCode calls `edit` again and again: one that fails leaves those before it standing.
    return await rewrite(
        wanted.file_path, lambda text: made(text, wanted.edits), ctx, makes=not wanted.edits[0].old_string
    )


def made(text: str, edits: Sequence[OneEdit]) -> str:
    """The text with all the replacements made. Raises `ToolError` naming the one that cannot be."""
    for number, each in enumerate(edits, 1):
        try:
            check_differs(each)
            text = edited(text, each)
        except ToolError as error:
            raise ToolError(f"Edit {number} of {len(edits)}: {error} Nothing was changed.") from error
    return text


MULTIEDIT = Tool(
    name="multiedit", about=about("multiedit"), takes=MultiEditInput, run=multiedit, announces=True
)

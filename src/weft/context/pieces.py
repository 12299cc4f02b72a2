"""The pieces of a request and how many tokens each takes (pure)."""

import json
from collections.abc import Iterable, Iterator

from msgspec import Struct

from weft.context.tokens import estimate
from weft.model.data import ContextPart
from weft.provider.contract import (
    CallContent,
    MediaContent,
    ModelMessage,
    ModelRequest,
    ReasoningContent,
    ResultContent,
    TextContent,
)

AnyContent = TextContent | MediaContent | ReasoningContent | CallContent | ResultContent
INSTRUCTIONS_PREFIX = "Instructions from: "


class ContextPiece(Struct, frozen=True, kw_only=True):
    """A named piece of a request, as text. `uncounted` says that its tokens are unknown, as those of a file are."""

    section: str
    name: str
    text: str
    uncounted: bool = False

    @property
    def tokens(self) -> int:
        return 0 if self.uncounted else estimate(self.text)


def to_pieces(request: ModelRequest) -> Iterator[ContextPiece]:
    """Yield the pieces of a request in the order in which they are sent."""
    for number, entry in enumerate(request.system, 1):
        for name, text in _split(entry, number):
            yield ContextPiece(section="system", name=name, text=text)
    for tool in request.tools:
        text = f"{tool.about}\n{json.dumps(tool.schema)}"
        yield ContextPiece(section="tools", name=tool.name, text=text)
    for message in request.messages:
        for content in message.content:
            yield _to_piece(message, content)


def _split(entry: str, number: int) -> Iterator[tuple[str, str]]:
    """Split a part of the system prompt into its head and its instruction files; yield the name and text of each."""
    head, *instructions = entry.split(f"\n\n{INSTRUCTIONS_PREFIX}")
    yield "environment" if "<env>" in head else f"prompt {number}", head
    for text in instructions:
        yield text.partition("\n")[0], f"{INSTRUCTIONS_PREFIX}{text}"


def _to_piece(message: ModelMessage, content: AnyContent) -> ContextPiece:
    section = str(message.__struct_config__.tag)
    match content:
        case TextContent(text=text):
            return ContextPiece(section=section, name="text", text=text)
        case ReasoningContent(text=text):
            return ContextPiece(section=section, name="reasoning", text=text)
        case CallContent(tool=tool, input=input):
            return ContextPiece(
                section=section, name=f"call of {tool}", text=json.dumps(input, ensure_ascii=False)
            )
        case ResultContent(tool=tool, output=output):
            return ContextPiece(section=section, name=f"result of {tool}", text=output)
        case MediaContent(filename=name, mime=mime):
            return ContextPiece(
                section=section, name="file", text=f"{name or 'unnamed'} ({mime})", uncounted=True
            )


def add_up(pieces: Iterable[ContextPiece]) -> tuple[ContextPart, ...]:
    """Add up the tokens: system pieces one by one, tools and messages by kind."""
    groups: dict[tuple[str, str], list[ContextPiece]] = {}
    for piece in pieces:
        name = "all" if piece.section == "tools" else piece.name
        groups.setdefault((piece.section, name), []).append(piece)
    return tuple(
        ContextPart(
            section=section,
            name=name,
            tokens=sum(piece.tokens for piece in group),
            count=len(group),
            uncounted=sum(piece.uncounted for piece in group),
        )
        for (section, name), group in groups.items()
    )

"""`weft session context`: show what the next request would send, and how many tokens each part takes."""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from weft.cli.arguments import add_format, add_place, add_session
from weft.cli.output import Paint, sanitize, to_table, write_json
from weft.cli.session import make_reader, report_damage
from weft.context.tokens import estimate, find_usable_tokens
from weft.local.preview import PLACEHOLDER, Preview, preview
from weft.model.session import SessionInfo
from weft.provider.contract import (
    CallContent,
    MediaContent,
    ModelMessage,
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


def add_context_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    add_format(parser)
    add_place(parser)


def show_context(args: argparse.Namespace) -> int:
    reader = make_reader(args)
    session = reader.get_session(args.session)
    found = preview(reader, session, os.environ)
    pieces = list(to_pieces(found))
    if args.format == "json":
        write_json(to_report(session, found, pieces))
    else:
        for line in to_lines(found, pieces, Paint(sys.stdout)):
            print(line)
    report_damage(reader)
    return 0


def to_pieces(preview: Preview) -> Iterator[ContextPiece]:
    """Yield the pieces of the request in the order in which they are sent."""
    request = preview.request
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


# --- printing ---


def to_lines(preview: Preview, pieces: list[ContextPiece], paint: Paint) -> Iterator[str]:
    """Yield every piece in full, and then a table of their sizes, at the end where it is seen."""
    for piece in pieces:
        yield paint.bold(f"── {piece.section}: {sanitize(piece.name)} · {_format_count(piece)}")
        yield sanitize(piece.text)
        yield ""
    yield from to_sizes(preview, pieces, paint)


def to_sizes(preview: Preview, pieces: list[ContextPiece], paint: Paint) -> Iterator[str]:
    """Yield a table of the sizes of all pieces, and notes about the whole."""
    total = sum(piece.tokens for piece in pieces)
    rows = [(*names, f"{tokens:,}", _format_share(tokens, total)) for names, tokens in _add_up(pieces)]
    yield from to_table(("part", "of it", "tokens", "share"), rows, paint, right="tokens share")
    yield paint.dim(_format_summary(preview, total))
    if preview.overflows:
        yield paint.yellow("it does not fit the context: the conversation will be summarised first")
    for kind, names in (
        ("MCP servers", preview.servers),
        ("plugins, hooks and custom tools", preview.plugins),
    ):
        if names:
            yield paint.dim(
                f"not included: what these {kind} would add, which were not started: {sanitize(', '.join(names))}"
            )


def _format_count(piece: ContextPiece) -> str:
    return "tokens unknown" if piece.uncounted else f"about {piece.tokens:,} tokens"


def _add_up(pieces: list[ContextPiece]) -> list[tuple[tuple[str, str], int]]:
    """Add up the tokens: system pieces one by one, tools and messages by kind."""
    sums: dict[tuple[str, str], int] = {}
    for piece in pieces:
        name = "all" if piece.section == "tools" else piece.name
        sums[piece.section, name] = sums.get((piece.section, name), 0) + piece.tokens
    return list(sums.items())


def _format_share(tokens: int, total: int) -> str:
    return f"{tokens / total:.0%}" if total else "0%"


def _format_summary(preview: Preview, total: int) -> str:
    model = preview.request.model
    limit = find_usable_tokens(model, preview.request.parameters.max_output or 0)
    of_limit = f" of {limit:,}" if limit is not None else ""
    note = f"; {PLACEHOLDER} stands for your next prompt" if preview.placeholder else ""
    return f"{model.provider_id}/{model.id}, agent {preview.agent}: about {total:,}{of_limit} tokens{note}"


def to_report(session: SessionInfo, preview: Preview, pieces: list[ContextPiece]) -> dict[str, Any]:
    request, total = preview.request, sum(piece.tokens for piece in pieces)
    return {
        "sessionID": session.id,
        "agent": preview.agent,
        "model": {"providerID": request.model.provider_id, "modelID": request.model.id},
        "placeholder": preview.placeholder,
        "crowded": preview.overflows,
        "unasked": {"mcp": preview.servers, "plugins": preview.plugins},
        "system": request.system,
        "tools": request.tools,
        "messages": request.messages,
        "tokens": {
            "total": total,
            "limit": find_usable_tokens(request.model, request.parameters.max_output or 0),
            "parts": [{"part": part, "of": of, "tokens": tokens} for (part, of), tokens in _add_up(pieces)],
        },
    }

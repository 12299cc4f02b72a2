"""`weft session context`: what the next request of a session would carry, and how much of it is what."""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from weft.cli.paint import Paint, plain, write_json
from weft.cli.session.read import read
from weft.cli.sessions import warn_of_damage
from weft.cli.table import to_table
from weft.context.tokens import estimate, usable
from weft.local.preview import PLACEHOLDER, Preview, preview
from weft.model.session import Session
from weft.provider.contract import (
    CallContent,
    FileContent,
    ModelMessage,
    ReasoningContent,
    ResultContent,
    TextContent,
)

Content = TextContent | FileContent | ReasoningContent | CallContent | ResultContent
INSTRUCTIONS = "Instructions from: "


class Piece(Struct, frozen=True, kw_only=True):
    """A piece of a request, in words. A file says nothing about its tokens: `uncounted`."""

    section: str
    name: str
    text: str
    uncounted: bool = False

    @property
    def tokens(self) -> int:
        return 0 if self.uncounted else estimate(self.text)


def show_context(chosen: argparse.Namespace) -> int:
    reading = read(chosen.dir, chosen.store)
    session = reading.get_session(chosen.session)
    found = preview(reading, session, os.environ)
    pieces = list(to_pieces(found))
    if chosen.format == "json":
        write_json(to_report(session, found, pieces))
    else:
        for line in to_lines(found, pieces, Paint(sys.stdout)):
            print(line)
    warn_of_damage(reading)
    return 0


def to_pieces(found: Preview) -> Iterator[Piece]:
    request = found.request
    for number, entry in enumerate(request.system, 1):
        for name, text in _split(entry, number):
            yield Piece(section="system", name=name, text=text)
    for tool in request.tools:
        text = f"{tool.about}\n{json.dumps(tool.schema)}"
        yield Piece(section="tools", name=tool.name, text=text)
    for turn in request.messages:
        for content in turn.content:
            yield _piece(turn, content)


def _split(entry: str, number: int) -> Iterator[tuple[str, str]]:
    """A system entry by what it is made of: the instructions in it one by one."""
    head, *instructions = entry.split(f"\n\n{INSTRUCTIONS}")
    yield "environment" if "<env>" in head else f"prompt {number}", head
    for text in instructions:
        yield text.partition("\n")[0], f"{INSTRUCTIONS}{text}"


def _piece(turn: ModelMessage, content: Content) -> Piece:
    section = str(turn.__struct_config__.tag)
    match content:
        case TextContent(text=text):
            return Piece(section=section, name="words", text=text)
        case ReasoningContent(text=text):
            return Piece(section=section, name="reasoning", text=text)
        case CallContent(tool=tool, input=input):
            return Piece(section=section, name=f"call of {tool}", text=json.dumps(input, ensure_ascii=False))
        case ResultContent(tool=tool, output=output):
            return Piece(section=section, name=f"result of {tool}", text=output)
        case FileContent(filename=name, mime=mime):
            return Piece(section=section, name="file", text=f"{name or 'unnamed'} ({mime})", uncounted=True)


# --- how ---


def to_lines(found: Preview, pieces: list[Piece], paint: Paint) -> Iterator[str]:
    """All of it, and at the end, where it is seen, what takes up how much."""
    for piece in pieces:
        yield paint.bold(f"── {piece.section}: {plain(piece.name)} · {_count(piece)}")
        yield plain(piece.text)
        yield ""
    total = sum(piece.tokens for piece in pieces)
    rows = [(*names, f"{tokens:,}", _share(tokens, total)) for names, tokens in _sums(pieces)]
    yield from to_table(("part", "of it", "tokens", "share"), rows, paint, right="tokens share")
    yield paint.dim(_summary(found, total))
    if found.crowded:
        yield paint.yellow("there is no room for it: the conversation will be summed up first")
    for who, names in (("MCP servers", found.servers), ("plugins, hooks and custom tools", found.plugins)):
        if names:
            yield paint.dim(
                f"not in it: what these {who} would add, none of which was asked: {_named(names)}"
            )


def _count(piece: Piece) -> str:
    return "tokens unknown" if piece.uncounted else f"about {piece.tokens:,} tokens"


def _sums(pieces: list[Piece]) -> list[tuple[tuple[str, str], int]]:
    """System pieces one by one; of tools and messages, all of a kind together."""
    sums: dict[tuple[str, str], int] = {}
    for piece in pieces:
        name = "all" if piece.section == "tools" else piece.name
        sums[piece.section, name] = sums.get((piece.section, name), 0) + piece.tokens
    return list(sums.items())


def _share(tokens: int, total: int) -> str:
    return f"{tokens / total:.0%}" if total else "0%"


def _summary(found: Preview, total: int) -> str:
    model = found.request.model
    room = usable(model, found.request.parameters.max_output or 0)
    of = f" of {room:,}" if room is not None else ""
    waits = f"; {PLACEHOLDER} stands for what you say next" if found.placeholder else ""
    return f"{model.provider_id}/{model.id}, agent {found.agent}: about {total:,}{of} tokens{waits}"


def _named(names: Sequence[str]) -> str:
    return plain(", ".join(names))


def to_report(session: Session, found: Preview, pieces: list[Piece]) -> dict[str, Any]:
    request, total = found.request, sum(piece.tokens for piece in pieces)
    return {
        "sessionID": session.id,
        "agent": found.agent,
        "model": {"providerID": request.model.provider_id, "modelID": request.model.id},
        "placeholder": found.placeholder,
        "crowded": found.crowded,
        "unasked": {"mcp": found.servers, "plugins": found.plugins},
        "system": request.system,
        "tools": request.tools,
        "messages": request.messages,
        "tokens": {
            "total": total,
            "limit": usable(request.model, request.parameters.max_output or 0),
            "parts": [{"part": part, "of": of, "tokens": tokens} for (part, of), tokens in _sums(pieces)],
        },
    }

"""`weft session context`: show what the next request would send, and how many tokens each part takes."""

import argparse
import os
import sys
from collections.abc import Iterator
from typing import Any

from weft.cli.arguments import add_format, add_place, add_session
from weft.cli.output import Paint, sanitize, to_table, write_json
from weft.cli.session import make_reader, report_damage
from weft.context.pieces import ContextPiece, add_up, to_pieces
from weft.context.tokens import find_usable_tokens
from weft.local.offline_preview import preview
from weft.local.preview import PLACEHOLDER, Preview
from weft.model.session import SessionInfo


def add_context_arguments(parser: argparse.ArgumentParser) -> None:
    add_session(parser)
    add_format(parser)
    add_place(parser)


def show_context(args: argparse.Namespace) -> int:
    reader = make_reader(args)
    session = reader.get_session(args.session)
    found = preview(reader, session, os.environ)
    pieces = list(to_pieces(found.request))
    if args.format == "json":
        write_json(to_report(session, found, pieces))
    else:
        for line in to_lines(found, pieces, Paint(sys.stdout)):
            print(line)
    report_damage(reader)
    return 0


# --- printing ---


def to_lines(preview: Preview, pieces: list[ContextPiece], paint: Paint) -> Iterator[str]:
    """Yield every piece in full, and then a table of their sizes, at the end where it is seen."""
    for piece in pieces:
        yield paint.bold(f"── {piece.section}: {sanitize(piece.name)} · {_format_count(piece)}")
        yield sanitize(piece.text)
        yield ""
    if preview.placeholder:
        yield paint.dim(f"{PLACEHOLDER} stands for your next prompt")
        yield ""
    yield from to_sizes(preview, pieces, paint)


def to_sizes(preview: Preview, pieces: list[ContextPiece], paint: Paint) -> Iterator[str]:
    """Yield a table of the sizes of all pieces, and notes about the whole."""
    total = sum(piece.tokens for piece in pieces)
    rows = [
        (part.section, part.name, f"{part.tokens:,}", _format_share(part.tokens, total))
        for part in add_up(pieces)
    ]
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


def _format_share(tokens: int, total: int) -> str:
    return f"{tokens / total:.0%}" if total else "0%"


def _format_summary(preview: Preview, total: int) -> str:
    model = preview.request.model
    limit = find_usable_tokens(model, preview.request.parameters.max_output or 0)
    of_limit = f" of {limit:,}" if limit is not None else ""
    return f"{model.provider_id}/{model.id}, agent {preview.agent}: about {total:,}{of_limit} tokens"


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
            "parts": [
                {"part": part.section, "of": part.name, "tokens": part.tokens} for part in add_up(pieces)
            ],
        },
    }

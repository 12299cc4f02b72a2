"""Attach files, directories and agents that a prompt names, as text the model can read."""

import asyncio
import base64
import binascii
import json
import mimetypes
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, unquote_to_bytes, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import WeftError
from weft.host.files import read_file
from weft.model.agent import Agent
from weft.model.input import AgentInput, AnyPartInput, FileInput, TextInput
from weft.model.message import UserMessage
from weft.model.part import ResourceSource
from weft.model.permission import CallRef, Limits
from weft.model.project import Place
from weft.permission.rules import evaluate, judge
from weft.run.calls import Caller, context_for, unasked, unreported
from weft.run.kit import Kit
from weft.tool.contract import AnyTool, ToolResult, to_input
from weft.tool.paths import locate

TEXT = "text/plain"
DIRECTORY = "application/x-directory"
LIMIT = 20 * 1024 * 1024
RESOURCE_CHARS = 500_000
TOO_LONG = "\n[the rest is left out: it is too long]"


async def attach(kit: Kit, message: UserMessage, given: AnyPartInput) -> list[AnyPartInput]:
    """A part of a prompt with all that is shown to the model because of it.

    What cannot be read becomes a visible piece that says so. OpenCode 1.1.34 fails the whole prompt for it.
    """
    match given:
        case AgentInput(name=name):
            return [given, synthetic(_to_agent(kit, message, name))]
        case FileInput(source=ResourceSource() as source):
            return await _resource(kit, given, source)
        case FileInput(url=url, mime=mime) if url.startswith("data:") and mime == TEXT:
            return [_called("Read", {"filePath": given.filename or ""}), synthetic(data_text(url)), given]
        case FileInput(url=url) if url.startswith("file:"):
            return await _local(kit, message, given)
        case _:
            return [given]


def _to_agent(kit: Kit, message: UserMessage, name: str) -> str:
    """The words with which a mention of an agent reaches the model. They are OpenCode's."""
    asked = f" Use the above message and context to generate a prompt and call the task tool with subagent: {name}"
    agent = kit.agents.get(message.agent)
    denied = agent is not None and evaluate("task", name, agent.permission).action == "deny"
    # Whom it is not told of, it would take for a mistake of the person's.
    return f"{asked} . Invoked by user; guaranteed to exist." if denied else asked


def synthetic(text: str) -> TextInput:
    return TextInput(text=text, synthetic=True)


def _called(tool: str, arguments: dict[str, Any]) -> TextInput:
    # The words are OpenCode's, so that a model reads an attachment the same way in both.
    written = json.dumps(arguments, separators=(",", ":"), ensure_ascii=False)
    return synthetic(f"Called the {tool} tool with the following input: {written}")


async def _local(kit: Kit, message: UserMessage, given: FileInput) -> list[AnyPartInput]:
    parts = urlsplit(given.url)
    path = unquote(parts.path)
    try:
        if await asyncio.to_thread(os.path.isdir, path):
            return await _directory(kit, message, given, path)
        if given.mime == TEXT and not (mimetypes.guess_type(path)[0] or "").startswith("image/"):
            return await _text(kit, message, given, _lines(path, parse_qs(parts.query)))
        return await _binary(given, path)
    except (WeftError, OSError) as error:
        return [synthetic(f"Read tool failed to read {path} with the following error: {error}")]


def _lines(path: str, query: dict[str, list[str]]) -> dict[str, Any]:
    """The read tool's arguments for a file, or for lines `start` to `end` of it (counted from one)."""
    first, last = (
        int(query[name][0]) if query.get(name, [""])[0].isdigit() else None for name in ("start", "end")
    )
    if first is None:
        return {"filePath": path}
    offset = max(first - 1, 0)
    return {"filePath": path, "offset": offset, **({"limit": last - offset} if last else {})}


async def _text(
    kit: Kit, message: UserMessage, given: FileInput, arguments: dict[str, Any]
) -> list[AnyPartInput]:
    result = await _use(kit, message, kit.tools["read"], arguments)
    files = [
        FileInput(mime=file.mime, url=file.url, filename=file.filename or given.filename)
        for file in result.attachments
    ]
    return [_called("Read", arguments), synthetic(result.output), *(files or [given])]


async def _directory(kit: Kit, message: UserMessage, given: FileInput, path: str) -> list[AnyPartInput]:
    listed = await _use(kit, message, kit.tools["list"], {"path": path})
    shown = FileInput(
        id=given.id, mime=DIRECTORY, filename=given.filename, url=given.url, source=given.source
    )
    return [_called("list", {"path": path}), synthetic(listed.output), shown]


async def _binary(given: FileInput, path: str) -> list[AnyPartInput]:
    mime = given.mime if given.mime != TEXT else mimetypes.guess_type(path)[0] or "application/octet-stream"
    raw, _ = await asyncio.to_thread(read_file, path, limit=LIMIT)
    data = base64.b64encode(raw).decode()
    shown = FileInput(
        id=given.id, mime=mime, filename=given.filename, url=f"data:{mime};base64,{data}", source=given.source
    )
    return [_called("Read", {"filePath": path}), shown]


async def _resource(kit: Kit, given: FileInput, source: ResourceSource) -> list[AnyPartInput]:
    """Something that an MCP server has to read: its words and its files. The words around them are OpenCode's."""
    name = given.filename or ""
    first = synthetic(f"Reading MCP resource: {name} ({source.uri})")
    try:
        pieces = await kit.guests.read_resource(source.client_name, source.uri)
    except WeftError as error:
        return [first, synthetic(f"Failed to read MCP resource {name}: {error}")]
    shown: list[AnyPartInput] = []
    for piece in pieces:
        file = piece.file
        if file is None:
            shown.append(synthetic(_cut(piece.text)))
        else:
            # OpenCode says what there is, and does not show it.
            shown.append(synthetic(f"[Binary content: {file.mime or given.mime}]"))
            shown.append(FileInput(mime=file.mime, url=file.url, filename=given.filename))
    # What is read stands here already; as text, the reference to it is for screens alone.
    return [first, *shown, replace(given, mime=TEXT)]


def _cut(text: str) -> str:
    return text if len(text) <= RESOURCE_CHARS else text[:RESOURCE_CHARS] + TOO_LONG


async def _use(kit: Kit, message: UserMessage, tool: AnyTool, arguments: dict[str, Any]) -> ToolResult:
    """Use a tool on the person's behalf: they named the file themselves, so nobody is asked."""
    call = CallRef(message_id=message.id, call_id="")
    caller = Caller(session=message.session_id, agent=message.agent, call=call)
    context = context_for(kit, caller, ask=unasked, report=unreported)
    result: ToolResult = await tool.run(to_input(tool, arguments), context)
    return result


def data_text(url: str) -> str:
    """The text in a `data:` URL. (OpenCode decodes the whole URL, and puts garbage before the text.)"""
    head, _, body = url.partition(",")
    said = unquote_to_bytes(body)
    try:
        raw = base64.b64decode(b"".join(said.split()), validate=True) if head.endswith(";base64") else said
    except binascii.Error:
        return f"[unreadable data: {len(body)} characters that are not base64]"
    return raw.decode("utf-8", "replace")


MENTION = re.compile(r"(?<![\w`])@(\.?[^\s`,.]*(?:\.[^\s`,.]+)*)")
# As OpenCode's terminal writes lines of a file: `src/main.py#10-20`, or one of them.
LINES = re.compile(r"(?P<file>.+)#(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?", re.ASCII)


class Reader(Struct, frozen=True, kw_only=True):
    """Who is to read the words: where they stand, under which rules, and whom they could turn to."""

    place: Place
    limits: Limits
    agents: dict[str, Agent]


def names_in(text: str) -> list[str]:
    """What is mentioned, each name once, in the order of the words."""
    return list(dict.fromkeys(name for name in MENTION.findall(text) if name))


async def resolve(text: str, reader: Reader) -> tuple[AnyPartInput, ...]:
    """The words, and behind them what they mention."""
    found = await asyncio.to_thread(lambda: [_find(name, reader) for name in names_in(text)])
    return (TextInput(text=text), *(part for part in found if part is not None))


def _find(name: str, reader: Reader) -> AnyPartInput | None:
    found = _find_named(name, reader)
    lines = LINES.fullmatch(name)
    if found is not None or lines is None:
        return found
    file = _find_named(lines["file"], reader)
    if not isinstance(file, FileInput) or file.mime != TEXT:
        return None
    first, last = lines["first"], lines["last"] or lines["first"]
    return replace(file, filename=name, url=f"{file.url}?start={first}&end={last}")


def _find_named(name: str, reader: Reader) -> AnyPartInput | None:
    top = reader.place.worktree if reader.place.worktree != "/" else reader.place.directory
    try:
        place, inside = locate(name, top, reader.place.worktree)
    except ValueError:  # a NUL in it, or half a character
        return None
    if place.is_directory or place.is_file:
        permission = "list" if place.is_directory else "read"
        paths = dict.fromkeys((place.path, place.real))
        if not inside or any(not _allows(reader, permission, path) for path in paths):
            return None
        mime = DIRECTORY if place.is_directory else TEXT
        return FileInput(mime=mime, filename=name, url=Path(place.path).as_uri())
    usable = name in reader.agents and _allows(reader, "task", name)
    return AgentInput(name=name) if usable else None


def _allows(reader: Reader, permission: str, pattern: str) -> bool:
    return judge(permission, pattern, reader.limits).action == "allow"

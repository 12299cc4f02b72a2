"""Attach the files, directories, resources and agents that a prompt names, as content that the model can read."""

import asyncio
import base64
import binascii
import json
import os
import re
from typing import Any
from urllib.parse import parse_qs, unquote, unquote_to_bytes, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from weft.errors import WeftError
from weft.host.files import read_file
from weft.model.agent import AgentInfo
from weft.model.input import AgentInput, AnyPartInput, FileInput, TextInput
from weft.model.message import UserMessage
from weft.model.part import ResourceSource
from weft.model.permission import CallRef, Rulesets
from weft.model.project import Place
from weft.permission.rules import evaluate, judge
from weft.run.calls import allow_all, ignore_report, make_tool_context
from weft.run.runtime import Runtime
from weft.tool.contract import AnyTool, ToolResult, to_input
from weft.tool.paths import locate_path

TEXT_MIME = "text/plain"
DIRECTORY_MIME = "application/x-directory"
MAX_FILE_BYTES = 20 * 1024 * 1024
MAX_RESOURCE_CHARS = 500_000
LINE_NUMBER = r"(?a)\d{1,9}"
OUTSIDE = "it is outside of the directories that you may use"
CUT_NOTICE = "\n[the rest is left out: it is too long]"


async def attach(runtime: Runtime, message: UserMessage, input: AnyPartInput) -> list[AnyPartInput]:
    """Return a part of a prompt together with the parts that show its content to the model.

    A file that cannot be read becomes a text that says so. OpenCode 1.1.34 fails the whole prompt.
    """
    match input:
        case AgentInput(name=name):
            return [input, to_synthetic(_to_agent_text(runtime, message, name))]
        case FileInput(source=ResourceSource() as source):
            return await _attach_resource(runtime, input, source)
        case FileInput(url=url, mime=mime) if url.startswith("data:") and mime == TEXT_MIME:
            return [
                _to_call_text("Read", {"filePath": input.filename or ""}),
                to_synthetic(decode_data_text(url)),
                input,
            ]
        case FileInput(url=url) if url.startswith("file:"):
            return await _attach_local(runtime, message, input)
        case _:
            return [input]


def _to_agent_text(runtime: Runtime, message: UserMessage, name: str) -> str:
    """Return OpenCode's text that tells the model of a mentioned agent."""
    text = f" Use the above message and context to generate a prompt and call the task tool with subagent: {name}"
    agent = runtime.agents.get(message.agent)
    denied = agent is not None and evaluate("task", name, agent.permission).action == "deny"
    # The list of agents omits a denied agent, so the model would take the name for a mistake.
    return f"{text} . Invoked by user; guaranteed to exist." if denied else text


def to_synthetic(text: str) -> TextInput:
    return TextInput(text=text, synthetic=True)


def _to_call_text(tool: str, arguments: dict[str, Any]) -> TextInput:
    """Return OpenCode's text for an attachment, so that a model reads it the same way in both."""
    arguments_json = json.dumps(arguments, separators=(",", ":"), ensure_ascii=False)
    return to_synthetic(f"Called the {tool} tool with the following input: {arguments_json}")


async def _attach_local(runtime: Runtime, message: UserMessage, file: FileInput) -> list[AnyPartInput]:
    try:
        url = urlsplit(file.url)
    except ValueError as error:  # its host begins with a bracket that is not closed
        return [_to_failure_text(file.url, error)]
    path = unquote(url.path)
    if await asyncio.to_thread(_is_out_of_reach, path, runtime):
        return [_to_failure_text(path, OUTSIDE)]
    try:
        if await asyncio.to_thread(os.path.isdir, path):
            return await _attach_directory(runtime, message, file, path)
        if file.mime == TEXT_MIME and not _guess_mime(path).startswith("image/"):
            return await _attach_text(runtime, message, file, _to_read_arguments(path, parse_qs(url.query)))
        return await _attach_binary(file, path)
    except (WeftError, OSError, ValueError) as error:  # ValueError: the path contains a NUL
        return [_to_failure_text(path, error)]


def _to_failure_text(path: str, error: object) -> TextInput:
    return to_synthetic(f"Read tool failed to read {path} with the following error: {error}")


def _is_out_of_reach(path: str, runtime: Runtime) -> bool:
    """Return True if a file is outside of the project, and the caller may not leave the project."""
    try:
        place, inside = locate_path(path, runtime.place.directory, runtime.place.worktree)
    except ValueError:  # it contains a NUL or half a character
        return bool(runtime.gate.limits)
    return not inside and judge("external_directory", place.real, runtime.gate.limits).action == "deny"


def _to_read_arguments(path: str, query: dict[str, list[str]]) -> dict[str, Any]:
    """Return the arguments of the read tool: for the whole file, or for the lines `start` to `end` of the query, counted from one."""
    first, last = (
        int(query[name][0]) if re.fullmatch(LINE_NUMBER, query.get(name, [""])[0]) else None
        for name in ("start", "end")
    )
    if first is None:
        return {"filePath": path}
    offset = max(first - 1, 0)
    return {"filePath": path, "offset": offset, **({"limit": last - offset} if last else {})}


async def _attach_text(
    runtime: Runtime, message: UserMessage, file: FileInput, arguments: dict[str, Any]
) -> list[AnyPartInput]:
    result = await _run_tool(runtime, message, runtime.tools["read"], arguments)
    files = [
        FileInput(mime=attachment.mime, url=attachment.url, filename=attachment.filename or file.filename)
        for attachment in result.attachments
    ]
    return [_to_call_text("Read", arguments), to_synthetic(result.output), *(files or [file])]


async def _attach_directory(
    runtime: Runtime, message: UserMessage, file: FileInput, path: str
) -> list[AnyPartInput]:
    result = await _run_tool(runtime, message, runtime.tools["list"], {"path": path})
    directory = FileInput(
        id=file.id, mime=DIRECTORY_MIME, filename=file.filename, url=file.url, source=file.source
    )
    return [_to_call_text("list", {"path": path}), to_synthetic(result.output), directory]


def _guess_mime(path: str) -> str:
    """Return the type of a file by its name, or ""."""
    from mimetypes import guess_type  # noqa: PLC0415  few prompts have attachments

    return guess_type(path)[0] or ""


async def _attach_binary(file: FileInput, path: str) -> list[AnyPartInput]:
    mime = file.mime if file.mime != TEXT_MIME else _guess_mime(path) or "application/octet-stream"
    raw, _ = await asyncio.to_thread(read_file, path, limit=MAX_FILE_BYTES)
    data = base64.b64encode(raw).decode()
    attachment = FileInput(
        id=file.id, mime=mime, filename=file.filename, url=f"data:{mime};base64,{data}", source=file.source
    )
    return [_to_call_text("Read", {"filePath": path}), attachment]


async def _attach_resource(runtime: Runtime, file: FileInput, source: ResourceSource) -> list[AnyPartInput]:
    """Attach the texts and files of an MCP resource, with OpenCode's texts around them."""
    name = file.filename or ""
    heading = to_synthetic(f"Reading MCP resource: {name} ({source.uri})")
    try:
        contents = await runtime.mcp().read_resource(source.client_name, source.uri)
    except WeftError as error:
        return [heading, to_synthetic(f"Failed to read MCP resource {name}: {error}")]
    parts: list[AnyPartInput] = []
    for content in contents:
        attachment = content.file
        if attachment is None:
            parts.append(to_synthetic(_cut_resource(content.text)))
        else:
            # OpenCode names the file, but does not show it.
            parts.append(to_synthetic(f"[Binary content: {attachment.mime or file.mime}]"))
            parts.append(FileInput(mime=attachment.mime, url=attachment.url, filename=file.filename))
    # The content is attached already. As plain text, the reference itself is shown on screens only.
    return [heading, *parts, replace(file, mime=TEXT_MIME)]


def _cut_resource(text: str) -> str:
    return text if len(text) <= MAX_RESOURCE_CHARS else text[:MAX_RESOURCE_CHARS] + CUT_NOTICE


async def _run_tool(
    runtime: Runtime, message: UserMessage, tool: AnyTool, arguments: dict[str, Any]
) -> ToolResult:
    """Run a tool for the person. They named the file themselves, so no permission is needed."""
    call = CallRef(message_id=message.id, call_id="")
    context = make_tool_context(
        runtime, message.session_id, agent=message.agent, call=call, ask=allow_all, report=ignore_report
    )
    result: ToolResult = await tool.run(to_input(tool, arguments), context)
    return result


def decode_data_text(url: str) -> str:
    """Return the text in a `data:` URL. OpenCode decodes the whole URL, and puts garbage before the text."""
    head, _, body = url.partition(",")
    content = unquote_to_bytes(body)
    try:
        raw = (
            base64.b64decode(b"".join(content.split()), validate=True)
            if head.endswith(";base64")
            else content
        )
    except binascii.Error:
        return f"[unreadable data: {len(body)} characters that are not base64]"
    return raw.decode("utf-8", "replace")


# --- mentions in a text ---

MENTION = r"(?<![\w`])@(\.?[^\s`,.]*(?:\.[^\s`,.]+)*)"
# Lines of a file, as OpenCode's terminal writes them: `src/main.py#10-20` or `src/main.py#10`.
LINE_RANGE = r"(?a)(?P<file>.+)#(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?"


class MentionScope(Struct, frozen=True, kw_only=True):
    """What a text may mention: files of a place, within these rules, and these agents."""

    place: Place
    rulesets: Rulesets
    agents: dict[str, AgentInfo]


def list_mentions(text: str) -> list[str]:
    """Return the names that a text mentions, each once, in order."""
    return list(dict.fromkeys(name for name in re.findall(MENTION, text) if name))


async def resolve_mentions(text: str, scope: MentionScope) -> tuple[AnyPartInput, ...]:
    """Return a text as a part of a prompt, followed by parts for what it mentions."""
    found = await asyncio.to_thread(lambda: [_find_mention(name, scope) for name in list_mentions(text)])
    return (TextInput(text=text), *(part for part in found if part is not None))


def _find_mention(name: str, scope: MentionScope) -> AnyPartInput | None:
    """Return the file, the lines of a file, the directory or the agent that a text mentions; None if the scope has none."""
    part = _find_by_name(name, scope)
    lines = re.fullmatch(LINE_RANGE, name)
    if part is not None or lines is None:
        return part
    file = _find_by_name(lines["file"], scope)
    if not isinstance(file, FileInput) or file.mime != TEXT_MIME:
        return None
    first, last = lines["first"], lines["last"] or lines["first"]
    return replace(file, filename=name, url=f"{file.url}?start={first}&end={last}")


def _find_by_name(name: str, scope: MentionScope) -> AnyPartInput | None:
    top = scope.place.worktree if scope.place.worktree != "/" else scope.place.directory
    try:
        place, inside = locate_path(name, top, scope.place.worktree)
    except ValueError:  # it contains a NUL or half a character
        return None
    if place.is_directory or place.is_file:
        permission = "list" if place.is_directory else "read"
        paths = dict.fromkeys((place.path, place.real))
        if not inside or any(not _allows(scope, permission, path) for path in paths):
            return None
        from pathlib import Path  # noqa: PLC0415  few prompts mention files

        mime = DIRECTORY_MIME if place.is_directory else TEXT_MIME
        return FileInput(mime=mime, filename=name, url=Path(place.path).as_uri())
    is_usable_agent = name in scope.agents and _allows(scope, "task", name)
    return AgentInput(name=name) if is_usable_agent else None


def _allows(scope: MentionScope, permission: str, pattern: str) -> bool:
    return judge(permission, pattern, scope.rulesets).action == "allow"

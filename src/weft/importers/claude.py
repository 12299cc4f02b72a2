"""Read transcripts of Claude Code: JSON lines, one file per session, below `~/.claude/projects`.

A line is a prompt, a piece of an answer (several lines with the same message id form one answer), results of calls (in
the form of a prompt), a summary, or something else, which is ignored. The lines of a subagent become a child session.
Lines are in the order they were written: if the user went back and asked again, both branches are kept.
"""

import os
from functools import partial
from typing import Any

from weft.errors import DocumentError
from weft.importers.transcript import (
    FoundSession,
    ImportedSession,
    ImportTrouble,
    JsonLine,
    TranscriptIds,
    TranscriptWriter,
    list_blocks,
    list_files,
    list_texts,
    parse_time,
    read_counts,
    read_lines,
)
from weft.model.ids import MessageID, SessionID
from weft.model.part import CacheTokens, Tokens
from weft.model.transfer import ExportCounts
from weft.transfer.document import check_export

PROVIDER = "anthropic"
SYNTHETIC = "<synthetic>"
FINISHES = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool-calls",
    "max_tokens": "length",
    "refusal": "content-filter",
}
# Claude's tools that correspond to ours: our name, and the arguments with different names.
TOOLS: dict[str, tuple[str, dict[str, str]]] = {
    "Read": ("read", {"file_path": "filePath"}),
    "Write": ("write", {"file_path": "filePath"}),
    "Edit": (
        "edit",
        {
            "file_path": "filePath",
            "old_string": "oldString",
            "new_string": "newString",
            "replace_all": "replaceAll",
        },
    ),
    "Bash": ("bash", {}),
    "Glob": ("glob", {}),
    "Grep": ("grep", {}),
    "LS": ("list", {}),
    "TodoWrite": ("todowrite", {}),
    "WebFetch": ("webfetch", {}),
    "WebSearch": ("websearch", {}),
    "Task": ("task", {}),
    "Skill": ("skill", {}),
}


def list_claude_sessions(path: str) -> list[FoundSession]:
    """Return the conversations at a path, which is one file or a directory: the main one of each file, then those of subagents."""
    files = list_files(path)
    mains = [FoundSession(name=each, read=partial(_read, each)) for each in files if not _is_agent(each)]
    children = [child for each in files for child in _list_children(each)]
    return mains + children


def _is_agent(path: str) -> bool:
    return os.path.basename(path).startswith("agent-")


def _list_children(path: str) -> list[FoundSession]:
    try:
        lines = read_lines(path, [])
    except DocumentError as error:
        return [FoundSession(name=path, read=partial(_refuse, error))] if _is_agent(path) else []
    agents = dict.fromkeys(agent for line in lines if (agent := _find_agent(line, path)))
    return [
        FoundSession(name=f"{path} ({agent})", read=partial(_read, path, agent=agent)) for agent in agents
    ]


def _refuse(error: DocumentError) -> ImportedSession:
    raise error


def _find_agent(line: JsonLine, path: str) -> str:
    """Return the subagent that a line belongs to; "" for the main conversation."""
    if line.get("isSidechain") is not True and not _is_agent(path):
        return ""
    named = line.get("agentId")
    return named if isinstance(named, str) and named else "subagent"


def _read(path: str, *, agent: str = "") -> ImportedSession:
    troubles: list[ImportTrouble] = []
    lines = [line for line in read_lines(path, troubles) if _find_agent(line, path) == agent]
    messages = [line for line in lines if _is_message(line)]
    if not messages:
        raise DocumentError(path, "nothing in it is a conversation of Claude Code")
    conversation = _ClaudeConversation(path, messages[0], agent)
    for line in lines:
        conversation.add(line)
    export = conversation.to_export()
    return ImportedSession(
        export=check_export(export, where=path),
        counted=_count(messages),
        troubles=(*troubles, *conversation.troubles),
    )


def _is_message(line: JsonLine) -> bool:
    message = line.get("message")
    return line.get("type") in ("user", "assistant") and isinstance(message, dict) and "content" in message


def _list_blocks(line: JsonLine) -> list[dict[str, Any]]:
    return list_blocks(line["message"]["content"])


def _is_results(line: JsonLine) -> bool:
    return line["type"] == "user" and any(block.get("type") == "tool_result" for block in _list_blocks(line))


def _count(messages: list[JsonLine]) -> ExportCounts:
    """Count messages and parts from the lines alone, independently of the conversion."""
    prompts = [line for line in messages if line["type"] == "user" and not _is_results(line)]
    results = [line for line in messages if _is_results(line)]
    answers = {_answer_key(line) for line in messages if line["type"] == "assistant"}
    summaries = sum(1 for line in prompts if line.get("isCompactSummary") is True)
    extra_prompts = [
        line for line in results if any(block.get("type") != "tool_result" for block in _list_blocks(line))
    ]
    blocks = sum(len(_list_blocks(line)) for line in messages if line["type"] == "assistant")
    blocks += sum(len(_list_blocks(line)) for line in prompts if line.get("isCompactSummary") is not True)
    blocks += sum(
        1 for line in extra_prompts for block in _list_blocks(line) if block.get("type") != "tool_result"
    )
    return ExportCounts(
        messages=len(prompts) + len(answers) + summaries + len(extra_prompts), parts=blocks + 2 * summaries
    )


def _answer_key(line: JsonLine) -> str:
    id = line["message"].get("id")
    return id if isinstance(id, str) else str(line.get("uuid"))


class _ClaudeConversation:
    """Converts one conversation line by line."""

    def __init__(self, path: str, first: JsonLine, agent: str) -> None:
        session = str(first.get("sessionId") or os.path.basename(path).removesuffix(".jsonl"))
        at = parse_time(first.get("timestamp")) or 0
        self._path = path
        self._agent = agent
        # The id of a child session does not depend on its parent, which may be in another file.
        self._parent = _parent_id(path, session, at) if agent else None
        names = TranscriptIds("claude", f"{session} {agent}".strip(), at)
        self._writer = TranscriptWriter(names, at, directory=str(first.get("cwd") or ""), provider=PROVIDER)
        self._version = f"claude-code {first.get('version') or 'unknown'}"
        self._answers: dict[str, MessageID] = {}
        self.troubles: list[ImportTrouble] = []

    def to_export(self) -> Any:
        if self._agent and not self._writer.title:
            self._writer.title = f"Subagent {self._agent}".removesuffix(" subagent")
        return self._writer.to_export(version=self._version, parent=self._parent)

    def add(self, line: JsonLine) -> None:
        self._writer.advance_time(parse_time(line.get("timestamp")))
        title = line.get("summary") or line.get("customTitle") or line.get("aiTitle")
        if line.get("type") in ("summary", "custom-title", "ai-title") and isinstance(title, str):
            self._writer.title = title
        elif _is_message(line):
            if line["type"] == "assistant":
                self._add_answer(line)
            elif _is_results(line):
                self._add_results(line)
            else:
                self._add_prompt(line)

    def _add_prompt(self, line: JsonLine) -> None:
        key = str(line.get("uuid"))
        if line.get("isCompactSummary") is True:
            self._writer.add_compaction(key, "\n".join(list_texts(line["message"]["content"])), auto=True)
            return
        self._add_blocks(
            self._writer.start_prompt(key), key, _list_blocks(line), synthetic=line.get("isMeta") is True
        )

    def _add_blocks(
        self, id: MessageID, key: str, blocks: list[dict[str, Any]], *, synthetic: bool = False
    ) -> None:
        for number, block in enumerate(blocks):
            image = _to_data_url(block)
            if image is not None:
                self._writer.add_file(id, f"{key} {number}", *image)
            else:
                self._writer.add_text(id, f"{key} {number}", _get_text(block), synthetic=synthetic)

    def _add_results(self, line: JsonLine) -> None:
        """Add results, and text that the user wrote in the same message."""
        for block in _list_blocks(line):
            if block.get("type") == "tool_result":
                content = block.get("content")
                blocks = content if isinstance(content, list) else []
                files = [url for each in blocks if isinstance(each, dict) and (url := _to_data_url(each))]
                call, output = str(block.get("tool_use_id")), "\n".join(list_texts(content))
                failed = block.get("is_error") is True
                if not self._writer.add_result(call, output, failed=failed, files=tuple(files)):
                    reason = f"a result for {call}, but no such call"
                    self.troubles.append(ImportTrouble(where=self._path, reason=reason))
        blocks = [block for block in _list_blocks(line) if block.get("type") != "tool_result"]
        if blocks:
            key = str(line.get("uuid"))
            self._add_blocks(self._writer.start_prompt(key), key, blocks)

    def _add_answer(self, line: JsonLine) -> None:
        message, key = line["message"], _answer_key(line)
        model = message.get("model")
        if isinstance(model, str) and model != SYNTHETIC:
            self._writer.model = model
        if key not in self._answers:
            self._answers[key] = self._writer.start_answer(key)
        id = self._answers[key]
        for number, block in enumerate(_list_blocks(line)):
            self._add_block(id, f"{line.get('uuid')} {number}", block)
        calls = any(block.get("type") == "tool_use" for block in _list_blocks(line))
        finish = FINISHES.get(str(message.get("stop_reason"))) or ("tool-calls" if calls else "stop")
        self._writer.update_answer(id, tokens=_to_tokens(message.get("usage")), finish=finish)

    def _add_block(self, id: MessageID, key: str, block: dict[str, Any]) -> None:
        match block:
            case {"type": "thinking", "thinking": str(text)}:
                signature = block.get("signature")
                metadata = {PROVIDER: {"signature": signature}} if signature else None
                self._writer.add_reasoning(id, key, text, metadata)
            case {"type": "redacted_thinking", "data": data}:
                self._writer.add_reasoning(id, key, "", {PROVIDER: {"redactedData": data}})
            case {"type": "tool_use", "id": str(call), "name": str(name)}:
                self._writer.add_call(id, call, *_to_tool(name, block.get("input")))
            case _:
                self._add_blocks(id, key, [block])


def _to_tool(name: str, input: Any) -> tuple[str, dict[str, Any]]:
    tool, arguments = TOOLS.get(name, (name, {}))
    given = input if isinstance(input, dict) else {"input": input}
    return tool, {arguments.get(key, key): value for key, value in given.items()}


def _to_tokens(usage: Any) -> Tokens | None:
    if not isinstance(usage, dict):
        return None
    number = read_counts(usage)
    return Tokens(
        input=number.get("input_tokens", 0),
        output=number.get("output_tokens", 0),
        cache=CacheTokens(
            read=number.get("cache_read_input_tokens", 0), write=number.get("cache_creation_input_tokens", 0)
        ),
    )


def _get_text(block: dict[str, Any]) -> str:
    """Return the text of a block, or its kind if it has none."""
    match block:
        case {"text": str(text)} | {"type": "document", "source": {"type": "text", "data": str(text)}}:
            return text
        case _:
            return f"[{block.get('type')}]"


def _to_data_url(block: dict[str, Any]) -> tuple[str, str] | None:
    """Return MIME type and URL of an image or document; None for other blocks."""
    match block:
        case {
            "type": "image" | "document",
            "source": {"type": "base64", "media_type": str(mime), "data": str(data)},
        }:
            return mime, f"data:{mime};base64,{data}"
        case {"type": "image" | "document", "source": {"type": "url", "url": str(url)}}:
            return "application/octet-stream", url
        case _:
            return None


def _parent_id(path: str, session: str, at: int) -> SessionID | None:
    """Return the id that the parent session gets, which depends on the first line of its own file."""
    places = (path, os.path.join(os.path.dirname(path), f"{session}.jsonl"))
    for place in (*places, os.path.join(os.path.dirname(path), "..", "..", f"{session}.jsonl")):
        if os.path.isfile(place) and not _is_agent(place):
            messages = [
                line for line in read_lines(place, []) if _is_message(line) and not _find_agent(line, place)
            ]
            if messages:
                return TranscriptIds(
                    "claude", session, parse_time(messages[0].get("timestamp")) or at
                ).session
    return None

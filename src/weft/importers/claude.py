"""Transcripts of Claude Code: JSON lines, one file a session, as they lie below `~/.claude/projects`.

A line is a prompt, a piece of an answer (several lines with one message id make one answer), the result of calls (in
the shape of a prompt), a summary, or a note about something else, which is left out. A subagent's lines become a child
session. Lines stand in the order they were written: where a person went back and asked again, both ways are kept.
"""

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

from weft.errors import DocumentError
from weft.importers.transcript import (
    Found,
    Line,
    Names,
    Read,
    Trouble,
    Writer,
    list_files,
    milliseconds,
    read_lines,
    texts,
)
from weft.model.ids import MessageID, SessionID
from weft.model.parcel import Counts
from weft.model.part import CacheTokens, Tokens
from weft.model.project import Project
from weft.transfer.document import sound

PROVIDER = "anthropic"
SYNTHETIC = "<synthetic>"
FINISHES = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool-calls",
    "max_tokens": "length",
    "refusal": "content-filter",
}
# Theirs and ours, where they are the same tool: the name, and the arguments that are called otherwise.
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


class ClaudeTranscripts:
    """The transcripts at a path: one file, or all below a directory."""

    def __init__(self, path: str) -> None:
        self._path = path

    def projects(self) -> list[Project]:
        return []

    def troubles(self) -> Iterator[Trouble]:
        yield from ()

    def found(self) -> list[Found]:
        """Each file's own conversation, then those of its subagents."""
        files = list_files(self._path)
        mains = [Found(name=path, read=partial(_read, path)) for path in files if not _is_agent(path)]
        children = [child for path in files for child in _children(path)]
        return mains + children


def _is_agent(path: str) -> bool:
    return os.path.basename(path).startswith("agent-")


def _children(path: str) -> list[Found]:
    try:
        lines = read_lines(path, [])
    except DocumentError as error:
        return [Found(name=path, read=partial(_refuse, error))] if _is_agent(path) else []
    agents = dict.fromkeys(agent for line in lines if (agent := _agent_of(line, path)))
    return [Found(name=f"{path} ({agent})", read=partial(_read, path, agent=agent)) for agent in agents]


def _refuse(error: DocumentError) -> Read:
    raise error


def _agent_of(line: Line, path: str) -> str:
    """Whose line it is: the empty name is the session's own."""
    if line.get("isSidechain") is not True and not _is_agent(path):
        return ""
    named = line.get("agentId")
    return named if isinstance(named, str) and named else "subagent"


def _read(path: str, *, agent: str = "") -> Read:
    troubles: list[Trouble] = []
    lines = [line for line in read_lines(path, troubles) if _agent_of(line, path) == agent]
    said = [line for line in lines if _is_said(line)]
    if not said:
        raise DocumentError(path, "nothing in it is a conversation of Claude Code")
    telling = _Telling(path, said[0], agent)
    for line in lines:
        telling.hear(line)
    parcel = telling.parcel()
    return Read(
        parcel=sound(parcel, where=path), counted=_count(said), troubles=(*troubles, *telling.troubles)
    )


def _is_said(line: Line) -> bool:
    message = line.get("message")
    return line.get("type") in ("user", "assistant") and isinstance(message, dict) and "content" in message


def _blocks(line: Line) -> list[dict[str, Any]]:
    content = line["message"]["content"]
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _is_results(line: Line) -> bool:
    return line["type"] == "user" and any(block.get("type") == "tool_result" for block in _blocks(line))


def _count(said: list[Line]) -> Counts:
    """By the lines alone: prompts and answers, and the blocks they are made of."""
    prompts = [line for line in said if line["type"] == "user" and not _is_results(line)]
    results = [line for line in said if _is_results(line)]
    answers = {_answer_key(line) for line in said if line["type"] == "assistant"}
    summaries = sum(1 for line in prompts if line.get("isCompactSummary") is True)
    beside = [line for line in results if any(block.get("type") != "tool_result" for block in _blocks(line))]
    blocks = sum(len(_blocks(line)) for line in said if line["type"] == "assistant")
    blocks += sum(len(_blocks(line)) for line in prompts if line.get("isCompactSummary") is not True)
    blocks += sum(1 for line in beside for block in _blocks(line) if block.get("type") != "tool_result")
    return Counts(
        messages=len(prompts) + len(answers) + summaries + len(beside), parts=blocks + 2 * summaries
    )


def _answer_key(line: Line) -> str:
    id = line["message"].get("id")
    return id if isinstance(id, str) else str(line.get("uuid"))


class _Telling:
    """One conversation, line by line."""

    def __init__(self, path: str, first: Line, agent: str) -> None:
        session = str(first.get("sessionId") or os.path.basename(path).removesuffix(".jsonl"))
        at = milliseconds(first.get("timestamp")) or 0
        self._path = path
        self._agent = agent
        # A subagent's own name never depends on its parent's beginning: that may lie in another file.
        self._parent = _parent_id(path, session, at) if agent else None
        names = Names("claude", f"{session} {agent}".strip(), at)
        self._writer = Writer(names, at, directory=str(first.get("cwd") or ""), provider=PROVIDER)
        self._version = f"claude-code {first.get('version') or 'unknown'}"
        self._answers: dict[str, MessageID] = {}
        self.troubles: list[Trouble] = []

    def parcel(self) -> Any:
        if self._agent and not self._writer.title:
            self._writer.title = f"Subagent {self._agent}".removesuffix(" subagent")
        return self._writer.parcel(version=self._version, parent=self._parent)

    def hear(self, line: Line) -> None:
        self._writer.pass_time(milliseconds(line.get("timestamp")))
        title = line.get("summary") or line.get("customTitle") or line.get("aiTitle")
        if line.get("type") in ("summary", "custom-title", "ai-title") and isinstance(title, str):
            self._writer.title = title
        elif _is_said(line):
            if line["type"] == "assistant":
                self._answer(line)
            elif _is_results(line):
                self._results(line)
            else:
                self._prompt(line)

    def _prompt(self, line: Line) -> None:
        key = str(line.get("uuid"))
        if line.get("isCompactSummary") is True:
            self._writer.summarise(key, "\n".join(texts(line["message"]["content"])), auto=True)
            return
        self._say(self._writer.ask(key), key, _blocks(line), synthetic=line.get("isMeta") is True)

    def _say(self, id: MessageID, key: str, blocks: list[dict[str, Any]], *, synthetic: bool = False) -> None:
        for number, block in enumerate(blocks):
            image = _data_url(block)
            if image is not None:
                self._writer.file(id, f"{key} {number}", *image)
            else:
                words = block.get("text") if isinstance(block.get("text"), str) else f"[{block.get('type')}]"
                self._writer.text(id, f"{key} {number}", str(words), synthetic=synthetic)

    def _results(self, line: Line) -> None:
        """Results, and whatever a person said in the same breath."""
        for block in _blocks(line):
            if block.get("type") == "tool_result":
                content = block.get("content")
                blocks = content if isinstance(content, list) else []
                files = [url for each in blocks if isinstance(each, dict) and (url := _data_url(each))]
                call, output = str(block.get("tool_use_id")), "\n".join(texts(content))
                failed = block.get("is_error") is True
                if not self._writer.result(call, output, failed=failed, files=tuple(files)):
                    reason = f"a result for {call}, which nobody called"
                    self.troubles.append(Trouble(where=self._path, reason=reason))
        said = [block for block in _blocks(line) if block.get("type") != "tool_result"]
        if said:
            key = str(line.get("uuid"))
            self._say(self._writer.ask(key), key, said)

    def _answer(self, line: Line) -> None:
        message, key = line["message"], _answer_key(line)
        model = message.get("model")
        if isinstance(model, str) and model != SYNTHETIC:
            self._writer.model = model
        if key not in self._answers:
            self._answers[key] = self._writer.answer(key)
        id = self._answers[key]
        for number, block in enumerate(_blocks(line)):
            self._block(id, f"{line.get('uuid')} {number}", block)
        calls = any(block.get("type") == "tool_use" for block in _blocks(line))
        finish = FINISHES.get(str(message.get("stop_reason"))) or ("tool-calls" if calls else "stop")
        self._writer.amend(id, tokens=_tokens(message.get("usage")), finish=finish)

    def _block(self, id: MessageID, key: str, block: dict[str, Any]) -> None:
        match block:
            case {"type": "thinking", "thinking": str(text)}:
                signature = block.get("signature")
                metadata = {PROVIDER: {"signature": signature}} if signature else None
                self._writer.thought(id, key, text, metadata)
            case {"type": "redacted_thinking", "data": data}:
                self._writer.thought(id, key, "", {PROVIDER: {"redactedData": data}})
            case {"type": "tool_use", "id": str(call), "name": str(name)}:
                self._writer.call(id, call, *_tool(name, block.get("input")))
            case _:
                self._say(id, key, [block])


def _tool(name: str, input: Any) -> tuple[str, dict[str, Any]]:
    tool, arguments = TOOLS.get(name, (name, {}))
    given = input if isinstance(input, dict) else {"input": input}
    return tool, {arguments.get(key, key): value for key, value in given.items()}


def _tokens(usage: Any) -> Tokens | None:
    if not isinstance(usage, dict):
        return None
    number = {key: value for key, value in usage.items() if isinstance(value, int)}
    return Tokens(
        input=number.get("input_tokens", 0),
        output=number.get("output_tokens", 0),
        cache=CacheTokens(
            read=number.get("cache_read_input_tokens", 0), write=number.get("cache_creation_input_tokens", 0)
        ),
    )


def _data_url(block: dict[str, Any]) -> tuple[str, str] | None:
    """Mime type and URL of a picture or a document."""
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
    """The id that the session of the same name gets: it begins with its own first line, in its own file."""
    places = (path, os.path.join(os.path.dirname(path), f"{session}.jsonl"))
    for place in (*places, os.path.join(os.path.dirname(path), "..", "..", f"{session}.jsonl")):
        if os.path.isfile(place) and not _is_agent(place):
            said = [line for line in read_lines(place, []) if _is_said(line) and not _agent_of(line, place)]
            if said:
                return Names("claude", session, milliseconds(said[0].get("timestamp")) or at).session
    return None

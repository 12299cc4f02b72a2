"""Rollouts of Codex: JSON lines, one file a session, as they lie below `~/.codex/sessions`.

A line carries an item of the Responses API (a message, a thought, a call, its result), the circumstances of a turn, or
a note for a screen, of which only the token counts are used. The first versions wrote the items bare.
"""

import json
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
from weft.model.ids import MessageID
from weft.model.parcel import Counts, Parcel
from weft.model.part import CacheTokens, Tokens
from weft.model.project import Project
from weft.transfer.document import sound

PROVIDER = "openai"
SHELLS = ("shell", "local_shell", "shell_command", "exec_command", "container.exec")
CALLS = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call")
RESULTS = ("function_call_output", "custom_tool_call_output")
# What the program itself puts in a person's mouth.
CIRCUMSTANCES = (
    "<environment_context>",
    "<user_instructions>",
    "<permissions instructions>",
    "# AGENTS.md instructions",
    "<INSTRUCTIONS>",
    "<turn_aborted>",
)


class CodexRollouts:
    """The rollouts at a path: one file, or all below a directory."""

    def __init__(self, path: str) -> None:
        self._path = path

    def projects(self) -> list[Project]:
        return []

    def troubles(self) -> Iterator[Trouble]:
        yield from ()

    def found(self) -> list[Found]:
        return [Found(name=path, read=partial(_read, path)) for path in list_files(self._path)]


def _read(path: str) -> Read:
    troubles: list[Trouble] = []
    lines = read_lines(path, troubles)
    items = [(line, item) for line in lines if (item := _item(line))]
    if not items:
        raise DocumentError(path, "nothing in it is a conversation of Codex")
    telling = _Telling(path, lines)
    for line in lines:
        telling.hear(line)
    counted = _count([item for _, item in items], lines)
    return Read(
        parcel=sound(telling.parcel(), where=path), counted=counted, troubles=(*troubles, *telling.troubles)
    )


def _item(line: Line) -> dict[str, Any] | None:
    """The item of a line, if it is part of the conversation."""
    payload = line.get("payload") if line.get("type") == "response_item" else line
    known = ("message", "reasoning", *CALLS, *RESULTS)
    return payload if isinstance(payload, dict) and payload.get("type") in known else None


def _count(items: list[dict[str, Any]], lines: list[Line]) -> Counts:
    """By the items alone. An answer is what the model says between a prompt or results and the next."""
    messages = parts = 0
    answering = False
    for item in items:
        if item["type"] in RESULTS:
            answering = False
        elif item["type"] == "message" and item.get("role") != "assistant":
            answering = False
            messages, parts = messages + 1, parts + len(_content(item))
        else:
            messages += not answering
            answering = True
            parts += len(_content(item)) if item["type"] == "message" else 1
    summaries = sum(1 for line in lines if line.get("type") == "compacted")
    return Counts(messages=messages + 2 * summaries, parts=parts + 2 * summaries)


def _content(item: dict[str, Any]) -> list[dict[str, Any]]:
    content = item.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


class _Telling:
    """One conversation, line by line."""

    def __init__(self, path: str, lines: list[Line]) -> None:
        meta = _meta(lines)
        stamps = (milliseconds(line.get("timestamp")) for line in lines)
        at = milliseconds(meta.get("timestamp")) or next((stamp for stamp in stamps if stamp), 0)
        self._path = path
        self._version = f"codex {meta.get('cli_version') or 'unknown'}"
        session = str(meta.get("id") or os.path.basename(path).removesuffix(".jsonl"))
        directory = meta.get("cwd") or next((cwd for line in lines if (cwd := _turn(line).get("cwd"))), "")
        self._writer = Writer(Names("codex", session, at), at, directory=str(directory), provider=PROVIDER)
        self._answer: MessageID | None = None
        self._last: MessageID | None = None
        self._number = 0
        self.troubles: list[Trouble] = []

    def parcel(self) -> Parcel:
        return self._writer.parcel(version=self._version)

    def hear(self, line: Line) -> None:
        self._number += 1
        self._writer.pass_time(milliseconds(line.get("timestamp")))
        self._writer.model = str(_turn(line).get("model") or self._writer.model)
        match line:
            case {"type": "compacted", "payload": {"message": str(summary)}}:
                self._answer = None
                self._writer.summarise(f"{self._number}", summary, auto=True)
            case {
                "type": "event_msg",
                "payload": {"type": "token_count", "info": {"last_token_usage": usage}},
            }:
                if self._last is not None:
                    self._writer.amend(self._last, tokens=_tokens(usage))
            case _:
                item = _item(line)
                if item is not None:
                    self._take(item, f"{self._number}")

    def _take(self, item: dict[str, Any], key: str) -> None:
        match item["type"]:
            case "message" if item.get("role") != "assistant":
                self._answer = None
                self._prompt(item, key)
            case "message":
                self._say(self._answering(key), key, item, synthetic=False)
                self._finish("stop")
            case "reasoning":
                self._think(self._answering(key), key, item)
            case kind if kind in RESULTS:
                self._answer = None
                self._result(item)
            case _:
                self._call(self._answering(key), key, item)
                self._finish("tool-calls")

    def _answering(self, key: str) -> MessageID:
        if self._answer is None:
            self._answer = self._last = self._writer.answer(key)
        return self._answer

    def _finish(self, finish: str) -> None:
        if self._answer is not None:
            self._writer.amend(self._answer, finish=finish)

    def _prompt(self, item: dict[str, Any], key: str) -> None:
        words = "".join(texts(item.get("content"))).lstrip()
        synthetic = item.get("role") != "user" or words.startswith(CIRCUMSTANCES)
        self._say(self._writer.ask(key), key, item, synthetic=synthetic)

    def _say(self, id: MessageID, key: str, item: dict[str, Any], *, synthetic: bool) -> None:
        for number, block in enumerate(_content(item)):
            url = block.get("image_url")
            if isinstance(url, str):
                mime = url.removeprefix("data:").partition(";")[0] if url.startswith("data:") else "image/*"
                self._writer.file(id, f"{key} {number}", mime, url)
            else:
                words = block["text"] if isinstance(block.get("text"), str) else f"[{block.get('type')}]"
                self._writer.text(id, f"{key} {number}", words, synthetic=synthetic)

    def _think(self, id: MessageID, key: str, item: dict[str, Any]) -> None:
        said = "\n\n".join([*texts(item.get("summary")), *texts(item.get("content"))])
        sealed = {"itemId": item.get("id"), "reasoningEncryptedContent": item.get("encrypted_content")}
        kept = {name: value for name, value in sealed.items() if value}
        self._writer.thought(id, key, said, {PROVIDER: kept} if kept else None)

    def _call(self, id: MessageID, key: str, item: dict[str, Any]) -> None:
        call = item.get("call_id") or item.get("id") or key
        self._writer.call(id, str(call), *_tool(item))
        if item["type"] == "web_search_call":  # its result never leaves the provider
            self._writer.result(str(call), "")

    def _result(self, item: dict[str, Any]) -> None:
        output, failed = _output(item.get("output"))
        if not self._writer.result(str(item.get("call_id")), output, failed=failed):
            reason = f"a result for {item.get('call_id')}, which nobody called"
            self.troubles.append(Trouble(where=self._path, reason=reason))


def _meta(lines: list[Line]) -> dict[str, Any]:
    for line in lines:
        payload = line.get("payload")
        if line.get("type") == "session_meta" and isinstance(payload, dict):
            return payload
    return lines[0] if "id" in lines[0] and "type" not in lines[0] else {}


def _turn(line: Line) -> dict[str, Any]:
    payload = line.get("payload")
    return payload if line.get("type") == "turn_context" and isinstance(payload, dict) else {}


def _tool(item: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    name = str(
        item.get("name")
        or {"local_shell_call": "shell", "web_search_call": "websearch"}.get(item["type"], "")
    )
    given = item.get("arguments", item.get("input", item.get("action")))
    input = _object(given)
    if name in SHELLS:
        match input.get("command", input.get("cmd")):
            case ["bash" | "sh" | "zsh" | "/bin/bash" | "/bin/sh", "-lc" | "-c", str(script)]:
                return "bash", {**input, "command": script}
            case [*words]:
                return "bash", {**input, "command": " ".join(map(str, words))}
            case str(script):
                return "bash", {**input, "command": script}
            case _:
                pass
    return name, input


def _object(given: Any) -> dict[str, Any]:
    if isinstance(given, str):
        try:
            parsed = json.loads(given)
        except ValueError:
            return {"input": given}
        return parsed if isinstance(parsed, dict) else {"input": given}
    return given if isinstance(given, dict) else {}


def _output(output: Any) -> tuple[str, bool]:
    """The words of a result, and whether it failed. It may be JSON in a text, with the words inside."""
    if isinstance(output, str):
        inner = _object(output) if output.startswith("{") else {}
        if isinstance(inner.get("output"), str):
            code = (inner.get("metadata") or {}).get("exit_code")
            return inner["output"], isinstance(code, int) and code != 0 and not inner["output"]
        return output, False
    if isinstance(output, dict):
        return "\n".join(texts(output.get("content"))), output.get("success") is False
    return "\n".join(texts(output)), False


def _tokens(usage: Any) -> Tokens | None:
    if not isinstance(usage, dict):
        return None
    number = {key: value for key, value in usage.items() if isinstance(value, int)}
    cached, thought = number.get("cached_input_tokens", 0), number.get("reasoning_output_tokens", 0)
    return Tokens(
        input=max(0, number.get("input_tokens", 0) - cached),
        output=max(0, number.get("output_tokens", 0) - thought),
        reasoning=thought,
        cache=CacheTokens(read=cached),
    )

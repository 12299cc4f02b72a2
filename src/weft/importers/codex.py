"""Read rollouts of Codex: JSON lines, one file per session, below `~/.codex/sessions`.

A line contains an item of the Responses API (a message, reasoning, a call, its result), the context of a turn, or an
event for the screen, of which only token counts are used. The first versions wrote the items without an envelope.
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
from weft.model.ids import MessageID
from weft.model.part import CacheTokens, Tokens
from weft.model.transfer import ExportCounts, SessionExport
from weft.model.wire import parse
from weft.transfer.document import check_export

PROVIDER = "openai"
SHELLS = ("shell", "local_shell", "shell_command", "exec_command", "container.exec")
CALLS = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call")
RESULTS = ("function_call_output", "custom_tool_call_output")
# The beginnings of texts that Codex itself inserts as user messages.
CONTEXT_MARKERS = (
    "<environment_context>",
    "<user_instructions>",
    "<permissions instructions>",
    "# AGENTS.md instructions",
    "<INSTRUCTIONS>",
    "<turn_aborted>",
)


def list_codex_sessions(path: str) -> list[FoundSession]:
    """Return the conversations at a path: that of one file, or those of all files below a directory."""
    return [FoundSession(name=each, read=partial(_read, each)) for each in list_files(path)]


def _read(path: str) -> ImportedSession:
    troubles: list[ImportTrouble] = []
    lines = read_lines(path, troubles)
    items = [(line, item) for line in lines if (item := _find_item(line))]
    if not items:
        raise DocumentError(path, "nothing in it is a conversation of Codex")
    conversation = _CodexConversation(path, lines)
    for line in lines:
        conversation.add(line)
    counted = _count([item for _, item in items], lines)
    return ImportedSession(
        export=check_export(conversation.to_export(), where=path),
        counted=counted,
        troubles=(*troubles, *conversation.troubles),
    )


def _find_item(line: JsonLine) -> dict[str, Any] | None:
    """Return the item of a line if it belongs to the conversation."""
    payload = line.get("payload") if line.get("type") == "response_item" else line
    known = ("message", "reasoning", *CALLS, *RESULTS)
    return payload if isinstance(payload, dict) and payload.get("type") in known else None


def _count(items: list[dict[str, Any]], lines: list[JsonLine]) -> ExportCounts:
    """Count messages and parts from the items alone. An answer extends from a prompt or results to the next one."""
    messages = parts = 0
    answering = False
    for item in items:
        if item["type"] in RESULTS:
            answering = False
        elif item["type"] == "message" and item.get("role") != "assistant":
            answering = False
            messages, parts = messages + 1, parts + len(list_blocks(item.get("content")))
        else:
            messages += not answering
            answering = True
            parts += len(list_blocks(item.get("content"))) if item["type"] == "message" else 1
    summaries = sum(1 for line in lines if line.get("type") == "compacted")
    return ExportCounts(messages=messages + 2 * summaries, parts=parts + 2 * summaries)


class _CodexConversation:
    """Converts one conversation line by line."""

    def __init__(self, path: str, lines: list[JsonLine]) -> None:
        meta = _find_meta(lines)
        stamps = (parse_time(line.get("timestamp")) for line in lines)
        at = parse_time(meta.get("timestamp")) or next((stamp for stamp in stamps if stamp), 0)
        self._path = path
        self._version = f"codex {meta.get('cli_version') or 'unknown'}"
        session = str(meta.get("id") or os.path.basename(path).removesuffix(".jsonl"))
        directory = meta.get("cwd") or next(
            (cwd for line in lines if (cwd := _find_turn(line).get("cwd"))), ""
        )
        self._writer = TranscriptWriter(
            TranscriptIds("codex", session, at), at, directory=str(directory), provider=PROVIDER
        )
        self._answer: MessageID | None = None
        self._last: MessageID | None = None
        self._number = 0
        self.troubles: list[ImportTrouble] = []

    def to_export(self) -> SessionExport:
        return self._writer.to_export(version=self._version)

    def add(self, line: JsonLine) -> None:
        self._number += 1
        self._writer.advance_time(parse_time(line.get("timestamp")))
        self._writer.model = str(_find_turn(line).get("model") or self._writer.model)
        match line:
            case {"type": "compacted", "payload": {"message": str(summary)}}:
                self._answer = None
                self._writer.add_compaction(f"{self._number}", summary, auto=True)
            case {
                "type": "event_msg",
                "payload": {"type": "token_count", "info": {"last_token_usage": usage}},
            }:
                if self._last is not None:
                    self._writer.update_answer(self._last, tokens=_to_tokens(usage))
            case _:
                item = _find_item(line)
                if item is not None:
                    self._add_item(item, f"{self._number}")

    def _add_item(self, item: dict[str, Any], key: str) -> None:
        match item["type"]:
            case "message" if item.get("role") != "assistant":
                self._answer = None
                self._add_prompt(item, key)
            case "message":
                self._add_content(self._get_answer(key), key, item, synthetic=False)
                self._finish("stop")
            case "reasoning":
                self._add_reasoning(self._get_answer(key), key, item)
            case kind if kind in RESULTS:
                self._answer = None
                self._add_result(item)
            case _:
                self._add_call(self._get_answer(key), key, item)
                self._finish("tool-calls")

    def _get_answer(self, key: str) -> MessageID:
        if self._answer is None:
            self._answer = self._last = self._writer.start_answer(key)
        return self._answer

    def _finish(self, finish: str) -> None:
        if self._answer is not None:
            self._writer.update_answer(self._answer, finish=finish)

    def _add_prompt(self, item: dict[str, Any], key: str) -> None:
        words = "".join(list_texts(item.get("content"))).lstrip()
        synthetic = item.get("role") != "user" or words.startswith(CONTEXT_MARKERS)
        self._add_content(self._writer.start_prompt(key), key, item, synthetic=synthetic)

    def _add_content(self, id: MessageID, key: str, item: dict[str, Any], *, synthetic: bool) -> None:
        for number, block in enumerate(list_blocks(item.get("content"))):
            image = _find_image(block)
            if image is not None:
                self._writer.add_file(id, f"{key} {number}", *image)
            else:
                words = block["text"] if isinstance(block.get("text"), str) else f"[{block.get('type')}]"
                self._writer.add_text(id, f"{key} {number}", words, synthetic=synthetic)

    def _add_reasoning(self, id: MessageID, key: str, item: dict[str, Any]) -> None:
        text = "\n\n".join([*list_texts(item.get("summary")), *list_texts(item.get("content"))])
        encrypted = {"itemId": item.get("id"), "reasoningEncryptedContent": item.get("encrypted_content")}
        metadata = {name: value for name, value in encrypted.items() if value}
        self._writer.add_reasoning(id, key, text, {PROVIDER: metadata} if metadata else None)

    def _add_call(self, id: MessageID, key: str, item: dict[str, Any]) -> None:
        call = item.get("call_id") or item.get("id") or key
        self._writer.add_call(id, str(call), *_to_tool(item))
        if item["type"] == "web_search_call":  # the transcript never contains its result
            self._writer.add_result(str(call), "")

    def _add_result(self, item: dict[str, Any]) -> None:
        output, failed = _to_output(item.get("output"))
        images = [image for block in list_blocks(item.get("output")) if (image := _find_image(block))]
        if not self._writer.add_result(str(item.get("call_id")), output, failed=failed, files=tuple(images)):
            reason = f"a result for {item.get('call_id')}, but no such call"
            self.troubles.append(ImportTrouble(where=self._path, reason=reason))


def _find_meta(lines: list[JsonLine]) -> dict[str, Any]:
    """Return what a rollout says about its session: id, directory, version. The first versions wrote it as the first line."""
    for line in lines:
        payload = line.get("payload")
        if line.get("type") == "session_meta" and isinstance(payload, dict):
            return payload
    return lines[0] if "id" in lines[0] and "type" not in lines[0] else {}


def _find_turn(line: JsonLine) -> dict[str, Any]:
    payload = line.get("payload")
    return payload if line.get("type") == "turn_context" and isinstance(payload, dict) else {}


def _to_tool(item: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    name = str(
        item.get("name")
        or {"local_shell_call": "shell", "web_search_call": "websearch"}.get(item["type"], "")
    )
    given = item.get("arguments", item.get("input", item.get("action")))
    input = _to_object(given)
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


def _find_image(block: dict[str, Any]) -> tuple[str, str] | None:
    """Return MIME type and URL of an image, None for other blocks."""
    url = block.get("image_url")
    if not isinstance(url, str):
        return None
    return url.removeprefix("data:").partition(";")[0] if url.startswith("data:") else "image/*", url


def _to_object(given: Any) -> dict[str, Any]:
    if isinstance(given, str):
        try:
            parsed = parse(given.encode(errors="surrogatepass"))
        except DocumentError:
            return {"input": given}
        return parsed if isinstance(parsed, dict) else {"input": given}
    return given if isinstance(given, dict) else {}


def _to_output(output: Any) -> tuple[str, bool]:
    """Return the text of a result, and whether it failed. The result may be JSON with the text inside."""
    if isinstance(output, str):
        inner = _to_object(output) if output.startswith("{") else {}
        if isinstance(inner.get("output"), str):
            metadata = inner.get("metadata")
            code = metadata.get("exit_code") if isinstance(metadata, dict) else None
            return inner["output"], isinstance(code, int) and code != 0 and not inner["output"]
        return output, False
    if isinstance(output, dict):
        return "\n".join(list_texts(output.get("content"))), output.get("success") is False
    return "\n".join(list_texts(output)), False


def _to_tokens(usage: Any) -> Tokens | None:
    if not isinstance(usage, dict):
        return None
    number = read_counts(usage)
    cached, thought = number.get("cached_input_tokens", 0), number.get("reasoning_output_tokens", 0)
    return Tokens(
        input=max(0, number.get("input_tokens", 0) - cached),
        output=max(0, number.get("output_tokens", 0) - thought),
        reasoning=thought,
        cache=CacheTokens(read=cached),
    )

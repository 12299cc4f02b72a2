"""Show tool calls to an editor: their kind, the files they touch and what they changed (pure)."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from acp.schema import (
    ContentToolCallContent,
    FileEditToolCallContent,
    TerminalToolCallContent,
    ToolCallLocation,
    ToolCallProgress,
    ToolCallStart,
    ToolCallStatus,
    ToolKind,
)
from msgspec import Struct

from weft.acp.content import to_text_block
from weft.model.display import INVALID, find_call_error, get_called_tool, strip_tags
from weft.model.ids import MessageID, PartID
from weft.model.message import UserMessage
from weft.model.part import CompletedState, ErrorState, PendingState, RunningState, ToolPart

CallContent = ContentToolCallContent | FileEditToolCallContent | TerminalToolCallContent

TOOL_KINDS: Final[Mapping[str, ToolKind]] = {
    "bash": "execute",
    "jobs": "execute",
    "webfetch": "fetch",
    "websearch": "fetch",
    "codesearch": "fetch",
    "edit": "edit",
    "multiedit": "edit",
    "write": "edit",
    "apply_patch": "edit",
    "grep": "search",
    "glob": "search",
    "lsp": "search",
    "recall": "search",
    "history": "search",
    "read": "read",
    "list": "read",
    "skill": "read",
    "todowrite": "think",
    "todoread": "think",
    "task": "think",
    "plan_enter": "switch_mode",
    "plan_exit": "switch_mode",
}
MAX_TITLE_LENGTH: Final = 200
MAX_OUTPUT_LENGTH: Final = 32_000
MAX_TAIL_LENGTH: Final = 4_000  # of the output of a running call, which is sent again with each update
MAX_VALUE_LENGTH: Final = 4_000
MAX_VALUES: Final = 100
MAX_FILES: Final = 50


class EditorToolCall(Struct, frozen=True, kw_only=True):
    """A call as an editor shows it. The model's paths are relative to `directory`; a `terminal` shows its own output."""

    part: ToolPart
    directory: str
    terminal: str | None = None

    @property
    def kind(self) -> ToolKind:
        return TOOL_KINDS.get(self.part.tool, "other")

    @property
    def input(self) -> dict[str, Any]:
        return self.part.state.input

    def to_start(self) -> ToolCallStart:
        """Return the first update of a call, with everything."""
        return ToolCallStart(session_update="tool_call", tool_call_id=self.part.id, **self._to_fields())

    def to_progress(self) -> ToolCallProgress:
        return ToolCallProgress(
            session_update="tool_call_update", tool_call_id=self.part.id, **self._to_fields()
        )

    def _to_fields(self) -> dict[str, Any]:
        return {
            "title": self.title(),
            "kind": self.kind,
            "status": self.status(),
            "content": self.content() or None,
            "locations": self.locations() or None,
            "raw_input": shorten_values(self.input) if self.input else None,
        }

    def status(self) -> ToolCallStatus:
        match self.part.state:
            case PendingState():
                return "pending"
            case RunningState():
                return "in_progress"
            case CompletedState():
                return "completed"
            case ErrorState():
                return "failed"

    def title(self) -> str:
        if self.part.tool == "bash" and isinstance(self.input.get("command"), str):
            return shorten(self.input["command"], MAX_TITLE_LENGTH)
        invalid = find_call_error(self.part) if self.part.tool == INVALID else None
        subject = invalid or getattr(self.part.state, "title", None) or self._find_subject()
        name = get_called_tool(self.part).replace("_", " ").capitalize()
        return shorten(f"{name} {subject}".strip(), MAX_TITLE_LENGTH)

    def _find_subject(self) -> str:
        """Return what the call is about, from its arguments."""
        for key in ("filePath", "path", "pattern", "url", "query", "description"):
            if isinstance(value := self.input.get(key), str):
                return value
        return ""

    def paths(self) -> list[str]:
        """Return the absolute paths of the files that the call touches, as far as they are known."""
        metadata = self.metadata()
        candidates = [self.input.get("filePath"), metadata.get("filepath")]
        if self.kind in ("read", "search"):
            candidates.append(self.input.get("path"))
        candidates += [change.get("movePath") or change.get("filePath") for change in list_changes(metadata)]
        absolute = [
            os.path.join(self.directory, path) for path in candidates if isinstance(path, str) and path
        ]
        return list(dict.fromkeys(absolute))[:MAX_FILES]

    def locations(self) -> list[ToolCallLocation]:
        offset = self.input.get("offset")
        line = offset + 1 if self.part.tool == "read" and type(offset) is int and offset >= 0 else None
        return [ToolCallLocation(path=path, line=line) for path in self.paths()]

    def metadata(self) -> dict[str, Any]:
        return getattr(self.part.state, "metadata", None) or {}

    def content(self) -> list[CallContent]:
        if self.terminal is not None:
            return [TerminalToolCallContent(type="terminal", terminal_id=self.terminal)]
        match self.part.state:
            case PendingState():
                return []
            case RunningState():
                return list(self._list_progress())
            case ErrorState(error=error):
                return [to_text_content(shorten(strip_tags(self.part.tool, error), MAX_OUTPUT_LENGTH))]
            case CompletedState(output=output):
                # The diff says everything about an edit, except what is wrong with the file now.
                return list(self.diffs()) or (
                    [to_text_content(shorten(strip_tags(self.part.tool, output), MAX_OUTPUT_LENGTH))]
                    if output
                    else []
                )

    def _list_progress(self) -> Iterator[CallContent]:
        metadata = self.metadata()
        if isinstance(output := metadata.get("output"), str) and output:
            yield to_text_content(output[-MAX_TAIL_LENGTH:])
        if isinstance(calls := metadata.get("summary"), list) and calls:
            yield to_text_content("\n".join(_list_child_calls(calls)))

    def diffs(self) -> Iterator[FileEditToolCallContent]:
        """Yield what the call changed or, before that, what it asks to change."""
        metadata = self.metadata()
        if isinstance(filediff := metadata.get("filediff"), dict):
            yield from self._to_diffs({"filePath": filediff.get("file"), "type": "update", **filediff})
            return
        for change in list_changes(metadata):
            yield from self._to_diffs(change)
        if self.part.tool == "write" and isinstance(content := self.input.get("content"), str):
            yield from (to_diff(path, None, content) for path in self.paths()[:1])

    def requested_diffs(self) -> Iterator[FileEditToolCallContent]:
        """Yield the changes that the arguments ask for, as pieces of a file. They may not be checked yet."""
        edits = self.input.get("edits")
        for edit in edits if isinstance(edits, list) and edits else [self.input]:
            old, new = (
                (edit.get("oldString"), edit.get("newString")) if isinstance(edit, dict) else (None, None)
            )
            if isinstance(old, str) and isinstance(new, str):
                yield from (to_diff(path, old, new) for path in self.paths()[:1])

    def _to_diffs(self, change: Mapping[str, Any]) -> Iterator[FileEditToolCallContent]:
        path, before, after = (
            change.get("movePath") or change.get("filePath"),
            change.get("before"),
            change.get("after"),
        )
        if not (isinstance(path, str) and isinstance(before, str) and isinstance(after, str)):
            return
        if before == after == "" and change.get("type") != "add":
            return  # too large to be stored
        yield to_diff(
            os.path.join(self.directory, path), None if change.get("type") == "add" else before, after
        )


def to_diff(path: str, old: str | None, new: str) -> FileEditToolCallContent:
    return FileEditToolCallContent(type="diff", path=path, old_text=old, new_text=new)


def list_changes(metadata: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the changes of files in the metadata of a patch."""
    files = metadata.get("files")
    return [each for each in files[:MAX_FILES] if isinstance(each, dict)] if isinstance(files, list) else []


def to_text_content(text: str) -> ContentToolCallContent:
    return ContentToolCallContent(type="content", content=to_text_block(text))


def _list_child_calls(calls: Iterable[Any]) -> Iterator[str]:
    """Yield the calls of a child session, one per line."""
    for call in list(calls)[-MAX_VALUES:]:
        if isinstance(call, dict) and isinstance(state := call.get("state"), dict):
            title = state.get("title") or state.get("status") or ""
            yield shorten(f"{call.get('tool')}: {title}", MAX_TITLE_LENGTH)


def shorten(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def shorten_values(value: Any, depth: int = 6) -> Any:
    """Return a value with long texts and lists shortened: the content of a written file is already sent as a diff."""
    match value:
        case str():
            return shorten(value, MAX_VALUE_LENGTH)
        case dict() if depth:
            return {
                shorten(str(key), MAX_TITLE_LENGTH): shorten_values(each, depth - 1)
                for key, each in list(value.items())[:MAX_VALUES]
            }
        case list() | tuple() if depth:
            return [shorten_values(each, depth - 1) for each in value[:MAX_VALUES]]
        case dict() | list() | tuple():
            return "…"
        case _:
            return value


class OverwriteTracker:
    """Finds the text that a `write` call overwrote. The call does not contain it; the diff of the prompt does, if no
    other call touched the file."""

    def __init__(self, worktree: str) -> None:
        self._worktree = worktree
        self._prompt: MessageID | None = None
        self._touched: Counter[str] = Counter()
        self._overwritten: dict[str, PartID] = {}

    def record(self, call: EditorToolCall) -> None:
        if not isinstance(call.part.state, CompletedState) or call.kind != "edit":
            return
        self._touched.update(call.paths())
        if call.part.tool == "write" and call.metadata().get("exists") is True:
            self._overwritten |= dict.fromkeys(call.paths(), call.part.id)

    def list_corrections(self, prompt: UserMessage) -> Iterator[ToolCallProgress]:
        """Yield the writes of this prompt again, with the text that they overwrote."""
        if prompt.id != self._prompt:
            self._prompt, self._touched, self._overwritten = prompt.id, Counter(), {}
        for diff in prompt.summary.diffs if prompt.summary else ():
            path = os.path.join(self._worktree, diff.file)
            call = self._overwritten.pop(path, None) if self._touched[path] == 1 else None
            if call is not None and (diff.before or diff.after):
                content = to_diff(path, diff.before, diff.after)
                yield ToolCallProgress(
                    session_update="tool_call_update", tool_call_id=call, content=[content]
                )

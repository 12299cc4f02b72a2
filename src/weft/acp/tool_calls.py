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

from weft.acp.content import words
from weft.model.ids import MessageID, PartID
from weft.model.message import UserMessage
from weft.model.part import CompletedState, ErrorState, PendingState, RunningState, ToolPart
from weft.model.readable import INVALID, fault_of, name_of, readable

CallContent = ContentToolCallContent | FileEditToolCallContent | TerminalToolCallContent

KINDS: Final[Mapping[str, ToolKind]] = {
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
    "read": "read",
    "list": "read",
    "skill": "read",
    "todowrite": "think",
    "todoread": "think",
    "task": "think",
    "plan_enter": "switch_mode",
    "plan_exit": "switch_mode",
}
LONGEST_TITLE: Final = 200
LONGEST_OUTPUT: Final = 32_000
LONGEST_TAIL: Final = 4_000  # of what a call has said so far: it is sent anew each time
LONGEST_VALUE: Final = 4_000
MOST_VALUES: Final = 100
MOST_FILES: Final = 50


class Call(Struct, frozen=True, kw_only=True):
    """A call as it is to be shown. Paths of the model are from `directory`; a `terminal` shows what it says by itself."""

    part: ToolPart
    directory: str
    terminal: str | None = None

    @property
    def kind(self) -> ToolKind:
        return KINDS.get(self.part.tool, "other")

    @property
    def input(self) -> dict[str, Any]:
        return self.part.state.input

    def to_start(self) -> ToolCallStart:
        """All of it, for one that was not shown yet."""
        return ToolCallStart(session_update="tool_call", tool_call_id=self.part.id, **self._fields())

    def to_progress(self) -> ToolCallProgress:
        return ToolCallProgress(
            session_update="tool_call_update", tool_call_id=self.part.id, **self._fields()
        )

    def _fields(self) -> dict[str, Any]:
        return {
            "title": self.title(),
            "kind": self.kind,
            "status": self.status(),
            "content": self.content() or None,
            "locations": self.locations() or None,
            "raw_input": shortened(self.input) if self.input else None,
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
            return cut(self.input["command"], LONGEST_TITLE)
        invalid = fault_of(self.part) if self.part.tool == INVALID else None
        said = invalid or getattr(self.part.state, "title", None) or self._subject()
        name = name_of(self.part).replace("_", " ").capitalize()
        return cut(f"{name} {said}".strip(), LONGEST_TITLE)

    def _subject(self) -> str:
        """What it is about, while it has not said so itself."""
        for key in ("filePath", "path", "pattern", "url", "query", "description"):
            if isinstance(found := self.input.get(key), str):
                return found
        return ""

    def paths(self) -> list[str]:
        """The files it is about, as far as they are known, as absolute paths."""
        metadata = self.metadata()
        found = [self.input.get("filePath"), metadata.get("filepath")]
        if self.kind in ("read", "search"):
            found.append(self.input.get("path"))
        found += [change.get("movePath") or change.get("filePath") for change in changes_in(metadata)]
        absolute = [os.path.join(self.directory, path) for path in found if isinstance(path, str) and path]
        return list(dict.fromkeys(absolute))[:MOST_FILES]

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
                return list(self._so_far())
            case ErrorState(error=error):
                return [told(cut(readable(self.part.tool, error), LONGEST_OUTPUT))]
            case CompletedState(output=output):
                # What was changed says all there is to say of an edit but what is wrong with it now.
                return list(self.diffs()) or (
                    [told(cut(readable(self.part.tool, output), LONGEST_OUTPUT))] if output else []
                )

    def _so_far(self) -> Iterator[CallContent]:
        metadata = self.metadata()
        if isinstance(output := metadata.get("output"), str) and output:
            yield told(output[-LONGEST_TAIL:])
        if isinstance(calls := metadata.get("summary"), list) and calls:
            yield told("\n".join(_below(calls)))

    def diffs(self) -> Iterator[FileEditToolCallContent]:
        """What it changed, or, before it has, what it asks to change."""
        metadata = self.metadata()
        if isinstance(filediff := metadata.get("filediff"), dict):
            yield from self._changed({"filePath": filediff.get("file"), "type": "update", **filediff})
            return
        for change in changes_in(metadata):
            yield from self._changed(change)
        if self.part.tool == "write" and isinstance(content := self.input.get("content"), str):
            yield from (to_diff(path, None, content) for path in self.paths()[:1])

    def wished(self) -> Iterator[FileEditToolCallContent]:
        """What its arguments ask for: pieces of a file, and what is to stand in their place."""
        for edit in self.input.get("edits") or [self.input]:
            old, new = (
                (edit.get("oldString"), edit.get("newString")) if isinstance(edit, dict) else (None, None)
            )
            if isinstance(old, str) and isinstance(new, str):
                yield from (to_diff(path, old, new) for path in self.paths()[:1])

    def _changed(self, change: Mapping[str, Any]) -> Iterator[FileEditToolCallContent]:
        path, before, after = (
            change.get("movePath") or change.get("filePath"),
            change.get("before"),
            change.get("after"),
        )
        if not (isinstance(path, str) and isinstance(before, str) and isinstance(after, str)):
            return
        if before == after == "" and change.get("type") != "add":
            return  # too large to have been kept
        yield to_diff(
            os.path.join(self.directory, path), None if change.get("type") == "add" else before, after
        )


def to_diff(path: str, old: str | None, new: str) -> FileEditToolCallContent:
    return FileEditToolCallContent(type="diff", path=path, old_text=old, new_text=new)


def changes_in(metadata: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The files of a patch, as its metadata has them."""
    files = metadata.get("files")
    return [each for each in files[:MOST_FILES] if isinstance(each, dict)] if isinstance(files, list) else []


def told(text: str) -> ContentToolCallContent:
    return ContentToolCallContent(type="content", content=words(text))


def _below(calls: Iterable[Any]) -> Iterator[str]:
    """What a child is at: its calls, one a line."""
    for call in list(calls)[-MOST_VALUES:]:
        if isinstance(call, dict) and isinstance(state := call.get("state"), dict):
            title = state.get("title") or state.get("status") or ""
            yield cut(f"{call.get('tool')}: {title}", LONGEST_TITLE)


def cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def shortened(value: Any, depth: int = 6) -> Any:
    """The same with long texts and long lists cut short: a file that is written need not be sent three times."""
    match value:
        case str():
            return cut(value, LONGEST_VALUE)
        case dict() if depth:
            return {
                cut(str(key), LONGEST_TITLE): shortened(each, depth - 1)
                for key, each in list(value.items())[:MOST_VALUES]
            }
        case list() | tuple() if depth:
            return [shortened(each, depth - 1) for each in value[:MOST_VALUES]]
        case dict() | list() | tuple():
            return "…"
        case _:
            return value


class Writes:
    """A call of `write` does not say what was there before. What a prompt changed does, if nothing else of it touched the file."""

    def __init__(self, worktree: str) -> None:
        self._worktree = worktree
        self._prompt: MessageID | None = None
        self._touched: Counter[str] = Counter()
        self._over: dict[str, PartID] = {}

    def note(self, call: Call) -> None:
        if not isinstance(call.part.state, CompletedState) or call.kind != "edit":
            return
        self._touched.update(call.paths())
        if call.part.tool == "write" and call.metadata().get("exists") is True:
            self._over |= dict.fromkeys(call.paths(), call.part.id)

    def corrected(self, prompt: UserMessage) -> Iterator[ToolCallProgress]:
        """The writes of this prompt, with what they wrote over."""
        if prompt.id != self._prompt:
            self._prompt, self._touched, self._over = prompt.id, Counter(), {}
        for diff in prompt.summary.diffs if prompt.summary else ():
            path = os.path.join(self._worktree, diff.file)
            call = self._over.pop(path, None) if self._touched[path] == 1 else None
            if call is not None and (diff.before or diff.after):
                shown = to_diff(path, diff.before, diff.after)
                yield ToolCallProgress(session_update="tool_call_update", tool_call_id=call, content=[shown])

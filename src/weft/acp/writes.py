"""Files that were written over: what they held before is known once the step's changes were worked out (pure)."""

import os
from collections import Counter
from collections.abc import Iterator

from acp.schema import ToolCallProgress

from weft.acp.calls import Call, to_diff
from weft.model.ids import MessageID, PartID
from weft.model.message import UserMessage
from weft.model.part import CompletedState


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

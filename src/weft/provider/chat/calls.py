"""Calls of tools as Chat Completions streams them: pieces by index, where the server has one."""

from typing import Any

import msgspec
from msgspec import Struct

from weft.provider.chunk import AnyChunk, ToolCall, ToolInputDelta, ToolInputStart
from weft.provider.faults import nameless


class FunctionDelta(Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | list[Any] | None = None


class CallDelta(Struct):
    index: int | None = None
    id: str | int | None = None
    function: FunctionDelta | None = None


class Writing(Struct):
    """A call while it is written. It is told of once its name is known."""

    id: str
    server_id: str
    tool: str = ""
    pieces: list[str] = []
    whole: bool = False


class CallsFold:
    """The calls of one answer. Servers leave out ids, names and indices, or repeat them; what can be meant is taken."""

    def __init__(self) -> None:
        self.answer = "call"
        self.told = False
        self._writing: dict[int, Writing] = {}

    def feed(self, delta: CallDelta) -> list[AnyChunk]:
        chunks: list[AnyChunk] = []
        index = self._place(delta)
        call = self._writing.get(index)
        if call is None:
            chunks += self._settled()
            server_id = str(delta.id or "")
            call = self._writing[index] = Writing(
                id=server_id or f"{self.answer}_{index}", server_id=server_id, pieces=[]
            )
        if call.whole:
            return chunks
        return chunks + self._grow(call, delta.function or FunctionDelta())

    def end(self) -> list[AnyChunk]:
        """No more pieces come: every call is as whole as it will be."""
        return [chunk for call in self._writing.values() if not call.whole for chunk in self._close(call)]

    def _place(self, delta: CallDelta) -> int:
        """Which call a piece belongs to: an id and name of its own begin another, whatever the index says."""
        last = max(self._writing, default=-1)
        index = delta.index if delta.index is not None else last
        call = self._writing.get(index)
        if call is None:
            return max(index, 0) if delta.index is not None else last + 1
        named = delta.function is not None and bool(delta.function.name)
        other = bool(delta.id) and str(delta.id) != call.server_id and bool(call.tool)
        nameless = delta.index is None and not delta.id and named
        return last + 1 if named and (other or nameless) else index

    def _grow(self, call: Writing, function: FunctionDelta) -> list[AnyChunk]:
        chunks: list[AnyChunk] = []
        said = function.arguments
        text = said if isinstance(said, str) else "" if said is None else msgspec.json.encode(said).decode()
        if text:
            call.pieces.append(text)
        if not call.tool and function.name:
            call.tool = function.name
            self.told = True
            chunks.append(ToolInputStart(call_id=call.id, tool=call.tool))
            text = "".join(call.pieces)
        if text and call.tool:
            chunks.append(ToolInputDelta(call_id=call.id, text=text))
        return chunks

    def _settled(self) -> list[AnyChunk]:
        """Another call begins: those before it that are whole need not wait for it."""
        chunks: list[AnyChunk] = []
        for call in self._writing.values():
            if not call.whole and call.tool and _is_json("".join(call.pieces)):
                chunks += self._close(call)
        return chunks

    def _close(self, call: Writing) -> list[AnyChunk]:
        if not call.tool:
            raise nameless()
        call.whole = True
        raw = "".join(call.pieces)
        return [ToolCall(call_id=call.id, tool=call.tool, raw=raw if raw.strip() else "{}")]


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True

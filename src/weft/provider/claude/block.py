"""A block of an answer while Claude streams it, over whichever API."""

from typing import Literal

from msgspec import Struct

from weft.provider.chunk import AnyChunk, ReasoningDelta, ReasoningEnd, TextEnd, ToolCall, ToolInputDelta
from weft.provider.claude.thoughts import ending, to_metadata


class OpenBlock(Struct):
    """Its kind, the id we tell it by, and what it holds so far."""

    kind: Literal["text", "reasoning", "call"]
    id: str
    tool: str = ""
    pieces: list[str] = []
    tail: str = ""
    signature: str = ""
    redacted: str = ""

    def write(self, text: str) -> list[AnyChunk]:
        """The input of a call goes on."""
        if not text:
            return []
        self.pieces.append(text)
        return [ToolInputDelta(call_id=self.id, text=text)]

    def think(self, text: str, signature: str) -> list[AnyChunk]:
        self.signature += signature
        if not text:
            return []
        self.tail = ending(self.tail, text)
        return [ReasoningDelta(id=self.id, text=text)]

    def close(self, key: str) -> AnyChunk:
        """What ends it. `key` is the provider's, under which it finds again what it signed."""
        match self.kind:
            case "text":
                return TextEnd(id=self.id)
            case "call":
                raw = "".join(self.pieces)
                return ToolCall(call_id=self.id, tool=self.tool, raw=raw if raw.strip() else "{}")
            case "reasoning":
                redacted = {key: {"redactedData": self.redacted}} if self.redacted else None
                return ReasoningEnd(
                    id=self.id, metadata=redacted or to_metadata(key, self.signature, self.tail)
                )

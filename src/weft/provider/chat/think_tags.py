"""Thoughts that a model writes into its text, between `<think>` and `</think>`, told apart as they stream."""

from typing import Final, Literal

OPEN: Final = "<think>"
CLOSE: Final = "</think>"

Kind = Literal["text", "reasoning"]
Piece = tuple[Kind, str]


class ThinkSplitter:
    """Feed it text, cut anywhere; it gives the pieces and what they are. What may yet become a tag is held back.

    OpenCode takes the tag for one wherever it stands, and an answer about such tags loses its words. We take it only
    where a thought can begin: before the first word of the text, or right after another thought.
    """

    def __init__(self) -> None:
        self._held = ""
        self._inside = False
        self._may_open = True
        self._after_tag = False

    def feed(self, text: str) -> list[Piece]:
        if not self._may_open and not self._inside:
            return [("text", text)]
        self._held += text
        pieces: list[Piece] = []
        while self._trimmed() and self._step(pieces):
            pass
        return pieces

    def _trimmed(self) -> bool:
        """Whether something is held, without the space that follows a tag."""
        if self._after_tag:
            self._held = self._held.lstrip()
            self._after_tag = not self._held
        return bool(self._held)

    def end(self) -> list[Piece]:
        """What was held back is what it looks like."""
        held, self._held = self._held, ""
        kind: Kind = "reasoning" if self._inside else "text"
        return [(kind, held)] if held and (self._inside or held.strip()) else []

    def _step(self, pieces: list[Piece]) -> bool:
        """Take one piece off what is held; false when more has to come first."""
        if self._inside:
            return self._think(pieces)
        bare = self._held.lstrip()
        if bare.startswith(OPEN):
            self._inside, self._after_tag, self._held = True, True, bare[len(OPEN) :]
            return True
        if OPEN.startswith(bare):
            return False
        self._may_open = False
        pieces.append(("text", self._held))
        self._held = ""
        return False

    def _think(self, pieces: list[Piece]) -> bool:
        thought, tag, rest = self._held.partition(CLOSE)
        if tag:
            if thought:
                pieces.append(("reasoning", thought))
            self._inside, self._after_tag, self._held = False, True, rest
            return True
        keep = _overlap(self._held)
        if len(self._held) > keep:
            pieces.append(("reasoning", self._held[: len(self._held) - keep]))
            self._held = self._held[len(self._held) - keep :]
        return False


def _overlap(text: str) -> int:
    """How many of the last letters may be the beginning of the closing tag."""
    for size in range(min(len(CLOSE) - 1, len(text)), 0, -1):
        if text.endswith(CLOSE[:size]):
            return size
    return 0

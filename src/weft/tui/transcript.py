"""The lines of a transcript that a person scrolls, folds and searches (pure).

Each item is rendered once for a width. Only the last ones are rendered at first, and older ones when somebody scrolls to them; so
neither a resize nor memory grows with the length of a session. What is being streamed is the tail, which is replaced as a whole.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, Literal

from msgspec.structs import replace

from weft.model.display import format_count, sanitize
from weft.tui.render import RenderOptions, render_item, squash
from weft.tui.text import EMPTY_LINE, Line, cut, to_plain_text, wrap
from weft.tui.view import AnswerItem, CallItem, Item, LinesItem, NoticeItem, PromptItem, ReasoningItem

FoldLevel = Literal["line", "brief", "full"]
# How many lines are kept rendered. Older ones are rendered again when they are scrolled to.
MAX_LINES: Final = 4000
# How many lines are rendered at once when somebody scrolls up.
PAGE_LINES: Final = 400
MAX_OUTPUT_LINES: Final = 400


class TranscriptLines:
    """Items as lines. The entries before `first` are not rendered; line 0 is the first line of entry `first`."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.items: list[Item] = []
        self.first = 0
        self.tools: FoldLevel = "brief"
        self.reasoning: FoldLevel = "line"
        self._folds: dict[int, FoldLevel] = {}  # of single entries, by their place
        self._lines: list[list[Line]] = []  # of the entries from `first` on
        self._starts: list[int] = [
            0
        ]  # the line at which each of them begins; the last is where the tail begins
        self._tail: list[Line] = []

    # --- lines ---

    @property
    def height(self) -> int:
        return self._starts[-1] + len(self._tail)

    def get_line(self, number: int) -> Line:
        """Return a line; an empty one after the end."""
        entry = bisect_right(self._starts, number) - 1
        rest = number - self._starts[entry]
        lines = self._lines[entry] if entry < len(self._lines) else self._tail
        return lines[rest] if 0 <= rest < len(lines) else EMPTY_LINE

    def find_entry(self, number: int) -> int:
        """Return the place of the item that a line belongs to; that of the last item for lines of the tail."""
        return self.first + max(0, min(bisect_right(self._starts, number) - 1, len(self._lines) - 1))

    def get_extent(self, entry: int) -> tuple[int, int]:
        """Return the first line of an item and the one after its last. The item is rendered if it was not yet."""
        if entry < self.first:
            self.render_older(until=entry)
        at = entry - self.first
        return (
            (self._starts[at], self._starts[at + 1]) if at < len(self._lines) else (self.height, self.height)
        )

    # --- content ---

    def append(self, items: Sequence[Item], *, keep: bool = False) -> int:
        """Add items at the end. Return how many lines at the top are no longer rendered; none with `keep`."""
        for item in items:
            self.items.append(item)
            self._lines.append(self._render(len(self.items) - 1))
            self._starts.append(self._starts[-1] + len(self._lines[-1]))
        return 0 if keep else self._drop_old()

    def _drop_old(self) -> int:
        """Forget the oldest lines if there are too many, in large steps because the starts of all others change."""
        surplus = self._starts[-1] - MAX_LINES
        if surplus < PAGE_LINES:
            return 0
        count = max(bisect_right(self._starts, surplus) - 1, 0)
        lines = self._starts[count]
        del self._lines[:count]
        self._starts = [start - lines for start in self._starts[count:]]
        self.first += count
        return lines

    def prepend(self, items: Sequence[Item]) -> int:
        """Add older items before all others. Return how many lines that adds at the top."""
        self.items[:0] = items
        self.first += len(items)
        self._folds = {entry + len(items): level for entry, level in self._folds.items()}
        return self.render_older()

    def render_older(self, until: int | None = None) -> int:
        """Render items before the first rendered one: a page, or all down to `until`. Return how many lines that adds at the top."""
        added, lines = list[list[Line]](), 0
        while self.first > 0 and (lines < PAGE_LINES if until is None else self.first > until):
            self.first -= 1
            added.append(self._render(self.first))
            lines += len(added[-1])
        self._lines[:0] = reversed(added)
        self._count()
        return lines

    def set_tail(self, lines: list[Line]) -> None:
        self._tail = lines

    def resize(self, width: int) -> None:
        """Render for another width: the last items now, the others when they are scrolled to."""
        self.width = width
        self._lines, self._starts, self.first = [], [0], len(self.items)
        self.render_older()

    def _count(self) -> None:
        starts = [0]
        for lines in self._lines:
            starts.append(starts[-1] + len(lines))
        self._starts = starts

    # --- folding ---

    def get_level(self, entry: int) -> FoldLevel:
        """Return how an item is shown: as one line, briefly or in full."""
        match self.items[entry]:
            case CallItem():
                return self._folds.get(entry, self.tools)
            case ReasoningItem():
                return self._folds.get(entry, self.reasoning)
            case _:
                return "full"

    def fold(self, entry: int) -> bool:
        """Show an item at its next level: brief, full, one line. Return False if it cannot be folded."""
        match self.items[entry]:
            case CallItem():
                following: dict[FoldLevel, FoldLevel] = {"brief": "full", "full": "line", "line": "brief"}
            case ReasoningItem():
                following = {"brief": "full", "full": "line", "line": "full"}
            case _:
                return False
        self._folds[entry] = following[self.get_level(entry)]
        if entry >= self.first:
            self._lines[entry - self.first] = self._render(entry)
            self._count()
        return True

    def fold_all(self, kind: Literal["tools", "reasoning"]) -> FoldLevel:
        """Fold or unfold all calls or all reasoning. Return how they are shown now."""
        if kind == "tools":
            self.tools = "line" if self.tools == "brief" else "brief"
        else:
            self.reasoning = "full" if self.reasoning == "line" else "line"
        wanted = CallItem if kind == "tools" else ReasoningItem
        self._folds = {at: fold for at, fold in self._folds.items() if not isinstance(self.items[at], wanted)}
        for at in range(self.first, len(self.items)):
            if isinstance(self.items[at], wanted):
                self._lines[at - self.first] = self._render(at)
        self._count()
        return self.tools if kind == "tools" else self.reasoning

    def _render(self, entry: int) -> list[Line]:
        item, level = self.items[entry], self.get_level(entry)
        options = RenderOptions(width=self.width, reasoning=level == "full", undo="/undo")
        match item:
            case CallItem() if level == "line":
                hidden = replace(item, diff="", output="", error=item.error and squash(item.error)[:200])
                more = count_hidden(item)
                lines = render_item(hidden, options)
                return [cut([*lines[0], ("dim", f" · {more}")], self.width), *lines[1:]] if more else lines
            case CallItem() if level == "full" and not item.diff:
                head = render_item(replace(item, output=""), options)
                return [*head, *self._render_output(item.output)]
            case _:
                return render_item(item, options)

    def _render_output(self, output: str) -> list[Line]:
        rows = sanitize(output).rstrip("\n").split("\n") if output.strip() else []
        lines = [
            line
            for row in rows[:MAX_OUTPUT_LINES]
            for line in wrap([("dim", row)], self.width, first=[("", "  ")], rest=[("", "  ")])
        ]
        hidden = len(rows) - MAX_OUTPUT_LINES
        return [*lines, [("dim", f"  … {format_count(hidden, 'more line')}")]] if hidden > 0 else lines

    # --- finding ---

    def find_prompt(self, entry: int, *, forward: bool) -> int | None:
        """Return the place of the next prompt after an item, or of the previous one before it."""
        return self._find(entry, lambda item: isinstance(item, PromptItem), forward=forward)

    def find_words(self, words: str, entry: int, *, forward: bool) -> int | None:
        """Return the place of the next item that contains the words, in either case; None if there is none."""
        low = words.lower()
        return self._find(entry, lambda item: low in to_copy(item).lower(), forward=forward)

    def _find(self, entry: int, matches: Callable[[Item], bool], *, forward: bool) -> int | None:
        places = range(entry + 1, len(self.items)) if forward else range(entry - 1, -1, -1)
        return next((at for at in places if matches(self.items[at])), None)

    def find_line(self, words: str, entry: int) -> int:
        """Return the first line of an item that shows the words, or its first line."""
        start, end = self.get_extent(entry)
        low = words.lower()
        return next(
            (at for at in range(start, end) if low in to_plain_text([self.get_line(at)]).lower()), start
        )

    def list_turn(self, entry: int) -> list[Item]:
        """Return the items of the turn that an item belongs to: from its prompt to before the next."""
        prompts = [at for at, item in enumerate(self.items) if isinstance(item, PromptItem)]
        for begin, end in pairwise((0, *prompts, len(self.items))):
            if begin <= entry < end:
                return self.items[begin:end]
        return []


def count_hidden(item: CallItem) -> str:
    """Return what folding hides of a call, or an empty text."""
    if item.diff:
        rows = item.diff.split("\n")
        added = sum(row.startswith("+") for row in rows)
        return f"+{added} -{sum(row.startswith('-') for row in rows)}"
    count = len(item.output.strip().split("\n")) if item.output.strip() else 0
    return format_count(count, "line") if count else ""


def to_copy(item: Item) -> str:
    """Return the text of an item as one would paste it: Markdown as it was written, code without its fence."""
    match item:
        case PromptItem(text=text) | ReasoningItem(text=text) | NoticeItem(text=text):
            return text
        case AnswerItem(block=block):
            return block.text
        case CallItem():
            return "\n".join(
                each for each in (item.title, item.error or "", item.diff, item.output.rstrip("\n")) if each
            )
        case LinesItem(lines=lines):
            return to_plain_text(lines)
        case _:
            return to_plain_text(render_item(item, RenderOptions(width=200))).strip("\n")

"""The parts of the full screen: lines in the colours of a theme, the transcript, and the prompt."""

import os
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple, Protocol, Self, cast

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.geometry import Region, Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input, TextArea

from weft.tui.complete import Suggestion
from weft.tui.paste import Pastes
from weft.tui.render import squash
from weft.tui.text import EMPTY_LINE, Line, cut, to_plain_text
from weft.tui.theme import TRANSPARENT, Palette
from weft.tui.transcript import TranscriptLines
from weft.tui.vi import Effect, ViKeys
from weft.tui.view import Item, PromptItem

GUTTER: Final = 2
MAX_PROMPTS: Final = 1000
# The end of a long file is enough.
MAX_BYTES: Final = 4 << 20
WHEEL_LINES: Final = 3
# How many lines a widget keeps drawn.
MAX_DRAWN: Final = 300
MAX_SUGGESTIONS: Final = 8


@lru_cache(maxsize=512)
def to_style(words: str, palette: Palette, background: str = "") -> Style:
    """Return the look of a fragment: its words, such as `bold ansired`, in the colours of a theme."""
    given = words.split()
    colours = [colour for word in given if (colour := palette.find_colour(word))]
    colour = colours[-1] if colours else palette.text
    back = background or palette.background
    return Style(
        color=_to_colour(colour),
        bgcolor=_to_colour(back),
        bold="bold" in given,
        italic="italic" in given,
        underline="underline" in given,
        strike="strike" in given,
        reverse="reverse" in given,
    )


def _to_colour(name: str) -> str:
    """Return the name that rich gives to a colour."""
    return "default" if name == TRANSPARENT else name.removeprefix("ansi_")


def to_strip(line: Line, width: int, palette: Palette, background: str = "") -> Strip:
    """Return a line that fills a width."""
    segments = [Segment(text, to_style(words, palette, background)) for words, text in line if text]
    return Strip(segments).adjust_cell_length(width, to_style("", palette, background))


def mark_words(line: Line, words: str) -> Line:
    """Return a line in which the words stand out, in upper or lower case."""
    low = words.lower()
    if not low or low not in to_plain_text([line]).lower():
        return line
    marked = list[tuple[str, str]]()
    for style, text in line:
        # Some characters are longer in lower case, such as `İ`. For each character of the lower case, its place in the text.
        places = [place for place, character in enumerate(text) for _ in character.lower()]
        lowered, at, done = text.lower(), 0, 0
        while (at := lowered.find(low, at)) >= 0:
            begin, end = max(places[at], done), places[at + len(low) - 1] + 1
            marked += [(style, text[done:begin]), (f"{style} reverse", text[begin:end])]
            at, done = at + len(low), end
        marked.append((style, text[done:]))
    return marked


class LineWidget(Widget):
    """A widget that draws lines itself. Lines that were drawn are kept, because most of them only move."""

    def __init__(self, *, id: str, background: str, indent: int = 1) -> None:
        super().__init__(id=id)
        self.palette: Palette | None = None
        self._background = background
        self._indent = indent
        self._drawn: dict[int, tuple[Line, Strip]] = {}
        self._rendered: tuple[Region, Size, list[Strip]] | None = None
        self._area = Size(0, 0)  # the size that is rendered now, kept because Textual is slow to find it

    def render_lines(self, crop: Region) -> list[Strip]:
        # Textual would look up borders, padding and filters for each line; there are none. It asks for the lines of all
        # widgets whenever one of them has changed.
        self._area = area = self.size
        if self._rendered is not None and self._rendered[:2] == (crop, area):
            return self._rendered[2]
        strips = [self.render_line(y) for y in range(crop.y, crop.bottom)]
        if crop.x or crop.right != area.width:
            strips = [strip.crop(crop.x, crop.right) for strip in strips]
        self._rendered = (crop, area, strips)
        return strips

    def refresh(
        self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False
    ) -> Self:
        self._rendered = None
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)

    def draw(self, line: Line, palette: Palette, background: str = "") -> Strip:
        """Return a line, indented, that fills the width."""
        kept = self._drawn.get(id(line))
        if kept is not None and kept[0] is line:
            return kept[1]
        if len(self._drawn) > MAX_DRAWN:
            self._drawn.clear()
        back: str = background or getattr(palette, self._background)
        strip = to_strip([("", " " * self._indent), *line], self._area.width, palette, back)
        self._drawn[id(line)] = (line, strip)
        return strip

    def forget_drawn(self) -> None:
        self._drawn.clear()

    def on_resize(self) -> None:
        self.forget_drawn()


class LinePanel(LineWidget):
    """Lines that are always shown as a whole."""

    def __init__(self, *, id: str, background: str = "panel") -> None:
        super().__init__(id=id, background=background)
        self._lines: list[Line] = []

    def set_lines(self, lines: list[Line], palette: Palette) -> None:
        """Show lines. The panel is hidden if there are none."""
        if lines == self._lines and palette is self.palette:
            return
        if len(lines) != len(self._lines):
            self.styles.height = len(lines)
            self.display = bool(lines)
        self._lines, self.palette = lines, palette
        self.forget_drawn()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        if self.palette is None:
            return Strip.blank(self._area.width)
        line = self._lines[y] if y < len(self._lines) else EMPTY_LINE
        return self.draw(line, self.palette)


class SuggestionPanel(LinePanel):
    """Suggestions for what to type next. A key chooses one."""

    def __init__(self, *, id: str, background: str) -> None:
        super().__init__(id=id, background=background)
        self._suggestions: list[Suggestion] = []
        self._at = -1

    @property
    def is_open(self) -> bool:
        return bool(self._suggestions)

    @property
    def chosen(self) -> Suggestion | None:
        return self._suggestions[self._at] if self._at >= 0 else None

    def suggest(self, suggestions: list[Suggestion], palette: Palette) -> None:
        """Show suggestions, with none chosen yet. Without suggestions, close the panel."""
        self._suggestions, self._at, self.palette = suggestions[:MAX_SUGGESTIONS], -1, palette
        self._show()

    def clear(self) -> None:
        self._suggestions, self._at = [], -1
        self._show()

    def press(self, key: str) -> bool:
        """Choose another suggestion, or close the panel. Return False if the key is for something else."""
        if key == "escape":
            self.clear()
            return True
        step = {"tab": 1, "down": 1, "ctrl+n": 1, "shift+tab": -1, "up": -1, "ctrl+p": -1}.get(key)
        if step is None:
            return False
        at = self._at if self._at >= 0 or step > 0 else 0
        self._at = (at + step) % len(self._suggestions)
        self._show()
        return True

    def _show(self) -> None:
        if self.palette is None:
            return
        assert isinstance(self.parent, Widget), "it is a part of the screen"
        width = max(self.parent.size.width - 2, 10)
        lines: list[Line] = []
        for at, each in enumerate(self._suggestions):
            chosen = at == self._at
            mark = ("bold ansiaccent" if chosen else "", f"{'▌' if chosen else ' '} {squash(each.text)}")
            lines.append(cut([mark, ("dim", f"  {squash(each.about)}")], width))
        self.set_lines(lines, self.palette)


class LineView(LineWidget, can_focus=True):
    """Lines that are scrolled."""

    def __init__(self, *, id: str, background: str = "background") -> None:
        super().__init__(id=id, background=background)
        self.top = 0
        self._lines: list[Line] = []

    def set_lines(self, lines: list[Line], palette: Palette) -> None:
        if lines == self._lines and palette is self.palette:
            return
        self._lines, self.palette = lines, palette
        self.forget_drawn()
        self.go_to(self.top)

    @property
    def count(self) -> int:
        return len(self._lines)

    @property
    def end(self) -> int:
        """The first line that is seen at the end."""
        return max(0, self.count - self.size.height)

    def go_to(self, line: int) -> None:
        """Scroll so that a line is the first that is seen."""
        self.top = min(max(0, line), self.end)
        self.refresh()

    def on_mouse_scroll_up(self) -> None:
        self.go_to(self.top - WHEEL_LINES)

    def on_mouse_scroll_down(self) -> None:
        self.go_to(self.top + WHEEL_LINES)

    def render_line(self, y: int) -> Strip:
        if self.palette is None:
            return Strip.blank(self._area.width)
        number = y + self.top
        line = self._lines[number] if number < len(self._lines) else EMPTY_LINE
        strip = self.draw(line, self.palette)
        return add_scrollbar(strip, y, ScrollPlace(self.top, self.count, self._area), self.palette)


class ScrollPlace(NamedTuple):
    """Where a scrolled widget is: its first line that is seen, of how many, and its size."""

    top: int
    total: int
    size: Size


def add_scrollbar(strip: Strip, y: int, place: ScrollPlace, palette: Palette) -> Strip:
    """Draw a piece of a scrollbar over the last cell of a line, if there is more than is seen."""
    height, width = place.size.height, strip.cell_length
    if place.total <= height:
        return strip
    length = max(1, height * height // place.total)
    begin = (height - length) * place.top // max(place.total - height, 1)
    if not begin <= y < begin + length:
        return strip
    return Strip.join([strip.crop(0, width - 1), Strip([Segment("▐", to_style("ansiborder", palette))], 1)])


class TranscriptView(LineWidget, can_focus=True):
    """A transcript: items are rendered once, and older ones when they are scrolled to.

    `sync` takes over what is new. It follows the end of the text unless somebody scrolled up. It scrolls itself, because
    Textual would arrange the whole screen again with each line that is added.
    """

    class ReachedTop(Message):
        """Everything is rendered and the first line is near: older messages may be loaded."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, background="background", indent=GUTTER)
        self.lines = TranscriptLines(80)
        self.words = ""
        self.cursor: int | None = None  # the item that keys are for, while the transcript has the focus
        self.follows = True
        self.top = 0
        self._source: list[Item] | None = None
        self._taken = 0

    # --- content ---

    def sync(self, items: list[Item], tail: list[Line], palette: Palette) -> None:
        """Show the items that are new since the last call, and the open end.

        A different list belongs to a different session, and is shown from the beginning.
        """
        if items is not self._source:
            self._source, self._taken, self.follows, self.cursor = items, 0, True, None
            levels = self.lines.tools, self.lines.reasoning
            self.lines = TranscriptLines(self.lines.width)
            self.lines.tools, self.lines.reasoning = levels
        if palette is not self.palette:
            self.forget_drawn()
        self.palette = palette
        fresh, self._taken = items[self._taken :], len(items)
        dropped = self.lines.append(fresh, keep=not self.follows)
        self.lines.set_tail(tail)
        self._update(-dropped)

    def load_older(self, items: list[Item]) -> None:
        self.cursor = None if self.cursor is None else self.cursor + len(items)
        self._update(self.lines.prepend(items))

    def _update(self, shift: int = 0) -> None:
        """Adapt to a changed number of lines. `shift` is how far they moved down."""
        self.top = self.end if self.follows else min(max(0, self.top + shift), self.end)
        self.refresh()

    def set_width(self, width: int) -> None:
        """Wrap lines for a width before the widget is laid out."""
        self.lines.resize(max(width - GUTTER - 1, 10))

    def on_resize(self) -> None:
        self.forget_drawn()
        width = max(self.size.width - GUTTER - 1, 10)
        if width != self.lines.width:
            entry = self.lines.find_entry(self.top) if not self.follows and self.lines.items else None
            self.lines.resize(width)
            self._update()
            if entry is not None:
                self.go_to(self.lines.get_extent(entry)[0])
        else:
            self._update()

    # --- scrolling ---

    @property
    def end(self) -> int:
        """The first line that is seen at the end."""
        return max(0, self.lines.height - self.size.height)

    def move(self, lines: int) -> None:
        """Scroll by a number of lines, up if it is negative."""
        self.go_to(max(self.top + lines, 0))

    def go_to(self, line: int) -> None:
        """Scroll so that a line is the first that is seen; a negative one stands for the very first."""
        if line < 0 and self.lines.items:
            self.lines.get_extent(0)
        elif line < self.size.height:
            line += self.lines.render_older()
        if line < self.size.height and self.lines.first == 0:
            self.post_message(self.ReachedTop())
        self.top = min(max(0, line), self.end)
        self.follows = self.top >= self.end
        self.refresh()

    def on_key(self, event: events.Key) -> None:
        ask_first(self, event)

    def on_mouse_scroll_up(self) -> None:
        self.move(-WHEEL_LINES)

    def on_mouse_scroll_down(self) -> None:
        self.move(WHEEL_LINES)

    def show_entry(self, entry: int, line: int | None = None) -> None:
        """Scroll so that an item, or a line of it, is seen."""
        before = self.lines.height
        start, end = self.lines.get_extent(entry)
        self.top += self.lines.height - before
        wanted, height = start if line is None else line, self.size.height
        last = wanted if line is not None else min(end - 1, wanted + height - 1)
        if wanted < self.top:
            self.go_to(max(wanted - (height // 3 if line is not None else 0), 0))
        elif last >= self.top + height:
            self.go_to(wanted - height // 3 if line is not None else last - height + 1)
        self.refresh()

    # --- the selected item ---

    def select(self, entry: int) -> None:
        if self.lines.items:
            self.cursor = max(0, min(entry, len(self.lines.items) - 1))
            self.show_entry(self.cursor)

    def select_last(self) -> None:
        """Select the last item that is seen."""
        if self.lines.items:
            self.cursor = self.lines.find_entry(self.top + self.size.height - 1)
            self.refresh()

    def find(self, *, forward: bool) -> bool:
        """Go to the next item with the words that were searched for, or to the previous one."""
        count = len(self.lines.items)
        here = self.cursor if self.cursor is not None else count
        found = self.lines.find_words(self.words, here, forward=forward)
        if found is None:  # begin again at the other end
            found = self.lines.find_words(self.words, -1 if forward else count, forward=forward)
        if found is None:
            return False
        self.cursor = found
        self.show_entry(found, self.lines.find_line(self.words, found))
        return True

    def mark(self, words: str) -> None:
        """Make words stand out wherever they are seen."""
        self.words = words
        self.refresh()

    def fold(self) -> None:
        if self.cursor is not None and self.lines.fold(self.cursor):
            self._update()
            self.show_entry(self.cursor)

    def fold_all(self, kind: str) -> None:
        self.lines.fold_all("tools" if kind == "tools" else "reasoning")
        self._update()

    def render_line(self, y: int) -> Strip:
        palette = self.palette
        if palette is None:
            return Strip.blank(self._area.width)
        number = y + self.top
        line = self.lines.get_line(number)
        entry = self.lines.find_entry(number) if self.lines.items else None
        is_prompt = entry is not None and isinstance(self.lines.items[entry], PromptItem) and bool(line)
        is_chosen = entry is not None and entry == self.cursor and self.app.focused is self and bool(line)
        background = palette.element if is_prompt else palette.background
        if is_chosen or self.words:
            mark = ("bold ansiaccent", "▌ " if is_chosen else "  ")
            strip = to_strip([mark, *mark_words(line, self.words)], self._area.width, palette, background)
        else:
            strip = self.draw(line, palette, background)
        return add_scrollbar(strip, y, ScrollPlace(self.top, self.lines.height, self._area), palette)


class KeyApp(Protocol):
    """The application, which is asked about each key first. `press` returns False if the key is text."""

    def press(self, key: str, character: str | None) -> bool: ...


def ask_first(widget: Widget, event: events.Key) -> None:
    """Let the application handle a key, in the order in which keys arrive. After a change of focus it is for the new one."""
    focused = widget.app.focused
    if focused is not None and focused is not widget:
        focused.post_message(events.Key(event.key, event.character))
        event.stop()
        event.prevent_default()
        return
    app: object = widget.app
    if cast(KeyApp, app).press(event.key, event.character):
        event.stop()
        event.prevent_default()


class SteadyInput(Input):
    """One line of text. Its cursor does not blink: the screen would be drawn again twice a second while nothing happens."""

    def on_mount(self) -> None:
        self.cursor_blink = False


class SearchField(SteadyInput):
    """Where the words of a search are typed."""

    async def _on_key(self, event: events.Key) -> None:
        # Textual calls this first, and then that of the base class unless it is prevented.
        ask_first(self, event)


class PromptArea(TextArea):
    """Where the person types. What is pasted is shown as `pastes` say."""

    async def _on_key(self, event: events.Key) -> None:
        # Textual calls this first, and then that of the base class unless it is prevented.
        ask_first(self, event)

    def __init__(self, pastes: Pastes, *, id: str, vi: bool = False) -> None:
        super().__init__(id=id, soft_wrap=True, show_line_numbers=False, compact=True, tab_behavior="focus")
        self._pastes = pastes
        self._vi = ViKeys() if vi else None
        self.highlight_cursor_line = False
        self.cursor_blink = False  # as in `SteadyInput`

    @property
    def is_normal(self) -> bool:
        """True if vi takes letters for commands."""
        return self._vi is not None and not self._vi.is_inserting

    def press_vi(self, key: str, character: str | None) -> Effect | None:
        """Handle a key as vi does. Return what else the caller has to do, or None if the key means nothing in vi."""
        vi, text, cursor = self._vi, self.text, len(self.text_before_cursor)
        if vi is None or (vi.is_inserting and key != "escape"):
            return None
        if key == "ctrl+r":
            self.action_redo()
            return ""
        if key != "escape" and (character is None or not character.isprintable()):
            return None
        typed = vi.leave_insert(text, cursor) if key == "escape" else vi.feed(character or "", text, cursor)
        if typed.effect == "undo":
            self.action_undo()
        elif not typed.effect:
            if typed.text != text:
                self.replace(typed.text, (0, 0), self.document.end)
            before = typed.text[: typed.cursor]
            self.move_cursor((before.count("\n"), len(before.rpartition("\n")[2])))
        return typed.effect

    @property
    def text_before_cursor(self) -> str:
        row, column = self.cursor_location
        return "\n".join((*self.text.split("\n")[:row], self.text.split("\n")[row][:column]))

    def set_text(self, text: str) -> None:
        self.text = text
        self.move_cursor(self.document.end)

    def take(self) -> str:
        """Return what was typed, and clear the prompt."""
        text, self.text = self.text, ""
        if self._vi is not None:
            self._vi.reset()
        return text

    def put(self, text: str, *, instead_of: int = 0) -> None:
        """Insert text at the cursor, instead of the characters before it."""
        row, column = self.cursor_location
        self.replace(text, (row, max(column - instead_of, 0)), (row, column))

    async def _on_paste(self, event: events.Paste) -> None:
        event.prevent_default()
        event.stop()
        self.put(self._pastes.fold(event.text))


class ChildPane(Vertical):
    """A child session beside its parent: a line about it, and its transcript."""

    def compose(self) -> ComposeResult:
        yield LinePanel(id="child-head")
        yield TranscriptView(id="child-transcript")


# --- the history of prompts, in the format of prompt_toolkit, which inline mode uses ---


def read_history(path: str) -> list[str]:
    """Return the prompts of a history file, oldest first; none if it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - MAX_BYTES))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return []
    prompts: list[str] = []
    rows: list[str] = []
    for line in (*lines, ""):
        if line.startswith("+"):
            rows.append(line[1:])
        elif rows:
            prompts.append("\n".join(rows))
            rows = []
    return prompts[-MAX_PROMPTS:]


def append_history(path: str, text: str, now: int) -> None:
    """Add a prompt with the time at which it was typed (ms). A file that cannot be written is left alone."""
    try:
        with open(path, "ab") as file:
            rows = "".join(f"+{row}\n" for row in text.split("\n"))
            file.write(f"\n# {datetime.fromtimestamp(now / 1000, UTC):%Y-%m-%d %H:%M:%S}\n{rows}".encode())
    except OSError:
        return

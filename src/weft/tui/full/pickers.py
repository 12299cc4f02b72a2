"""What opens over the full screen: lists to choose from, pages to read, and the list of sessions."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Generic, Literal, NamedTuple, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from weft.model.display import sanitize
from weft.model.session import SessionInfo, get_weft_data, is_archived
from weft.tui.full.widgets import LinePanel, LineView, SteadyInput
from weft.tui.render import squash
from weft.tui.text import Line, cut, measure, wrap
from weft.tui.theme import Palette

Chosen = TypeVar("Chosen")
MAX_ROWS: Final = 500
MIN_LIST_HEIGHT: Final = 3
CHROME: Final = 8  # the lines of a picker besides its rows
SHARE: Final = 0.9  # of the width and the height of the screen
MAX_WIDTH: Final = 100
_DAY, _HOUR, _MINUTE = 86_400_000, 3_600_000, 60_000


class PickerRow(NamedTuple, Generic[Chosen]):
    """A row: its value, its name, and a description. `depth` indents it in a tree."""

    value: Chosen
    name: str
    about: str = ""
    depth: int = 0


class Picker(ModalScreen[Chosen | None], Generic[Chosen]):
    """A list that is filtered by typing. Enter chooses, Esc closes."""

    def __init__(
        self, title: str, rows: Sequence[PickerRow[Chosen]], palette: Palette, *, hint: str = ""
    ) -> None:
        super().__init__()
        self._title = title
        self._rows = rows
        self._palette = palette
        self._hint = hint
        self._shown: list[PickerRow[Chosen]] = []
        self._at = 0

    def compose(self) -> ComposeResult:
        with Vertical(id="picker"):
            yield LinePanel(id="picker-title")
            yield SteadyInput(id="picker-words", placeholder="type to filter", compact=True)
            yield LineView(id="picker-rows", background="panel")
            yield LinePanel(id="picker-hint")

    def on_mount(self) -> None:
        self.query_one(LineView).can_focus = False
        self.query_one(Input).focus()
        self.call_after_refresh(self.draw)
        self._filter()

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw)

    # --- rows ---

    def set_rows(self, rows: Sequence[PickerRow[Chosen]], *, title: str = "") -> None:
        self._rows = rows
        self._title = title or self._title
        self._filter()

    def set_hint(self, hint: str) -> None:
        self._hint = hint
        self.draw()

    @property
    def words(self) -> str:
        return self.query_one(Input).value

    @property
    def selected(self) -> PickerRow[Chosen] | None:
        return self._shown[self._at] if self._at < len(self._shown) else None

    def _filter(self) -> None:
        wanted = self.words.lower().split()
        found = [each for each in self._rows if self._matches(each, wanted)]
        self._shown = found[:MAX_ROWS]
        self._at = min(self._at, max(len(self._shown) - 1, 0))
        self.draw()

    def _matches(self, row: PickerRow[Chosen], wanted: list[str]) -> bool:
        text = f"{row.name} {row.about}".lower()
        return all(word in text for word in wanted)

    def draw(self) -> None:
        """Show the rows that match, around the selected one."""
        palette = self._palette
        self.query_one("#picker-title", LinePanel).set_lines(
            [[("bold ansiaccent", self._title), ("dim", f"  {len(self._shown)}")]], palette
        )
        rows = self.query_one(LineView)
        # Before the first layout, the width that the style sheet will give to the rows.
        outer = rows.size.width or min(int(self.app.size.width * SHARE), MAX_WIDTH) - 2
        width = max(outer - 3, 10)
        lines = [self._draw_row(row, at == self._at, width) for at, row in enumerate(self._shown)]
        rows.styles.height = max(min(len(lines), int(self.app.size.height * SHARE) - CHROME), MIN_LIST_HEIGHT)
        rows.set_lines(lines or [[("dim", "nothing matches")]], palette)
        height = max(rows.size.height, 1)
        if not rows.top <= self._at < rows.top + height:
            rows.go_to(self._at - height // 2)
        self.query_one("#picker-hint", LinePanel).set_lines(
            wrap([("dim", self._hint or "Enter chooses · Esc closes")], width), palette
        )

    def _draw_row(self, row: PickerRow[Chosen], chosen: bool, width: int) -> Line:
        name = f"{'  ' * row.depth}{squash(row.name)}"
        about = squash(row.about)
        room = max(width - measure(about) - 2, width // 2)
        shown = cut([("bold ansiaccent" if chosen else "", name)], room)
        space = max(width - sum(measure(text) for _, text in shown) - measure(about) - 2, 2)
        mark = ("bold ansiaccent", "▌ " if chosen else "  ")
        return cut([mark, *shown, ("", " " * space), ("dim", about)], width)

    # --- keys ---

    def on_input_changed(self) -> None:
        self._at = 0
        self._filter()

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key) and await self.press(event.key):
            event.stop()
            event.prevent_default()
            return
        await super().on_event(event)

    async def press(self, key: str) -> bool:
        """Handle a key. Return False if it is typed into the filter."""
        steps = {"up": -1, "ctrl+p": -1, "down": 1, "ctrl+n": 1, "pageup": -10, "pagedown": 10}
        if key in steps:
            self._at = max(0, min(self._at + steps[key], len(self._shown) - 1))
            self.draw()
        elif key == "enter":
            chosen = self.selected
            self.dismiss(chosen.value if chosen is not None else None)
        elif key in ("escape", "ctrl+c"):
            self.dismiss(None)
        else:
            return False
        return True


SessionFilter = Literal["open", "pinned", "archived", "everywhere"]
FILTERS: Final[tuple[SessionFilter, ...]] = ("open", "pinned", "archived", "everywhere")
ReadSessions = Callable[[SessionFilter], Awaitable[list[SessionInfo]]]
SearchSessions = Callable[[str], Awaitable[list[PickerRow[SessionInfo]]]]


class SessionActions(NamedTuple):
    """What the list of sessions can do: read, search in texts, rename and remove. `keys` are those of the last two."""

    read: ReadSessions
    search: SearchSessions
    rename: Callable[[SessionInfo, str], Awaitable[None]]
    remove: Callable[[SessionInfo], Awaitable[None]]
    now: Callable[[], int]
    start: Callable[[Awaitable[None]], None]


class SessionPicker(Picker[SessionInfo]):
    """The sessions of a project: filtered by title and state, as a tree, renamed and removed."""

    def __init__(self, sessions: list[SessionInfo], actions: SessionActions, palette: Palette) -> None:
        self._sessions = sessions
        self._actions = actions
        self._state: SessionFilter = "open"
        self._tree = False
        self._renamed: SessionInfo | None = None
        self._removed: SessionInfo | None = None
        super().__init__("Sessions", to_session_rows(sessions, actions.now(), tree=False), palette, hint=HINT)

    async def press(self, key: str) -> bool:
        chosen = self.selected
        if key != "ctrl+d":
            self._removed = None
        if self._renamed is not None and key in ("enter", "escape"):
            session, self._renamed = self._renamed, None
            if key == "enter":
                self._actions.start(self._rename(session, self.words))
            self._set_words("", HINT)
            return True
        if key == "ctrl+t":
            self._tree = not self._tree
            self._refresh()
        elif key == "ctrl+f":
            self._state = FILTERS[(FILTERS.index(self._state) + 1) % len(FILTERS)]
            self._actions.start(self._read())
        elif key == "ctrl+s":
            self._actions.start(self._search(self.words))
        elif key == "ctrl+r" and chosen is not None:
            self._renamed = chosen.value
            self._set_words(chosen.value.title, "Enter renames · Esc keeps the title")
        elif key == "ctrl+d" and chosen is not None:
            self._remove(chosen.value)
        else:
            return await super().press(key)
        return True

    def _matches(self, row: PickerRow[SessionInfo], wanted: list[str]) -> bool:
        return self._renamed is not None or super()._matches(row, wanted)

    def _set_words(self, words: str, hint: str) -> None:
        self.set_hint(hint)
        typed = self.query_one(Input)
        typed.value = words
        typed.cursor_position = len(words)

    def _remove(self, session: SessionInfo) -> None:
        if self._removed is session:
            self._actions.start(self._remove_now(session))
        else:
            self._removed = session
            self.set_hint("Ctrl-D again moves it to the trash; weft session restore brings it back")

    async def _remove_now(self, session: SessionInfo) -> None:
        await self._actions.remove(session)
        self.set_hint(HINT)
        await self._read()

    async def _rename(self, session: SessionInfo, title: str) -> None:
        if title.strip():
            await self._actions.rename(session, title.strip())
            await self._read()

    async def _read(self) -> None:
        self._sessions = await self._actions.read(self._state)
        self._refresh()

    async def _search(self, words: str) -> None:
        if words.strip():
            rows = await self._actions.search(words)
            self.query_one(Input).value = ""
            self.set_rows(rows, title=f"Sessions with {sanitize(words)!r}")

    def _refresh(self) -> None:
        state = "" if self._state == "open" else f" · {self._state}"
        rows = to_session_rows(self._sessions, self._actions.now(), tree=self._tree)
        self.set_rows(rows, title=f"Sessions{state}{' · tree' if self._tree else ''}")


HINT: Final = "Enter opens · ^F filter · ^T tree · ^S search texts · ^R rename · ^D remove"


def to_session_rows(sessions: list[SessionInfo], now: int, *, tree: bool) -> list[PickerRow[SessionInfo]]:
    """Return the rows of sessions, the last changed first; as a tree with their child sessions, or the roots alone."""
    order = sorted(sessions, key=lambda each: (not _is_pinned(each), -each.time.updated))
    known = {each.id for each in sessions}
    children: dict[str, list[SessionInfo]] = {}
    for each in order:
        parent = each.parent_id if each.parent_id in known else ""
        children.setdefault(parent or "", []).append(each)
    rows: list[PickerRow[SessionInfo]] = []

    def add(parent: str, depth: int) -> None:
        for each in children.get(parent, []):
            marks = f"{'★ ' if _is_pinned(each) else ''}{'archived · ' if is_archived(each) else ''}"
            rows.append(PickerRow(each, each.title, f"{marks}{format_age(now - each.time.updated)}", depth))
            if tree:
                add(each.id, depth + 1)

    add("", 0)
    return rows


def _is_pinned(session: SessionInfo) -> bool:
    return get_weft_data(session).pinned


def format_age(ms: int) -> str:
    for unit, size in (("d", _DAY), ("h", _HOUR), ("m", _MINUTE)):
        if ms >= size:
            return f"{ms // size}{unit} ago"
    return "now"


class PageScreen(ModalScreen[bool]):
    """A page to read: a diff, the keys, what an undo would do. With `confirm`, Enter says yes."""

    def __init__(
        self, title: str, render: Callable[[int], list[Line]], palette: Palette, *, confirm: str = ""
    ) -> None:
        super().__init__()
        self._title = title
        self._render_page = render
        self._palette = palette
        self._confirm = confirm

    def compose(self) -> ComposeResult:
        with Vertical(id="page"):
            yield LinePanel(id="page-title")
            yield LineView(id="page-lines", background="panel")
            yield LinePanel(id="page-hint")

    def on_mount(self) -> None:
        self.query_one(LineView).focus()
        self.call_after_refresh(self.draw)

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw)

    def draw(self) -> None:
        view = self.query_one(LineView)
        lines = self._render_page(max(view.size.width - 3, 20))
        view.set_lines(lines, self._palette)
        title: Line = [("bold ansiaccent", self._title)]
        self.query_one("#page-title", LinePanel).set_lines([title], self._palette)
        hint = f"{f'Enter {self._confirm} · ' if self._confirm else ''}↑ ↓ PgUp PgDn scroll · Esc closes"
        lines = wrap([("dim", hint)], max(view.size.width - 3, 20))
        self.query_one("#page-hint", LinePanel).set_lines(lines, self._palette)

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key) and self.press(event.key):
            event.stop()
            event.prevent_default()
            return
        await super().on_event(event)

    def press(self, key: str) -> bool:
        view = self.query_one(LineView)
        page = max(view.size.height - 2, 1)
        steps: Mapping[str, int] = {
            "up": -1, "k": -1, "down": 1, "j": 1, "pageup": -page, "ctrl+u": -page // 2, "b": -page,
            "pagedown": page, "ctrl+d": page // 2, "space": page, "home": -view.count, "g": -view.count,
            "end": view.count, "G": view.count,
        }  # fmt: skip
        if key in steps:
            view.go_to(view.top + steps[key])
        elif key == "enter" and self._confirm:
            self.dismiss(True)
        elif key in ("escape", "q", "ctrl+c", "enter"):
            self.dismiss(False)
        else:
            return False
        return True

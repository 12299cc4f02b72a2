"""The application of the full screen: transcript, panels, dialogs and prompt, drawn by Textual."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, ClassVar, Final, TypeVar

from msgspec import Struct
from textual.app import App, ComposeResult
from textual.containers import Horizontal, Vertical
from textual.css.query import NoMatches
from textual.screen import ModalScreen
from textual.theme import Theme
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input

from weft.model.permission import PermissionRequest, QuestionRequest
from weft.model.session import SessionTree
from weft.tui.chat import Chat
from weft.tui.clipboard import RunProgram
from weft.tui.commands import COMMANDS
from weft.tui.complete import Suggester
from weft.tui.dialog import render_choices, render_details
from weft.tui.full.widgets import (
    ChildPane,
    LinePanel,
    LineView,
    PromptArea,
    SearchField,
    SuggestionPanel,
    TranscriptView,
    append_history,
    read_history,
)
from weft.tui.keys import ACTIONS, EDITING, KeyActions, KeyMap
from weft.tui.overview import OverviewContext, render_overview, render_welcome
from weft.tui.render import LiveContext, render_live, squash
from weft.tui.text import Line, cut, measure, to_plain_text
from weft.tui.theme import ALIASES, WEFT, Palette
from weft.tui.view import SessionView

Answer = TypeVar("Answer")
# Wheel notches arrive as several arrow keys at once, because the terminal keeps the mouse for selecting. A person is slower.
WHEEL_SECONDS: Final = 0.012
MIN_SIDEBAR_WIDTH: Final = 110
SIDEBAR_WIDTH: Final = 34
TALL_TAIL: Final = 200
ALTERNATE_SCROLL: Final = "\x1b[?1007h"
NO_ALTERNATE_SCROLL: Final = "\x1b[?1007l"
NO_FOCUS_REPORTS: Final = "\x1b[?1004l"
# Commands that have a page or a list of their own here. With arguments they do the same as in inline mode.
PAGE_COMMANDS: Final[Mapping[str, str]] = {
    "/sessions": "session_list",
    "/resume": "session_list",
    "/model": "model_list",
    "/agent": "agent_list",
    "/undo": "messages_undo",
    "/redo": "messages_redo",
    "/diff": "diff_view",
    "/help": "help",
}
MAIN_ACTIONS: Final = tuple(action for action in ACTIONS if not action.startswith(("input_", "history_")))


class FullSettings(Struct, frozen=True, kw_only=True):
    """The theme and the keys that the configuration names, the themes of files, the history file, and who has the mouse.

    With `vi`, the prompt has the keys of vi.

    `run_editor` lets the person's editor change a file, `run_program` runs a program that copies.
    """

    theme: str = "weft"
    themes: Mapping[str, Palette] = {}
    keybinds: Mapping[str, str] = {}
    history: str | None = None
    mouse: bool = False
    vi: bool = False
    env: Mapping[str, str] = {}
    run_editor: Callable[[str], Awaitable[None]]
    run_program: RunProgram


class FullApp(App[None], inherit_bindings=False):
    """The application: it draws, and asks `actions` what a key does."""

    ENABLE_COMMAND_PALETTE = False
    CSS_PATH: ClassVar[Any] = "full.tcss"

    def __init__(
        self, chat: Chat, settings: FullSettings, make_actions: Callable[["FullApp"], KeyActions]
    ) -> None:
        super().__init__()
        self._disable_tooltips = self._disable_notifications = True  # each screen would have widgets for them
        self.chat = chat
        self.settings = settings
        self.keys = KeyMap(settings.keybinds)
        self.palettes = settings.themes
        self.palette = self.palettes.get(ALIASES.get(settings.theme, settings.theme), WEFT)
        # Before anything is drawn: Textual reads all styles anew when the theme changes.
        self.set_reactive(App.theme, self._register_palette(self.palette))
        self.stylesheet.set_variables(self.get_css_variables())
        self.family: SessionTree | None = None
        self.note = ""
        self.sidebar_wanted: bool | None = None  # None: if there is room for it
        self._make_actions = make_actions
        self._suggester = Suggester(chat, COMMANDS)
        self.history: list[str] = []
        self._recalled: int | None = None
        self._unsent = ""  # what was typed before an earlier prompt took its place
        self._draft: str | None = None  # what was typed when a request came
        self._arrow, self._arrows = "", 0
        self._arrow_timer: Timer | None = None
        # Most conversations need neither, so they are added when they are wanted.
        self._child: ChildPane | None = None
        self._search: SearchField | None = None
        self._searching = False
        self._loading_older = False

    @cached_property
    def _actions(self) -> KeyActions:
        # Made when the first key is pressed, so that the first frame comes earlier.
        return self._make_actions(self)

    # --- layout ---

    def compose(self) -> ComposeResult:
        with Horizontal(id="body"):
            with Vertical(id="main"):
                yield TranscriptView(id="transcript")
                yield LineView(id="details", background="panel")
                yield LinePanel(id="live")
                yield SuggestionPanel(id="suggestions", background="element")
                with Horizontal(id="prompt-row"):
                    yield LinePanel(id="prompt-mark", background="panel")
                    yield PromptArea(self.chat.pastes, id="prompt", vi=self.settings.vi)
            yield LineView(id="sidebar", background="panel")
        yield LinePanel(id="status", background="element")

    def on_mount(self) -> None:
        if self.settings.history is not None:
            self.history = read_history(self.settings.history)
        for view in self.query(LineView):
            view.can_focus = view.display = False  # until there is something to show in it
        while self.chat.early:
            self.prompt.set_text(self.chat.early.pop(0))
            self.submit(queued=False)
        self.prompt.set_text(self.chat.draft)
        self.give_focus(self.prompt)
        self.write(NO_FOCUS_REPORTS)  # nothing looks different without the focus
        if not self.settings.mouse:
            self.write(ALTERNATE_SCROLL)
        self.transcript.set_width(self.size.width)
        if ALIASES.get(self.settings.theme, self.settings.theme) not in self.palettes:
            self.note = f"no theme {self.settings.theme!r}; {self.keys.describe('theme_list')} lists them"
        self.sync()

    def on_unmount(self) -> None:
        if not self.settings.mouse:
            self.write(NO_ALTERNATE_SCROLL)

    @property
    def is_browsing(self) -> bool:
        """True if keys are for the transcript."""
        return self.focused is self.transcript

    def give_focus(self, widget: Widget) -> None:
        """Give the keys to a widget at once: `Widget.focus` does it later, and keys that follow would be lost."""
        self.screen.set_focus(widget)

    def write(self, sequence: str) -> None:
        """Write a sequence to the terminal itself."""
        if self._driver is not None:
            self._driver.write(sequence)

    @property
    def transcript(self) -> TranscriptView:
        return self.query_one("#transcript", TranscriptView)

    @property
    def suggestions(self) -> SuggestionPanel:
        return self.query_one("#suggestions", SuggestionPanel)

    @property
    def prompt(self) -> PromptArea:
        return self.query_one("#prompt", PromptArea)

    def set_palette(self, palette: Palette) -> None:
        """Draw everything in the colours of a theme."""
        self.palette, self.theme = palette, self._register_palette(palette)
        self.sync()

    def _register_palette(self, palette: Palette) -> str:
        """Make a theme known to Textual. Return its name there."""
        name = f"weft-{id(palette)}"
        self.register_theme(
            Theme(
                name=name, primary=palette.accent, accent=palette.accent, foreground=palette.text,
                background=palette.background, surface=palette.panel, panel=palette.element,
                success=palette.green, warning=palette.yellow, error=palette.red, dark=palette.dark,
                variables={
                    "weft-background": palette.background, "weft-panel": palette.panel, "weft-text": palette.text,
                    "weft-element": palette.element, "weft-border": palette.border, "weft-muted": palette.muted,
                },
            )
        )  # fmt: skip
        return name

    def get_theme_variable_defaults(self) -> dict[str, str]:
        names = ("background", "panel", "text", "element", "border", "muted")
        return {f"weft-{name}": getattr(WEFT, name) for name in names}

    # --- drawing ---

    def sync(self) -> None:
        """Show everything that is new since the last call."""
        with suppress(NoMatches):  # it is being opened or closed
            self._sync_transcript()
            self._sync_child()
            self._sync_request()
            self._sync_sidebar()
            self._sync_status()

    def _sync_transcript(self) -> None:
        view, transcript = self.chat.view, self.transcript
        tail = self._render_tail(view, transcript.lines.width)
        if view is None and not self.chat.items:
            tail = render_welcome(self.keys.describe, transcript.lines.width)
        transcript.sync(self.chat.items, tail, self.palette)

    def _render_tail(self, view: SessionView | None, width: int) -> list[Line]:
        context = LiveContext(
            width=width, height=TALL_TAIL, now=self.chat.setup.now(), queue=tuple(self.chat.queue) if view is self.chat.view else ()
        )  # fmt: skip
        return render_live(view, context)

    def _sync_child(self) -> None:
        pane, watched = self._child, self.chat.watched
        if pane is None and watched is not None:
            self._child = ChildPane(id="child")
            self.chat.start(self._add_child_pane(self._child))
        elif pane is not None:
            pane.display = watched is not None
        if pane is not None and watched is not None:
            transcript = pane.query_one(TranscriptView)
            transcript.sync(
                watched.items, self._render_tail(watched.view, transcript.lines.width), self.palette
            )
            state = "working" if watched.view.is_busy or watched.view.calls else "child session"
            head: Line = [("bold ansiaccent", squash(watched.view.status.title)), ("dim", f"  {state}")]
            pane.query_one(LinePanel).set_lines([cut(head, max(pane.size.width - 2, 1))], self.palette)

    async def _add_child_pane(self, pane: ChildPane) -> None:
        await self.query_one("#body").mount(pane, before="#sidebar")
        self.sync()

    def _sync_request(self) -> None:
        """Show the open request: its details can be scrolled, and its choices are always visible."""
        width = max(self.transcript.size.width - 2, 20)
        details, live = self.query_one("#details", LineView), self.query_one("#live", LinePanel)
        match self.chat.request:
            case PermissionRequest() as request:
                is_remote, view = self.chat.setup.is_remote, self.chat.view
                agent = None if is_remote or not view else view.find_agent(request)
                lines = render_details(request, width, agent=agent, limit=TALL_TAIL)
                details.styles.height = min(len(lines), max(self.size.height // 3, 3))
                details.set_lines(lines, self.palette)
                live.set_lines(render_choices(request, width, scopes=self.chat.setup.scopes), self.palette)
            case QuestionRequest():
                live.set_lines(self.chat.render_live(width, max(self.size.height // 2, 4)), self.palette)
            case None:
                live.set_lines([], self.palette)
        details.display = isinstance(self.chat.request, PermissionRequest)
        self._exchange_draft()
        mark = ("bold ansiyellow", "?") if self.chat.request else ("bold ansigreen", ">")
        self.query_one("#prompt-mark", LinePanel).set_lines([[mark]], self.palette)

    def _exchange_draft(self) -> None:
        """Put the draft of a prompt aside while a request is open, so that it is not sent as the answer."""
        if self.chat.request is not None and self._draft is None:
            self._draft = self.prompt.text
            self.prompt.set_text("")
        elif self.chat.request is None and self._draft is not None:
            draft, self._draft = self._draft, None
            self.set_draft(draft)

    def _sync_sidebar(self) -> None:
        sidebar = self.query_one("#sidebar", LineView)
        room = self.size.width >= MIN_SIDEBAR_WIDTH and self.chat.watched is None
        wanted = room if self.sidebar_wanted is None else self.sidebar_wanted
        sidebar.display = wanted and self.chat.view is not None
        if sidebar.display:
            sidebar.set_lines([[], *self.render_overview(SIDEBAR_WIDTH - 3)], self.palette)

    def render_overview(self, width: int) -> list[Line]:
        """Return context, cost, files, todos and child sessions; nothing if there is no session."""
        chat = self.chat
        if chat.view is None or chat.session is None:
            return []
        shown = str(chat.watched.view.session) if chat.watched else ""
        context = OverviewContext(
            width=width,
            session=chat.session,
            tree=self.family,
            sizes=chat.sizes,
            budget=chat.budget,
            shown_child=shown,
        )
        return render_overview(chat.view, context)

    def _sync_status(self) -> None:
        width = max(self.size.width - 2, 1)
        line = [("", text) for _, text in self.chat.render_status(width)]
        text = "".join(part for _, part in line).strip()
        if self.note:  # it is more important than the status
            note = cut([("ansiaccent", squash(self.note))], width)
            text = to_plain_text([cut([("", text)], max(width - measure(to_plain_text([note])) - 2, 0))])
        else:
            hints = self._list_hints()
            while hints and measure(text) + measure(" · ".join(hints)) + 2 > width:
                hints.pop()
            note = [("dim", " · ".join(hints))]
        space = " " * max(width - measure(text) - measure(to_plain_text([note])), 0)
        self.query_one("#status", LinePanel).set_lines([[("", text), ("", space), *note]], self.palette)

    def _list_hints(self) -> list[str]:
        """Return what can be pressed now, the most important first."""
        keys = self.keys.describe
        if self.keys.is_pending:
            return [f"{self.keys.leader} …"]
        if self._searching:
            return ["Enter finds", "Esc ends the search"]
        if self.is_browsing:
            return ["Esc back", "/ search", "⏎ fold", "y copy", "{ } prompts"]
        if self.prompt.is_normal:
            return ["vi: normal mode"]
        if not self.transcript.follows:
            return [f"{keys('messages_last').rpartition(', ')[2]} goes to the end"]
        if self.prompt.text or self.chat.is_busy:
            return []
        return [f"{keys('help')} keys", f"{keys('screen_switch')} inline", f"{keys('command_list')} commands"]

    def tell(self, note: str) -> None:
        """Say something at the end of the status line, until the next key."""
        self.note = note
        self.sync()

    # --- events ---

    def on_resize(self) -> None:
        self.call_after_refresh(self.sync)

    def on_text_area_changed(self) -> None:
        prompt = self.prompt
        rows = prompt.wrapped_document.height
        height = max(1, min(rows, self.size.height // 3))
        prompt.styles.height = height
        self.query_one("#prompt-row").styles.height = height
        if prompt.text or self.suggestions.is_open:
            self.chat.start(self._suggest(requested=False))

    def on_transcript_view_reached_top(self) -> None:
        if not self._loading_older:
            self._loading_older = True
            self.chat.start(self._load_older())

    async def _load_older(self) -> None:
        try:
            items = await self.chat.load_older()
            if items:
                self.transcript.load_older(items)
        finally:
            self._loading_older = False

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.id == "search":
            self.transcript.mark(event.value)

    # --- keys ---

    def press(self, key: str, character: str | None = None) -> bool:
        """Handle a key of the main screen. Return False if it is text for what has the focus."""
        self.note = ""
        is_taken = self.settings.mouse or self.suggestions.is_open or self.keys.is_pending
        if key in ("up", "down") and not is_taken:
            self._collect_arrow(key)
            return True
        self._flush_arrows()
        return self._press(key, character)

    def _press(self, key: str, character: str | None) -> bool:
        if self._searching:
            return self._press_search(key)
        if self.suggestions.is_open and self._press_suggestion(key):
            return True
        if not self.is_browsing and not self.keys.is_pending and self._press_vi(key, character):
            return True
        if key == "ctrl+c" and not self.prompt.text and self.chat.interrupt():
            # In OpenCode, both Ctrl-C and Ctrl-D leave. Here Ctrl-C interrupts a run, and only Ctrl-D leaves.
            return True
        action = self.keys.feed(key, self._list_active())
        if action is not None:
            if action:
                self._actions.run(action)
            self.sync()
            return True
        if self.is_browsing:
            handled = self._actions.browse(key)
            self.sync()
            return handled
        return self._edit(key)

    def _press_vi(self, key: str, character: str | None) -> bool:
        """Let the prompt handle a key as vi does. Return False if the key means nothing in vi."""
        effect = self.prompt.press_vi(key, character)
        if effect in ("previous", "next"):
            self.recall(-1 if effect == "previous" else 1)
        if effect is not None:
            self.sync()
        return effect is not None

    def _list_active(self) -> Sequence[str]:
        """Return the actions that a key may mean now, the nearest first."""
        if self.is_browsing:
            return [each for each in MAIN_ACTIONS if each not in ("agent_cycle", "agent_cycle_reverse")]
        own = ["input_submit", "input_newline"]
        if self.prompt.text:
            # Where OpenCode binds a key twice, what is being typed comes first: Ctrl-D deletes before it leaves.
            return [*own, "input_clear", *EDITING, *MAIN_ACTIONS]
        return [*own, *MAIN_ACTIONS, *EDITING]

    def _edit(self, key: str) -> bool:
        action = self.keys.feed(key, EDITING)
        if action:
            self.edit(action)
        return action is not None

    def edit(self, action: str) -> None:
        """Edit the prompt as an action of the key map says."""
        name, _, select = EDITING[action].partition("(")
        method: Callable[..., None] = getattr(self.prompt, f"action_{name}")
        method(True) if select else method()

    # --- arrows and the wheel ---

    def _collect_arrow(self, key: str) -> None:
        if self._arrow and self._arrow != key:
            self._flush_arrows()
        self._arrow, self._arrows = key, self._arrows + 1
        if self._arrow_timer is None:
            self._arrow_timer = self.set_timer(WHEEL_SECONDS, self._flush_arrows)

    def _flush_arrows(self) -> None:
        """Scroll by as many lines as arrows came at once. A single one was pressed by a person."""
        if self._arrow_timer is not None:
            self._arrow_timer.stop()
            self._arrow_timer = None
        key, count = self._arrow, self._arrows
        self._arrow, self._arrows = "", 0
        if count > 1:
            self.transcript.move(-count if key == "up" else count)
            self.sync()
        elif count == 1:
            self._move(key)

    def _move(self, key: str) -> None:
        """Move by one arrow: in the transcript, in the lines of the prompt, or to another prompt of the history."""
        prompt = self.prompt
        if self._searching:
            return
        if self.is_browsing:
            self._actions.browse(key)
        elif key == "up" and prompt.cursor_location[0] > 0:
            prompt.action_cursor_up()
        elif key == "down" and prompt.cursor_location[0] < prompt.document.line_count - 1:
            prompt.action_cursor_down()
        else:
            self.recall(-1 if key == "up" else 1)
        self.sync()

    def recall(self, step: int) -> None:
        """Show an earlier or a later prompt of the history."""
        if not self.history or (self._recalled is None and step > 0):
            return
        if self._recalled is None:
            self._unsent = self.prompt.text
        at = max((len(self.history) if self._recalled is None else self._recalled) + step, 0)
        self._recalled = at if at < len(self.history) else None
        self.prompt.set_text(self.history[at] if at < len(self.history) else self._unsent)

    # --- the prompt ---

    def submit(self, *, queued: bool) -> None:
        """Send what was typed, now or when the run has ended."""
        if self.prompt.text.endswith("\\") and not queued:
            self.prompt.action_delete_left()
            self.prompt.put("\n")
            return
        typed, pastes = self.prompt.take(), self.chat.pastes
        text, self._recalled = pastes.unfold(typed), None
        self.suggestions.clear()
        if text.strip() and self.chat.request is None:
            self.history.append(pastes.to_history(typed))
            if self.settings.history is not None:
                append_history(self.settings.history, self.history[-1], self.chat.setup.now())
        self.transcript.follows = True
        action = None if self.chat.request is not None else PAGE_COMMANDS.get(text.strip())
        if action is not None:
            self._actions.run(action)
        elif queued:
            self.chat.enqueue(text)
        else:
            self.chat.submit(text)

    def set_draft(self, text: str) -> None:
        with suppress(NoMatches):
            if not self.prompt.text:
                self.prompt.set_text(text)

    # --- suggestions ---

    async def _suggest(self, *, requested: bool) -> None:
        await asyncio.sleep(0)
        text = self.prompt.text_before_cursor
        found = await self._suggester.find(text, requested=requested) if text else []
        if text == self.prompt.text_before_cursor and not self._searching:
            exact = len(found) == 1 and text.endswith(found[0].text)
            self.suggestions.suggest([] if exact else found, self.palette)

    def suggest_now(self) -> None:
        """Suggest paths too: the person asked for it."""
        self.chat.start(self._suggest(requested=True))

    def _press_suggestion(self, key: str) -> bool:
        panel = self.suggestions
        if key == "enter" and panel.chosen is not None:
            chosen = panel.chosen
            panel.clear()
            with self.prompt.prevent(PromptArea.Changed):
                self.prompt.put(chosen.text, instead_of=chosen.length)
            return True
        return panel.press(key)

    # --- search in the transcript ---

    def begin_search(self) -> None:
        if self._search is None:
            self._search = SearchField(id="search", placeholder="search", compact=True)
            self.query_one("#main").mount(self._search, before="#prompt-row")
        field = self._search
        self._searching = field.display = True
        field.value = ""
        self.give_focus(field)

    def _press_search(self, key: str) -> bool:
        if key not in ("enter", "escape", "ctrl+c"):
            return False
        assert self._search is not None, "it has the focus"
        self._searching = self._search.display = False
        self.give_focus(self.transcript)
        # Read the field itself: Textual reports fast typing late.
        self.transcript.mark(self._search.value if key == "enter" else "")
        if self.transcript.words and not self.transcript.find(forward=False):
            self.tell(f"{self.transcript.words!r} was not found")
        self.sync()
        return True

    # --- dialogs ---

    async def ask(self, screen: ModalScreen[Answer]) -> Answer | None:
        """Show a dialog over the screen, and return its answer."""
        answered: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()

        def take(answer: Answer | None) -> None:
            if not answered.done():
                answered.set_result(answer)

        await self.push_screen(screen, take)
        answer = await answered
        self.sync()
        return answer

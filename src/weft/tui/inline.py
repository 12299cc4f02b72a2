"""Inline mode: the conversation is printed into the normal screen, with the live region and the prompt below it."""

import os
import sys
from collections.abc import AsyncGenerator, Iterable
from typing import Any, Final, TextIO

from prompt_toolkit.application import Application, get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.data_structures import Point, Size
from prompt_toolkit.document import Document
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import (
    Condition,
    has_completions,
    has_focus,
    is_searching,
    vi_mode,
    vi_navigation_mode,
)
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input import create_input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import (
    BufferControl,
    Dimension,
    Float,
    FloatContainer,
    FormattedTextControl,
    HSplit,
    Layout,
    Window,
)
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import BeforeInput, HighlightIncrementalSearchProcessor
from prompt_toolkit.layout.screen import Screen
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.widgets import SearchToolbar

from weft.tui.chat import NOTHING_RUNS, Chat
from weft.tui.commands import COMMANDS
from weft.tui.complete import Suggester
from weft.tui.live import BEGIN_SYNC, DEFAULT_SIZE, END_SYNC, ERASE_BELOW
from weft.tui.render import render_item
from weft.tui.text import Line, to_ansi
from weft.tui.view import Item

MENU_HEIGHT: Final = 6
VI_NORMAL: Final = "· vi: normal mode "
# How long to wait for the rest of a key that begins with Esc, in seconds.
ESCAPE_SECONDS: Final = 0.05
KEY_SECONDS: Final = 0.3


class InlineOutput(Vt100_Output):
    """A terminal that shows what is printed and the region below it at once, without flicker.

    prompt_toolkit switches bracketed paste off whenever it erases the region. Text that is pasted just then would be typed,
    and its first line end would send it. So it stays on until the end.
    """

    def __init__(self) -> None:
        super().__init__(_get_terminal(), _get_size, term=os.environ.get("TERM"), enable_cpr=False)
        self._is_held = False

    def disable_bracketed_paste(self) -> None:
        """Do nothing until the end."""

    def erase_down(self) -> None:
        """Erase from the row of the cursor on. prompt_toolkit does so at the beginning of a row."""
        self.write_raw(ERASE_BELOW)

    def hold(self) -> None:
        """Keep what is written until `release`."""
        self._is_held = True

    def flush(self) -> None:
        if not self._is_held:
            super().flush()

    def release(self) -> None:
        if self._is_held:
            self._is_held = False
            self.write_raw(END_SYNC)
            super().flush()

    def end(self) -> None:
        self.release()
        super().disable_bracketed_paste()
        super().flush()


class InlineCompleter(Completer):
    """Suggestions for the prompt."""

    def __init__(self, suggester: Suggester) -> None:
        self._suggester = suggester

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002  the signature of the library
        """Return nothing: completing is asynchronous."""
        return ()

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        requested = complete_event.completion_requested
        for each in await self._suggester.find(document.text_before_cursor, requested=requested):
            yield Completion(each.text, start_position=-each.length, display_meta=each.about)


class InlineApplication(Application[None]):
    """An application whose region is found again after the terminal became narrower.

    `in_tmux` says that the terminal breaks a row by the longest text that was ever in it, not by what is left of it.
    """

    def __init__(self, *, in_tmux: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self._in_tmux = in_tmux
        self._longest: dict[int, int] = {}  # the most columns that each row of the region has had, for tmux

    def _on_resize(self) -> None:
        self.find_region()
        super()._on_resize()

    def _redraw(self, render_as_done: bool = False) -> None:
        # While text is streamed, this may come before the signal.
        if self.find_region():
            self.renderer.erase(leave_alternate_screen=False)
        if self.renderer.last_rendered_screen is None:
            self._longest.clear()
        super()._redraw(render_as_done)
        screen = self.renderer.last_rendered_screen
        if self._in_tmux and screen is not None:
            for row in range(screen.height):
                self._longest[row] = max(self._longest.get(row, 0), _measure_row(screen, row))

    def find_region(self) -> bool:
        """Move the remembered cursor down by the rows that the terminal added when it broke long lines.

        prompt_toolkit counts rows as it drew them, and so would leave the top of the old region behind. Return False if the width
        is the same as before. Otherwise return True: the caller has to erase the region.
        """
        renderer = self.renderer
        screen, drawn = renderer.last_rendered_screen, renderer._last_size  # noqa: SLF001  there is no other way to know it
        columns = max(renderer.output.get_size().columns, 1)
        if screen is None or drawn is None or columns == drawn.columns:
            return False
        if "XTERM_VERSION" not in os.environ:
            at = renderer._cursor_pos  # noqa: SLF001  there is no other way to say where the region begins
            extra = sum(
                -(-max(_measure_row(screen, row), self._longest.get(row, 0)) // columns) - 1
                for row in range(at.y)
            )
            renderer._cursor_pos = Point(x=at.x, y=at.y + extra)  # noqa: SLF001  as above
        return True


def _measure_row(screen: Screen, row: int) -> int:
    """Return the number of columns of a row up to the end of its text, at least one."""
    return max((x for x, char in screen.data_buffer[row].items() if char.char.strip()), default=0) + 1


class InlineScreen:
    """A `ChatScreen` on a terminal, with prompt_toolkit. `history` is the file of everything that was typed."""

    def __init__(self, *, history: str | None = None, vi: bool = False, colour: bool = True) -> None:
        self._colour = colour
        self._output = InlineOutput()
        self._vi = vi
        self._history: History = FileHistory(history) if history is not None else InMemoryHistory()
        self._draft: str | None = None  # what was typed when a request came
        self._app: InlineApplication | None = None
        self._chat: Chat | None = None
        self._buffer: Buffer | None = None

    # --- the screen of a chat ---

    @property
    def is_full(self) -> bool:
        return False

    async def run(self, chat: Chat) -> None:
        self._app, self._chat = self._build(chat), chat
        while chat.early and self._buffer is not None:
            self._buffer.text = chat.early.pop(0)
            self._take(chat, self._buffer, queued=False)
        self.set_draft(chat.draft)
        self._app.after_render += lambda _: self._output.release()
        try:
            await self._app.run_async(handle_sigint=False)
        finally:
            self._output.end()

    async def show(self, items: list[Item], chat: Chat) -> None:
        """Print items above the region: erase it, print, and draw it again."""
        app, output = self._app, self._output
        options = chat.get_options(output.get_size().columns)
        lines = [to_ansi(line, colour=self._colour) for item in items for line in render_item(item, options)]
        if app is not None and app.is_running:
            output.hold()
            output.write_raw(BEGIN_SYNC)
            app.find_region()
            app.renderer.erase(leave_alternate_screen=False)
        text = "\n".join((*lines, ""))
        output.write_raw(text.replace("\n", "\r\n"))  # the terminal is in raw mode
        output.flush()
        self.refresh()

    def refresh(self) -> None:
        if self._app is not None and self._app.is_running:
            self._app.invalidate()

    def set_draft(self, text: str) -> None:
        if self._buffer is not None and not self._buffer.text:
            self._buffer.text = text
            self._buffer.cursor_position = len(text)

    def leave(self) -> None:
        if self._app is not None and self._app.is_running:
            if self._chat is not None and self._buffer is not None:
                self._chat.draft = self._buffer.text
            self._app.exit()

    # --- the layout ---

    def _build(self, chat: Chat) -> InlineApplication:
        buffer = self._buffer = Buffer(
            history=self._history,
            completer=InlineCompleter(Suggester(chat, COMMANDS)),
            complete_while_typing=True,
            multiline=True,
            tempfile_suffix=".md",
            name="prompt",
        )
        search = SearchToolbar(ignore_case=True)
        control = BufferControl(
            buffer=buffer,
            search_buffer_control=search.control,
            preview_search=True,
            input_processors=[
                HighlightIncrementalSearchProcessor(),
                BeforeInput(lambda: [("bold ansiyellow" if chat.request else "bold ansigreen", "> ")]),
            ],
        )
        live = Window(
            FormattedTextControl(lambda: _join(self._render_live(chat))),
            height=lambda: Dimension.exact(len(self._render_live(chat))),
            dont_extend_height=True,
        )
        prompt = Window(
            control,
            wrap_lines=True,
            dont_extend_height=True,
            height=lambda: Dimension(
                min=1 + _get_menu_height(buffer),
                max=max(self._get_rows() // 3, 1 + _get_menu_height(buffer), 2),
            ),
            get_line_prefix=lambda number, wrap: [("", "  ")] if number or wrap else [],
        )
        status = Window(FormattedTextControl(lambda: self._render_status(chat)), height=1)
        body = FloatContainer(
            HSplit([live, prompt, search, status]),
            [Float(CompletionsMenu(max_height=MENU_HEIGHT), xcursor=True, ycursor=True)],
        )
        app = InlineApplication(
            in_tmux="TMUX" in os.environ,
            layout=Layout(body, focused_element=prompt),
            key_bindings=self._bind(chat, buffer),
            editing_mode=EditingMode.VI if self._vi else EditingMode.EMACS,
            erase_when_done=True,
            mouse_support=False,
            enable_page_navigation_bindings=False,
            input=create_input(),
            output=self._output,
            min_redraw_interval=0.02,
        )
        app.ttimeoutlen, app.timeoutlen = ESCAPE_SECONDS, KEY_SECONDS
        return app

    def _render_live(self, chat: Chat) -> list[Line]:
        lines = chat.render_live(self._get_columns(), max(self._get_rows() // 2 - 1, 3))
        self._exchange_draft(chat)
        return lines

    def _render_status(self, chat: Chat) -> StyleAndTextTuples:
        mode = VI_NORMAL if self._vi and vi_navigation_mode() else ""
        return [*chat.render_status(self._get_columns() - len(mode)), ("reverse", mode)]

    def _exchange_draft(self, chat: Chat) -> None:
        """Put the draft of a prompt aside while a request is open, so that it is not sent as the answer."""
        buffer = self._buffer
        if buffer is None:
            return
        if chat.request is not None and self._draft is None:
            self._draft = buffer.text
            buffer.text = ""
        elif chat.request is None and self._draft is not None:
            draft, self._draft = self._draft, None
            self.set_draft(draft)

    def _get_columns(self) -> int:
        return get_app().output.get_size().columns

    def _get_rows(self) -> int:
        return get_app().output.get_size().rows

    # --- keys ---

    def _bind(self, chat: Chat, buffer: Buffer) -> KeyBindings:
        keys = KeyBindings()
        typing = has_focus(buffer) & ~is_searching
        completing = Condition(
            lambda: buffer.complete_state is not None and buffer.complete_state.current_completion is not None
        )

        @keys.add("enter", filter=typing & completing)
        def _accept_completion(_: KeyPressEvent) -> None:
            buffer.complete_state = None

        @keys.add("enter", filter=typing & ~completing)
        def _send(_: KeyPressEvent) -> None:
            if buffer.document.text_before_cursor.endswith("\\"):
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
                return
            self._take(chat, buffer, queued=False)

        @keys.add("c-q", filter=typing)
        def _queue(_: KeyPressEvent) -> None:
            self._take(chat, buffer, queued=True)

        @keys.add("escape", "enter", filter=typing)
        @keys.add("c-j", filter=typing)
        def _break_line(_: KeyPressEvent) -> None:
            buffer.insert_text("\n")

        @keys.add("tab", filter=typing)
        def _complete(_: KeyPressEvent) -> None:
            if buffer.complete_state:
                buffer.complete_next()
            else:
                buffer.start_completion(select_first=True)

        self._bind_session(keys, chat, buffer)
        return keys

    def _bind_session(self, keys: KeyBindings, chat: Chat, buffer: Buffer) -> None:
        typing = has_focus(buffer) & ~is_searching

        @keys.add("escape", filter=typing & ~vi_mode & ~has_completions)
        def _interrupt(_: KeyPressEvent) -> None:
            chat.interrupt()

        @keys.add("c-c", filter=~is_searching)  # in a search of the history it leaves the search
        def _clear_or_interrupt(_: KeyPressEvent) -> None:
            if buffer.text:
                buffer.reset()
            elif not chat.interrupt():
                chat.note(NOTHING_RUNS)

        @keys.add("<sigint>")
        def _interrupt_by_signal(_: KeyPressEvent) -> None:
            chat.interrupt()

        @keys.add("c-d", filter=typing & Condition(lambda: not buffer.text))
        def _leave(_: KeyPressEvent) -> None:
            self.leave()

        @keys.add("c-x", "c-e", filter=typing)
        @keys.add("c-x", "e", filter=typing)
        def _edit(_: KeyPressEvent) -> None:
            buffer.open_in_editor()

        @keys.add("c-x", "f", filter=typing)
        def _change_screen(_: KeyPressEvent) -> None:
            chat.change_screen()

        @keys.add("c-l")
        def _clear_screen(event: KeyPressEvent) -> None:
            event.app.renderer.clear()

        @keys.add(Keys.BracketedPaste, filter=typing)
        def _paste(event: KeyPressEvent) -> None:
            buffer.insert_text(chat.pastes.fold(event.data))

    def _take(self, chat: Chat, buffer: Buffer, *, queued: bool) -> None:
        """Hand over what was typed, with pasted text in full."""
        text = chat.pastes.unfold(buffer.text)
        stored = chat.pastes.to_history(buffer.text)
        if text.strip() and chat.request is None and [stored] != buffer.history.get_strings()[-1:]:
            buffer.history.append_string(stored)
        buffer.reset()
        get_app().vi_state.reset()  # a new prompt is typed, as in shells
        if queued:
            chat.enqueue(text)
        else:
            chat.submit(text)


def _get_menu_height(buffer: Buffer) -> int:
    """Return how many rows the suggestions need below the prompt."""
    return min(len(buffer.complete_state.completions), MENU_HEIGHT) if buffer.complete_state else 0


def _join(lines: list[Line]) -> StyleAndTextTuples:
    joined: StyleAndTextTuples = []
    for number, line in enumerate(lines):
        if number:
            joined.append(("", "\n"))
        joined += line
    return joined


def _get_terminal() -> TextIO:
    """Return the terminal itself: while the full screen is shown, `sys.stdout` belongs to Textual."""
    return sys.__stdout__ or sys.stdout


def _get_size() -> Size:
    columns, rows = os.get_terminal_size(_get_terminal().fileno())
    return Size(rows=rows or DEFAULT_SIZE.lines, columns=columns or DEFAULT_SIZE.columns)

"""Show a run on a terminal as Markdown, with a live region that is redrawn while the run goes on."""

import os
import sys
from typing import Any

from weft.cli.outcome import RunOutcome
from weft.cli.output import Paint, write_json
from weft.host.clock import Clock
from weft.model.display import describe_failure
from weft.model.event import Event
from weft.model.session import SessionInfo
from weft.tui.live import LiveOutput
from weft.tui.render import LiveContext, RenderOptions, render_item, render_live, render_plain
from weft.tui.text import to_plain_text
from weft.tui.view import Item, NoticeItem, PromptItem, SessionView

# Text is drawn at most this often (ms): every word of a fast model would cost more than it shows.
DRAW_INTERVAL = 40
MIN_LIVE_HEIGHT = 3


class LiveScreen:
    """For a person at a terminal: Markdown, calls with their outcome, and the end of the open text in a live region.

    If it is `plain`, each line is printed once, without colours, and there is no live region.
    """

    def __init__(self, session: SessionInfo, clock: Clock, *, plain: bool = False, undo: bool = True) -> None:
        self._view = SessionView(session.id)
        self._view.set_session(session)
        self._plain = plain
        self._undo = f"weft undo {session.id}" if undo else ""
        self._clock = clock
        self._output = LiveOutput(
            _write_out,
            lambda: os.get_terminal_size(sys.stdout.fileno()),
            colour=Paint(sys.stdout).on,
            reflows="XTERM_VERSION" not in os.environ,
        )
        self._drawn_at = 0
        self._items: list[Item] = []

    def feed(self, event: Event) -> None:
        self._view.feed(event)
        self._items += (each for each in self._view.take_settled() if not isinstance(each, PromptItem))
        if self._view.requests:
            # The person types an answer now, so nothing is drawn below the question.
            self._draw(live=False)
        elif self._items or self._clock.now() - self._drawn_at >= DRAW_INTERVAL:
            self._draw(live=True)

    def feed_child(self, event: Event) -> None:
        self.feed(event)

    def show_value(self, value: Any) -> None:
        self._draw(live=False)
        write_json(value)
        sys.stdout.flush()

    def end(self, outcome: RunOutcome) -> None:
        if outcome.error is not None and outcome.tally.failure is None:
            shown = any(isinstance(each, NoticeItem) and each.kind == "error" for each in self._items)
            if not shown:
                self._items.append(NoticeItem(kind="error", text=describe_failure(outcome.error)))
        self._draw(live=False)

    def _draw(self, *, live: bool) -> None:
        size = self._output.size
        options = RenderOptions(width=size.columns, undo=self._undo)
        items, self._items = self._items, []
        if self._plain:
            _write_out(
                "".join(
                    f"{to_plain_text([line])}\n" for item in items for line in render_plain(item, options)
                )
            )
            return
        lines = [line for item in items for line in render_item(item, options)]
        self._drawn_at = self._clock.now()
        height = max(MIN_LIVE_HEIGHT, size.lines // 2)
        context = LiveContext(width=size.columns, height=height, now=self._drawn_at)
        self._output.update(lines, render_live(self._view, context) if live else ())


def _write_out(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()

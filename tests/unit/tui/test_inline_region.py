"""The region of inline mode is found again when the terminal has another width."""

import io

import pytest
from prompt_toolkit.application.current import set_app
from prompt_toolkit.data_structures import Point, Size
from prompt_toolkit.input import DummyInput
from prompt_toolkit.layout import FormattedTextControl, Layout, Window
from prompt_toolkit.output.vt100 import Vt100_Output

from weft.tui.inline import InlineApplication


@pytest.mark.parametrize(("columns", "erased"), [(40, ""), (20, "\x1b[4A\x1b[J"), (14, "\x1b[6A\x1b[J")])
def test_a_redraw_before_the_resize_signal_erases_the_whole_old_region(columns: int, erased: str) -> None:
    sizes = [Size(rows=20, columns=40)]
    written = io.StringIO()
    output = Vt100_Output(written, lambda: sizes[-1], enable_cpr=False)
    text = f"{'x' * 30}\n{'y' * 30}\nz"
    control = FormattedTextControl(text, get_cursor_position=lambda: Point(0, 2), focusable=True)
    app = InlineApplication(layout=Layout(Window(control)), input=DummyInput(), output=output)
    app._redraw()
    with set_app(app):
        app.renderer.render(app, app.layout)
    sizes.append(Size(rows=20, columns=columns))
    drawn = written.tell()
    app._redraw()
    assert written.getvalue()[drawn:].startswith(erased)
    assert bool(written.getvalue()[drawn:]) is bool(erased)

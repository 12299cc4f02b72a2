"""Vi keys of the full screen: what commands do, that they agree with those of inline mode, and that nothing breaks them."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import BufferControl, Layout, Window
from prompt_toolkit.output import DummyOutput

from weft.tui.vi import ViKeys, ViResult

TEXT = "the quick (brown fox) jumps\n  over 'the lazy' dog\nagain"


def type_keys(keys: str, text: str, cursor: int = 0) -> tuple[str, int, bool]:
    """Type keys in normal mode. Return the text, the cursor and whether text would be inserted now."""
    vi, typed = ViKeys(), ViResult(text, cursor)
    vi.is_inserting = False
    for key in keys:
        if vi.is_inserting:
            typed = ViResult(typed.text[: typed.cursor] + key + typed.text[typed.cursor :], typed.cursor + 1)
        else:
            typed = vi.feed(key, typed.text, typed.cursor)
    return typed.text, typed.cursor, vi.is_inserting


@pytest.mark.parametrize(
    ("keys", "text", "expected"),
    [
        ("x", "abc", ("bc", 0, False)),
        ("2x", "abc", ("c", 0, False)),
        ("wD", "one two", ("one ", 3, False)),
        ("dw", "one two", ("two", 0, False)),
        ("wdb", "one two", ("two", 0, False)),
        ("cwnew", "one two", ("new two", 3, True)),
        ("wciwnew", "one two", ("one new", 7, True)),
        ("fndt ", "one two", ("o two", 1, False)),
        ("f(ci(x", "f(one)", ("f(x)", 3, True)),
        ('f"da"', 'a "b c" d', ("a  d", 2, False)),
        ("yyp", "one\ntwo", ("one\none\ntwo", 4, False)),
        ("ddp", "one\ntwo", ("two\none", 4, False)),
        ("Gdd", "one\ntwo", ("one", 0, False)),
        ("ywP", "one two", ("one one two", 3, False)),
        ("oline", "one", ("one\nline", 8, True)),
        ("Oline", "one", ("line\none", 4, True)),
        ("A!", "one", ("one!", 4, True)),
        ("$rx", "one", ("onx", 2, False)),
        ("3~", "one", ("ONE", 2, False)),
        ("J", "one\n  two", ("one two", 3, False)),
        ("q", "one", ("one", 0, False)),
    ],
)
def test_vi_commands_change_the_text(keys: str, text: str, expected: tuple[str, int, bool]) -> None:
    assert type_keys(keys, text) == expected


def test_moving_beyond_the_first_or_last_line_selects_another_prompt() -> None:
    vi = ViKeys()
    assert vi.leave_insert("one\ntwo", 5) == ViResult("one\ntwo", 4)
    assert vi.feed("j", "one\ntwo", 4) == ViResult("one\ntwo", 4, "next")
    assert vi.feed("k", "one\ntwo", 4) == ViResult("one\ntwo", 0)
    assert vi.feed("k", "one\ntwo", 0) == ViResult("one\ntwo", 0, "previous")
    assert vi.feed("u", "one\ntwo", 0) == ViResult("one\ntwo", 0, "undo")


@pytest.mark.parametrize(
    "keys",
    [
        "w",
        "3w",
        "W",
        "b",
        "fkb",
        "e",
        "E",
        "$",
        "0",
        "j^",
        "jw",
        "G",
        "gg",
        "fqx",
        "ft;x",
        "x",
        "3x",
        "X",
        "D",
        "wD",
        "dw",
        "2dw",
        "wde",
        "jwdiw",
        "d$",
        "dd",
        "2dd",
        "yyp",
        "yyP",
        "ywwP",
        "wdwbP",
        "fxx",
        "f(di(",
        "f(da(",
        "wCabc",
        "Sabc",
        "oabc",
        "Aabc",
        "jIabc",
        "sabc",
        "rz",
        "jdgg",
        "wdtk",
        "f)dF(",
    ],
)
# Left out is where prompt_toolkit differs from vi: `cw` with the space after the word, `O` and `cc` with indentation, `~` and `dG`.
async def test_our_vi_commands_agree_with_those_of_inline_mode(keys: str) -> None:
    text, cursor, _ = type_keys(keys, TEXT)
    buffer, bindings = Buffer(), KeyBindings()
    buffer.text, buffer.cursor_position = TEXT, 0

    @bindings.add("c-q")
    def leave(event: KeyPressEvent) -> None:
        event.app.exit()

    with create_pipe_input() as pipe:
        app: Application[None] = Application(
            layout=Layout(Window(BufferControl(buffer))),
            key_bindings=bindings,
            editing_mode=EditingMode.VI,
            input=pipe,
            output=DummyOutput(),
        )
        app.ttimeoutlen = app.timeoutlen = 0.01

        def begin() -> None:
            app.vi_state.input_mode = type(app.vi_state.input_mode).NAVIGATION
            pipe.send_text(f"{keys}\x11")

        async with asyncio.timeout(30):
            await app.run_async(pre_run=begin)
    assert (buffer.text, buffer.cursor_position) == (text, cursor)


@given(
    text=st.text(alphabet="ab (\"')\n", max_size=20),
    keys=st.lists(st.sampled_from("dcyiawbeWBE0^$ggGfFtTr;,hjklxXDCsSYpPuJ~oOAI2309(\"' "), max_size=12),
)
def test_the_cursor_stays_in_the_text_whatever_is_typed(text: str, keys: list[str]) -> None:
    vi, typed = ViKeys(), ViResult(text, 0)
    typed = vi.leave_insert(typed.text, typed.cursor)
    for key in keys:
        if vi.is_inserting:
            typed = vi.leave_insert(typed.text, typed.cursor)
        typed = vi.feed(key, typed.text, typed.cursor)
        assert 0 <= typed.cursor <= len(typed.text)
